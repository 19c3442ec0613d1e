//! A PyTorch snapshot as an input: the history of each of its devices.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Recorded, file_name};
use vramlab_workloads::readers::torch_history::histories;
pub use vramlab_workloads::readers::torch_history::{DeviceRecording, History};
use vramlab_workloads::readers::torch_snapshot::Snapshot;

/// A PyTorch snapshot, with the histories in it.
pub struct SnapshotInput {
    /// Name of the file.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub snapshot: Arc<Snapshot>,
    /// Devices that have entries or segments.
    pub devices: Vec<DeviceRecording>,
    /// What does not add up.
    pub warnings: Vec<String>,
}

impl SnapshotInput {
    pub(super) fn new(path: &Path, snapshot: Snapshot) -> Self {
        let name = file_name(path);
        let snapshot = Arc::new(snapshot);
        let mut warnings: Vec<String> = snapshot.warnings.iter().map(ToString::to_string).collect();
        let unknown = snapshot.unknown_actions.iter();
        warnings.extend(
            unknown.map(|(name, n)| format!("{n} entries of unknown action {name:?} were skipped")),
        );
        let devices = histories(&snapshot, &vramlab_allocators::torch::rounded);
        Self { name, path: path.to_owned(), snapshot, devices, warnings }
    }

    /// The settings text that was in force.
    pub fn conf(&self) -> String {
        let Some(settings) = &self.snapshot.settings else { return String::new() };
        match settings.conf.as_deref() {
            Some(conf) if !conf.is_empty() => conf.to_owned(),
            _ if settings.expandable_segments == Some(true) => {
                "expandable_segments:True".to_owned()
            }
            _ => String::new(),
        }
    }

    /// Whose rules the recording follows: only 2.15 writes `host_segments`.
    pub fn torch_version(&self) -> &'static str {
        if self.snapshot.host_segments.is_some() { "2.15" } else { "2.9" }
    }
}

/// What a history tells of its device.
pub(super) fn recorded(device: &DeviceRecording) -> Recorded {
    let peak_reserved = Some(device.recording.peak_reserved());
    Recorded { capacity: device.capacity, peak_reserved }
}
