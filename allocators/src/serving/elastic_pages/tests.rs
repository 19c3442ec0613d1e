//! A test for each rule, and two tables of kvcached's own benchmarks.

use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{AllocError, Allocator, Notice};
use vramlab_sim::kv::{Below, KvError, NewSequence};

use super::blocks::Blocks;
use super::pages::{Limits, Pages};
use super::*;
use crate::serving::pool::Pool;
use crate::serving::testing::Bench;

/// One layer, four blocks of four tokens on each page of 4 MiB (K and V); nothing is mapped ahead or kept.
const SMALL: &str = "serving.elastic_pages:num_layers=1,block_size=4,token_bytes=262144,gpu_utilization=1,page_prealloc_enabled=false,max_reserved_pages=0";

fn small(options: &str) -> Bench {
    Bench::new(&format!("{SMALL}{options}"), 64 * MIB)
}

#[test]
fn compound_a_page_is_one_piece_of_memory_for_all_layers() {
    let spec = "serving.elastic_pages:page_prealloc_enabled=false,num_blocks=640";
    let mut bench = Bench::new(spec, 4 << 30);
    bench.begin(1, 1);
    // 64 blocks of 32 KiB on 2 MiB; 32 layers with K and V; the page of the null block, and the one of zeros
    assert_eq!(bench.usage().own, 2 * 64 * 2 * MIB);
    assert_eq!((bench.calls("cuMemAddressReserve"), bench.calls("cuMemCreate")), (1, 2));
    assert_eq!((bench.calls("cuMemMap"), bench.calls("cuMemUnmap")), (10 + 1, 1));
}

#[test]
fn block_fits_into_a_page_and_lies_on_no_two() {
    let spec = "serving.elastic_pages:num_layers=1,num_kv_buffers=1,block_size=1";
    let mut bench = Bench::new(&format!("{spec},token_bytes=3145728"), 64 * MIB);
    let too_large = bench.ask(&NewSequence { tokens: 1, ..NewSequence::default() });
    assert!(matches!(&too_large, Err(KvError::Below(AllocError::BadSetting(_)))), "{too_large:?}");
    // blocks of 768 KiB: 0 and 1 on the first page, 3 and 4 on the second, and 2 on both
    let mut bench = Bench::new(&format!("{spec},token_bytes=786432"), 64 * MIB);
    let a = bench.begin(1, 3).sequence;
    let first = bench.table(a)[0].0;
    let places: Vec<u64> =
        bench.table(a).iter().map(|(address, _)| (address - first) / 786_432).collect();
    assert_eq!(places, [0, 2, 3]);
}

#[test]
fn capacity_is_a_share_of_the_device_whoever_holds_it_now() {
    let mut bench = small(",gpu_memory_utilization=0.5");
    vramlab_sim::Machine::other_process(&mut bench.machine, 8 * MIB);
    bench.begin(1, 1);
    // 32 MiB are 8 pages with 31 blocks that can be used, of which one is taken
    assert_eq!(bench.usage().free, 30);
}

#[test]
fn available_is_also_what_the_device_has_above_the_headroom() {
    let spec = SMALL.replace("gpu_utilization=1", "gpu_utilization=0.75");
    let mut bench = Bench::new(&spec, 64 * MIB);
    bench.begin(1, 1);
    // 16 MiB stay free: of 48, 4 are zeros and 4 are the page in use
    assert_eq!(bench.usage().free, 2 + 4 * 10);
    vramlab_sim::Machine::other_process(&mut bench.machine, 32 * MIB);
    let refused = bench.ask(&NewSequence { tokens: 44, ..NewSequence::default() });
    assert!(matches!(refused, Err(KvError::Full(full)) if full.free == 2 + 4 * 2), "{refused:?}");
}

#[test]
fn best_page_is_the_fullest_that_holds_the_request_else_the_emptiest() {
    let mut bench = small(",enable_prefix_caching=false");
    let page = |bench: &Bench, sequence, at: usize| bench.table(sequence)[at].0 / (4 * MIB);
    // three full pages, the first with the null block; then with 0, 1 and 3 free blocks
    let [_, second, one, third, three] =
        [3, 3, 1, 1, 3].map(|blocks| bench.begin(1, 4 * blocks).sequence);
    [one, three].into_iter().for_each(|sequence| bench.end(sequence));
    let rest = bench.begin(1, 4).sequence;
    assert_eq!(page(&bench, rest, 0), page(&bench, second, 0), "1 block fits there best");
    bench.end(rest);
    let three = bench.begin(1, 4 * 3).sequence;
    assert_eq!(page(&bench, three, 0), page(&bench, third, 0), "the one that holds all");
    bench.end(three);
    let five = bench.begin(1, 4 * 5).sequence;
    assert_eq!(page(&bench, five, 2), page(&bench, third, 0), "first the one with most");
    assert_eq!(page(&bench, five, 3), page(&bench, second, 0), "then the other");
    assert_eq!(bench.counter("pages_in_use"), 4, "a new one only then");
}

