//! What is said at the end of the process.

use std::fmt::Write;

use crate::enter::lock;
use crate::fake::Fake;

/// Has the report written when the process ends.
pub(crate) fn at_exit() {
    // SAFETY: the function takes nothing, and stays where it is as long as the library is loaded, which is to the end
    unsafe { libc::atexit(write) };
}

extern "C" fn write() {
    // the last to look: nothing of the fake stays behind
    let Some(mut fake) = lock().take() else { return };
    fake.leaves(None);
    if let Some(path) = &fake.settings.report {
        std::fs::write(path, fake.report()).ok();
    }
}

impl Fake {
    /// Notes what is live on a device, or on all.
    pub(crate) fn leaves(&mut self, device: Option<u16>) {
        let left = self.live.iter().filter(|((of, ..), _)| device.is_none_or(|one| one == *of));
        let left: Vec<_> = left.map(|(key, bytes)| (*key, *bytes)).collect();
        for (key, bytes) in left {
            let (device, kind, number) = key;
            self.leaks.push(format!("device {device}: {kind:?} {number:#x}, {bytes} bytes"));
            self.live.remove(&key);
        }
    }

    fn report(&self) -> String {
        let mut text = String::new();
        for (function, count) in self.settings.faults.counts() {
            let _ = writeln!(text, "called {function} {count}");
        }
        self.misuses.iter().for_each(|what| text += &format!("misuse {what}\n"));
        self.leaks.iter().for_each(|what| text += &format!("leak {what}\n"));
        text
    }
}
