//! The command.

use std::path::PathBuf;

use clap::Args;
use vramlab_sim::driver::DriverError;
use vramlab_sim::units::Bytes;

use super::layout::{self, Layout};
use super::{Head, Measured, file, measure};
use crate::cuda;
use crate::failure::{Code, Failure, Outcome};
use crate::machine::{CudaMachine, Wanted};
use crate::output::{Format, print, remark, table, time, write_whole};
use crate::probe::version_text;
use crate::stop::Stop;

/// Arguments.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The CSV file to write; without it, standard output.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Most bytes to hold at once [default: nine tenths of what is free]; the largest things measured are a quarter of it.
    #[arg(long, value_name = "SIZE")]
    limit: Option<Bytes>,
    /// How often each thing is measured, after a few rounds to warm up.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=100_000))]
    repeats: u32,
}

/// Least room for measurements.
const LEAST: u64 = Bytes::mib(64).0;

/// Runs the command.
pub(crate) fn run(args: &MeasureArgs, format: Format, stop: &Stop) -> Outcome {
    let limit = args.limit.map(|limit| limit.0);
    let mut machine = CudaMachine::open(Wanted { devices: 1, limit, with_work: true })?;
    if machine.limit() < LEAST {
        return Err(Failure::usage(format!(
            "there is room for {}, and measurements take {} beside what copies need; give --limit more, or free memory of the device",
            Bytes(machine.limit()),
            Bytes(LEAST)
        )));
    }
    let (version, _) = cuda::begin(&[])?;
    let (device, _) = cuda::about(0)?;
    let ended = |what: &dyn std::fmt::Display| {
        Failure::new(Code::Partial, format!("the driver ended the measurements: {what}"))
    };
    let layout = cuda_layout(&mut machine).map_err(|e| ended(&e))?;
    let space = (machine.limit(), machine.granule());
    let (rows, refused) = measure(&mut machine, args.repeats as usize, space, stop);
    let (_, capacity) = cuda::calls::mem_info().map_err(|e| ended(&e.error()))?;
    machine.close().map_err(|e| ended(&format!("{} answered {}", e.call, e.error())))?;
    let head = Head {
        device,
        driver: version_text(version),
        date: file::today(),
        capacity,
        granule: space.1,
        pack_small: layout.pack_small(),
    };
    let measured = Measured { head, rows };
    match &args.out {
        Some(path) => {
            write_whole(path, &measured.to_csv()?)?;
            print(&shown(&measured, format == Format::Markdown))?;
        }
        None => print(&measured.to_csv()?)?,
    }
    for what in &refused {
        remark(&format!("the driver ended a part of the measurements: {what}"));
    }
    if stop.asked() {
        remark("stopped; what was measured before is written, and everything was given back");
        return Ok(Code::Partial);
    }
    Ok(if refused.is_empty() { Code::Done } else { Code::Partial })
}

/// The layout of the current device. What is free the driver is asked itself: the machine's answer knows of its limit.
pub(crate) fn cuda_layout(machine: &mut CudaMachine) -> super::Step<Layout> {
    layout::look(machine, |_| {
        cuda::calls::mem_info()
            .map(|(free, _)| free)
            .map_err(|e| DriverError::Failed { call: "cudaMemGetInfo", what: e.error().into() })
    })
}

/// The measurements for people.
pub(crate) fn shown(measured: &Measured, markdown: bool) -> String {
    let titles = ["what<", "state<", "size", "handles", "n", "p10", "p50", "p90", "p99", "max"];
    let row = |row: &super::Row| {
        let q = row.quantiles;
        let size = if row.bytes == 0 { "-".to_owned() } else { Bytes(row.bytes).to_string() };
        let mut cells = vec![row.what.clone(), row.state.clone(), size];
        cells.extend([row.count.to_string(), row.n.to_string()]);
        cells.extend([q.p10, q.p50, q.p90, q.p99, q.max].map(|ns| time(ns as f64)));
        cells
    };
    let rows: Vec<Vec<String>> = measured.rows.iter().map(row).collect();
    table(&titles, &rows, markdown)
}
