//! A program under way: the strategy under two audits, and what the workload knows of its buffers.

use vramlab_allocators::{Options, Spec, tiered};
use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply, Request, Use};
use vramlab_sim::audit::Audit;
use vramlab_sim::device::{DeviceOptions, Link, Links};
use vramlab_sim::driver::{DriverError, DriverExt};
use vramlab_sim::future::Future;
use vramlab_sim::machine::{Machine, Toucher};
use vramlab_sim::units::StreamId;

use super::Model;
use super::program::Op::{self, Alloc, EmptyCache, Free, Sync, Work};

const CAPACITY: u64 = 48 << 20;
const ALIGN: u64 = 256;

#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// None: its request was refused.
    block: Option<Block>,
    address: u64,
    size: u64,
    /// How often it was written.
    writes: u64,
    /// Which of these it holds; None: it is lost.
    holds: Option<u64>,
    /// Filled, and not used since.
    filled: bool,
    announced: bool,
    /// Streams that used it, and that of its request.
    streams: Vec<u32>,
}

/// A program under way.
pub(crate) struct Run {
    pub(crate) strategy: Audit<Box<dyn Allocator>>,
    pub(crate) model: Model,
    buffers: Vec<Buffer>,
    /// Numbers of live buffers.
    pub(crate) live: Vec<usize>,
    ordinal: u64,
    /// The op under way, and the last that uses each buffer.
    at: u64,
    last_uses: Vec<u64>,
    works: u64,
    restart_at: Option<u64>,
    pub(crate) lost: u64,
    pub(crate) lost_maybe: u64,
    pub(crate) out_of_memory: u64,
}

pub(crate) type Done = Result<(), AllocError>;

pub(crate) fn wrong(what: String) -> AllocError {
    AllocError::Driver(DriverError::Failed { call: "test", what: what.into() })
}

/// Is the strategy told of other streams that use it? Else the workload orders its free after them.
pub(crate) fn is_recorded(id: usize) -> bool {
    id.is_multiple_of(2)
}

impl Run {
    pub(crate) fn new(spec: &str, future: &Future) -> Self {
        let parsed: Spec = spec.parse().expect(spec);
        let options = &parsed.strategy().options;
        let inner = options.get("inner").unwrap_or("torch.caching");
        let inner = vramlab_allocators::build(&inner.parse().expect(spec)).expect(spec);
        let inner = Box::new(Audit::new(inner, ALIGN));
        let rest = Options::from_pairs(options.iter().filter(|(key, _)| *key != "inner"));
        let strategy = tiered::around(&parsed.strategy().name, &rest, inner, future).expect(spec);
        let link = |rate| Link { bytes_per_second: rate, latency_ns: 10_000 };
        let links = Links {
            host_to_device: link(12e9),
            device_to_host: link(10e9),
            disk: link(2e9),
            ..Links::INSTANT
        };
        let machine = SimMachine::new(DeviceOptions {
            capacity: CAPACITY,
            pack_small: true,
            links,
            ..DeviceOptions::default()
        });
        let mut last_uses = vec![0; future.requests.len()];
        future.uses.iter().for_each(|used| last_uses[used.ordinal as usize] = used.op);
        Self {
            at: 0,
            last_uses,
            strategy: Audit::of_mover(strategy, ALIGN),
            model: Model::new(machine),
            buffers: Vec::new(),
            live: Vec::new(),
            ordinal: 0,
            works: 0,
            restart_at: rest.get("restart_at").map(|text| text.parse().expect(spec)),
            lost: 0,
            lost_maybe: 0,
            out_of_memory: 0,
        }
    }

    fn alloc(&mut self, size: u64, stream: u32, filled: bool) -> Done {
        let request = Request { size, stream: StreamId(stream), ordinal: self.ordinal };
        self.ordinal += 1;
        let placed = match self.strategy.alloc(&mut self.model, &request) {
            Ok(placement) => Some(placement),
            Err(AllocError::OutOfMemory(_)) => None,
            Err(error) => return Err(error),
        };
        let id = self.buffers.len();
        self.live.push(id);
        let (block, address) = placed.map(|placed| (placed.block, placed.address)).unzip();
        if let Some(address) = address {
            self.model.born(address, size, Some((id, 0)));
            if filled {
                self.model.look(address, size, true, StreamId(stream))?;
                self.model.machine.launch(StreamId(stream), 1000)?;
                self.model.worked(address, size, StreamId(stream), Some((id, 1)));
            }
        }
        let writes = u64::from(filled);
        self.buffers.push(Buffer {
            block,
            address: address.unwrap_or_default(),
            size,
            writes,
            holds: Some(writes),
            filled,
            announced: false,
            streams: vec![stream],
        });
        Ok(())
    }

    fn free(&mut self, which: usize) -> Done {
        if self.live.is_empty() {
            return Ok(());
        }
        let id = self.live.swap_remove(which % self.live.len());
        if !is_recorded(id) {
            let home = self.buffers[id].streams[0];
            self.order(id, home)?;
        }
        match self.buffers[id].block {
            Some(block) => self.strategy.free(&mut self.model, block, None),
            None => Ok(()),
        }
    }

