//! Ops of sequences through the engine, with a cache of a fixed number of slots that finds nothing.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::engine::{RunError, Setup, run};
use vramlab_sim::kv::{
    Admitted, Below, KvCache, KvError, KvFull, KvUsage, MoreTokens, NewSequence, Sequence,
    SlotRange,
};
use vramlab_sim::report::Report;
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{
    BufferUse, DeviceOptions, Nanos, Op, SimMachine, StreamId, op::NameId, op::TouchRange,
    units::BufferId, units::SequenceId,
};

/// Bytes of a token.
const TOKEN: u64 = 1024;

/// Every request is one of the driver's.
#[derive(Default)]
struct Plain(Usage);

impl Allocator for Plain {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let address = driver.malloc(request.size)?;
        let size = request.size;
        let all = self.0.reserved + size;
        self.0 = Usage { allocated: all, active: all, reserved: all };
        Ok(Placement { block: Block(address), address, size })
    }

    fn free(
        &mut self,
        _: &mut dyn Driver,
        block: Block,
        _: Option<StreamId>,
    ) -> Result<(), AllocError> {
        Err(AllocError::UnknownBlock(block))
    }

    fn notice(&mut self, _: &mut dyn Driver, _: Notice<'_>) -> Result<Reply, AllocError> {
        Ok(Reply::Unsupported)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.0
    }
}

/// 100 slots in blocks of 10.
#[derive(Default)]
struct Slots {
    live: Vec<u64>,
    usage: KvUsage,
    resets: u64,
}

impl Slots {
    fn count(&mut self) {
        let used: u64 = self.live.iter().map(|tokens| tokens.div_ceil(10)).sum();
        let tokens = self.live.iter().sum();
        self.usage = KvUsage {
            sequences: self.live.iter().filter(|tokens| **tokens > 0).count() as u64,
            tokens,
            filled: tokens,
            slots: used * 10,
            used,
            free: 10 - used,
            token_bytes: TOKEN,
            allocated: used * 10 * TOKEN,
            arena: 100 * TOKEN,
            ..KvUsage::default()
        };
    }

    fn set(&mut self, sequence: Sequence, tokens: u64) -> Result<u64, KvError> {
        let at = sequence.0 as usize;
        let before = *self.live.get(at).ok_or(KvError::UnknownSequence(sequence))?;
        let needed = tokens.div_ceil(10).saturating_sub(before.div_ceil(10));
        let free = self.usage.free;
        if needed > free {
            return Err(KvError::Full(KvFull { needed, free, ..KvFull::default() }));
        }
        self.live[at] = tokens;
        self.count();
        Ok(needed)
    }
}

impl KvCache for Slots {
    fn begin(&mut self, below: &mut Below<'_>, new: &NewSequence<'_>) -> Result<Admitted, KvError> {
        if self.usage.arena == 0 {
            below.alloc(100 * TOKEN)?;
            self.count();
        }
        self.live.push(0);
        let sequence = Sequence(self.live.len() as u64 - 1);
        match self.set(sequence, new.tokens) {
            Ok(blocks) => Ok(Admitted { sequence, hit: 0, blocks }),
            Err(error) => {
                self.live.pop();
                Err(error)
            }
        }
    }

    fn more(
        &mut self,
        _: &mut Below<'_>,
        sequence: Sequence,
        more: &MoreTokens<'_>,
    ) -> Result<u64, KvError> {
        let before = self.live[sequence.0 as usize];
        self.set(sequence, before + more.tokens)
    }

    fn fork(&mut self, _: &mut Below<'_>, from: Sequence) -> Result<Admitted, KvError> {
        let tokens = self.live[from.0 as usize];
        self.live.push(0);
        let sequence = Sequence(self.live.len() as u64 - 1);
        self.set(sequence, tokens).map(|blocks| Admitted { sequence, hit: tokens, blocks })
    }

    fn end(&mut self, _: &mut Below<'_>, sequence: Sequence) -> Result<(), KvError> {
        self.set(sequence, 0).map(drop)
    }

    fn notice(&mut self, _: &mut Below<'_>, notice: Notice<'_>) -> Result<Reply, KvError> {
        Ok(match notice {
            Notice::Set { key: "reset", .. } => {
                self.resets += 1;
                Reply::Done
            }
            Notice::Counters => Reply::Counters(vec![("resets", self.resets)]),
            _ => Reply::Unsupported,
        })
    }

    fn table(&self, _: Sequence) -> Result<Vec<SlotRange>, KvError> {
        Ok(Vec::new())
    }

    fn usage(&self) -> KvUsage {
        self.usage
    }
}

fn try_replay(lines: &[&str], devices: usize) -> Result<Report, RunError> {
    let text = lines.join("\n");
    let device = DeviceOptions { capacity: 1 << 30, ..DeviceOptions::default() };
    let mut machine = SimMachine::with_devices((0..2).map(|_| device.clone()));
    let mut strategies: Vec<Box<dyn Allocator>> =
        (0..2).map(|_| -> Box<dyn Allocator> { Box::<Plain>::default() }).collect();
    let mut caches: Vec<Box<dyn KvCache>> =
        (0..devices).map(|_| -> Box<dyn KvCache> { Box::<Slots>::default() }).collect();
    let mut source = JsonlSource::new(text.as_bytes(), "text");
    run(&mut source, Setup { caches: &mut caches, ..Setup::new(&mut machine, &mut strategies) })
}

