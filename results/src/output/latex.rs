//! Tables for LaTeX: `\usepackage{booktabs}` is all that they need.
//!
//! A line of an article has 345 pt. A table is set in `\footnotesize` if it fits, else in `\scriptsize`; one that is wider still, or has more rows than a page,
//! is cut into parts that repeat its first column. Widths are estimated from characters, on the safe side.
//!
//! What a command prints as Markdown it prints for LaTeX too ([`of_markdown`]): tables become such tables, headings their captions, other lines text.

/// Width of a line of an article (pt).
const LINE_PT: f64 = 345.0;
/// Between two columns (pt): `\tabcolsep` on both sides.
const GAP_PT: f64 = 6.0;
/// Sizes with the width of a character (pt), of a digit or a letter that is not wide.
const SIZES: [(&str, f64); 2] = [("\\footnotesize", 4.6), ("\\scriptsize", 4.3)];
/// Width of such a character (em).
const EM: f64 = 0.53;
/// Lines of a part: what a page has room for, beside caption and titles.
const LINES_MAX: usize = 48;
/// A column of words is no wider than so many characters; longer ones are broken.
const WORDS_MAX: usize = 26;

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Column {
    /// Figures, to the right.
    Figures,
    /// Words, broken where they are long.
    Words,
    /// Words, as this share of the line.
    Share(f64),
}

/// A table, as wide and long as it is.
pub(crate) struct Latex<'a> {
    /// Above it; empty for none.
    pub(crate) caption: &'a str,
    /// Under which it can be referred to; empty for none.
    pub(crate) label: &'a str,
    /// Of its columns.
    pub(crate) titles: &'a [String],
    /// One for each title.
    pub(crate) columns: &'a [Column],
    /// Cells, line by line.
    pub(crate) rows: &'a [Vec<String>],
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

