//! A test for each rule.

use vramlab_sim::kv::{KvError, NewSequence};

use crate::serving::testing::Bench;

const MIB: u64 = 1 << 20;

/// One layer, two tokens a page, 16 blocks of two pages, four places of eight blocks.
const SMALL: &str = "serving.vattention:num_layers=1,token_bytes=2097152,max_batch_size=4,max_context_length=16,gpu_memory_utilization=1";

fn small(options: &str) -> Bench {
    Bench::new(&format!("{SMALL}{options}"), 64 * MIB)
}

#[test]
fn pages_of_2_mib_or_smaller_ones_that_the_device_has() {
    let refused = |page: &str| {
        let spec = format!("serving.vattention:page_size={page}").parse().expect("a spec");
        crate::registry::build_cache(&spec).err().map(|e| e.to_string())
    };
    assert_eq!(["2MiB", "64KiB"].map(refused), [None, None]);
    assert!(refused("1MiB").is_some_and(|why| why.contains("expected 2MiB, 256KiB")));
}

#[test]
fn tokens_per_page_are_those_of_one_layer_or_of_all() {
    // 32 layers, 8 heads of 128 values of 2 bytes: 2 KiB a layer
    let mut bench = Bench::new("serving.vattention", 16 << 30);
    bench.begin(1, 1024);
    assert_eq!((bench.usage().used, bench.usage().slots), (1, 1024));
    assert_eq!(bench.usage().allocated, 64 * 2 * MIB);
    let mut bench = Bench::new("serving.vattention:megacache=true", 16 << 30);
    bench.begin(1, 1024);
    assert_eq!((bench.usage().used, bench.usage().slots), (32, 32 * 32));
    assert_eq!(bench.usage().allocated, 32 * 2 * 2 * MIB);
}

#[test]
fn addresses_are_for_the_greatest_context_of_every_place() {
    let mut bench = small("");
    let [a, b] = [1, 2].map(|text| bench.begin(text, 2).sequence);
    let (a, b) = (bench.table(a)[0].0, bench.table(b)[0].0);
    assert_eq!(b - a, 16 * MIB);
    assert_eq!(bench.calls("cuMemAddressReserve"), 2);
    let too_long = bench.ask(&NewSequence { tokens: 17, ..NewSequence::default() });
    assert_eq!(too_long, Err(KvError::TooLong { tokens: 17, limit: 16 }));
}

/// Its geometry stayed that of 32 layers and 4096 tokens, whatever model was served.
#[test]
fn geometry_is_the_models_unless_the_spec_says_otherwise() {
    let model = NewSequence {
        tokens: 1,
        token_bytes: Some(98_304),
        layers: Some(48),
        longest: Some(10_000),
        ..NewSequence::default()
    };
    let mut bench = Bench::new("serving.vattention", 16 << 30);
    bench.ask(&model).expect("it fits");
    assert_eq!((bench.calls("cuMemAddressReserve"), bench.usage().slots), (96, 2048));
    assert_eq!(
        bench.ask(&NewSequence { tokens: 10_001, ..model }),
        Err(KvError::TooLong { tokens: 10_001, limit: 10_000 })
    );
    let mut bench = Bench::new("serving.vattention:max_context_length=100", 16 << 30);
    bench.ask(&model).expect("it fits");
    assert_eq!(
        bench.ask(&NewSequence { tokens: 101, ..model }),
        Err(KvError::TooLong { tokens: 101, limit: 100 })
    );
    let mut bench = Bench::new("serving.vattention:num_layers=32", 16 << 30);
    let refused = bench.ask(&model).map_err(|error| error.to_string());
    assert!(
        refused.as_ref().is_err_and(|why| why.contains("num_layers=32")
            && why.contains("the workload's model has 48 layers")),
        "{refused:?}"
    );
}

/// Llama-2-13b has 204.8 tokens on a page: the last block of a full place was mapped behind its addresses, which the driver refuses.
#[test]
fn one_block_never_lies_behind_a_places_addresses() {
    let model = NewSequence {
        token_bytes: Some(819_200),
        layers: Some(40),
        longest: Some(4096),
        ..NewSequence::default()
    };
    let mut bench = Bench::new("serving.vattention:max_batch_size=1", 16 << 30);
    let whole = bench.ask(&NewSequence { tokens: 4096, ..model }).expect("it fits");
    assert_eq!((whole.blocks, bench.usage().used), (20, 20));
}

#[test]
fn addresses_beyond_the_address_space_are_a_refusal() {
    for length in
        ["1099511627776", "18014398509481984", "9223372036854775808", "18446744073709551615"]
    {
        let spec = format!("serving.vattention:max_context_length={length}");
        let mut bench = Bench::new(&spec, 16 << 30);
        let refused = bench.ask(&NewSequence { tokens: 1, ..NewSequence::default() });
        assert!(refused.as_ref().is_err_and(KvError::is_refusal), "{length}: {refused:?}");
        assert_eq!(bench.machine_reserved(), 0);
    }
}

#[test]
fn up_front_all_pages_are_created_and_none_goes_back() {
    // 7 pages of the 15 MiB; with 3 layers, blocks are of 6 pages
    let spec = "serving.vattention:num_layers=3,token_bytes=6291456,gpu_memory_utilization=1";
    let mut bench = Bench::new(spec, 15 * MIB);
    let only = bench.begin(1, 1).sequence;
    bench.end(only);
    assert_eq!((bench.calls("cuMemCreate"), bench.calls("cuMemRelease")), (6, 0));
    assert_eq!((bench.usage().own, bench.usage().free), (12 * MIB, 1));
}

