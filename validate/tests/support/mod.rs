//! The program beside a stand-in driver, as a person runs it.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the driver's library is called: cudarc tries the first name before the second, the runtime only the second.
const LIBRARY_NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];
/// What the runtime's library is called, by versions.
const RUNTIME_NAMES: [&str; 3] = ["libcudart.so", "libcudart.so.12", "libcudart.so.13"];

/// A library of this repository, which cargo puts beside this test.
pub(crate) fn library(name: &str) -> PathBuf {
    use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
    let beside = std::env::current_exe().expect("this test has a path");
    let file = format!("{DLL_PREFIX}{name}{DLL_SUFFIX}");
    beside
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no {file} beside {}", beside.display()))
}

pub(crate) fn fake_driver() -> PathBuf {
    library("vramlab_fake_cuda")
}

/// A folder whose driver library has these bytes: one file by two names, so that who loads both has one driver.
pub(crate) fn folder_with(bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let [first, second] = LIBRARY_NAMES.map(|name| folder.path().join(name));
    std::fs::write(&first, bytes).expect("a file can be written there");
    std::fs::hard_link(&first, second).expect("and linked");
    folder
}

/// The fake driver without one of its functions, as an old driver: cudarc itself would panic at the first call of it. The copy's symbol is
/// renamed in place, which the ELF loader then does not find.
pub(crate) fn driver_without(symbol: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(fake_driver()).expect("the fake driver can be read");
    let gone = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let at: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i..].starts_with(&gone)).collect();
    assert!(!at.is_empty(), "the fake driver exports {symbol}");
    at.into_iter().for_each(|i| bytes[i + 1] = b'X');
    bytes
}

/// A fake driver in a folder of its own, with the files of a test beside it.
pub(crate) struct Fake {
    folder: tempfile::TempDir,
    settings: Vec<(String, String)>,
}

/// How a call ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    /// The fake driver's lines about calls, misuses and leaks.
    pub(crate) report: String,
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self::of(&std::fs::read(fake_driver()).expect("the fake driver can be read"))
    }

    /// With the stand-in for the runtime beside the driver.
    pub(crate) fn with_runtime() -> Self {
        let fake = Self::new();
        let runtime = library("vramlab_fake_cudart");
        for name in RUNTIME_NAMES {
            std::fs::copy(&runtime, fake.path(name)).expect("a file can be copied there");
        }
        fake
    }

    /// With these bytes as the driver.
    pub(crate) fn of(driver: &[u8]) -> Self {
        Self { folder: folder_with(driver), settings: Vec::new() }
    }

    /// With a setting, such as `DEVICE`.
    pub(crate) fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        let name = if name.is_empty() { String::new() } else { format!("_{name}") };
        self.settings.push((format!("VRAMLAB_FAKE_CUDA{name}"), value.into()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.folder.path().join(name), content).expect("written");
        self.path(name)
    }

    /// A command that finds this driver and no other.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("VRAMLAB_FAKE_CUDA_REPORT", self.path("report"))
            .envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    /// With a variable of any name.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.push((name.to_owned(), value.into()));
        self
    }

    /// Compiles a C program or, with `-shared`, a library of this folder.
    pub(crate) fn compile(&self, source: &str, to: &str, more: &[&str]) -> Option<PathBuf> {
        if Command::new("cc").arg("--version").output().is_err() {
            println!("{source}: skipped, no C compiler here");
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ffi").join(source);
        let built = PathBuf::from(self.path(to));
        let mut cc = Command::new("cc");
        cc.args(["-g", "-Wall", "-Werror"]).arg(source).arg("-o").arg(&built).args(more);
        let status = cc.args(["-ldl", "-lpthread"]).status();
        assert!(status.expect("cc starts").success());
        Some(built)
    }

    /// Runs under valgrind; `None` without one.
    pub(crate) fn valgrind(&self, program: &Path, args: &[&str]) -> Option<Ended> {
        if Command::new("valgrind").arg("--version").output().is_err() {
            println!("valgrind: skipped, none here");
            return None;
        }
        let program = program.display().to_string();
        let own = [
            "--error-exitcode=99",
            "--leak-check=full",
            "--trace-children=yes",
            "--errors-for-leak-kinds=definite",
            "-q",
            &program,
        ];
        Some(self.run_as("valgrind", &[&own[..], args].concat()))
    }

    /// Runs vramlab-validate.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.run_as(env!("CARGO_BIN_EXE_vramlab-validate"), args)
    }

    /// Runs another program.
    pub(crate) fn run_as(&self, program: impl AsRef<Path>, args: &[&str]) -> Ended {
        std::fs::remove_file(self.path("report")).ok();
        let output = self.command(program).args(args).output().expect("the program starts");
        self.ended(&output)
    }

    pub(crate) fn ended(&self, output: &std::process::Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it prints UTF-8");
        let err = text(&output.stderr);
        assert!(!err.contains("panicked"), "it never panics: {err}");
        let report = std::fs::read_to_string(self.path("report")).unwrap_or_default();
        let code = output.status.code().unwrap_or(-1);
        Ended { code, out: text(&output.stdout), err, report }
    }
}

impl Ended {
    /// Everything was given back, once, and nothing else.
    pub(crate) fn clean(&self) {
        let wrong = |line: &&str| line.starts_with("leak") || line.starts_with("misuse");
        let lines: Vec<&str> = self.report.lines().filter(wrong).collect();
        assert!(lines.is_empty(), "{lines:#?}");
        assert!(self.report.contains("called cuDevicePrimaryCtxRelease_v2"), "{}", self.report);
    }
}

/// A device file without packing, context or prices, of this capacity, granule and placement; `more` goes to the end.
pub(crate) fn device(capacity: u64, granule: u64, placement: &str, more: &str) -> String {
    let figure = |value: u64| {
        format!(
            "{{ value = {value}, unit = \"B\", source = \"a test\", date = \"2026-11-30\", trust = \"?\" }}"
        )
    };
    format!(
        "name = \"t\"\ntitle = \"Test GPU\"\n[cost_table]\nname = \"zero\"\nmeasured = false\n[memory]\ncapacity = {}\ngranule = {}\nplacement = \"{placement}\"\n{more}\n",
        figure(capacity),
        figure(granule)
    )
}
