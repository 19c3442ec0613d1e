//! A line with two coefficients that are not negative, by weighted least squares.

/// A measured median.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// What the base price is multiplied with.
    pub(crate) base: f64,
    /// What the slope is multiplied with.
    pub(crate) slope: f64,
    /// ns.
    pub(crate) y: f64,
    /// Its standard error, above 0.
    pub(crate) error: f64,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) base: f64,
    pub(crate) slope: f64,
    /// Three standard errors of each.
    pub(crate) base_error: f64,
    pub(crate) slope_error: f64,
    pub(crate) points: usize,
    /// Coefficient of determination; 1 for a flat price.
    pub(crate) r2: f64,
    /// Median and largest distance of a point from the line, over the point.
    pub(crate) off: (f64, f64),
}

impl Line {
    fn at(&self, point: &Point) -> f64 {
        self.base * point.base + self.slope * point.slope
    }
}

/// Fits a line; `None` if there is nothing to be fitted.
pub(crate) fn fit_line(points: &[Point]) -> Option<Line> {
    if points.iter().all(|point| point.y <= 0.0) {
        return None;
    }
    let has_base = points.iter().any(|point| point.base > 0.0);
    let first = points.first()?;
    let parallel = |p: &Point| (p.slope * first.base - p.base * first.slope).abs() < 1e-9;
    let has_slope =
        points.iter().any(|point| point.slope > 0.0) && (!has_base || !points.iter().all(parallel));
    let both = || solve(points, true, true).filter(|line| line.base >= 0.0 && line.slope >= 0.0);
    let alone = |base: bool| solve(points, base, !base);
    let line = match (has_base, has_slope) {
        (true, true) => both().or_else(|| {
            // one of them is 0: the one whose line is nearer stays
            let lines = [alone(true), alone(false)].into_iter().flatten();
            lines.min_by(|a, b| misfit(points, a).total_cmp(&misfit(points, b)))
        }),
        (true, false) => alone(true),
        (false, _) => alone(false),
    }?;
    let line = judged(points, line);
    if has_base && line.slope > 0.0 && line.slope <= line.slope_error {
        return alone(true).map(|line| judged(points, line));
    }
    Some(line)
}

/// Squares of the distances, in standard errors.
fn misfit(points: &[Point], line: &Line) -> f64 {
    points.iter().map(|p| ((p.y - line.at(p)) / p.error).powi(2)).sum()
}

fn solve(points: &[Point], with_base: bool, with_slope: bool) -> Option<Line> {
    let (mut aa, mut ab, mut bb, mut ay, mut by) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for point in points {
        let weight = point.error.powi(-2);
        let a = if with_base { point.base } else { 0.0 };
        let b = if with_slope { point.slope } else { 0.0 };
        aa += weight * a * a;
        ab += weight * a * b;
        bb += weight * b * b;
        ay += weight * a * point.y;
        by += weight * b * point.y;
    }
    let empty = Line {
        base: 0.0,
        slope: 0.0,
        base_error: 0.0,
        slope_error: 0.0,
        points: points.len(),
        r2: 1.0,
        off: (0.0, 0.0),
    };
    match (with_base, with_slope) {
        (true, true) => {
            let det = aa * bb - ab * ab;
            (det > aa * bb * 1e-12).then(|| Line {
                base: (ay * bb - by * ab) / det,
                slope: (by * aa - ay * ab) / det,
                base_error: (bb / det).sqrt(),
                slope_error: (aa / det).sqrt(),
                ..empty
            })
        }
        (true, false) => {
            (aa > 0.0).then(|| Line { base: ay / aa, base_error: aa.sqrt().recip(), ..empty })
        }
        _ => (bb > 0.0).then(|| Line { slope: by / bb, slope_error: bb.sqrt().recip(), ..empty }),
    }
}

/// The line with its errors and how good it is.
fn judged(points: &[Point], line: Line) -> Line {
    let coefficients = usize::from(line.base_error > 0.0) + usize::from(line.slope_error > 0.0);
    let free = points.len().saturating_sub(coefficients);
    let wider = if free > 0 { (misfit(points, &line) / free as f64).sqrt().max(1.0) } else { 1.0 };
    let mean = points.iter().map(|p| p.y).sum::<f64>() / points.len() as f64;
    let squares = |of: &dyn Fn(&Point) -> f64| points.iter().map(|p| of(p).powi(2)).sum::<f64>();
    let (around, about) = (squares(&|p| p.y - mean), squares(&|p| p.y - line.at(p)));
    let mut off: Vec<f64> =
        points.iter().filter(|p| p.y > 0.0).map(|p| ((line.at(p) - p.y) / p.y).abs()).collect();
    off.sort_by(f64::total_cmp);
    Line {
        base_error: 3.0 * wider * line.base_error,
        slope_error: 3.0 * wider * line.slope_error,
        r2: if line.slope > 0.0 && around > 0.0 { 1.0 - about / around } else { 1.0 },
        off: (off.get(off.len() / 2).copied().unwrap_or(0.0), off.last().copied().unwrap_or(0.0)),
        ..line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: impl Fn(f64) -> f64) -> Vec<Point> {
        let point = |x: f64| Point { base: 1.0, slope: x, y: of(x), error: of(x).max(1.0) * 0.01 };
        [1.0, 4.0, 16.0, 64.0].map(point).to_vec()
    }

    #[test]
    fn two_coefficients_are_found() {
        let line = fit_line(&points(|x| 50_000.0 + 332.0 * x)).expect("a line");
        assert!((line.base - 50_000.0).abs() < 1e-6 && (line.slope - 332.0).abs() < 1e-6);
        assert!(line.r2 > 0.999_999 && line.off.1 < 1e-9);
        assert!(line.base_error > 0.0 && line.base_error < 3000.0);
    }

    #[test]
    fn what_would_be_negative_is_left_out() {
        let line = fit_line(&points(|x| 5000.0 - 10.0 * x)).expect("a line");
        assert!(line.slope.abs() < 1e-9 && line.base > 4000.0, "{line:?}");
        let line = fit_line(&points(|x| (100.0 * x - 50.0).max(1.0))).expect("a line");
        assert!(line.base.abs() < 1e-9 && (50.0..100.0).contains(&line.slope), "{line:?}");
    }

    #[test]
    fn one_size_gives_a_flat_price_and_nothing_gives_none() {
        let one = Point { base: 1.0, slope: 8.0, y: 7.0, error: 1.0 };
        let line = fit_line(&[one, one]).expect("a line");
        assert!((line.base - 7.0).abs() < 1e-9 && line.slope.abs() < 1e-9);
        assert_eq!(fit_line(&[Point { y: 0.0, ..one }]), None);
        assert_eq!(fit_line(&[]), None);
    }
}