#[test]
fn one_block_is_a_page_in_each_range() {
    let mut bench = small("");
    let a = bench.begin(1, 2).sequence;
    assert_eq!((bench.calls("cuMemMap"), bench.calls("cuMemSetAccess")), (2, 2));
    assert_eq!(bench.more(a, 1, 2, 1), Ok(0), "the step's end has mapped it ahead");
    assert_eq!(bench.counter("mapped_blocks"), 3, "one for 3 tokens, and one further ahead");
}

#[test]
fn best_fit_slot_is_the_smallest_that_suffices_but_for_the_first() {
    let mut bench = small("");
    let four = [3, 8, 6, 12].map(|tokens| bench.begin(tokens, tokens).sequence);
    let address = four.map(|sequence| bench.table(sequence)[0].0);
    four.into_iter().for_each(|sequence| bench.end(sequence));
    // blocks: 2, 4, 3, 6; for 3 blocks the first place is kept: none that suffices has fewer
    let a = bench.begin(9, 5).sequence;
    assert_eq!(bench.table(a)[0].0, address[0]);
    // now the first inactive one has 4 blocks, and the one with 3 suffices
    let b = bench.begin(9, 5).sequence;
    assert_eq!(bench.table(b)[0].0, address[2]);
    for text in 1..3 {
        bench.begin(text, 1);
    }
    let full = bench.ask(&NewSequence { tokens: 1, ..NewSequence::default() });
    assert_eq!(full, Err(KvError::NoPlace { limit: 4 }));
}

#[test]
fn in_step_what_a_prompt_needs_is_mapped_before() {
    let mut bench = small("");
    let admitted = bench.begin(1, 9);
    assert_eq!((admitted.blocks, bench.counter("mapped_blocks")), (5, 5));
}

#[test]
fn ahead_of_every_length_until_two_blocks_are_mapped() {
    let mut bench = small("");
    let [a, b] = [2, 1].map(|tokens| bench.begin(tokens, tokens).sequence);
    bench.mark();
    // for 1 token more: a has 3, which needs a block; for 2 more: b has 3, the second block, and that is enough
    assert_eq!(bench.counter("mapped_blocks"), 4);
    bench.mark();
    assert_eq!(bench.counter("mapped_blocks"), 4, "no step, no work");
    assert_eq!((bench.more(a, 1, 2, 1), bench.more(b, 2, 1, 2)), (Ok(0), Ok(0)));
}

#[test]
fn ahead_does_nothing_where_too_few_blocks_are_left() {
    let mut bench = small("");
    let [a, b] = [14, 16].map(|tokens| bench.begin(tokens, tokens).sequence);
    bench.mark();
    assert_eq!(bench.counter("mapped_blocks"), 16, "the last block is for the 15th token of one");
    let [c, d] = [1, 1].map(|_| bench.ask(&NewSequence { tokens: 2, ..NewSequence::default() }));
    assert!(c.is_ok() && matches!(d, Err(KvError::Full(_))), "{d:?}");
    bench.mark();
    assert_eq!(bench.counter("mapped_blocks"), 16, "2 blocks are wanted, none is left");
    let refused = bench.more(a, 1, 14, 1);
    assert!(refused.as_ref().is_err_and(KvError::is_refusal), "{refused:?}");
    bench.end(b);
    assert_eq!(bench.more(a, 1, 14, 1), Ok(1));
}

#[test]
fn kept_blocks_serve_the_next_in_their_place() {
    let mut bench = small("");
    let a = bench.begin(1, 9).sequence;
    bench.end(a);
    assert_eq!((bench.counter("mapped_blocks"), bench.usage().used), (5, 0));
    assert_eq!((bench.begin(2, 10).blocks, bench.calls("cuMemMap")), (0, 10));
}

#[test]
fn on_demand_the_highest_place_loses_its_last_blocks_first() {
    let mut bench = small("");
    let three = [16, 10, 6].map(|tokens| bench.begin(tokens, tokens).sequence);
    bench.end(three[1]);
    bench.end(three[2]);
    // 8 + 5 + 3 blocks are all; the fourth place needs 2, which the third loses
    for text in 1..3 {
        bench.begin(text, 4);
    }
    assert_eq!(bench.counter("mapped_blocks"), 16);
    assert_eq!(bench.calls("cuMemUnmap"), 0, "both places had enough");
    let fourth = bench.begin(8, 4);
    assert_eq!((fourth.blocks, bench.calls("cuMemUnmap")), (2, 2 * 2));
    assert_eq!(bench.counter("mapped_blocks"), 16);
}

#[test]
fn eager_reclaim_takes_a_block_in_a_step_that_needed_none() {
    for (options, unmapped) in [("", 0), (",deferred_reclaim=false", 1)] {
        let mut bench = small(options);
        let four = [1, 4, 4, 4].map(|tokens| bench.begin(tokens, tokens).sequence);
        four[1..].iter().for_each(|sequence| bench.end(*sequence));
        bench.mark();
        assert_eq!(bench.calls("cuMemUnmap"), unmapped * 2, "{options}");
    }
}

#[test]
fn free_blocks_are_those_in_no_place_and_those_beyond_the_lengths() {
    let mut bench = small("");
    let a = bench.begin(1, 2).sequence;
    bench.mark();
    assert_eq!((bench.counter("mapped_blocks"), bench.usage().free), (3, 15));
    bench.end(a);
    assert_eq!(bench.usage().free, 16);
}

#[test]
fn no_sharing_a_fork_is_a_copy() {
    let mut bench = small("");
    let a = bench.begin(1, 8).sequence;
    assert_eq!(bench.begin(1, 8).hit, 0);
    let fork = bench.fork(a).expect("there is room");
    assert_ne!(bench.table(fork.sequence), bench.table(a));
    assert_eq!((fork.hit, fork.blocks, bench.counter("copied_tokens")), (8, 4, 8));
}