    /// The workload orders its own streams: what `stream` does next comes after all uses of the buffer.
    fn order(&mut self, id: usize, stream: u32) -> Done {
        let buffer = &mut self.buffers[id];
        for other in buffer.streams.iter().filter(|other| **other != stream) {
            let event = self.model.machine.event_create()?;
            self.model.machine.event_record(event, StreamId(*other))?;
            self.model.machine.wait_event(StreamId(stream), event)?;
            self.model.machine.event_destroy(event)?;
        }
        if !buffer.streams.contains(&stream) {
            buffer.streams.push(stream);
            if let Some(block) = buffer.block.filter(|_| is_recorded(id)) {
                let recorded = Notice::RecordStream { block, stream: StreamId(stream) };
                self.strategy.notice(&mut self.model, recorded)?;
            }
        }
        Ok(())
    }

    fn work(&mut self, stream: u32, ns: u64, uses: &[(usize, bool)]) -> Done {
        if self.live.is_empty() {
            return Ok(());
        }
        let used: Vec<(usize, bool)> = uses
            .iter()
            .map(|(which, write)| (self.live[which % self.live.len()], *write))
            .filter(|(id, _)| self.buffers[*id].block.is_some())
            .map(|(id, write)| (id, write && !self.buffers[id].filled))
            .collect();
        for (id, _) in &used {
            self.order(*id, stream)?;
        }
        if self.restart_at == Some(self.works) {
            self.restart();
        }
        self.works += 1;
        let mut announced: Vec<Use> = used
            .iter()
            .map(|(id, write)| {
                let Buffer { block, address, size, .. } = self.buffers[*id];
                Use { block: block.expect("it was placed"), address, size, write: *write }
            })
            .collect();
        let stream = StreamId(stream);
        match self.strategy.before_work(&mut self.model, stream, &mut announced) {
            Err(AllocError::OutOfMemory(_)) => {
                self.out_of_memory += 1;
                return Ok(());
            }
            other => other?,
        }
        for (now, (id, write)) in announced.iter().zip(&used) {
            self.check_use(*now, *id, *write, stream)?;
        }
        self.model.machine.launch(stream, ns)?;
        for (now, (id, write)) in announced.iter().zip(&used) {
            let buffer = &mut self.buffers[*id];
            buffer.address = now.address;
            (buffer.filled, buffer.announced) = (false, true);
            if *write {
                buffer.writes += 1;
                buffer.holds = Some(buffer.writes);
            }
            let written = write.then_some((*id, buffer.writes));
            self.model.worked(now.address, buffer.size, stream, written);
        }
        self.strategy.after_work(&mut self.model, stream, &announced)
    }

    /// The buffer is on the device, and what was written last is there.
    fn check_use(&mut self, now: Use, id: usize, write: bool, stream: StreamId) -> Done {
        let Buffer { size, holds, .. } = self.buffers[id];
        self.model.machine.touch(now.address, size, write, Toucher::Device(stream))?;
        let found = self.model.look(now.address, size, write, stream)?;
        let expected = holds.map(|version| (id, version));
        // of one that was never written, or is lost, nothing is known
        if holds.is_some_and(|version| version > 0) && found != expected {
            return Err(wrong(format!("buffer {id} holds {found:?}, expected {expected:?}")));
        }
        Ok(())
    }

    /// Device and host are lost: buffers are what the file has of them.
    fn restart(&mut self) {
        self.model.wipe();
        for id in &self.live {
            let buffer = &mut self.buffers[*id];
            let kept = self.model.in_file(*id);
            let used_again = self.last_uses[*id] + 1 >= self.at;
            if buffer.announced && (buffer.writes == 0 || !used_again) {
                self.lost_maybe += buffer.size; // it held nothing, or nothing that is asked for again
            } else if buffer.announced && buffer.holds.is_some() && kept != buffer.holds {
                self.lost += buffer.size;
            }
            (buffer.holds, buffer.filled) = (kept, false);
        }
    }

    pub(crate) fn op(&mut self, op: &Op) -> Done {
        self.at += 1;
        match op {
            Alloc(size, stream, filled) => self.alloc(*size, *stream, *filled),
            Free(which) => self.free(*which),
            Work(stream, ns, uses) => self.work(*stream, *ns, uses),
            EmptyCache => self.strategy.notice(&mut self.model, Notice::EmptyCache).map(drop),
            Sync => Ok(self.model.machine.device_synchronize()?),
        }
    }

    /// The strategy's usage, the machine's count and the layout agree.
    pub(crate) fn check_books(&mut self) -> Result<(), String> {
        let (usage, held) = (self.strategy.usage(), self.model.machine.held());
        if usage.reserved != held.reserved {
            return Err(format!(
                "reserved {}, the machine holds {}",
                usage.reserved, held.reserved
            ));
        }
        let walked = self.strategy.notice(&mut self.model, Notice::Walk);
        walked.map(drop).map_err(|error| error.to_string())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        match self.strategy.notice(&mut self.model, Notice::Counters) {
            Ok(Reply::Counters(counters)) => counters,
            other => panic!("counters: {other:?}"),
        }
    }

    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let counters = self.counters();
        counters.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}
