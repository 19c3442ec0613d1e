//! Every wrapper of the registry around every strategy, under audit: what a strategy promises, it promises wrapped.

mod shared;

use shared::{Subject, for_every_strategy};
use vramlab_allocators::options::Options;
use vramlab_allocators::registry::WRAPPERS;
use vramlab_allocators::{Spec, find};
use vramlab_sim::allocator::{AllocError, Allocator, Notice, Reply, Usage};
use vramlab_sim::testing::Dice;
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::StreamId;
use vramlab_sim::{DeviceOptions, Setup, SimMachine};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 256 * MIB;

/// Every pair that there can be.
fn for_every_pair(scenario: impl Fn(&str)) {
    for_every_strategy(|strategy| {
        let shares = (strategy.shares)(&Options::default());
        for wrapper in WRAPPERS.iter().filter(|wrapper| !(shares && wrapper.many)) {
            scenario(&format!("{}+{}", strategy.name, wrapper.name));
        }
    });
}

/// Churn of up to 100 buffers on so many streams; then everything is freed.
fn churn(subject: &mut Subject, streams: u64) -> Vec<(u64, u64)> {
    let (mut dice, mut live, mut placed) = (Dice::new(5), Vec::new(), Vec::new());
    for step in 0..1000 {
        let (size, stream) = (dice.size(), dice.below(streams) as u32);
        if live.len() < 100 && dice.below(5) < 3 {
            match subject.alloc_on(stream, size) {
                Ok(placement) => {
                    placed.push((placement.address, placement.size));
                    live.push(placement.block);
                }
                Err(AllocError::OutOfMemory(_)) => placed.push((0, 0)),
                Err(other) => panic!("{}: {other}", subject.name),
            }
        } else if !live.is_empty() {
            let block = live.swap_remove(dice.below(live.len() as u64) as usize);
            if streams > 1 && dice.below(4) == 0 {
                subject.notice(Notice::RecordStream { block, stream: StreamId(stream) });
            }
            subject.free(block);
        }
        if step % 50 == 0 {
            subject.check();
        }
    }
    live.into_iter().for_each(|block| subject.free(block));
    placed
}

#[test]
fn everything_freed_leaves_nothing_in_use_and_an_empty_cache_leaves_nothing_held() {
    for_every_pair(|spec| {
        let mut subject = Subject::of_spec(spec, CAPACITY);
        churn(&mut subject, 3);
        subject.notice(Notice::Mark { name: "end" });
        let reply = subject.notice(Notice::EmptyCache);
        let usage = subject.usage();
        assert_eq!((usage.allocated, usage.active), (0, 0), "{spec}");
        assert!(reply == Reply::Unsupported || usage == Usage::default(), "{spec}: {usage:?}");
        subject.check();
    });
}

#[test]
fn same_ops_same_placements_and_one_stream_waits_for_nothing() {
    for_every_pair(|spec| {
        let [a, b] = [1, 1].map(|streams| {
            let mut subject = Subject::of_spec(spec, CAPACITY);
            let placed = churn(&mut subject, streams);
            let calls = vramlab_sim::Machine::calls(&subject.machine);
            assert_eq!(calls.get("cudaStreamWaitEvent"), 0, "{spec}");
            placed
        });
        assert_eq!(a, b, "{spec}");
    });
}

#[test]
fn huge_sizes_are_refused_and_a_second_free_too() {
    for_every_pair(|spec| {
        let mut subject = Subject::of_spec(spec, CAPACITY);
        let block = subject.place(700).block;
        let usage = subject.usage();
        for size in [CAPACITY + 1, 1 << 41, (1 << 63) - 1, 1 << 63, u64::MAX - 255, u64::MAX] {
            let answer = subject.alloc(size);
            let refused =
                matches!(answer, Err(AllocError::OutOfMemory(_) | AllocError::InvalidSize { .. }));
            assert!(refused, "{spec}: a request for {size} bytes: {answer:?}");
            assert_eq!(subject.usage(), usage, "{spec}");
        }
        let null = subject.place(0).block;
        subject.free(null);
        subject.free(block);
        let again = subject.try_free(block);
        assert!(matches!(again, Err(AllocError::UnknownBlock(b)) if b == block), "{spec}");
        assert_eq!(subject.usage().active, 0, "{spec}");
        subject.check();
    });
}

