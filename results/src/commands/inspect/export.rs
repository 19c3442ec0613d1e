//! `inspect --export`: a window as a trace of its own.

use std::io::Write;
use std::path::Path;

use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::trace::{Header, JsonlWriter};
use vramlab_sim::units::Nanos;

use crate::analysis::cut::Cut;
use crate::analysis::inspection::Window;
use crate::cli::Common;
use crate::commands::remark;
use crate::failure::Failure;
use crate::inputs::{Made, Recorded};
use crate::job::Input;
use crate::output::{check_ending, refuse_same_file, write_stream};

/// Writes it.
///
/// # Errors
/// A window that cannot be cut out, an output that cannot be written.
pub(super) fn write(
    input: &Input<'_>,
    (recorded, made): (Recorded, &Made),
    window: Window,
    path: &Path,
    common: &Common,
) -> Result<(), Failure> {
    check_ending(path)?;
    refuse_same_file(Path::new(&input.origin), path)?;
    let mut cut = Cut::new((input.make)()?, window.from, window.to)?;
    let mut ops = 0_u64;
    write_stream(path, |out: &mut dyn Write| {
        let fail = |e: std::io::Error| Failure::write(path, &e);
        let header = Header {
            name: &input.name,
            capacity: recorded.capacity,
            peak_reserved: None, // the whole recording's
            torch_version: made.torch_version.as_deref(),
            conf: Some(made.conf.as_str()).filter(|conf| !conf.is_empty()),
        };
        let mut writer = JsonlWriter::with_header(out, &header).map_err(fail)?;
        loop {
            let step = cut.next(Nanos(0), Answered::Done).map_err(Failure::input)?;
            writer.step(&step, &cut).map_err(fail)?;
            match step {
                Step::Op(op) => ops += u64::from(!op.is_setting()),
                Step::WaitUntil(_) => {}
                Step::End => return Ok(()),
            }
        }
    })
    .map_err(|failure| failure.with_option("--export"))?;
    if !common.quiet {
        remark(&format!("{ops} ops written to {}", path.display()));
    }
    Ok(())
}
