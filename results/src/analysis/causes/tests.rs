use vramlab_sim::units::StreamId;

use super::*;

const MIB: u64 = 1 << 20;

/// Knows of blocks what stands in the layout; requests are rounded to 512 B, above 1 MiB they come from the large pool.
struct Plain(Option<(u64, u64)>);

impl Knows for Plain {
    fn owner(&self, block: &LayoutBlock) -> Option<Owner> {
        let requested = block.requested;
        Some(Owner { life: None, requested, stream: None, death: block.age })
    }
    fn rounded(&self, size: u64) -> u64 {
        size.next_multiple_of(512)
    }
    fn pool(&self, size: u64) -> Option<&'static str> {
        Some(if size > MIB { "large" } else { "small" })
    }
    fn page(&self, _pool: &str) -> u64 {
        2 * MIB
    }
    fn used(&self, _segment: &LayoutSegment) -> Option<(u64, u64)> {
        self.0
    }
}

/// A segment at `address` of blocks (state, size, requested, death).
fn segment(address: u64, blocks: &[(BlockState, u64, u64, u64)]) -> LayoutSegment {
    let mut at = address;
    let blocks: Vec<LayoutBlock> = blocks
        .iter()
        .map(|&(state, size, requested, age)| {
            at += size;
            LayoutBlock { address: at - size, size, requested, state, age }
        })
        .collect();
    let size = at - address;
    LayoutSegment { address, size, pool: "large", blocks, ..LayoutSegment::default() }
}

const USED: BlockState = BlockState::Allocated;
const FREE: BlockState = BlockState::Free;

fn wanted(size: u64, stream: u32) -> Option<Wanted> {
    Some(Wanted { op: 9, size, stream, private_pool: None, failed: false })
}

#[test]
fn every_byte_has_one_cause() {
    let one = segment(
        0,
        &[
            (USED, 3 * MIB, 2 * MIB + 100, 50),
            (FREE, 4 * MIB, 0, 0),
            (BlockState::Pending, MIB, 7, 0),
            (USED, MIB, MIB, 70),
            (FREE, 11 * MIB, 0, 0),
        ],
    );
    let two = segment(64 * MIB, &[(FREE, 8 * MIB, 0, 0)]);
    let layout = Layout { segments: vec![one, two] };
    let requested = 3 * MIB + 100;
    let state = (30 * MIB, requested);
    let judged = judge(&layout, state, None, &Plain(Some((0, 10 * MIB)))).expect("adds up");
    let want = Causes {
        rounding: 412,
        unsplit_remainder: MIB - 512,
        waiting: MIB,
        cached: 8 * MIB,
        split_remainder: 10 * MIB,
        pinned: 5 * MIB,
        outside: 2 * MIB,
        ..Causes::default()
    };
    assert_eq!(judged.causes, want);
    assert_eq!(judged.causes.total(), 30 * MIB - requested);
    assert_eq!(judged.largest_free, 11 * MIB);
    let pin = judged.segments[0].pin.expect("something lives there");
    assert_eq!((pin.address, pin.size, pin.of), (8 * MIB, MIB, 3), "it lives longest");
    assert_eq!(judged.segments[1].pin, None);
    let adopted = judge(&layout, state, None, &Plain(None)).expect("adds up").causes;
    assert_eq!((adopted.pinned, adopted.split_remainder), (4 * MIB, 11 * MIB));
}

#[test]
fn memory_of_another_pool_or_stream_is_no_use_to_a_request() {
    let mut other = segment(64 * MIB, &[(FREE, 8 * MIB, 0, 0), (USED, MIB, MIB, 0)]);
    other.stream = StreamId(3);
    let layout = Layout { segments: vec![segment(0, &[(FREE, 2 * MIB, 0, 0)]), other] };
    let causes =
        |wanted| judge(&layout, (11 * MIB, MIB), wanted, &Plain(None)).expect("adds up").causes;
    assert_eq!(causes(wanted(5 * MIB, 0)).wrong_stream, 8 * MIB);
    assert_eq!(causes(wanted(5 * MIB, 3)).wrong_stream, 2 * MIB);
    assert_eq!(causes(wanted(5, 0)).wrong_pool, 10 * MIB);
    assert_eq!(causes(None).cached, 2 * MIB);
    for wanted in [wanted(5, 0), wanted(5 * MIB, 3), None] {
        assert_eq!(causes(wanted).total(), 10 * MIB);
    }
}

#[test]
fn whole_pages_of_an_expandable_segment_can_go_back() {
    let mut one = segment(MIB, &[(USED, MIB, MIB, 0), (FREE, 6 * MIB, 0, 0), (USED, MIB, MIB, 0)]);
    one.expandable = true;
    let layout = Layout { segments: vec![one] };
    let judged = judge(&layout, (8 * MIB, 2 * MIB), None, &Plain(None)).expect("adds up");
    assert_eq!((judged.causes.cached, judged.causes.pinned), (4 * MIB, 2 * MIB));
}

#[test]
fn a_layout_that_shows_more_than_is_held_is_not_judged() {
    let layout = Layout { segments: vec![segment(0, &[(FREE, 2 * MIB, 0, 0)])] };
    assert_eq!(judge(&layout, (MIB, 0), None, &Plain(None)), None);
}
