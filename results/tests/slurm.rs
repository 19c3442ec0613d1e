//! The sbatch file on a real Slurm, from the distribution's packages, on this machine: an array of four tasks on two virtual nodes.
#![cfg(unix)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{Folder, call};

/// Ports of the cluster's daemons, on the loopback interface.
const PORTS: [u16; 3] = [27_817, 27_818, 27_819];

/// Where Debian puts a daemon.
fn daemon(name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/sbin").join(name);
    path.exists().then_some(path)
}

/// A cluster of two nodes with one processor each; ends when it is dropped.
struct Cluster {
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start(folder: &Path) -> Self {
        let mut cluster = Self { folder: folder.to_owned(), daemons: Vec::new() };
        fs::create_dir_all(folder.join("state")).expect("made");
        fs::create_dir_all(folder.join("spool")).expect("made");
        cluster.key();
        let of = |name: &str| folder.join(name).display().to_string();
        cluster.daemon(
            "munged",
            &[
                "-F",
                &format!("--key-file={}", of("munge.key")),
                &format!("--socket={}", of("munge.sock")),
                &format!("--pid-file={}", of("munged.pid")),
                &format!("--log-file={}", of("munged.log")),
                &format!("--seed-file={}", of("munged.seed")),
            ],
        );
        cluster.until("munged listens", || folder.join("munge.sock").exists());
        fs::write(folder.join("slurm.conf"), conf(folder)).expect("written");
        cluster.daemon("slurmctld", &["-D"]);
        cluster.daemon("slurmd", &["-D", "-N", "n1"]);
        cluster.daemon("slurmd", &["-D", "-N", "n2"]);
        cluster.until("both nodes are idle", || {
            let output = command(folder, "sinfo").args(["-h", "-o", "%D %t"]).output();
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == "2 idle")
        });
        cluster
    }

    /// What the daemons know each other by.
    fn key(&self) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.join("munge.key");
        fs::write(&path, [7; 1024]).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755)).expect("set");
    }

    fn daemon(&mut self, name: &str, args: &[&str]) {
        let log =
            fs::File::options().create(true).append(true).open(self.folder.join("daemons.log"));
        let log = log.expect("a log");
        let program = daemon(name).expect("looked for before");
        let mut command = command(&self.folder, &program.display().to_string());
        command.args(args).stdout(Stdio::null()).stderr(log);
        self.daemons.push(command.spawn().expect("starts"));
    }

    fn until(&self, what: &str, ready: impl Fn() -> bool) {
        let began = Instant::now();
        while !ready() {
            if began.elapsed() > Duration::from_secs(120) {
                let log = fs::read_to_string(self.folder.join("daemons.log")).unwrap_or_default();
                panic!("slurm: not after 120 s: {what}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn command(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("SLURM_CONF", folder.join("slurm.conf")).current_dir(folder);
    command
}

fn text_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn conf(folder: &Path) -> String {
    let host = text_of("uname", &["-n"]);
    let user = text_of("id", &["-un"]);
    let folder = folder.display();
    let [control, first, second] = PORTS;
    format!(
        "ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=1
PartitionName=all Nodes=n[1-2] Default=YES State=UP
"
    )
}

const GRID: &str = r#"
strategies = ["bound.live_floor", "torch.caching", "classic.best_fit"]
capacities = ["16GiB", "24GiB"]
[[input]]
workload = "churn"
seeds = 4
set = { allocs = [1000, 2000, 3000] }
"#;

#[test]
fn an_array_of_four_tasks_gives_the_bytes_of_one_process() {
    if ["munged", "slurmctld", "slurmd"].iter().any(|name| daemon(name).is_none()) {
        let required = std::env::var("VRAMLAB_REQUIRE_SLURM").is_ok_and(|value| value == "1");
        assert!(!required, "slurm: no daemons in /usr/sbin, and VRAMLAB_REQUIRE_SLURM=1");
        println!(
            "slurm: skipped, no daemons in /usr/sbin; apt-get install slurm-wlm slurm-client munge"
        );
        return;
    }
    let folder = Folder::new();
    let root = PathBuf::from(folder.path(""));
    let cluster = Cluster::start(&root.join("cluster"));
    let grid = folder.file("grid.toml", GRID);
    let (one, four) = (folder.path("one"), folder.path("four"));
    let done = |args: &[&str]| {
        let (code, out, err) = call(args);
        assert_eq!(code, 0, "{args:?}: {out}{err}");
    };
    done(&["sweep", &grid, "--out", &one]);
    let sbatch = Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm/vramlab.sbatch");
    let submit = |options: &[&str], args: &[&str]| {
        let output = command(&cluster.folder, "sbatch")
            .args(["--parsable", "--wait"])
            .args(options)
            .arg(&sbatch)
            .args([&*grid, &*four])
            .args(args)
            .env("VRAMLAB", env!("CARGO_BIN_EXE_vramlab"))
            .output()
            .expect("sbatch starts");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned() + &logs(&cluster.folder),
        )
    };
    let (ended_well, log) = submit(&["--array=0-3"], &[]);
    assert!(ended_well, "{log}");
    let shard = |n: u64| Path::new(&four).join(format!("shard-{n:04}-of-0004.parquet"));
    let kept = fs::read(shard(2)).expect("written by its task");

    // a task that is lost and submitted again, beside one that needs nothing
    fs::remove_file(shard(2)).expect("removed");
    let (ended_well, log) = submit(&["--array=2-3"], &["4"]);
    assert!(ended_well, "{log}");
    assert!(fs::read(shard(2)).expect("written again") == kept);
    // without the number of shards such a task would be taken for the whole sweep
    let (ended_well, log) = submit(&["--array=2"], &[]);
    assert!(!ended_well && log.contains("number of shards"), "{log}");

    let (a, b) = (folder.path("one.parquet"), folder.path("four.parquet"));
    done(&["merge", &one, "--out", &a]);
    done(&["merge", &four, "--out", &b]);
    assert!(fs::read(a).expect("written") == fs::read(b).expect("written"));
    println!("slurm: 4 tasks on 2 nodes, the bytes of one process");
}

/// What the tasks said.
fn logs(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let logs =
        files.filter(|file| file.file_name().to_string_lossy().starts_with("vramlab-sweep-"));
    logs.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect()
}
