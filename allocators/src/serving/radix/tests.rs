//! A test for each rule; `free_order` has its own beside the pages, the tree's are beside the tree.

use vramlab_sim::allocator::Notice;
use vramlab_sim::kv::{KvError, NewSequence, Sequence};

use crate::serving::testing::Bench;

/// Token slots 1 to 20, at 64 B each.
fn tokens() -> Bench {
    Bench::new("serving.radix:max_total_tokens=20,token_bytes=64", 1 << 30)
}

/// Five pages of four tokens.
fn pages() -> Bench {
    Bench::new("serving.radix:max_total_tokens=20,page_size=4,token_bytes=64", 1 << 30)
}

/// Numbers of the pages in which a sequence's tokens are.
fn numbers(bench: &mut Bench, sequence: Sequence) -> Vec<u64> {
    let page = bench.usage().slots / bench.usage().used * 64;
    let base = match bench.notice(Notice::Walk) {
        vramlab_sim::allocator::Reply::Layout(layout) => layout.segments[0].address,
        other => panic!("expected a layout, found {other:?}"),
    };
    bench.table(sequence).iter().map(|(address, _)| (address - base) / page).collect()
}

#[test]
fn pages_are_given_from_1_on_and_the_first_is_for_padding() {
    let mut bench = tokens();
    let a = bench.begin(1, 3).sequence;
    assert_eq!(numbers(&mut bench, a), [1, 2, 3]);
    assert_eq!((bench.usage().arena, bench.usage().free), (21 * 64, 17));
    let mut bench = pages();
    let a = bench.begin(1, 6).sequence;
    assert_eq!(numbers(&mut bench, a), [1, 2]);
    assert_eq!((bench.usage().arena, bench.usage().free), (24 * 64, 3));
}

#[test]
fn match_finds_whole_pages_and_all_tokens_but_one_at_most() {
    let mut bench = tokens();
    let a = bench.begin(1, 8).sequence;
    bench.end(a);
    assert_eq!([8, 5, 9].map(|tokens| bench.begin(1, tokens).hit), [7, 4, 8]);
    let mut bench = pages();
    let a = bench.begin(1, 8).sequence;
    bench.end(a);
    assert_eq!([8, 5].map(|tokens| bench.begin(1, tokens).hit), [4, 4]);
}

#[test]
fn lock_keeps_what_live_sequences_found() {
    let mut bench = tokens();
    let a = bench.begin(1, 10).sequence;
    bench.end(a);
    let b = bench.begin(1, 6);
    assert_eq!((b.hit, bench.usage().cached, bench.usage().free), (5, 5, 14));
    let c = bench.begin(2, 14).sequence;
    assert_eq!((bench.usage().free, bench.usage().cached), (0, 0));
    let d = bench.ask(&NewSequence { tokens: 1, ..NewSequence::default() });
    assert!(matches!(d, Err(KvError::Full(_))), "{d:?}");
    bench.end(c);
    assert_eq!(bench.begin(1, 10).hit, 5, "the rest of the first went for the third");
}

#[test]
fn after_prefill_others_find_the_prompt_but_not_in_the_same_step() {
    let mut bench = tokens();
    let a = bench.begin(1, 6).sequence;
    assert_eq!(bench.begin(1, 4).hit, 0);
    bench.mark();
    assert_eq!(bench.begin(1, 4).hit, 3);
    let mut bench = tokens();
    let a = [a, bench.begin(1, 6).sequence][1];
    assert_eq!(bench.more(a, 9, 0, 1), Ok(1));
    assert_eq!(bench.begin(1, 7).hit, 6);
}

#[test]
fn after_prefill_of_a_chunk_the_chunk_is_known() {
    let mut bench = tokens();
    let keys = [vramlab_sim::kv::KeyRun { stream: 1, first: 0, count: 9 }];
    let new = NewSequence { tokens: 9, keys: &keys, chunk: Some(3), ..NewSequence::default() };
    let a = bench.ask(&new).expect("there is room").sequence;
    assert_eq!(bench.more(a, 1, 3, 4), Ok(4));
    let look = NewSequence { chunk: Some(0), ..new };
    let hit = |bench: &mut Bench| bench.ask(&look).map(|admitted| admitted.hit);
    assert_eq!(hit(&mut bench), Ok(3), "the second chunk is under way");
    bench.mark();
    assert_eq!(hit(&mut bench), Ok(7));
}

