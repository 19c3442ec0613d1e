//! Scenarios that every cache of the registry goes through: a new registry line is tested by being there. The model beside it names those whose blocks
//! are there from the first sequence on, and those whose blocks come and go.
#![forbid(unsafe_code)]

mod kv_model;

use kv_model::{Subject, for_every_cache};
use vramlab_allocators::registry::{build, build_cache, check};
use vramlab_sim::allocator::{AllocError, Notice, Reply};
use vramlab_sim::driver::DriverError;
use vramlab_sim::kv::{Below, KeyRun, KvError, MoreTokens, NewSequence};
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;

const CAPACITY: u64 = 4 << 30;

fn text(stream: u64, count: u64) -> [KeyRun; 1] {
    [KeyRun { stream, first: 0, count }]
}

#[test]
fn registry_lines_are_complete_and_unknown_options_are_refused() {
    for_every_cache(|strategy| {
        let name = strategy.name;
        assert!(!strategy.summary.is_empty() && !strategy.summary.ends_with('.'), "{name}");
        let why = |spec: String| check(&spec.parse().expect("a spec")).err().map(|e| e.to_string());
        assert!(
            why(format!("{name}:no_such=1")).is_some_and(|why| why.contains("no_such")),
            "{name}"
        );
        for option in strategy.options {
            // the default may be a word that is no value, but the name must be known
            let unknown = why(format!("{name}:{}='{}'", option.name, option.default));
            let unknown = unknown.filter(|why| why.contains("has no option"));
            assert_eq!(unknown, None, "{name}");
            assert!(!option.help.is_empty(), "{name}: {}", option.name);
        }
        let on_itself = why(format!("{name}:arena={name}"));
        assert!(on_itself.is_some_and(|why| why.contains("that is no cache")), "{name}");
        assert_eq!(why(format!("{name}:arena='classic.tlsf:arena=50%'")), None, "{name}");
    });
}

#[test]
fn an_empty_sequence_has_no_slots_and_grows() {
    for_every_cache(|strategy| {
        let mut subject = Subject::new(strategy.name, CAPACITY);
        let run = |subject: &mut Subject| {
            assert!(subject.begin(&NewSequence::default())?, "{}", strategy.name);
            assert_eq!(subject.usage().tokens, 0, "{}", strategy.name);
            assert!(subject.more(0, &text(1, 1))?, "{}", strategy.name);
            assert!(subject.more(0, &[])?, "{}", strategy.name);
            subject.check()?;
            subject.end(0)
        };
        assert_eq!(run(&mut subject), Ok(()), "{}", strategy.name);
    });
}

/// Beyond the device, at 2^63, and where sums would pass 2^64: an answer, and the cache goes on as if nothing had been.
#[test]
fn huge_sequences_are_refused_and_never_wrap() {
    for_every_cache(|strategy| {
        let mut subject = Subject::new(strategy.name, CAPACITY);
        let small = NewSequence { tokens: 20, keys: &text(1, 20), ..NewSequence::default() };
        assert_eq!(subject.begin(&small), Ok(true), "{}", strategy.name);
        let usage = subject.usage();
        let refused = |subject: &mut Subject, new: &NewSequence<'_>| {
            let got = subject.call(|cache, below| cache.begin(below, new));
            assert!(got.as_ref().is_err_and(KvError::is_refusal), "{}: {got:?}", strategy.name);
            assert_eq!(subject.usage(), usage, "{}", strategy.name);
        };
        for tokens in [1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
            let keys = text(1, tokens);
            refused(&mut subject, &NewSequence { tokens, ..NewSequence::default() });
            refused(&mut subject, &NewSequence { tokens, keys: &keys, ..NewSequence::default() });
            refused(&mut subject, &NewSequence { headroom: Some(tokens), ..small });
            refused(&mut subject, &NewSequence { tokens, headroom: Some(tokens), ..small });
            let sequence = subject.live[0].sequence;
            let more = MoreTokens { tokens, keys: &[] };
            let got = subject.call(|cache, below| cache.more(below, sequence, &more));
            assert!(got.as_ref().is_err_and(KvError::is_refusal), "{}: {got:?}", strategy.name);
            assert_eq!(subject.usage(), usage, "{}", strategy.name);
        }
        assert_eq!(subject.check(), Ok(()), "{}", strategy.name);
        assert_eq!(subject.begin(&small), Ok(true), "{}", strategy.name);
    });
}

#[test]
fn a_full_cache_refuses_and_goes_on_when_a_sequence_has_ended() {
    for_every_cache(|strategy| {
        let mut subject = Subject::new(strategy.name, CAPACITY);
        let mut count = 0;
        loop {
            let keys = text(100 + count, 1000);
            let new = NewSequence { tokens: 1000, keys: &keys, ..NewSequence::default() };
            if !subject.begin(&new).expect(strategy.name) {
                break;
            }
            count += 1;
            assert!(count < 100, "{}: more than the device has", strategy.name);
        }
        assert!(count > 2, "{}: {count}", strategy.name);
        subject.end(0).expect(strategy.name);
        let keys = text(5, 1000);
        let new = NewSequence { tokens: 1000, keys: &keys, ..NewSequence::default() };
        assert_eq!(subject.begin(&new), Ok(true), "{}", strategy.name);
        assert_eq!(subject.check(), Ok(()), "{}", strategy.name);
    });
}

