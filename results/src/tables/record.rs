//! The record of what was published: `results/record/<date>-<machine>/`.
//!
//! The machine is told by its processor and cores, not by a name that somebody gave it. A record that was begun and not ended is gone on with, whatever the date: it has
//! no README.md yet, which is written last, and says the command, the version and the devices with their cost tables. With it go the files that only
//! going on needs: keys, and the runs as CSV, which are there as Parquet.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use crate::output::write_whole;

/// Where experiments lie, and so where the repository is.
const EXPERIMENTS: &str = "results/experiments";
/// Where records lie.
const RECORDS: &str = "results/record";
/// What a finished record has.
const README: &str = "README.md";

/// The folder of a record, below the repository in which the command was started: one that was begun on this machine, or a new one.
///
/// # Errors
/// When it is started elsewhere.
pub fn folder() -> Result<PathBuf, Failure> {
    if !Path::new(EXPERIMENTS).is_dir() {
        return Err(Failure::usage(format!(
            "--record writes to {RECORDS} of the repository; found no {EXPERIMENTS} here, start it in the repository's folder"
        )));
    }
    let machine = machine();
    let mut begun: Vec<PathBuf> = std::fs::read_dir(RECORDS)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.get(DATE_CHARS..).is_some_and(|rest| rest == format!("-{machine}"))
                && !path.join(README).exists()
        })
        .collect();
    begun.sort();
    let fresh = || Path::new(RECORDS).join(format!("{}-{machine}", today()));
    Ok(begun.pop().unwrap_or_else(fresh))
}

/// Characters of a date.
const DATE_CHARS: usize = 10;

/// Ends a record: writes its README.md, and removes what only going on needed.
///
/// # Errors
/// When it cannot be written.
pub fn finish(folder: &Path, command: &str, tables: &[(String, String)]) -> Result<(), Failure> {
    let mut devices: Vec<String> = Vec::new();
    for (name, _) in tables {
        let text = std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap_or_default();
        let told = text.lines().filter_map(|line| line.strip_prefix("devices: "));
        for device in told.flat_map(|line| line.split("; ")) {
            if !devices.iter().any(|known| known == device) {
                devices.push(device.to_owned());
            }
        }
    }
    devices.sort();
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut text = format!(
        "# {name}\n\n`{command}`, vramlab {}, on {}.\n\nDevices: {}.\n\n",
        env!("CARGO_PKG_VERSION"),
        machine(),
        devices.join("; ")
    );
    text += "Of each table: Markdown, LaTeX, text, CSV, Parquet and JSON; `NAME.runs.parquet` has all figures of its runs.\n\n";
    for (name, title) in tables {
        text += &format!("- [{name}]({name}.md): {title}\n");
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".key") || name.ends_with(".runs.csv") || name.starts_with(".tmp") {
            let gone = std::fs::remove_file(entry.path());
            gone.map_err(|error| Failure::write(&entry.path(), &error))?;
        }
    }
    write_whole(&folder.join(README), text.as_bytes())
}

/// `intel-xeon-gold-6338-2-cores`: what the operating system calls the processor, and how many may be used.
fn machine() -> String {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}-{cores}-cores", words(model))
}

/// Letters and digits of a processor's name, joined by `-`; what makers add for show is left out.
fn words(model: &str) -> String {
    let model = model.split('@').next().unwrap_or_default().to_lowercase();
    let model = model.replace("(r)", " ").replace("(tm)", " ");
    let parts = model.split(|c: char| !c.is_ascii_alphanumeric());
    let parts = parts.filter(|part| !part.is_empty() && !matches!(*part, "cpu" | "processor"));
    let text = parts.collect::<Vec<_>>().join("-");
    if text.is_empty() { std::env::consts::ARCH.to_owned() } else { text }
}

/// The date (UTC).
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_of(since.as_secs() / 86_400)
}

/// The date so many days after 1970-01-01: years of 365.2425 days that begin in March.
fn date_of(days: u64) -> String {
    let days = days + 719_468; // since 0000-03-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, more) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, date) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (20_787, "2026-11-30"),
            (20_818, "2026-12-31"),
            (20_819, "2027-01-01"),
        ] {
            assert_eq!(date_of(days), date);
        }
    }

    #[test]
    fn a_machine_is_its_processor() {
        assert_eq!(words(" Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz"), "intel-xeon-e5-2680-v4");
        assert_eq!(words(" AMD EPYC 7B13 64-Core Processor"), "amd-epyc-7b13-64-core");
        assert_eq!(words(" "), std::env::consts::ARCH);
    }
}
