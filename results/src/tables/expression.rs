//! The arithmetic of a figure: numbers, `+ - * / ^`, parentheses, `min max abs sqrt ceil`, and figures of runs.
//!
//! A name is `RUN.METRIC` (`eager.peak_reserved`, `base.alloc_ns.p99`) or, where rows stand for one run each, a bare `METRIC`. Everything is
//! an `f64`: bytes beyond 2^53 are rounded here, and exact in the frame.

use std::fmt;

/// A parsed figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A constant.
    Number(f64),
    /// A figure of a run.
    Name(String),
    /// −x
    Negative(Box<Self>),
    /// Two operands.
    Binary(char, Box<Self>, Box<Self>),
    /// A function of the list above.
    Call(Function, Vec<Self>),
}

/// Functions that may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Function {
    Min,
    Max,
    Abs,
    Sqrt,
    Ceil,
}

impl Function {
    fn find(name: &str) -> Option<Self> {
        Some(match name {
            "min" => Self::Min,
            "max" => Self::Max,
            "abs" => Self::Abs,
            "sqrt" => Self::Sqrt,
            "ceil" => Self::Ceil,
            _ => return None,
        })
    }

    fn of(self, values: &[f64]) -> f64 {
        let first = values.first().copied().unwrap_or(f64::NAN);
        match self {
            Self::Min => values.iter().copied().fold(first, f64::min),
            Self::Max => values.iter().copied().fold(first, f64::max),
            Self::Abs => first.abs(),
            Self::Sqrt => first.sqrt(),
            Self::Ceil => first.ceil(),
        }
    }
}

/// What is wrong with a text: where, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    at: usize,
    expected: &'static str,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "character {}: expected {}", self.at + 1, self.expected)
    }
}

/// Deepest nesting of parentheses and signs.
const DEPTH_MAX: usize = 64;
/// Longest figure (B): a sum of many terms is as deep as it is long.
const TEXT_MAX: usize = 4096;

