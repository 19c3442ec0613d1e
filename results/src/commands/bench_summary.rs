//! `vramlab bench-summary`: what criterion measured, as tables and pictures.

use std::path::PathBuf;

use clap::Args;

use super::{print, remark};
use crate::bench::{against, read, table};
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::frame::write_data;
use crate::output::{Format, to_json, write_whole};
use crate::tables::{latex, text};

/// Arguments.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The folder that criterion wrote: target/criterion, or a part of it.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How many times as long as this each takes: a measurement that was saved (cargo bench -- --save-baseline NAME), or the benchmark of that name in each group.
    #[arg(long, value_name = "NAME")]
    against: Option<String>,
    /// Also writes bench.md, .tex, .txt, .csv, .parquet, .json and a picture of each group there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A folder without benchmarks, files that are cut or of another form, a baseline that nobody has, an output folder that cannot be written.
pub fn run(args: &BenchArgs, common: &Common) -> Outcome {
    let all = read::read(&args.folder)?;
    let name = args.against.as_deref();
    let times = name.map(|name| against::times(&all, name)).transpose()?.unwrap_or_default();
    let records = table::records(&all, name, &times);
    let again = match name {
        Some(name) => {
            format!("vramlab bench-summary {} --against {name:?}", args.folder.display())
        }
        None => format!("vramlab bench-summary {}", args.folder.display()),
    };
    let mut page = table::page(&records, again)?;
    if args.out.is_none() {
        page.figures.clear(); // they are not written
    }
    if let Some(out) = &args.out {
        let write = || -> Result<(), Failure> {
            for (picture, number) in page.figures.iter().zip(1..) {
                let path = out.join(format!("bench.figure-{number}.svg"));
                write_whole(&path, picture.svg.as_bytes())?;
            }
            write_data(&table::frame(&records)?, &out.join("bench.parquet"))?;
            let texts = [
                ("csv", table::csv(&records)?),
                ("json", to_json(&records)),
                ("md", text::text(&page, true)),
                ("tex", latex::latex(&page)),
                ("txt", text::text(&page, false)),
            ];
            texts.iter().try_for_each(|(ending, text)| {
                write_whole(&out.join(format!("bench.{ending}")), text.as_bytes())
            })
        };
        write().map_err(|failure| failure.with_option("--out"))?;
        if !common.quiet {
            remark(&format!("vramlab: written: {}", out.display()));
        }
    }
    print(&match common.format {
        Format::Table => text::text(&page, false),
        Format::Markdown => text::text(&page, true),
        Format::Csv => table::csv(&records)?,
        Format::Json => to_json(&records),
        Format::Latex => latex::latex(&page),
    })?;
    Ok(Code::Done)
}