impl Latex<'_> {
    /// As one `table`, or several.
    pub(crate) fn print(&self) -> String {
        let all: Vec<usize> = (0..self.titles.len()).collect();
        let fits = |at: &[usize], char_pt: f64| self.width(at, char_pt) <= LINE_PT;
        let one = SIZES.iter().find(|(_, char_pt)| fits(&all, *char_pt));
        let (size, char_pt) = *one.unwrap_or(&SIZES[SIZES.len() - 1]);
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for column in all {
            match parts.last_mut() {
                Some(part) if fits(&[part.as_slice(), &[column]].concat(), char_pt) => {
                    part.push(column);
                }
                Some(_) => parts.push(vec![0, column]),
                None => parts.push(vec![column]),
            }
        }
        let chunks = self.chunks(char_pt);
        let count = parts.len() * chunks.len();
        let mut text = String::new();
        let mut number = 0;
        for part in &parts {
            for rows in &chunks {
                number += 1;
                text += &self.piece(size, part, rows, (count > 1).then_some((number, count)));
            }
        }
        text
    }

    /// Rows that fit on a page, each as high as its longest cell needs.
    fn chunks(&self, char_pt: f64) -> Vec<&[Vec<String>]> {
        let lines = |row: &Vec<String>| {
            let of = |(column, cell): (&Column, &String)| match column {
                Column::Figures => 1,
                Column::Words => chars(cell).div_ceil(WORDS_MAX),
                Column::Share(share) => {
                    (chars(cell) as f64 * char_pt / (share * LINE_PT)).ceil() as usize
                }
            };
            self.columns.iter().zip(row).map(of).max().unwrap_or(1).max(1)
        };
        let (mut chunks, mut begin, mut high) = (Vec::new(), 0, 0);
        for (at, row) in self.rows.iter().enumerate() {
            let more = lines(row);
            if high + more > LINES_MAX && at > begin {
                chunks.push(&self.rows[begin..at]);
                (begin, high) = (at, 0);
            }
            high += more;
        }
        chunks.push(&self.rows[begin..]);
        chunks
    }

    /// Characters of a column's widest cell.
    fn cell(&self, column: usize) -> usize {
        self.rows.iter().map(|row| chars(&row[column])).max().unwrap_or(0)
    }

    /// Characters of a column: its title is broken to lines no longer than its cells, if its words allow it.
    fn figures(&self, column: usize) -> usize {
        let words = self.titles[column].split(' ').map(chars).max();
        self.cell(column).max(words.unwrap_or(0))
    }

    /// Estimated (pt).
    fn width(&self, columns: &[usize], char_pt: f64) -> f64 {
        let of = |column: &usize| match self.columns[*column] {
            Column::Figures => self.figures(*column) as f64 * char_pt,
            Column::Words => {
                self.cell(*column).max(chars(&self.titles[*column])).min(WORDS_MAX) as f64 * char_pt
            }
            Column::Share(share) => share * LINE_PT,
        };
        columns.iter().map(|column| of(column) + GAP_PT).sum()
    }

    fn piece(
        &self,
        size: &str,
        columns: &[usize],
        rows: &[Vec<String>],
        number: Option<(usize, usize)>,
    ) -> String {
        let long = |column: usize| self.cell(column) > WORDS_MAX;
        let layout = columns.iter().map(|column| match self.columns[*column] {
            Column::Figures => "r".to_owned(),
            Column::Words if long(*column) => format!("p{{{:.1}em}}", WORDS_MAX as f64 * EM),
            Column::Words => "l".to_owned(),
            Column::Share(share) => format!("p{{{share}\\linewidth}}"),
        });
        let layout: String = layout.collect::<Vec<_>>().join(" ");
        let title = |column: &usize| match self.columns[*column] {
            Column::Figures => stacked(&self.titles[*column], self.figures(*column)),
            _ => escape(&self.titles[*column]),
        };
        let cell = |row: &[String], column: usize| match self.columns[column] {
            Column::Words if !long(column) => escape(&row[column]),
            Column::Figures => escape(&row[column]),
            _ => breakable(&escape(&row[column])),
        };
        let line = |cells: Vec<String>| cells.join(" & ") + " \\\\\n";
        let titles = line(columns.iter().map(title).collect());
        let body: String = rows
            .iter()
            .map(|row| line(columns.iter().map(|column| cell(row, *column)).collect()))
            .collect();
        let (mut caption, mut label) = (escape(self.caption), self.label.to_owned());
        if let Some((number, count)) = number {
            caption = format!("{caption} ({number} of {count})").trim_start().to_owned();
            if !label.is_empty() && number > 1 {
                label += &format!(":{number}");
            }
        }
        let given = |name: &str, text: &str| match text {
            "" => String::new(),
            text => format!("\\{name}{{{text}}}\n"),
        };
        format!(
            "\\begin{{table}}\n\\centering{size}\\sloppy\\setlength{{\\tabcolsep}}{{3pt}}\n{}{}\\begin{{tabular}}{{{layout}}}\n\\toprule\n{titles}\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n",
            given("caption", &caption),
            given("label", &label)
        )
    }
}

