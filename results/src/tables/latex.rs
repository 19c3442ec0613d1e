//! Tables for LaTeX: `\usepackage{booktabs}` is all that they need.

use super::page::{CLAIM_TITLES, Page};

/// A whole table: one `table` for the claims, one for each listing.
pub fn latex(page: &Page) -> String {
    let mut text = format!("% {}\n", page.notes().join("\n% "));
    if !page.claims.is_empty() {
        let cells: Vec<Vec<String>> = page.claims.iter().map(Page::claim_cells).collect();
        let widths =
            "r p{0.34\\linewidth} p{0.16\\linewidth} p{0.14\\linewidth} p{0.18\\linewidth}";
        let titles: Vec<String> = CLAIM_TITLES.iter().map(|title| (*title).to_owned()).collect();
        text += &tabular(&page.title, &format!("tab:{}", page.name), widths, &titles, &cells);
    }
    for (index, listing) in page.listings.iter().enumerate() {
        let titles = Page::listing_titles(listing);
        let columns = format!("p{{0.3\\linewidth}}{}", "r".repeat(titles.len() - 1));
        let label = format!("tab:{}:{}", page.name, index + 1);
        text += &tabular(&listing.title, &label, &columns, &titles, &Page::listing_cells(listing));
    }
    text
}

/// Tables of more columns than this are set smaller.
const WIDE: usize = 5;

fn tabular(
    caption: &str,
    label: &str,
    columns: &str,
    titles: &[String],
    rows: &[Vec<String>],
) -> String {
    let line = |cells: &[String]| {
        cells.iter().map(|cell| escape(cell)).collect::<Vec<_>>().join(" & ") + " \\\\\n"
    };
    let titles: Vec<String> = titles.iter().map(|t| t.trim_end_matches('<').to_owned()).collect();
    let size = if titles.len() > WIDE { "\\scriptsize" } else { "\\footnotesize" };
    let body: String = rows.iter().map(|cells| line(cells)).collect();
    format!(
        "\\begin{{table}}\n\\centering{size}\\setlength{{\\tabcolsep}}{{3pt}}\n\\caption{{{}}}\n\\label{{{label}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{}\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n",
        escape(caption),
        line(&titles)
    )
}

/// Text as LaTeX prints it.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("$<$"),
            '>' => out.push_str("$>$"),
            '|' => out.push_str("$|$"),
            '±' => out.push_str("$\\pm$"),
            '×' => out.push_str("$\\times$"),
            '·' => out.push_str("$\\cdot$"),
            'µ' | 'μ' => out.push_str("$\\mu$"),
            '−' => out.push_str("$-$"),
            '≤' => out.push_str("$\\le$"),
            '≥' => out.push_str("$\\ge$"),
            '≈' => out.push_str("$\\approx$"),
            '–' => out.push_str("--"),
            '…' => out.push_str("\\ldots{}"),
            '"' => out.push_str("''"),
            c if c.is_ascii() || ('\u{c0}'..='\u{ff}').contains(&c) => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_latex_would_take_for_commands_is_escaped() {
        assert_eq!(
            escape("50 % of a_b & {c} #1 $2 x^2"),
            "50 \\% of a\\_b \\& \\{c\\} \\#1 \\$2 x\\textasciicircum{}2"
        );
        assert_eq!(escape("a < b ± 3 µs…"), "a $<$ b $\\pm$ 3 $\\mu$s\\ldots{}");
        assert_eq!(escape("été 中"), "été ?");
    }
}