/// Two streams that read each other's buffers after an event.
fn shared_buffers() -> String {
    let (mut text, mut dice, mut live) = (String::new(), Dice::new(9), Vec::<u64>::new());
    let mut say = |line: String| text += &(line + "\n");
    for id in 0..800_u64 {
        let (stream, size) = (dice.below(2), dice.size());
        let other = 1 - stream;
        say(format!(r#"{{"op":"alloc","id":{id},"size":{size},"stream":{stream}}}"#));
        say(format!(r#"{{"op":"work","stream":{stream},"dur":5000,"writes":[{id}]}}"#));
        if dice.below(2) == 0 {
            say(format!(r#"{{"op":"event","event":{stream},"stream":{stream}}}"#));
            say(format!(r#"{{"op":"wait","event":{stream},"stream":{other}}}"#));
            say(format!(r#"{{"op":"work","stream":{other},"dur":9000,"reads":[{id}]}}"#));
            say(format!(r#"{{"op":"record_stream","id":{id},"stream":{other}}}"#));
        }
        live.push(id);
        if live.len() > 20 {
            let id = live.swap_remove(dice.below(20) as usize);
            say(format!(r#"{{"op":"free","id":{id}}}"#));
        }
    }
    text
}

#[test]
fn reuse_across_streams_is_ordered() {
    let text = shared_buffers();
    for_every_pair(|spec| {
        let parsed: Spec = spec.parse().expect(spec);
        if find(&parsed.strategy().name).is_ok_and(|s| s.plans_ahead()) {
            return; // it has no plan for these ops
        }
        let options = DeviceOptions { capacity: CAPACITY, ..Default::default() };
        let mut machine = SimMachine::new(options);
        let built = vramlab_allocators::build(&parsed).expect(spec);
        let mut strategies: Vec<Box<dyn Allocator>> = vec![built];
        let mut source = JsonlSource::new(text.as_bytes(), "streams");
        let report = vramlab_sim::run(&mut source, Setup::new(&mut machine, &mut strategies));
        let report = report.unwrap_or_else(|error| panic!("{spec}: {error}"));
        assert_eq!(report.race_count, 0, "{spec}: {:?}", report.races.first());
    });
}

#[test]
fn registry_lines_are_complete_and_unknown_options_are_refused() {
    for wrapper in WRAPPERS {
        let name = wrapper.name;
        assert!(!wrapper.summary.is_empty() && !wrapper.summary.ends_with('.'), "{name}");
        let build = |options: &str| {
            let spec = format!("cuda.malloc+{name}:{options}");
            vramlab_allocators::build(&spec.parse().expect(&spec)).err()
        };
        let error = build("no_such=1").expect("an unknown option").to_string();
        assert!(error.contains("no_such"), "{name}: {error}");
        for option in wrapper.options {
            let unknown = build(&format!("{}='{}'", option.name, option.default))
                .filter(|error| error.to_string().contains("has no option"));
            assert_eq!(unknown, None, "{name}:{}", option.name);
        }
    }
}

#[test]
fn what_a_device_has_once_cannot_be_there_for_each_stream() {
    for spec in [
        "cuda.async_pool+stream_safe",
        "torch.caching:backend=cudaMallocAsync+stream_safe",
        "serving.paged:arena=cuda.async_pool+stream_safe",
    ] {
        let refused = vramlab_allocators::build(&spec.parse::<Spec>().expect(spec));
        let error = refused.err().expect(spec).to_string();
        assert!(error.contains("expected a strategy that a device can have several of"), "{error}");
    }
    let one = "cuda.async_pool+eager_deletion".parse::<Spec>().expect("a spec");
    assert!(vramlab_allocators::build(&one).is_ok());
}
