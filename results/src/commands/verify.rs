//! `vramlab replay --verify`: does our strategy place what the recording placed?
//!
//! Taken from the recording: the requests, the moment a freed block came back, the addresses of new segments, whether the driver had room.
//! Predicted, and compared: the place inside a segment, which segment, segment sizes, releases, failures, final blocks.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;
use vramlab_sim::units::Bytes;

use super::print;
use crate::check::{Check, check};
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::{self, Bad, Opened};
use crate::output::{Format, Grid, to_csv, to_json};
use crate::runs;

/// One device of one file.
#[derive(Debug, Serialize)]
struct Line {
    file: String,
    device: u16,
    torch: String,
    #[serde(flatten)]
    check: Check,
}

/// Runs the check over files.
///
/// # Errors
/// Files that cannot be read or are no recording.
pub fn run(
    files: &[PathBuf],
    version: Option<&str>,
    capacity: Option<Bytes>,
    common: &Common,
) -> Outcome {
    let checked: Vec<Result<Vec<Line>, Failure>> = files
        .par_iter()
        .zip(inputs::names(files))
        .map(|(file, name)| verify(file, name, version, capacity))
        .collect();
    let (mut lines, mut bad, mut none) = (Vec::new(), Bad::default(), true);
    for one in checked {
        match one {
            Ok(of_file) => {
                none = false;
                lines.extend(of_file);
            }
            Err(failure) => bad.add(failure)?,
        }
    }
    let text = match common.format {
        Format::Json => to_json(&lines),
        Format::Csv => to_csv(&lines),
        Format::Table | Format::Markdown | Format::Latex => {
            common.format.words(|markdown| table(&lines, markdown))
        }
    };
    print(&text)?;
    let mismatches: u64 = lines.iter().map(|l| l.check.mismatch_count).sum();
    let code = if mismatches > 0 { Code::Different } else { Code::Done };
    runs::end(&bad, none, false, code)
}

fn verify(
    file: &Path,
    name: String,
    version: Option<&str>,
    capacity: Option<Bytes>,
) -> Result<Vec<Line>, Failure> {
    let opened = inputs::open(file)?.called(name);
    let Opened::Snapshot(snapshot) = &opened else {
        return Err(Failure::input(format!(
            "{}: no PyTorch snapshot; --verify needs one, since other formats do not record where things were placed",
            file.display()
        )));
    };
    let spec = opened.recorded_spec(version)?;
    let torch = spec.strategy().options.get("version").unwrap_or_default().to_owned();
    let line = |device: &inputs::DeviceRecording| {
        let named = |f: Failure| Failure { message: format!("{}: {f}", file.display()), ..f };
        Ok(Line {
            file: snapshot.name.clone(),
            device: device.device,
            torch: torch.clone(),
            check: check(device, &spec, capacity.map(|c| c.0)).map_err(named)?,
        })
    };
    snapshot.devices.iter().map(line).collect()
}

fn table(lines: &[Line], markdown: bool) -> String {
    let mut grid = Grid::new(&[
        "file<",
        "device",
        "torch",
        "placed",
        "matched",
        "gaps",
        "segments",
        "final blocks",
        "mismatches",
        "remark<",
    ]);
    for line in lines {
        let c = &line.check;
        grid.row(vec![
            line.file.clone(),
            line.device.to_string(),
            line.torch.clone(),
            c.placed.to_string(),
            c.matched.to_string(),
            c.gaps.to_string(),
            format!("{} of {}", c.segments_matched, c.segments),
            format!("{} of {}", c.final_blocks_matched, c.final_blocks),
            c.mismatch_count.to_string(),
            c.not_verifiable.as_ref().map_or(String::new(), |why| format!("not verifiable: {why}")),
        ]);
    }
    let sum = |f: fn(&Check) -> u64| lines.iter().map(|l| f(&l.check)).sum::<u64>();
    let mut text = grid.print(markdown);
    for line in lines.iter().filter(|l| l.check.mismatch_count > 0) {
        for what in &line.check.mismatches {
            text += &format!("\n{}, device {}: {what}", line.file, line.device);
        }
    }
    text += &format!(
        "\n\nplaced {} / matched {} / gaps {}; {} {}, {} mismatches\n",
        sum(|c| c.placed),
        sum(|c| c.matched),
        sum(|c| c.gaps),
        lines.len(),
        if lines.len() == 1 { "history" } else { "histories" },
        sum(|c| c.mismatch_count)
    );
    let unchecked = lines.iter().filter(|l| l.check.not_verifiable.is_some()).count();
    if unchecked > 0 {
        text += &format!("not verifiable, so not checked: {unchecked} of {}\n", lines.len());
    }
    text
}
