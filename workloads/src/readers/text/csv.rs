//! Comma-separated values with a header line: columns are found by name, in any order.
//!
//! | rule | what it says |
//! |---|---|
//! | `header` | the first line names the columns; those that a reader does not know are ignored |
//! | `same_width` | each row has as many fields as the header |
//! | `quotes` | a field in `"` may contain commas and doubled quotes, no line ends |

use std::io::Read;

use memchr::memchr;
use vramlab_sim::source::SourceError;

use super::lines::Lines;
use super::number::{DIGITS_SAFE, found, signed, whole};
use super::time::{Unit, nanos};

/// Most columns of a table.
const COLUMNS_MAX: usize = 1000;

/// A table that is read row by row.
pub struct Csv<R> {
    lines: Lines<R>,
    columns: Vec<String>,
    /// Those of the row in hand.
    fields: Vec<Field>,
}

/// A field of a row.
#[derive(Clone, Copy, Debug)]
struct Field {
    begin: u32,
    end: u32,
    /// Its value, if it is nothing but digits, and few enough.
    number: Option<u64>,
}

impl<R: Read> Csv<R> {
    /// Reads the header line.
    ///
    /// # Errors
    /// There is none, or the input cannot be read.
    pub fn new(mut lines: Lines<R>) -> Result<Self, SourceError> {
        let mut fields = Vec::new();
        if !lines.advance()? {
            return Err(lines.error("the file is empty; expected a line that names the columns"));
        }
        let line = lines.line();
        split(line, &mut fields).map_err(|what| lines.error(what))?;
        let name = |field: &Field| {
            String::from_utf8_lossy(&line[field.begin as usize..field.end as usize])
                .trim()
                .to_owned()
        };
        let columns = fields.iter().map(name).collect();
        Ok(Self { lines, columns, fields })
    }

    /// Names of the columns, in order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Place of the first of these columns that is there; upper and lower case are alike.
    pub fn find(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| self.columns.iter().position(|c| c.eq_ignore_ascii_case(name)))
    }

    /// As [`Csv::find`], where the column is needed.
    ///
    /// # Errors
    /// None of them is there.
    pub fn need(&self, names: &[&str]) -> Result<usize, SourceError> {
        self.find(names).ok_or_else(|| {
            let columns = self.columns.join(",");
            self.lines.error(format!(
                "found the columns {}, expected one called {}",
                found(columns.as_bytes()),
                names.join(" or ")
            ))
        })
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// The input cannot be read, or the row does not have as many fields as the header.
    #[allow(clippy::should_implement_trait)] // the row is lent out
    pub fn next(&mut self) -> Result<Option<Row<'_>>, SourceError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let (line, columns) = (self.lines.line(), &self.columns);
        split(line, &mut self.fields).map_err(|what| self.lines.error(what))?;
        if self.fields.len() != columns.len() {
            return Err(self.lines.error(format!(
                "found {} fields in {}, expected {} ({})",
                self.fields.len(),
                found(line),
                columns.len(),
                columns.join(",")
            )));
        }
        Ok(Some(Row { line, fields: &self.fields, columns }))
    }

    /// An error about the row that was read last.
    pub fn error(&self, what: impl Into<String>) -> SourceError {
        self.lines.error(what)
    }

    /// Number of the line that was read last.
    pub fn line(&self) -> u64 {
        self.lines.number()
    }
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    line: &'a [u8],
    fields: &'a [Field],
    columns: &'a [String],
}

impl<'a> Row<'a> {
    /// A field as it stands, without quotes around it.
    pub fn bytes(&self, column: usize) -> &'a [u8] {
        let Field { begin, end, .. } = self.fields[column];
        &self.line[begin as usize..end as usize]
    }

    /// The value of a field of up to 19 digits and nothing else.
    #[inline]
    pub fn digits(&self, column: usize) -> Option<u64> {
        self.fields[column].number
    }

    /// A field that is empty or blank.
    pub fn is_empty(&self, column: usize) -> bool {
        self.bytes(column).trim_ascii().is_empty()
    }

    /// A field that is a whole number from 0 on.
    ///
    /// # Errors
    /// It is none; the message names the column.
    #[inline]
    pub fn whole(&self, column: usize) -> Result<u64, String> {
        match self.digits(column) {
            Some(number) => Ok(number),
            None => self.whole_of_text(column),
        }
    }

    #[cold]
    fn whole_of_text(&self, column: usize) -> Result<u64, String> {
        whole(self.bytes(column)).map_err(|what| self.named(column, &what))
    }

    /// A field that is a whole number, perhaps negative.
    ///
    /// # Errors
    /// It is none; the message names the column.
    pub fn signed(&self, column: usize) -> Result<i64, String> {
        signed(self.bytes(column)).map_err(|what| self.named(column, &what))
    }

    /// A field that is a time of this unit, in ns.
    ///
    /// # Errors
    /// It is none; the message names the column.
    pub fn nanos(&self, column: usize, unit: Unit) -> Result<u64, String> {
        nanos(self.bytes(column), unit).map_err(|what| self.named(column, &what))
    }

    /// What is wrong with a field, with the name of its column.
    pub fn named(&self, column: usize, what: &str) -> String {
        format!("column {}: {what}", self.columns[column])
    }
}

