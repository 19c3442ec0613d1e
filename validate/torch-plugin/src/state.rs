//! The process's devices behind one lock, and what is said to whom.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use vramlab_sim::allocator::Notice;
use vramlab_sim::op::Op;
use vramlab_sim::units::BufferId;

use crate::MempoolId;
use crate::device::{Device, Noted, Refused};
use crate::log::Log;
use crate::settings::Settings;

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// All there is.
pub(crate) struct State {
    /// Or what is wrong with them.
    settings: Result<Settings, String>,
    devices: BTreeMap<i32, Device>,
    log: Option<Log>,
    next: u32,
    /// What was said already: each kind of trouble is told once.
    said: Vec<&'static str>,
}

/// Acts on the state; `None` if that went wrong in a way that nobody foresaw, which is said. Nothing unwinds from here (rule `threads`).
pub(crate) fn with<T>(act: impl FnOnce(&mut State) -> T) -> Option<T> {
    let acted = catch_unwind(AssertUnwindSafe(|| {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        act(state.get_or_insert_with(State::new))
    }));
    if acted.is_err() {
        tell("a fault of this library, told above; please report it");
    }
    acted.ok()
}

/// Says it on standard error, if that can be written.
fn tell(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "vramlab_torch: {what}");
}

extern "C" fn at_exit() {
    with(State::finish);
}

impl State {
    fn new() -> Self {
        // SAFETY: the function takes nothing, and the C library drops it should this library be unloaded
        unsafe { libc::atexit(at_exit) };
        let settings = Settings::read(|name| std::env::var(name).ok());
        let mut state =
            Self { settings, devices: BTreeMap::new(), log: None, next: 0, said: Vec::new() };
        if let Ok(Settings { trace: Some(path), spec, .. }) = &state.settings {
            match Log::create(path, &format!("PyTorch through {spec}")) {
                Ok(log) => state.log = Some(log),
                Err(why) => state.say(
                    "trace",
                    &format!(
                        "cannot write VRAMLAB_TRACE={}: {why}; the run goes on without",
                        path.display()
                    ),
                ),
            }
        }
        state
    }

    /// Says it on standard error, unless something of this kind was said before.
    fn say(&mut self, kind: &'static str, what: &str) {
        if !self.said.contains(&kind) {
            self.said.push(kind);
            tell(what);
        }
    }

    /// Opens the device, if it is new.
    fn device(&mut self, device: i32) -> Result<&mut Device, String> {
        let settings = self.settings.as_ref().map_err(Clone::clone)?;
        if let std::collections::btree_map::Entry::Vacant(place) = self.devices.entry(device) {
            place.insert(Device::open(device, &settings.spec, settings.limit)?);
        }
        self.devices.get_mut(&device).ok_or_else(|| format!("device {device} is gone"))
    }

    pub(crate) fn check(&mut self, device: i32) -> Result<(), String> {
        self.device(device).map(drop)
    }

    fn note(&mut self, device: i32, noted: &[Noted]) {
        let number = u16::try_from(device).unwrap_or(u16::MAX);
        let Some(log) = &mut self.log else { return };
        let written = noted.iter().try_for_each(|(now, op)| log.op(number, *now, *op));
        self.written(written);
    }

    fn written(&mut self, written: std::io::Result<()>) {
        if let Err(why) = written {
            self.log = None;
            self.say("trace", &format!("the trace ends here, it cannot be written: {why}"));
        }
    }

    /// An address, or 0 (rule `null`).
    pub(crate) fn alloc(&mut self, size: isize, device: i32, stream: usize) -> u64 {
        if size == 0 {
            return 0;
        }
        let Ok(size) = u64::try_from(size) else {
            self.say("size", &format!("found a request of {size} bytes, expected 0 or more"));
            return 0;
        };
        let id = BufferId(self.next);
        self.next = self.next.wrapping_add(1);
        let mut noted = Vec::new();
        let device_of = self.device(device).map_err(Refused::from);
        let served = device_of.and_then(|device| device.alloc(size, stream, id, &mut noted));
        self.note(device, &noted);
        served.unwrap_or_else(|Refused { oom, why }| {
            let kind = if oom { "oom" } else { "alloc" };
            self.say(
                kind,
                &format!("a request of {size} bytes on device {device} gets a null pointer: {why}"),
            );
            0
        })
    }

