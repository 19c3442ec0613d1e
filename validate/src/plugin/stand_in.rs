//! The stand-ins for CUDA's libraries, and the second process that finds them by CUDA's names.

use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::failure::{Code, Failure, Outcome};
use crate::options::RunArgs;
use crate::stop::Stop;

/// The second process knows itself by this variable.
const SECOND: &str = "VRAMLAB_PLUGIN_HOST";
/// Names the folder of the stand-ins, where they do not lie beside the program.
const FOLDER: &str = "VRAMLAB_STAND_INS";
const DRIVER: &str = "libvramlab_fake_cuda.so";
const RUNTIME: &str = "libvramlab_fake_cudart.so";
/// What they are called there.
const NAMES: [(&str, &[&str]); 2] = [
    (DRIVER, &["libcuda.so", "libcuda.so.1"]),
    (RUNTIME, &["libcudart.so", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"]),
];
/// How often the second process is looked at, and how long it has to stop when it is asked to.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn is_second() -> bool {
    std::env::var_os(SECOND).is_some()
}

/// The folder that both lie in: the one that is named, the program's, or cargo's below that.
fn folder() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(FOLDER).map(PathBuf::from);
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().into_iter().flat_map(|own| [own.to_owned(), own.join("deps")]);
    let mut all = named.into_iter().chain(beside);
    let complete = |folder: &PathBuf| NAMES.iter().all(|(file, _)| folder.join(file).is_file());
    all.find(complete).ok_or_else(|| {
        Failure::usage(format!(
            "found no {DRIVER} and {RUNTIME} beside {}; build them with cargo build -p vramlab-fake-cuda -p vramlab-fake-cudart, or name their folder with {FOLDER}",
            program.display()
        ))
    })
}

/// A folder in which they bear CUDA's names.
fn disguised() -> Result<tempfile::TempDir, Failure> {
    let from = folder()?;
    let from = from.canonicalize().unwrap_or(from);
    let made = || -> io::Result<tempfile::TempDir> {
        let to = tempfile::tempdir()?;
        for (file, names) in NAMES {
            for name in names {
                symlink(from.join(file), to.path().join(name))?;
            }
        }
        Ok(to)
    };
    made().map_err(|e| Failure::write(&std::env::temp_dir(), &e))
}

/// Starts the program again, beside the stand-ins, and tells how it ended.
pub(super) fn start_again(library: &Path, args: &RunArgs, stop: &Stop) -> Outcome {
    let folder = disguised()?;
    let program = std::env::current_exe();
    let start = |error: io::Error| {
        Failure::new(Code::CannotWrite, format!("this program cannot be started again: {error}"))
    };
    let mut command = Command::new(program.map_err(start)?);
    command.args(std::env::args_os().skip(1)).env(SECOND, "1");
    let paths = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let paths = std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&paths));
    let paths = std::env::join_paths(paths.filter(|path| !path.as_os_str().is_empty()));
    command.env(
        "LD_LIBRARY_PATH",
        paths.map_err(|e| Failure::usage(format!("LD_LIBRARY_PATH: {e}")))?,
    );
    command.env("VRAMLAB_FAKE_CUDA_DEVICE", &args.device);
    if let Some(limit) = args.limit() {
        command.env("VRAMLAB_FAKE_CUDA_CAPACITY", limit.to_string());
    }
    // a Ctrl-C in a terminal reaches the first process alone, which passes it on
    command.process_group(0);
    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec: one system call, which such a moment allows, and no memory is touched
    unsafe {
        command.pre_exec(|| {
            // nobody is left over if the first process is ended at once
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    let mut child = command.spawn().map_err(start)?;
    let status = wait(&mut child, stop).map_err(start)?;
    told(library, status)
}

/// Waits for the end; who is asked to stop asks the other, and does not wait for long.
fn wait(child: &mut Child, stop: &Stop) -> io::Result<ExitStatus> {
    let mut asked = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.asked() {
            let since = asked.get_or_insert_with(|| {
                ask(child);
                Instant::now()
            });
            if since.elapsed() > PATIENCE {
                child.kill()?;
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks it to stop.
fn ask(child: &Child) {
    let Ok(process) = libc::pid_t::try_from(child.id()) else { return };
    // SAFETY: sends a signal to our own child, which was not waited for yet: the number is still its own
    unsafe { libc::kill(process, libc::SIGTERM) };
}

fn told(library: &Path, status: ExitStatus) -> Outcome {
    let codes = [
        Code::Done,
        Code::Different,
        Code::Usage,
        Code::BadInput,
        Code::Partial,
        Code::NoDevice,
        Code::CannotWrite,
    ];
    if let Some(code) = codes.into_iter().find(|code| status.code() == Some(*code as i32)) {
        return Ok(code);
    }
    let how = match status.signal() {
        Some(signal) => format!("signal {signal} ended the process ({})", meaning(signal)),
        None => format!("the process ended itself with code {}", status.code().unwrap_or(-1)),
    };
    Err(Failure::new(
        Code::Partial,
        format!(
            "{}: {how} while the library was loaded and driven: there are no results. The library does not touch real memory here: device addresses are numbers, which it must not read or write",
            library.display()
        ),
    ))
}

fn meaning(signal: i32) -> &'static str {
    match signal {
        4 => "an illegal instruction",
        6 => "an abort, such as a failed assertion or an uncaught C++ exception",
        7 | 11 => "an access to memory that is not the process's",
        8 => "an arithmetic error",
        _ => "sent by someone, or by the system",
    }
}
