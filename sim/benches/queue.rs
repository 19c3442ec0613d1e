//! The event queue in the hold model: pop the next event, push one at a random time after it; so many wait at all times.
//!
//! `std` is `BinaryHeap` over `Reverse((time, sequence, event))`, which gives the same order. Elements are events (one pop and one push).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramlab_sim::queue::EventQueue;
use vramlab_sim::testing::Dice;

/// Times between events: exponential, mean 2^20 ns, precomputed so that neither side pays for them.
fn delays() -> Vec<u64> {
    let mut dice = Dice::new(42);
    let mut draw = || {
        let uniform = ((dice.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * f64::from(1 << 20)) as u64
    };
    (0..1 << 16).map(|_| draw()).collect()
}

fn hold(c: &mut Criterion) {
    let delays = delays();
    for pending in [100, 10_000, 1_000_000_u32] {
        let mut group = c.benchmark_group(format!("queue/hold/{pending}"));
        group.throughput(Throughput::Elements(1));
        group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        // made once, outside of what criterion calls again and again; the first steps let the times spread as in the long run
        let mut next = delays.iter().cycle();
        let mut delay = || next.next().copied().unwrap_or_default();
        let mut queue = EventQueue::new();
        for event in 0..pending {
            queue.push(delay(), event);
        }
        let mut step = || {
            if let Some((now, event)) = queue.pop() {
                queue.push(now + delay(), black_box(event));
            }
        };
        (0..3 * pending).for_each(|_| step());
        group.bench_function("ours", |b| b.iter(&mut step));

        let mut next = delays.iter().cycle();
        let mut delay = || next.next().copied().unwrap_or_default();
        let mut sequence = 0..u64::MAX;
        let mut entry = |time, event| Reverse((time, sequence.next().unwrap_or_default(), event));
        let mut heap: BinaryHeap<_> = (0..pending).map(|event| entry(delay(), event)).collect();
        let mut step = || {
            if let Some(Reverse((now, _, event))) = heap.pop() {
                heap.push(entry(now + delay(), black_box(event)));
            }
        };
        (0..3 * pending).for_each(|_| step());
        group.bench_function("std", |b| b.iter(&mut step));
        group.finish();
    }
}

criterion_group!(benches, hold);
criterion_main!(benches);
