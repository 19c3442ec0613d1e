//! Runs any allocator through a golden case and compares everything that the case recorded.

use super::case::Case;
use super::ops::TraceOp;
use super::rows::{
    CALL_COLUMNS, CallRow, Csv, FNV_START, STEP_COLUMNS, StepResult, StepStats, fnv, step_row,
};
use super::table::{TableSegment, digest_text, table_differences};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Head of the error text of a subject where there is nothing to compare with any more.
pub(crate) const UNDEFINED: &str = "not defined in the real allocator";

/// What is compared with golden cases: an allocator on a fake device of its own.
pub(crate) trait GoldenSubject {
    /// Carries out an operation. An error is a refusal (of settings, of a pool): the case ends there. It begins with
    /// [`UNDEFINED`] if the real allocator breaks its own books there: then the case ends without a difference.
    fn apply(&mut self, op: &TraceOp) -> Result<StepResult, String>;
    /// The statistics columns of `steps.csv`, now.
    fn stats(&self) -> StepStats;
    /// The counters of `final.json`, `stats`: names of all levels joined by dots.
    fn counters(&self) -> BTreeMap<String, i64>;
    fn table(&self) -> Vec<TableSegment>;
    /// The device calls since the last time, runs of event calls of one kind in stream order.
    fn calls(&mut self) -> Vec<CallRow>;
}

#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) case: String,
    pub(crate) file: &'static str,
    pub(crate) line: usize,
    pub(crate) column: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Difference { case, file, line, column, expected, found } = self;
        write!(out, "{case}: {file}, line {line}, {column}: expected {expected}, found {found}")
    }
}

/// The outcome of one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseReport {
    pub(crate) ops: usize,
    pub(crate) differences: usize,
    pub(crate) first: Option<Difference>,
    /// The comparison ended early, and why.
    pub(crate) undefined: Option<String>,
}

/// The outcome of many cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) cases: usize,
    pub(crate) equal: usize,
    pub(crate) ops: usize,
    pub(crate) differences: usize,
    /// The first difference of each case that has one.
    pub(crate) firsts: Vec<Difference>,
}

impl Totals {
    pub(crate) fn add(&mut self, report: CaseReport) {
        self.cases += 1;
        self.equal += usize::from(report.differences == 0);
        self.ops += report.ops;
        self.differences += report.differences;
        self.firsts.extend(report.first);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Totals { cases, equal, ops, differences, .. } = self;
        write!(out, "{equal} of {cases} cases, {ops} ops, {differences} differences")
    }
}

/// Where the comparison stands in a case.
struct Run<'c> {
    case: &'c Case,
    report: CaseReport,
    /// Next row of each file that holds rows of operations.
    step: usize,
    call: usize,
    digest: usize,
    snapshot: usize,
    chain: u64,
}

/// Runs a subject through a case. `made` is the subject, or why the settings were refused.
pub(crate) fn compare(case: &Case, made: Result<Box<dyn GoldenSubject>, String>) -> CaseReport {
    let report = CaseReport::default();
    let mut run = Run { case, report, step: 0, call: 0, digest: 0, snapshot: 0, chain: FNV_START };
    match made {
        Ok(mut subject) => run.all(subject.as_mut()),
        Err(error) => run.differs("case.json", 1, "conf", "settings that are accepted", &error),
    }
    run.report
}

