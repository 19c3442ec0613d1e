//! `replay --plugin LIB.so`: any allocator library that PyTorch could load (`void* f(ssize_t, int, cudaStream_t)` and
//! `void f(void*, ssize_t, int, cudaStream_t)`), driven by a workload or recording over stand-ins for CUDA's libraries, without a GPU.
//!
//! The library finds the stand-ins as it would find CUDA's: by name. So the program starts itself again with a folder on the library path in which the
//! stand-ins bear those names; in that second process the library is loaded, and should it crash, the first one tells.
//!
//! | file | holds |
//! |---|---|
//! | `stand_in` | finding the stand-ins, starting the second process |
//! | `library` | is the file one that can be loaded? its functions |
//! | `strategy` | the library behind the seam of strategies |
//!
//! | rule | what it says |
//! |---|---|
//! | `one` | one input for a call of the command, on one device: a library keeps its state for as long as its process lasts |
//! | `reserved` | bytes held and driver calls are the stand-in driver's own count, whoever called it |
//! | `asked` | a library does not tell how it rounds: a block counts as the bytes that were asked for |
//! | `time` | a request costs what its driver calls cost; the library's own work is not timed |
//! | `null` | a null pointer is out of memory |

mod library;
mod stand_in;
mod strategy;

use std::path::{Path, PathBuf};

use clap::Args;
use vramlab_allocators::Spec;
use vramlab_allocators::registry::build_cache;
use vramlab_sim::engine::Locking;
use vramlab_sim::machine::Memory;

use crate::failure::{Failure, Outcome};
use crate::machine::{CudaMachine, Wanted};
use crate::options::RunArgs;
use crate::output::Format;
use crate::replay::{Row, Silence, show};
use crate::run::{How, Parts, driven};
use crate::stop::Stop;

/// A library, and the names of its functions.
#[derive(Debug, Args)]
pub(crate) struct PluginArgs {
    /// An allocator library for PyTorch, in place of a strategy; runs over stand-ins for CUDA's libraries, without a GPU, on the device of --device.
    #[arg(long, value_name = "LIB.so", conflicts_with = "strategy")]
    pub(crate) plugin: Option<PathBuf>,
    /// Its function that gives memory [default: the first of some usual names that it has].
    #[arg(long, value_name = "NAME", requires = "plugin", requires = "free_fn")]
    pub(crate) alloc_fn: Option<String>,
    /// Its function that takes memory back.
    #[arg(long, value_name = "NAME", requires = "plugin", requires = "alloc_fn")]
    pub(crate) free_fn: Option<String>,
    /// Its function for record_stream, void f(void*, cudaStream_t) [default: none, or ours].
    #[arg(long, value_name = "NAME", requires = "plugin")]
    pub(crate) record_stream_fn: Option<String>,
    /// Its function for empty_cache, void f(void) [default: none, or ours].
    #[arg(long, value_name = "NAME", requires = "plugin")]
    pub(crate) empty_cache_fn: Option<String>,
}

/// Runs the command: in the first process, or in the second.
pub(crate) fn command(
    file: &Path,
    names: &PluginArgs,
    args: &RunArgs,
    format: Format,
    stop: &Stop,
) -> Outcome {
    if !stand_in::is_second() {
        // what is wrong with the input is said before anything is started
        args.inputs(&args.profile()?)?;
        library::check(file)?;
        return stand_in::start_again(file, args, stop);
    }
    let profile = args.profile()?;
    let inputs = args.inputs(&profile)?;
    let [input] = inputs.as_slice() else {
        return Err(Failure::usage(format!(
            "found {} inputs, expected one: a library keeps its state from one to the next; run the command once for each",
            inputs.len()
        )));
    };
    let wanted = Wanted { devices: 1, limit: None, with_work: args.with_work };
    let mut machine = CudaMachine::open(wanted)?;
    let handles = machine.open_to_others().ok_or_else(|| {
        Failure::usage("found a real CUDA driver, expected the stand-in; is its folder first on LD_LIBRARY_PATH?")
    })?;
    let library = library::load(file, names)?;
    let name = file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let limit = args.limit().unwrap_or(profile.options.capacity);
    let mut row = Row::new(input, format!("plugin {name}"), limit);
    // sequences are buffers of the library that double, as for any allocator that is no cache
    let any: Spec = "cuda.malloc".parse().map_err(Failure::usage)?;
    let cache = build_cache(&any).map_err(Failure::usage)?;
    let parts = Parts {
        memory: Memory::Device,
        locking: Locking::default(),
        strategies: vec![Box::new(strategy::Foreign::new(library, handles))],
        caches: vec![cache],
    };
    let how = How { devices: 1, host_ns: 0, with_work: args.with_work };
    row.fill(driven(input, parts, &mut machine, how, &mut Silence, stop)?, stop);
    row.close(&mut machine);
    show(&[row], args, format, stop)
}
