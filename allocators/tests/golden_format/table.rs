//! The block table: segments in the order of their addresses, of an expandable range one entry per run of mapped blocks.

use serde_json::Value;
use std::fmt::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Allocated,
    Pending,
    Inactive,
}

impl State {
    pub(crate) fn parse(text: &str) -> Option<State> {
        [State::Allocated, State::Pending, State::Inactive]
            .into_iter()
            .find(|state| state.name() == text)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Allocated => "allocated",
            State::Pending => "pending",
            State::Inactive => "inactive",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableBlock {
    pub(crate) size: u64,
    /// Bytes as asked for, 0 if inactive.
    pub(crate) requested: u64,
    pub(crate) state: State,
    /// Garbage-collection age, 0 if not inactive.
    pub(crate) age: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableSegment {
    pub(crate) segment: String,
    pub(crate) offset: u64,
    pub(crate) stream: u64,
    pub(crate) large: bool,
    pub(crate) expandable: bool,
    pub(crate) private_pool: u64,
    /// `None`: not known.
    pub(crate) registration: Option<u64>,
    pub(crate) blocks: Vec<TableBlock>,
}

impl TableSegment {
    fn sum(&self, wanted: impl Fn(&TableBlock) -> bool, of: impl Fn(&TableBlock) -> u64) -> u64 {
        self.blocks.iter().filter(|block| wanted(block)).map(of).sum()
    }

    pub(crate) fn size(&self) -> u64 {
        self.sum(|_| true, |block| block.size)
    }

    /// Every field as (name, text), to be compared with the JSON of the golden file.
    fn fields(&self) -> Vec<(String, String)> {
        let mut fields = vec![
            ("segment".into(), self.segment.clone()),
            ("offset".into(), self.offset.to_string()),
            ("size".into(), self.size().to_string()),
            ("stream".into(), self.stream.to_string()),
            ("pool".into(), if self.large { "large" } else { "small" }.into()),
            ("expandable".into(), self.expandable.to_string()),
            ("private_pool".into(), self.private_pool.to_string()),
            (
                "allocated".into(),
                self.sum(|block| block.state == State::Allocated, |block| block.size).to_string(),
            ),
            (
                "active".into(),
                self.sum(|block| block.state != State::Inactive, |block| block.size).to_string(),
            ),
            ("requested".into(), self.sum(|_| true, |block| block.requested).to_string()),
        ];
        fields.extend(self.registration.map(|number| ("registration".into(), number.to_string())));
        let mut offset = 0;
        for (number, block) in self.blocks.iter().enumerate() {
            let TableBlock { size, requested, state, age } = block;
            fields.push((
                format!("blocks[{number}]"),
                format!("{offset} {size} {requested} {} {age}", state.name()),
            ));
            offset += size;
        }
        fields
    }
}

/// The text whose FNV-1a is the digest of a table.
pub(crate) fn digest_text(table: &[TableSegment]) -> String {
    let mut text = String::new();
    for part in table {
        let size = part.size();
        let pool = if part.large { "large" } else { "small" };
        let kind = if part.expandable { "expandable" } else { "fixed" };
        let TableSegment { segment, offset, stream, private_pool, .. } = part;
        writeln!(text, "S {segment} {offset} {size} {stream} {pool} {kind} {private_pool}")
            .expect("a string takes all");
        let mut offset = 0;
        for block in &part.blocks {
            let TableBlock { size, requested, state, .. } = block;
            writeln!(text, "B {offset} {size} {requested} {}", state.name())
                .expect("a string takes all");
            offset += size;
        }
    }
    text
}

/// The first difference between a golden table and one that was found: (field, expected, found), and how many there are.
pub(crate) fn table_differences(
    golden: &Value,
    table: &[TableSegment],
) -> Vec<(String, String, String)> {
    let empty = Vec::new();
    let golden = golden.as_array().unwrap_or(&empty);
    let mut differences = Vec::new();
    if golden.len() != table.len() {
        differences.push(("segments".into(), golden.len().to_string(), table.len().to_string()));
    }
    for (number, (golden, segment)) in golden.iter().zip(table).enumerate() {
        let blocks =
            golden.get("blocks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if blocks.len() != segment.blocks.len() {
            let (expected, found) = (blocks.len().to_string(), segment.blocks.len().to_string());
            differences.push((format!("segments[{number}].blocks"), expected, found));
        }
        for (name, found) in segment.fields() {
            let expected = match name.strip_prefix("blocks[") {
                None => golden.get(&name).map(plain),
                Some(rest) => {
                    let index: usize = rest.trim_end_matches(']').parse().expect("made above");
                    let parts = blocks.get(index).and_then(Value::as_array);
                    parts.map(|parts| parts.iter().take(5).map(plain).collect::<Vec<_>>().join(" "))
                }
            };
            // Older versions have no registration: -1.
            if expected.as_deref().is_some_and(|expected| expected != found && expected != "-1") {
                differences.push((
                    format!("segments[{number}].{name}"),
                    expected.unwrap_or_default(),
                    found,
                ));
            }
        }
    }
    differences
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