    pub(crate) fn free(&mut self, address: u64, device: i32) {
        if address == 0 {
            return;
        }
        match self.device(device).and_then(|device| device.free(address)) {
            Ok(noted) => self.note(device, &[noted]),
            Err(why) => self.say("free", &format!("device {device}: {why}")),
        }
    }

    pub(crate) fn record_stream(&mut self, address: u64, stream: usize) {
        let found = self.devices.iter_mut().find(|(_, device)| device.is_live(address));
        let Some((number, device)) = found else {
            if address != 0 {
                self.say(
                    "record",
                    &format!(
                        "found record_stream of {address:#x}, expected an address that is live"
                    ),
                );
            }
            return;
        };
        let number = *number;
        match device.record_stream(address, stream) {
            Ok(noted) => self.note(number, &[noted]),
            Err(why) => self.say("record", &why),
        }
    }

    pub(crate) fn empty_cache(&mut self) {
        let numbers: Vec<i32> = self.devices.keys().copied().collect();
        for number in numbers {
            match self.device(number).and_then(|device| device.notice(Notice::EmptyCache)) {
                Ok((_, now)) => self.note(number, &[(now, Op::EmptyCache)]),
                Err(why) => self.say("empty", &why),
            }
        }
    }

    pub(crate) fn memory_fraction(&mut self, fraction: f64, device: i32) {
        const KEY: &str = "memory_fraction";
        let value = fraction.to_string();
        let told = self
            .device(device)
            .and_then(|device| device.notice(Notice::Set { key: KEY, value: &value }));
        match told {
            Ok((known, now)) => {
                if !known {
                    self.say(
                        "fraction",
                        "this strategy has no memory fraction; VRAMLAB_LIMIT sets a limit for any",
                    );
                }
                let number = u16::try_from(device).unwrap_or(u16::MAX);
                if let Some(written) =
                    self.log.as_mut().map(|log| log.set(number, now, KEY, &value))
                {
                    self.written(written);
                }
            }
            Err(why) => self.say("fraction", &why),
        }
    }

    pub(crate) fn begin_pool(&mut self, device: i32, pool: MempoolId) {
        match self.device(device) {
            Ok(device) => device.begin_pool(pool),
            Err(why) => self.say("pool", &why),
        }
    }

    pub(crate) fn end_pool(&mut self, device: i32, pool: MempoolId) {
        let done = self.device(device).and_then(|device| device.end_pool(pool));
        self.noted_pool(device, done);
    }

    pub(crate) fn release_pool(&mut self, device: i32, pool: MempoolId) {
        let done = self.device(device).and_then(|device| device.release_pool(pool));
        self.noted_pool(device, done);
    }

    fn noted_pool(&mut self, device: i32, done: Result<Vec<Noted>, String>) {
        match done {
            Ok(noted) => self.note(device, &noted),
            Err(why) => self.say("pool", &why),
        }
    }

    /// Ends the trace, and writes the summary.
    pub(crate) fn finish(&mut self) {
        if let Some(log) = self.log.take() {
            let ended = log.end();
            self.written(ended);
        }
        let path = self.settings.as_ref().ok().and_then(|settings| settings.summary.clone());
        let Some(path) = path else { return };
        let summaries = self.devices.values_mut().map(Device::summary);
        let lines: Result<Vec<String>, _> = summaries.map(|s| serde_json::to_string(&s)).collect();
        let written = lines
            .map_err(Into::into)
            .and_then(|lines| std::fs::write(&path, lines.join("\n") + "\n"));
        if let Err(why) = written {
            self.say("summary", &format!("cannot write VRAMLAB_SUMMARY={}: {why}", path.display()));
        }
    }
}