fn replay(lines: &[&str]) -> Report {
    try_replay(lines, 2).expect("runs")
}

#[test]
fn figures_count_slots_of_blocks_in_use_and_not_the_whole_arena() {
    let report = replay(&[
        r#"{"op":"alloc","id":1,"size":5000}"#,
        r#"{"op":"kv_new","seq":1,"tokens":25}"#,
        r#"{"op":"kv_more","seq":1,"tokens":10}"#,
        r#"{"op":"kv_new","seq":2,"tokens":8}"#,
        r#"{"op":"kv_free","seq":1}"#,
        r#"{"op":"set","key":"reset","value":"1"}"#,
    ]);
    let (figures, kv) = (report.total, report.kv.expect("there were sequences"));
    assert_eq!(
        (figures.requested.peak, figures.requested.current),
        (5000 + 43 * TOKEN, 5000 + 8 * TOKEN)
    );
    assert_eq!(
        (figures.allocated.peak, figures.allocated.current),
        (5000 + 50 * TOKEN, 5000 + 10 * TOKEN)
    );
    assert_eq!(figures.reserved.peak, 5000 + 100 * TOKEN);
    assert_eq!(
        (kv.sequences.peak, kv.tokens.peak, kv.blocks_used.peak, kv.blocks_free),
        (2, 43, 5, 9)
    );
    assert_eq!((kv.looked_up, kv.hit, kv.internal_frag()), (33, 0, Some(7.0 / 50.0)));
    assert_eq!((report.allocs, report.counter("resets")), (4, Some(1)));
    assert!(report.unsupported.is_empty(), "the cache knows the setting: {:?}", report.unsupported);
}

#[test]
fn a_refused_sequence_is_counted_and_its_ops_are_skipped() {
    let report = replay(&[
        r#"{"op":"kv_new","seq":1,"tokens":95}"#,
        r#"{"op":"kv_new","seq":2,"tokens":10}"#,
        r#"{"op":"kv_more","seq":2,"tokens":10}"#,
        r#"{"op":"kv_fork","seq":3,"from":2}"#,
        r#"{"op":"kv_free","seq":3}"#,
        r#"{"op":"kv_free","seq":2}"#,
        r#"{"op":"kv_more","seq":1,"tokens":6}"#,
        r#"{"op":"kv_more","seq":1,"tokens":5}"#,
    ]);
    let kv = report.kv.expect("there were sequences");
    assert_eq!((kv.refused_sequences, kv.refused_tokens, kv.tokens.current), (1, 1, 100));
    assert_eq!((report.ooms, report.first_oom_op), (2, Some(1)));
    let first = report.first_oom.expect("words");
    assert_eq!(first, "no room in the cache: 1 blocks needed, 0 free");
}

#[test]
fn an_op_that_names_a_sequence_it_cannot_mean_ends_the_run() {
    let new = r#"{"op":"kv_new","seq":70,"tokens":5}"#;
    let elsewhere = try_replay(&[new, r#"{"op":"kv_more","seq":70,"tokens":1,"device":1}"#], 2);
    let error = elsewhere.expect_err("it is on device 0").to_string();
    assert_eq!(
        error,
        "op 1: kv_more of sequence 70, which is on another device; expected the sequence's own"
    );
}

#[test]
fn without_a_cache_the_ops_are_skipped_and_named() {
    let lines = [r#"{"op":"kv_new","seq":1,"tokens":5}"#, r#"{"op":"kv_free","seq":1}"#];
    let report = try_replay(&lines, 0).expect("runs");
    assert_eq!(report.unsupported, [("kv_new", 1), ("kv_free", 1)]);
    assert!(report.kv.is_none());
}

/// Asks for a sequence of so many tokens until it gets one, ten fewer each time.
struct Server {
    tokens: u64,
    heard: Vec<Answered>,
}

impl Source for Server {
    fn next(&mut self, _: Nanos, last: Answered) -> Result<Step, SourceError> {
        self.heard.push(last);
        if matches!(last, Answered::Slots { .. }) {
            return Ok(Step::End);
        }
        self.tokens -= 10;
        let seq = SequenceId(self.heard.len() as u32);
        Ok(Step::Op(Op::KvNew { seq }))
    }

    fn kv(&self) -> NewSequence<'_> {
        NewSequence { tokens: self.tokens, ..NewSequence::default() }
    }

    fn uses(&self) -> &[BufferUse] {
        &[]
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, _: NameId) -> &str {
        ""
    }

    fn name(&self, id: BufferId) -> u64 {
        u64::from(id.0)
    }

    fn independent(&self) -> bool {
        false
    }

    fn gaps(&self) -> u64 {
        0
    }
}

#[test]
fn a_server_hears_what_it_got() {
    let mut machine = SimMachine::of_capacity(1 << 30);
    let mut strategies: Vec<Box<dyn Allocator>> = vec![Box::<Plain>::default()];
    let mut caches: Vec<Box<dyn KvCache>> = vec![Box::<Slots>::default()];
    let mut server = Server { tokens: 130, heard: Vec::new() };
    let setup = Setup { caches: &mut caches, ..Setup::new(&mut machine, &mut strategies) };
    run(&mut server, setup).expect("runs");
    let full = Answered::OutOfMemory;
    assert_eq!(server.heard, [Answered::Done, full, full, Answered::Slots { hit: 0, blocks: 10 }]);
}