#[test]
fn kept_pages_stay_mapped_up_to_a_number() {
    let mut bench = Bench::new(
        &SMALL.replace("max_reserved_pages=0", "max_reserved_pages=2,enable_prefix_caching=false"),
        64 * MIB,
    );
    let a = bench.begin(1, 15 * 4).sequence;
    assert_eq!((bench.counter("pages_in_use"), bench.usage().own), (4, 20 * MIB));
    bench.end(a);
    assert_eq!((bench.counter("pages_in_use"), bench.usage().own), (1, (1 + 2 + 1) * 4 * MIB));
    assert_eq!(bench.calls("cuMemRelease"), 1);
    bench.begin(2, 11 * 4);
    assert_eq!(bench.calls("cuMemCreate"), 5, "the kept ones serve");
}

#[test]
fn ahead_pages_are_mapped_up_to_a_number() {
    let spec = SMALL.replace("page_prealloc_enabled=false", "min_reserved_pages=3");
    let mut bench = Bench::new(&spec, 64 * MIB);
    bench.begin(1, 1);
    assert_eq!((bench.counter("pages_in_use"), bench.usage().own), (1, (1 + 1 + 3) * 4 * MIB));
    bench.begin(2, 16);
    assert_eq!((bench.counter("pages_in_use"), bench.usage().own), (2, (2 + 1 + 3) * 4 * MIB));
}

#[test]
fn null_block_keeps_its_page() {
    let mut bench = small(",max_cached_tokens=0");
    let a = bench.begin(1, 12).sequence;
    assert_eq!(bench.counter("pages_in_use"), 1);
    bench.end(a);
    assert_eq!((bench.counter("pages_in_use"), bench.usage().own), (1, 8 * MIB));
}

#[test]
fn retained_blocks_stay_up_to_a_limit_of_tokens() {
    for (limit, cached, hit) in [("-1", 5, 20), ("0", 0, 0), ("2", 1, 4), ("12", 3, 12)] {
        let mut bench = small(&format!(",max_cached_tokens={limit},page_aware=false"));
        let a = bench.begin(1, 21).sequence;
        bench.end(a);
        assert_eq!(bench.usage().cached, cached, "{limit}");
        assert_eq!(bench.begin(1, 21).hit, hit, "the tail went first: {limit}");
    }
}

#[test]
fn shortage_takes_retained_blocks_by_age() {
    let mut bench = small(",num_blocks=16");
    for text in [1, 2, 3] {
        let done = bench.begin(text, 17).sequence;
        bench.end(done);
    }
    let again = bench.begin(1, 17).sequence;
    bench.end(again);
    // 15 blocks: 4 of each text are retained, 3 are free; of 6 that are needed, 3 are the second text's
    bench.begin(4, 24);
    assert_eq!(bench.counter("evicted_blocks"), 3);
    assert_eq!([1, 3].map(|text| bench.ask(&look(text)).map(|new| new.hit)), [Ok(16), Ok(16)]);
    assert_eq!(bench.ask(&look(2)).map(|new| new.hit), Ok(4));
}

/// A look at 16 tokens of a text, and one more.
fn look(text: u64) -> NewSequence<'static> {
    const fn run(stream: u64) -> vramlab_sim::kv::KeyRun {
        vramlab_sim::kv::KeyRun { stream, first: 0, count: 17 }
    }
    static TEXTS: [[vramlab_sim::kv::KeyRun; 1]; 4] = [[run(0)], [run(1)], [run(2)], [run(3)]];
    NewSequence { tokens: 17, keys: &TEXTS[text as usize], chunk: Some(0), ..Default::default() }
}

#[test]
fn reset_frees_what_is_retained_whoever_is_live() {
    let mut bench = small("");
    let [a, b] = [1, 2].map(|text| bench.begin(text, 17).sequence);
    bench.end(a);
    bench.notice(Notice::Set { key: "reset_prefix_cache", value: "true" });
    assert_eq!((bench.usage().cached, bench.begin(2, 17).hit), (0, 0));
    bench.end(b);
    assert_eq!(bench.usage().cached, 0, "what was forgotten is not retained");
}