#[test]
fn at_the_end_generated_tokens_are_known_too_but_for_a_page_that_is_not_full() {
    let mut bench = tokens();
    let a = bench.begin(1, 4).sequence;
    assert_eq!(bench.more(a, 1, 4, 3), Ok(3));
    assert_eq!(bench.begin(1, 8).hit, 4);
    bench.end(a);
    assert_eq!(bench.begin(1, 8).hit, 7);
    let mut bench = pages();
    let a = bench.begin(1, 4).sequence;
    assert_eq!(bench.more(a, 1, 4, 7), Ok(2));
    bench.end(a);
    assert_eq!((bench.usage().free, bench.usage().cached), (5, 2));
    assert_eq!(bench.begin(1, 12).hit, 8);
}

#[test]
fn no_duplicates_the_sequence_goes_on_with_the_trees_pages() {
    let mut bench = tokens();
    let [a, b] = [1, 1].map(|text| bench.begin(text, 5).sequence);
    assert_eq!(bench.usage().used, 10);
    bench.mark();
    assert_eq!((bench.usage().used, bench.counter("duplicate_pages")), (5, 5));
    assert_eq!(bench.table(a), bench.table(b));
    assert_eq!((bench.usage().filled, bench.usage().tokens), (5, 10));
}

#[test]
fn evict_takes_whole_leaves_least_recently_used_first() {
    let mut bench = tokens();
    for text in [1, 2, 3] {
        let done = bench.begin(text, 6).sequence;
        bench.end(done);
    }
    let again = bench.begin(1, 6).sequence;
    bench.end(again);
    // 2 slots are free, 3 are asked for: all 6 of the second text go
    let d = bench.begin(4, 3).sequence;
    assert_eq!((bench.counter("evicted_tokens"), bench.usage().free), (6, 17));
    assert_eq!([2, 1, 3].map(|text| bench.begin(text, 2).hit), [0, 1, 1]);
    bench.end(d);
}

#[test]
fn shortfall_counts_a_page_more_than_is_asked_for() {
    let mut bench = pages();
    for text in [1, 2, 3, 4] {
        let done = bench.begin(text, 4).sequence;
        bench.end(done);
    }
    // one page is free, and one is asked for; the real one makes room for two
    let a = bench.begin(5, 4).sequence;
    assert_eq!(bench.counter("evicted_tokens"), 4);
    // a generated token counts as a page, and one is free
    assert_eq!(bench.more(a, 5, 4, 1), Ok(1));
    assert_eq!(bench.counter("evicted_tokens"), 4);
    // of tokens of one slot each, just what is missing
    let mut bench = tokens();
    let a = bench.begin(1, 19).sequence;
    bench.end(a);
    bench.begin(2, 1);
    assert_eq!(bench.counter("evicted_tokens"), 0);
}

#[test]
fn flush_empties_the_tree_only_when_nothing_is_live() {
    let mut bench = tokens();
    let flush = Notice::Set { key: "flush_cache", value: "true" };
    let a = bench.begin(1, 6).sequence;
    bench.mark();
    bench.notice(flush.clone());
    assert_eq!(bench.begin(1, 3).hit, 2);
    let mut bench = tokens();
    let a = [a, bench.begin(1, 6).sequence][1];
    bench.end(a);
    bench.notice(flush);
    let b = bench.begin(1, 3);
    assert_eq!((b.hit, numbers(&mut bench, b.sequence)), (0, vec![1, 2, 3]));
}

#[test]
fn pool_size_is_the_share_of_the_device_less_what_is_taken() {
    let mut bench =
        Bench::new("serving.radix:mem_fraction_static=0.5,token_bytes=1048576", 1 << 30);
    vramlab_sim::Machine::other_process(&mut bench.machine, 12 << 20);
    bench.begin(1, 1);
    assert_eq!(bench.usage().free, 499);
}

#[test]
fn fork_finds_the_parents_tokens_and_copies_a_page_that_is_not_full() {
    let mut bench = pages();
    let a = bench.begin(1, 6).sequence;
    let b = bench.fork(a).expect("there is room");
    let (mine, yours) = (bench.table(a), bench.table(b.sequence));
    assert_eq!((b.hit, b.blocks, mine[0]), (6, 1, yours[0]));
    assert_ne!(mine[1].0, yours[1].0);
    assert_eq!((bench.counter("copied_tokens"), bench.usage().filled), (2, 8));
    let mut bench = tokens();
    let a = bench.begin(1, 6).sequence;
    let b = bench.fork(a).expect("there is room");
    assert_eq!((b.blocks, bench.table(a)), (0, bench.table(b.sequence)));
}