/// Finds the fields of a line.
fn split(line: &[u8], fields: &mut Vec<Field>) -> Result<(), String> {
    fields.clear();
    let (mut begin, mut value, mut only_digits) = (0, 0_u64, true);
    let field = |begin, end, value, only_digits| {
        let few = (1..=DIGITS_SAFE as u32).contains(&(end - begin));
        Field { begin, end, number: (only_digits && few).then_some(value) }
    };
    // Fields are short, and most are numbers: one look at each byte is faster than a search for each comma, and a look at each digit.
    for (at, byte) in (0..).zip(line) {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            continue;
        }
        match byte {
            b',' => {
                fields.push(field(begin, at, value, only_digits));
                (begin, value, only_digits) = (at + 1, 0, true);
            }
            b'"' => {
                fields.clear();
                return split_quoted(line, fields);
            }
            _ => only_digits = false,
        }
    }
    fields.push(field(begin, line.len() as u32, value, only_digits));
    checked_width(fields.len())
}

fn split_quoted(line: &[u8], fields: &mut Vec<Field>) -> Result<(), String> {
    let field =
        |begin: usize, end: usize| Field { begin: begin as u32, end: end as u32, number: None };
    let mut at = 0;
    loop {
        let rest = &line[at..];
        let length = if rest.first() == Some(&b'"') {
            let length = quoted_length(&rest[1..])
                .ok_or_else(|| format!("found {} with a quote that does not end", found(rest)))?;
            fields.push(field(at + 1, at + 1 + length));
            length + 2
        } else {
            let length = memchr(b',', rest).unwrap_or(rest.len());
            fields.push(field(at, at + length));
            length
        };
        checked_width(fields.len())?;
        match rest.get(length) {
            None => return Ok(()),
            Some(b',') => at += length + 1,
            Some(_) => {
                return Err(format!(
                    "found {} after a quote, expected a comma",
                    found(&rest[length..])
                ));
            }
        }
    }
}

/// Bytes before the quote that ends a field.
fn quoted_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr(b'"', &text[at..])?;
        if text.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

fn checked_width(fields: usize) -> Result<(), String> {
    if fields > COLUMNS_MAX {
        return Err(format!("found over {COLUMNS_MAX} fields in a line, expected fewer"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &[u8]) -> Result<Csv<&[u8]>, SourceError> {
        Csv::new(Lines::new(text, "t.csv")?)
    }

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let mut csv =
            csv(b"Size, id ,\"note, long\"\r\n5,-7,\"a \"\"b\"\", c\"\r\n").expect("header");
        assert_eq!(csv.columns(), ["Size", "id", "note, long"]);
        let (id, size) =
            (csv.need(&["id"]).expect("there"), csv.need(&["bytes", "size"]).expect("there"));
        let row = csv.next().expect("reads").expect("a row");
        assert_eq!((row.signed(id), row.whole(size)), (Ok(-7), Ok(5)));
        assert_eq!(row.bytes(2), b"a \"\"b\"\", c");
        assert_eq!(
            row.whole(id),
            Err(r#"column id: found "-7", expected a whole number from 0 to 2^64-1"#.to_owned())
        );
        assert!(csv.next().expect("reads").is_none());
    }

    #[test]
    fn numbers_are_the_same_however_they_are_read() {
        let most = u64::MAX.to_string();
        let texts = ["0", "7", "007", " 7", "7.0", "9999999999999999999", "12a", "-1", "", &most];
        for text in texts {
            for line in [format!("{text},{text}"), format!("\"{text}\",{text}")] {
                let text_of_table = format!("a,b\n{line}\n");
                let mut csv = csv(text_of_table.as_bytes()).expect("header");
                let row = csv.next().expect("reads").expect("a row");
                for column in [0, 1] {
                    assert_eq!(row.whole(column).ok(), whole(text.as_bytes()).ok(), "{line}");
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_names_line_found_and_expected() {
        let error = |text: &[u8]| -> String {
            let mut csv = match csv(text) {
                Ok(csv) => csv,
                Err(error) => return error.to_string(),
            };
            let missing = csv.need(&["size", "bytes"]).err();
            match csv.next() {
                Err(error) => error.to_string(),
                Ok(_) => missing.expect("an error").to_string(),
            }
        };
        assert_eq!(
            error(b""),
            "t.csv: line 1: the file is empty; expected a line that names the columns"
        );
        assert_eq!(
            error(b"id\n1\n"),
            r#"t.csv: line 1: found the columns "id", expected one called size or bytes"#
        );
        assert_eq!(
            error(b"id,size\n\n1\n"),
            r#"t.csv: line 3: found 1 fields in "1", expected 2 (id,size)"#
        );
        assert_eq!(
            error(b"id,size\n\"1,2\n"),
            r#"t.csv: line 2: found "\"1,2" with a quote that does not end"#
        );
        assert_eq!(
            error(b"id,size\n\"1\"2,3\n"),
            r#"t.csv: line 2: found "2,3" after a quote, expected a comma"#
        );
        let wide = ",".repeat(2000);
        assert_eq!(
            error(wide.as_bytes()),
            "t.csv: line 1: found over 1000 fields in a line, expected fewer"
        );
    }
}