#[test]
fn trim_gives_back_pages_without_blocks() {
    let mut bench =
        Bench::new(&SMALL.replace("max_reserved_pages=0", "max_cached_tokens=0"), 64 * MIB);
    let a = bench.begin(1, 15 * 4).sequence;
    bench.end(a);
    assert_eq!(bench.usage().own, 20 * MIB);
    bench.notice(Notice::EmptyCache);
    assert_eq!(bench.usage().own, 8 * MIB);
}

/// A pool of blocks of 16 KiB in each of `layers` layers' K and V, 128 on a page.
fn pool(layers: u64, aware: bool, machine: &mut SimMachine, blocks: u64) -> ElasticPool {
    let limits = Limits { prealloc: false, min: 0, max: 0, utilization: 1.0 };
    let mut pool = ElasticPool {
        wanted: Some(blocks),
        utilization: 1.0,
        layers: Some(layers),
        buffers: 2,
        page: 2 * MIB,
        aware,
        most_cached: None,
        block_bytes: 0,
        blocks: Blocks::new(Pages::new(limits)),
        holders: Vec::new(),
        stamps: Vec::new(),
        index: Index::default(),
        retained: BTreeMap::new(),
        clock: 0,
        evicted: 0,
    };
    with_below(machine, |below| pool.start(below, 16 * 1024 * layers * 2, None)).expect("it fits");
    pool
}

fn with_below<T>(machine: &mut SimMachine, act: impl FnOnce(&mut Below<'_>) -> T) -> T {
    let spec = "cuda.malloc".parse().expect("a spec");
    let mut arena: Box<dyn Allocator> = crate::registry::build(&spec).expect("builds");
    act(&mut Below { arena: &mut *arena, driver: machine, ordinal: &mut 0 })
}

/// kvcached's `bench_frag`: 16,384 blocks are handed out, of which 1,024 are kept, each `stride` after the one before. With the null block, all begin one later.
#[test]
fn kept_blocks_pin_as_many_pages_as_they_lie_on() {
    for (stride, pages) in [(1, 8), (2, 16), (4, 32), (8, 64), (16, 128)] {
        let mut machine = SimMachine::of_capacity(16 << 30);
        let mut pool = pool(16, true, &mut machine, 32_768);
        let mut blocks = Vec::new();
        with_below(&mut machine, |below| {
            pool.take(below, &[], 16_384 + 127, &mut blocks).expect("it fits");
            // from the second page on, since the first has the null block
            let (first, blocks) = blocks.split_at(127);
            let kept = |(n, _): &(usize, &u32)| n % stride == 0 && n / stride < 1024;
            let free: Vec<u32> =
                blocks.iter().enumerate().filter(|b| !kept(b)).map(|(_, b)| *b).collect();
            pool.release(below, first).expect("they are held");
            pool.release(below, &free).expect("they are held");
        });
        assert_eq!(pool.blocks.pages.in_use(), pages + 1, "stride {stride}");
    }
}

/// kvcached's `bench_evict`: 4,096 blocks are retained, every `stride`-th of them used last; 512 may stay. GiB that come free, by age and by page.
#[test]
fn page_aware_frees_whole_pages_where_age_alone_frees_few() {
    for (stride, by_age, by_page) in
        [(1, "0.84", "0.88"), (2, "0.75", "0.88"), (4, "0.50", "0.88"), (8, "0.03", "0.88")]
    {
        for (aware, freed) in [(false, by_age), (true, by_page)] {
            let mut machine = SimMachine::of_capacity(4 << 30);
            let mut pool = pool(8, aware, &mut machine, 8192);
            let before = with_below(&mut machine, |below| {
                let mut blocks = Vec::new();
                pool.take(below, &[], 4096, &mut blocks).expect("it fits");
                blocks.iter().for_each(|block| pool.register(*block, u64::from(*block)));
                pool.release(below, &blocks).expect("they are held");
                let hot: Vec<u32> = blocks.iter().copied().step_by(stride).collect();
                pool.take(below, &hot, 0, &mut Vec::new()).expect("they are there");
                pool.release(below, &hot).expect("they are held");
                let before = pool.blocks.pages.in_use();
                pool.evict(below, 4096 - 512, pool.aware).expect("the device does");
                before
            });
            let bytes = (before - pool.blocks.pages.in_use()) * pool.blocks.pages.size();
            let gib = format!("{:.2}", bytes as f64 / f64::from(1 << 30));
            assert_eq!(gib, freed, "stride {stride}, by page {aware}");
        }
    }
}
