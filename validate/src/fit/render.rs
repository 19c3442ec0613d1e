//! A fit as a device's file, and how good it is.

use std::fmt::Write;

use vramlab_sim::device::profile::Profile;

use super::{Fit, Fitted};
use crate::failure::{Code, Failure};
use crate::output::{Format, table, time};

/// A text in TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// The device's file, as `sim/devices/*.toml`.
pub(super) fn device_file(fit: &Fit, name: &str, based_on: &str) -> Result<String, Failure> {
    let head = &fit.head;
    let measured = format!("measured on {} with CUDA driver {}", head.device, head.driver);
    let mut text = format!(
        "# {measured}, {}, by vramlab-validate fit. Prices are medians; low and high: tenth and ninetieth percentile.\n# What is not here was not measured, or costs nothing that could be seen: it is the base device's.\n\n",
        head.date
    );
    let mut line = |what: std::fmt::Arguments<'_>| {
        let _ = text.write_fmt(what);
        text.push('\n');
    };
    line(format_args!("name = {}", quoted(name)));
    line(format_args!("title = {}", quoted(&head.device)));
    line(format_args!("based_on = {}\n", quoted(based_on)));
    line(format_args!("[cost_table]\nname = {}", quoted(&format!("{measured}, {}", head.date))));
    line(format_args!("measured = true\n\n[memory]"));
    let seen = |unit: &str, value: f64, low_high: Option<(f64, f64)>, source: &str| {
        let range = low_high.map_or_else(String::new, |(low, high)| {
            format!(", low = {}, high = {}", number(low), number(high))
        });
        format!(
            "{{ value = {}, unit = \"{unit}\"{range}, source = {}, date = {}, trust = \"M\" }}",
            number(value),
            quoted(source),
            quoted(&head.date)
        )
    };
    line(format_args!(
        "capacity = {}",
        seen("B", head.capacity as f64, None, "cuMemGetInfo, total")
    ));
    line(format_args!(
        "granule = {}",
        seen("B", head.granule as f64, None, "cuMemGetAllocationGranularity")
    ));
    if let Some(pack) = head.pack_small {
        line(format_args!("pack_small = {pack}"));
    }
    for link in &fit.links {
        let Fitted { name, line: fitted, n, .. } = link;
        line(format_args!("\n[link.{name}]"));
        if fitted.slope > 0.0 {
            let rate = 1e9 / fitted.slope;
            let off = fitted.slope_error / fitted.slope * 100.0;
            let source = format!("measured: {n} copies of {} sizes; ± {off:.1} %", fitted.points);
            line(format_args!("bandwidth = {}", seen("B/s", rate, None, &source)));
        }
        let source = format!("measured: ± {}", time(fitted.base_error));
        line(format_args!("latency = {}", seen("ns", fitted.base, None, &source)));
    }
    for Fitted { name, line: fitted, spread, n } in &fit.prices {
        line(format_args!("\n[cost.{name}]"));
        for (key, value, error) in [
            ("base", fitted.base, fitted.base_error),
            ("per_granule", fitted.slope, fitted.slope_error),
        ] {
            if error > 0.0 {
                let range = Some((value * spread.0, value * spread.1));
                let points = fitted.points;
                let source = format!("measured: {n} calls at {points} sizes; ± {}", time(error));
                line(format_args!("{key} = {}", seen("ns", value, range, &source)));
            }
        }
    }
    // what is written must be read again
    Profile::parse(&text).map_err(|error| {
        Failure::usage(format!(
            "these measurements and --based-on {based_on} make no device's file: {error}"
        ))
    })?;
    Ok(text)
}

/// With a dot, as TOML's floats have one or not; rounded to a tenth below a million.
fn number(value: f64) -> String {
    if value >= 1e6 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// How good the fit is, price by price.
pub(super) fn goodness(fit: &Fit, format: Format) -> Result<String, Failure> {
    if format == Format::Json {
        let objects = fit.prices.iter().chain(&fit.links).map(|fitted| {
            let line = fitted.line;
            serde_json::json!({
                "what": fitted.name, "base_ns": line.base, "base_error_ns": line.base_error,
                "slope_ns": line.slope, "slope_error_ns": line.slope_error, "sizes": line.points,
                "calls": fitted.n, "r2": line.r2, "median_off": line.off.0, "largest_off": line.off.1,
                "p10": fitted.spread.0, "p90": fitted.spread.1,
            })
        });
        let lines: Result<Vec<_>, _> =
            objects.map(|object| serde_json::to_string(&object)).collect();
        return lines.map(|l| l.join("\n")).map_err(|e| Failure::new(Code::CannotWrite, e));
    }
    let titles = [
        "what<",
        "base",
        "±",
        "per granule, block or MiB",
        "±",
        "sizes",
        "calls",
        "R2",
        "median off",
        "largest off",
        "p10",
        "p90",
    ];
    let row = |fitted: &Fitted, unit: f64| {
        let line = &fitted.line;
        let flat = line.slope_error <= 0.0;
        let slope = |value: f64| if flat { "-".to_owned() } else { time(value * unit) };
        vec![
            fitted.name.to_owned(),
            time(line.base),
            time(line.base_error),
            slope(line.slope),
            slope(line.slope_error),
            line.points.to_string(),
            fitted.n.to_string(),
            if flat { "-".to_owned() } else { format!("{:.4}", line.r2) },
            format!("{:.1} %", line.off.0 * 100.0),
            format!("{:.1} %", line.off.1 * 100.0),
            format!("{:.2}", fitted.spread.0),
            format!("{:.2}", fitted.spread.1),
        ]
    };
    let rows: Vec<Vec<String>> = fit
        .prices
        .iter()
        .map(|fitted| row(fitted, 1.0))
        .chain(fit.links.iter().map(|fitted| row(fitted, 1_048_576.0)))
        .collect();
    let head = &fit.head;
    Ok(format!(
        "{}, CUDA driver {}, {}: {} prices, {} links\n\n{}\n\n±: three standard errors. off: distance of a median from the line. p10, p90: over the median.",
        head.device,
        head.driver,
        head.date,
        fit.prices.len(),
        fit.links.len(),
        table(&titles, &rows, format == Format::Markdown)
    ))
}