/// A title over figures, in lines of at most so many characters.
fn stacked(title: &str, most: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in title.split(' ') {
        match lines.last_mut() {
            Some(line) if chars(line) + 1 + chars(word) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
    match lines.as_slice() {
        [one] => one.clone(),
        lines => format!("\\shortstack[r]{{{}}}", lines.join("\\\\")),
    }
}

/// Escaped text whose long names may be broken.
fn breakable(escaped: &str) -> String {
    let mut out = String::with_capacity(escaped.len());
    let mut chars = escaped.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        let number = matches!(c, '.' | ',') && chars.peek().is_some_and(char::is_ascii_digit);
        if matches!(c, '_' | ',' | ':' | '=' | '.' | '/' | '+') && !number {
            out.push_str("\\allowbreak{}");
        }
    }
    out
}

/// Text as LaTeX prints it.
pub(crate) fn escape(text: &str) -> String {
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

/// What a command printed as Markdown, for LaTeX.
pub fn of_markdown(text: &str) -> String {
    let mut out = String::new();
    let mut heading = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix('#') {
            if !heading.is_empty() {
                out += &format!("\\paragraph{{{}}}\n", escape(&heading));
            }
            heading = words.trim_start_matches('#').trim().to_owned();
        } else if line.starts_with('|') && lines.peek().is_some_and(|next| is_rule(next)) {
            lines.next();
            let mut rows = Vec::new();
            while let Some(row) = lines.next_if(|next| next.starts_with('|')) {
                rows.push(cells(row));
            }
            out += &table(&heading, cells(line), rows);
            heading.clear();
        } else if !line.trim().is_empty() {
            if !heading.is_empty() {
                out += &format!("\\paragraph{{{}}}\n", escape(&heading));
                heading.clear();
            }
            let words = line.trim_start_matches("- ").replace('`', "");
            out += &format!(
                "{{\\noindent\\footnotesize\\sloppy {}\\par}}\n",
                breakable(&escape(&words))
            );
        }
    }
    if !heading.is_empty() {
        out += &format!("\\paragraph{{{}}}\n", escape(&heading));
    }
    out
}

/// The line between titles and cells.
fn is_rule(line: &str) -> bool {
    line.starts_with('|') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' ' | '+'))
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Columns of figures are told by their cells: each begins with a digit or a sign, or is empty.
fn table(caption: &str, titles: Vec<String>, mut rows: Vec<Vec<String>>) -> String {
    rows.iter_mut().for_each(|row| row.resize(titles.len(), String::new()));
    let figure = |cell: &str| {
        cell.is_empty()
            || cell == "-"
            || cell.trim_start_matches(['+', '-', '−']).starts_with(|c: char| c.is_ascii_digit())
    };
    let column = |at: usize| match rows.iter().all(|row| figure(&row[at])) && !rows.is_empty() {
        true => Column::Figures,
        false => Column::Words,
    };
    let columns: Vec<Column> = (0..titles.len()).map(column).collect();
    Latex { caption, label: "", titles: &titles, columns: &columns, rows: &rows }.print()
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

    fn of(titles: &[&str], columns: &[Column], rows: usize) -> String {
        let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
        let cells = |row: usize| titles.iter().map(|_| format!("{row}.12345")).collect();
        let rows: Vec<Vec<String>> = (0..rows).map(cells).collect();
        Latex { caption: "c", label: "l", titles: &titles, columns, rows: &rows }.print()
    }

    #[test]
    fn a_table_that_is_too_wide_or_too_long_is_cut_and_repeats_its_first_column() {
        let titles = ["run", "peak reserved MiB", "b", "c"];
        let columns = [Column::Words, Column::Figures, Column::Figures, Column::Figures];
        let small = of(&titles, &columns, 2);
        assert_eq!(small.matches("\\begin{table}").count(), 1);
        assert!(small.contains("\\footnotesize") && small.contains("\\caption{c}\n\\label{l}\n"));
        assert!(small.contains("\\shortstack[r]{peak\\\\reserved\\\\MiB}"), "{small}");
        let long = of(&titles, &columns, 100);
        assert_eq!(long.matches("\\begin{table}").count(), 3);
        assert!(long.contains("\\caption{c (2 of 3)}\n\\label{l:2}"), "{long}");
        let many: Vec<&str> = titles.iter().copied().cycle().take(20).collect();
        let columns: Vec<Column> = columns.iter().copied().cycle().take(20).collect();
        let wide = of(&many, &columns, 2);
        assert!(wide.contains("\\scriptsize"));
        let parts = wide.matches("\\toprule\nrun & ").count();
        assert_eq!(parts, wide.matches("\\begin{table}").count());
        assert!(parts > 1, "{wide}");
    }

    #[test]
    fn markdown_becomes_tables_with_captions_and_text() {
        let text = "### churn, seed 0\n\n| strategy | peak MiB |\n|----------|----------|\n| a_b      | 12.5     |\n| c        | -        |\n\nnote: 50 % of `x`\n";
        let latex = of_markdown(text);
        assert!(latex.contains("\\caption{churn, seed 0}"), "{latex}");
        assert!(
            latex.contains("{l r}\n\\toprule\nstrategy & \\shortstack[r]{peak\\\\MiB} \\\\\n"),
            "{latex}"
        );
        assert!(latex.contains("a\\_b & 12.5 \\\\\nc & - \\\\\n"), "{latex}");
        assert!(latex.ends_with("note:\\allowbreak{} 50 \\% of x\\par}\n"), "{latex}");
    }
}