impl Expression {
    /// Reads a text.
    ///
    /// # Errors
    /// When it is no expression.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > TEXT_MAX {
            return Err(SyntaxError { at: TEXT_MAX, expected: "4096 bytes at most" });
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let whole = parser.sum()?;
        parser.skip();
        if parser.at < text.len() {
            return Err(parser.expected("an operator or the end"));
        }
        Ok(whole)
    }

    /// The names in it, in order.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Name(name) => vec![name],
            Self::Negative(inner) => inner.names(),
            Self::Binary(_, a, b) => [a.names(), b.names()].concat(),
            Self::Call(_, inner) => inner.iter().flat_map(Self::names).collect(),
        }
    }

    /// Its value, with `of` telling that of a name.
    ///
    /// # Errors
    /// The first of `of`.
    pub fn value<E>(&self, of: &mut impl FnMut(&str) -> Result<f64, E>) -> Result<f64, E> {
        Ok(match self {
            Self::Number(value) => *value,
            Self::Name(name) => of(name)?,
            Self::Negative(inner) => -inner.value(of)?,
            Self::Binary(operator, a, b) => {
                let (a, b) = (a.value(of)?, b.value(of)?);
                match operator {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => a * b,
                    '/' => a / b,
                    _ => a.powf(b),
                }
            }
            Self::Call(function, inner) => {
                let values: Result<Vec<f64>, E> = inner.iter().map(|one| one.value(of)).collect();
                function.of(&values?)
            }
        })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn expected(&self, expected: &'static str) -> SyntaxError {
        SyntaxError { at: self.text[..self.at].chars().count(), expected }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, wanted: &[char]) -> Option<char> {
        self.skip();
        let found = self.rest().chars().next().filter(|c| wanted.contains(c))?;
        self.at += found.len_utf8();
        Some(found)
    }

    fn sum(&mut self) -> Result<Expression, SyntaxError> {
        let mut left = self.product()?;
        while let Some(operator) = self.take(&['+', '-']) {
            left = Expression::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, SyntaxError> {
        let mut left = self.power()?;
        while let Some(operator) = self.take(&['*', '/']) {
            left = Expression::Binary(operator, Box::new(left), Box::new(self.power()?));
        }
        Ok(left)
    }

    fn power(&mut self) -> Result<Expression, SyntaxError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.expected("fewer nested parentheses"));
        }
        let base = if self.take(&['-']).is_some() {
            Expression::Negative(Box::new(self.power()?))
        } else {
            let base = self.atom()?;
            match self.take(&['^']) {
                Some(operator) => {
                    Expression::Binary(operator, Box::new(base), Box::new(self.power()?))
                }
                None => base,
            }
        };
        self.depth -= 1;
        Ok(base)
    }

    fn atom(&mut self) -> Result<Expression, SyntaxError> {
        if self.take(&['(']).is_some() {
            let inner = self.sum()?;
            return match self.take(&[')']) {
                Some(_) => Ok(inner),
                None => Err(self.expected(")")),
            };
        }
        self.skip();
        match self.rest().chars().next() {
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name(),
            _ => Err(self.expected("a number, a name or (")),
        }
    }

    fn number(&mut self) -> Result<Expression, SyntaxError> {
        let rest = self.rest();
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let mut length = digits(rest);
        if rest[length..].starts_with('.') {
            length += 1 + digits(&rest[length + 1..]);
        }
        if let Some(power) = rest[length..].strip_prefix(['e', 'E']) {
            let sign = usize::from(power.starts_with(['+', '-']));
            let count = digits(&power[sign..]);
            length += if count > 0 { 1 + sign + count } else { 0 };
        }
        let value = rest[..length].parse().map_err(|_| self.expected("a number"))?;
        self.at += length;
        Ok(Expression::Number(value))
    }

    fn name(&mut self) -> Result<Expression, SyntaxError> {
        let rest = self.rest();
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let name = rest[..rest.find(|c| !inside(c)).unwrap_or(rest.len())].to_owned();
        self.at += name.len();
        let Some(function) = Function::find(&name) else { return Ok(Expression::Name(name)) };
        if self.take(&['(']).is_none() {
            return Err(self.expected("("));
        }
        let mut inner = vec![self.sum()?];
        while self.take(&[',']).is_some() {
            inner.push(self.sum()?);
        }
        match self.take(&[')']) {
            Some(_) => Ok(Expression::Call(function, inner)),
            None => Err(self.expected(", or )")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> f64 {
        let parsed = Expression::parse(text).expect(text);
        let mut of = |name: &str| match name {
            "a.peak_reserved" => Ok(8.0),
            "b.alloc_ns.p99.9" => Ok(2.0),
            _ => Err(name.to_owned()),
        };
        parsed.value(&mut of).expect(text)
    }

    #[test]
    fn arithmetic_has_the_usual_order() {
        assert_eq!(value("1 + 2 * 3 ^ 2"), 19.0);
        assert_eq!(value("2 ^ 3 ^ 0"), 2.0);
        assert_eq!(value("-2 ^ 2"), -4.0);
        assert_eq!(value("8 - 4 - 2"), 2.0);
        assert_eq!(value("(1 + 2) * -3"), -9.0);
        assert_eq!(value("1.5e3 / 1e-1"), 15_000.0);
        assert_eq!(value("max(1, 3, 2) + min(4, 2) + abs(-1) + sqrt(9) + ceil(0.5)"), 10.0);
    }

    #[test]
    fn names_are_figures_of_runs() {
        assert_eq!(value("a.peak_reserved / b.alloc_ns.p99.9"), 4.0);
        let parsed = Expression::parse("x.a + max(y.b, 2)").expect("parses");
        assert_eq!(parsed.names(), ["x.a", "y.b"]);
        let unknown = parsed.value(&mut |name: &str| Err::<f64, _>(name.to_owned()));
        assert_eq!(unknown, Err("x.a".to_owned()));
    }

    #[test]
    fn what_is_no_expression_is_refused_with_its_place() {
        for (text, message) in [
            ("", "character 1: expected a number, a name or ("),
            ("1 +", "character 4: expected a number, a name or ("),
            ("(1", "character 3: expected )"),
            ("a b", "character 3: expected an operator or the end"),
            ("µ", "character 1: expected a number, a name or ("),
            ("max", "character 4: expected ("),
            ("1 < 2", "character 3: expected an operator or the end"),
        ] {
            let found = Expression::parse(text).expect_err(text).to_string();
            assert_eq!(found, message, "{text}");
        }
        assert!(Expression::parse(&"(".repeat(100_000)).is_err());
    }
}