impl Run<'_> {
    fn differs(
        &mut self,
        file: &'static str,
        line: usize,
        column: &str,
        expected: &str,
        found: &str,
    ) {
        self.report.differences += 1;
        let case = self.case.name.clone();
        let (column, expected, found) = (column.to_owned(), expected.to_owned(), found.to_owned());
        self.report.first.get_or_insert(Difference { case, file, line, column, expected, found });
    }

    fn all(&mut self, subject: &mut dyn GoldenSubject) {
        let case = self.case;
        let mut ooms = 0;
        for (op, todo) in case.ops.iter().enumerate() {
            let result = match subject.apply(todo) {
                Ok(result) => result,
                Err(error) if error.starts_with(UNDEFINED) => {
                    self.report.undefined = Some(error);
                    return;
                }
                Err(error) => {
                    return self.differs(
                        "trace",
                        op + 1,
                        "op",
                        "an operation that is accepted",
                        &error,
                    );
                }
            };
            self.report.ops += 1;
            ooms += u64::from(result == StepResult::OutOfMemory);
            let row = step_row(op, &result, &subject.stats());
            self.chain = fnv("\n", fnv(&row, self.chain));
            self.check_step(op, &row);
            self.check_calls(op, &subject.calls());
            self.check_table(op, subject);
        }
        self.check_ends();
        self.check_last(subject, ooms);
    }

    fn check_row(
        &mut self,
        file: &'static str,
        golden: &Csv,
        at: usize,
        row: &str,
        columns: &[&str],
    ) {
        for (column, found) in columns.iter().zip(row.split(',')) {
            if let Some(expected) = golden.cell(at, column)
                && expected != found
            {
                self.differs(file, Csv::line(at), column, expected, found);
            }
        }
    }

    fn check_step(&mut self, op: usize, row: &str) {
        let Some(golden) = &self.case.steps else { return };
        if golden.op(self.step) != Some(op) {
            return;
        }
        // A row of a sparse file may have its first five cells only.
        let short = golden.cell(self.step, "device_used") == Some("");
        let columns = &STEP_COLUMNS[..if short { 5 } else { STEP_COLUMNS.len() }];
        self.check_row("steps.csv", golden, self.step, row, columns);
        self.step += 1;
    }

    fn check_calls(&mut self, op: usize, calls: &[CallRow]) {
        let Some(golden) = &self.case.calls else { return };
        for call in calls {
            if golden.op(self.call) == Some(op) {
                self.check_row("calls.csv", golden, self.call, &call.row(op), &CALL_COLUMNS);
                self.call += 1;
            } else {
                self.differs(
                    "calls.csv",
                    Csv::line(self.call),
                    "op",
                    "no such call",
                    &call.row(op),
                );
            }
        }
        while golden.op(self.call) == Some(op) {
            let expected = golden.cell(self.call, "call").unwrap_or_default();
            self.differs("calls.csv", Csv::line(self.call), "call", expected, "no call");
            self.call += 1;
        }
    }

    fn check_table(&mut self, op: usize, subject: &dyn GoldenSubject) {
        let case = self.case;
        let digests = case.digests.as_ref().filter(|golden| golden.op(self.digest) == Some(op));
        let number = |golden: &&Value| golden.get("op").and_then(Value::as_u64) == Some(op as u64);
        let snapshot = case.snapshots.get(self.snapshot).filter(number);
        if digests.is_none() && snapshot.is_none() {
            return;
        }
        let table = subject.table();
        if let Some(golden) = snapshot {
            self.check_segments("snapshots.jsonl", self.snapshot + 1, golden, &table);
            self.snapshot += 1;
        }
        if let Some(golden) = digests {
            let found = format!("{:016x}", fnv(&digest_text(&table), FNV_START));
            if let Some(expected) =
                golden.cell(self.digest, "digest").filter(|expected| *expected != found)
            {
                self.differs("digests.csv", Csv::line(self.digest), "digest", expected, &found);
            }
            self.digest += 1;
        }
    }

    fn check_segments(
        &mut self,
        file: &'static str,
        line: usize,
        golden: &Value,
        table: &[TableSegment],
    ) {
        if let Some(segments) = golden.get("segments") {
            for (field, expected, found) in table_differences(segments, table) {
                self.differs(file, line, &field, &expected, &found);
            }
        }
    }

    /// Every row must have been met.
    fn check_ends(&mut self) {
        let case = self.case;
        let files = [
            ("steps.csv", &case.steps, self.step),
            ("calls.csv", &case.calls, self.call),
            ("digests.csv", &case.digests, self.digest),
        ];
        for (file, golden, at) in files {
            if let Some(golden) = golden.as_ref().filter(|golden| golden.len() != at) {
                let expected = format!("{} rows in order of operations", golden.len());
                self.differs(file, Csv::line(at), "op", &expected, &format!("{at} rows"));
            }
        }
    }

    fn check_last(&mut self, subject: &dyn GoldenSubject, ooms: u64) {
        let Some(golden) = &self.case.last else { return };
        let table = subject.table();
        let digest = format!("{:016x}", fnv(&digest_text(&table), FNV_START));
        let found = [
            ("ops", self.report.ops.to_string()),
            ("oom_count", ooms.to_string()),
            ("steps_digest", format!("{:016x}", self.chain)),
            ("snapshot_digest", digest),
            ("device_used", subject.stats().device_used.to_string()),
        ];
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        for (name, found) in found {
            if let Some(expected) = golden.get(name).map(text).filter(|expected| *expected != found)
            {
                self.differs("final.json", 1, name, &expected, &found);
            }
        }
        for (name, found) in subject.counters() {
            let expected = name
                .split('.')
                .try_fold(&golden["stats"], |value, key| value.get(key))
                .and_then(Value::as_i64);
            // A counter that this version does not have is not in the file. No limit: -1, or the largest number.
            let expected = expected.map(|value| {
                if name == "max_split_size" && value == i64::MAX { -1 } else { value }
            });
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                self.differs(
                    "final.json",
                    1,
                    &format!("stats.{name}"),
                    &expected.to_string(),
                    &found.to_string(),
                );
            }
        }
        self.check_segments("final.json", 1, golden, &table);
    }
}