#[test]
fn ended_sequences_are_unknown_also_when_their_place_serves_another() {
    for_every_cache(|strategy| {
        let mut subject = Subject::new(strategy.name, CAPACITY);
        let new = NewSequence { tokens: 9, ..NewSequence::default() };
        assert_eq!(subject.begin(&new), Ok(true), "{}", strategy.name);
        let gone = subject.live[0].sequence;
        subject.end(0).expect(strategy.name);
        assert_eq!(subject.begin(&new), Ok(true), "{}", strategy.name);
        let unknown = KvError::UnknownSequence(gone);
        let more = MoreTokens { tokens: 1, keys: &[] };
        let got = subject.call(|cache, below| cache.more(below, gone, &more));
        assert_eq!(got, Err(unknown.clone()), "{}", strategy.name);
        let got = subject.call(|cache, below| cache.fork(below, gone));
        assert_eq!(got, Err(unknown.clone()), "{}", strategy.name);
        assert_eq!(subject.cache.table(gone), Err(unknown), "{}", strategy.name);
    });
}

#[test]
fn the_workload_says_what_a_token_takes_and_the_arena_serves_others() {
    for_every_cache(|strategy| {
        let mut subject = Subject::new(strategy.name, CAPACITY);
        let other = subject.call(|_, below| below.alloc(5 << 20)).expect(strategy.name);
        let new = NewSequence { tokens: 5, token_bytes: Some(1 << 16), ..NewSequence::default() };
        assert_eq!(subject.begin(&new), Ok(true), "{}", strategy.name);
        let later = NewSequence { token_bytes: Some(7), ..new };
        assert_eq!(subject.begin(&later), Ok(true), "{}", strategy.name);
        assert_eq!(subject.usage().token_bytes, 1 << 16, "{}", strategy.name);
        assert_eq!(subject.check(), Ok(()), "{}", strategy.name);
        subject.call(|_, below| below.free(other.block)).expect(strategy.name);
    });
}

#[test]
fn unknown_notices_change_nothing() {
    for_every_cache(|strategy| {
        let mut subject = Subject::new(strategy.name, CAPACITY);
        let new = NewSequence { tokens: 9, ..NewSequence::default() };
        assert_eq!(subject.begin(&new), Ok(true), "{}", strategy.name);
        let usage = subject.usage();
        for notice in [
            Notice::ResetPeak,
            Notice::Set { key: "no_such", value: "1" },
            Notice::PoolEnd { pool: vramlab_sim::PoolId(1) },
        ] {
            let reply = subject.call(|cache, below| cache.notice(below, notice));
            assert_eq!(reply, Ok(Reply::Unsupported), "{}", strategy.name);
            assert_eq!(subject.usage(), usage, "{}", strategy.name);
        }
        let counters = subject.call(|cache, below| cache.notice(below, Notice::Counters));
        assert!(
            matches!(counters, Ok(Reply::Counters(list)) if !list.is_empty()),
            "{}",
            strategy.name
        );
    });
}

/// A call of the driver that fails, whichever it is: an answer or the end of the run, with the books right.
#[test]
fn a_failing_driver_leaves_the_books_right() {
    const CALLS: [&str; 8] = [
        "cudaMalloc",
        "cudaMemGetInfo",
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
    ];
    for_every_cache(|strategy| {
        let mut failed = 0;
        for call in CALLS {
            let broken = DriverError::Failed { call, what: "on cue".into() };
            let full = DriverError::OutOfMemory { asked: 1, free: 0 };
            for (nth, error) in (0..12).flat_map(|nth| [(nth, broken.clone()), (nth, full.clone())])
            {
                failed += u64::from(fail_on(strategy.name, call, nth, error));
            }
        }
        assert!(failed > 0, "{}: no call failed", strategy.name);
        println!("{}: {failed} calls failed in turn", strategy.name);
    });
}

/// A short program, whose `nth` call of a name fails; was there one?
fn fail_on(name: &str, call: &str, nth: u64, error: DriverError) -> bool {
    let spec = name.parse().expect("a name is a spec");
    let (mut cache, mut arena) = (build_cache(&spec).expect(name), build(&spec).expect(name));
    let mut machine = ScriptedMachine::of_capacity(CAPACITY);
    machine.fail_on(call, nth, error.clone());
    let (mut ordinal, mut live) = (0, Vec::new());
    for step in 0..12 {
        let mut below = Below { arena: &mut *arena, driver: &mut machine, ordinal: &mut ordinal };
        let keys = text(step % 3, 700 + step);
        let new = NewSequence { tokens: 700 + step, keys: &keys, ..NewSequence::default() };
        let done = match live.first().copied() {
            Some(first) if step % 4 == 3 => {
                live.remove(0);
                cache.end(&mut below, first)
            }
            Some(first) if step % 4 == 2 => {
                cache.more(&mut below, first, &MoreTokens { tokens: 600, keys: &[] }).map(drop)
            }
            _ => cache.begin(&mut below, &new).map(|admitted| live.push(admitted.sequence)),
        };
        let label = format!("{name}: {call} fails ({error}) after {nth}, step {step}");
        let held = arena.usage().reserved + cache.usage().own;
        assert_eq!(held, machine.held().reserved, "{label}: {done:?}");
        let out_of_memory = matches!(error, DriverError::OutOfMemory { .. });
        match done {
            Ok(()) => assert!(out_of_memory || machine.has_cues(), "{label}: it is not answered"),
            Err(refusal) if refusal.is_refusal() => {
                assert!(
                    out_of_memory,
                    "{label}: {refusal}, but the driver's failure was no answer"
                );
            }
            Err(KvError::Below(AllocError::Driver(_))) => return true,
            Err(other) => panic!("{label}: {other}"),
        }
    }
    !machine.has_cues()
}
