//! Which offsets are taken at some moment of a span of time.
//!
//! ```text
//!                 [0, 8)                     a binary tree over the moments. A placed span is written at the nodes that make it up
//!             ┌─────┴─────┐                  (`whole`), and at all above and including these (`some`): as merged ranges of offsets.
//!          [0, 4)      [4, 8)                A question reads `some` at the nodes that make up the span asked for, and `whole` above.
//!          ┌─┴─┐       ┌─┴─┐
//! ```
//! Ranges that touch are one, and what is placed densely becomes few ranges; so a question costs O(log n) nodes and as many ranges as there are
//! holes, not a look at every span that overlaps.

/// A range of offsets: begin, end.
type Range = (u32, u32);

#[derive(Clone, Debug, Default)]
struct Node {
    /// Taken at every moment of the node, written here.
    whole: Vec<Range>,
    /// Taken at some moment of the node.
    some: Vec<Range>,
}

/// The tree. Moments and offsets are the caller's units.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    /// A power of two.
    moments: u32,
    /// The root is number 1, the children of `n` are `2n` and `2n + 1`.
    nodes: Vec<Node>,
    found: Vec<Range>,
}

/// Merges a range into a list of ranges in order, which neither overlap nor touch.
fn insert(list: &mut Vec<Range>, range: Range) {
    let from = list.partition_point(|(_, end)| *end < range.0);
    let to = list.partition_point(|(begin, _)| *begin <= range.1);
    if from == to {
        list.insert(from, range);
        return;
    }
    list[from] = (range.0.min(list[from].0), range.1.max(list[to - 1].1));
    list.drain(from + 1..to);
}

impl Busy {
    /// For moments below `moments`.
    pub(crate) fn new(moments: u32) -> Self {
        let moments = moments.max(1).next_power_of_two();
        Self { moments, nodes: vec![Node::default(); 2 * moments as usize], found: Vec::new() }
    }

    /// The ranges taken at some moment from `begin` to before `end`, in order; none overlap or touch.
    pub(crate) fn taken(&mut self, begin: u32, end: u32) -> &[Range] {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        self.collect(1, (0, self.moments), (begin, end), &mut found);
        found.sort(); // it makes use of the runs in order that it is given
        let mut last = 0;
        for at in 1..found.len() {
            let range = found[at];
            if range.0 <= found[last].1 {
                found[last].1 = found[last].1.max(range.1);
            } else {
                last += 1;
                found[last] = range;
            }
        }
        found.truncate(last + 1);
        self.found = found;
        &self.found
    }

    fn collect(&self, node: usize, (from, to): Range, span: Range, found: &mut Vec<Range>) {
        if span.1 <= from || to <= span.0 {
            return;
        }
        if span.0 <= from && to <= span.1 {
            found.extend(&self.nodes[node].some);
            return;
        }
        found.extend(&self.nodes[node].whole);
        let middle = from + (to - from) / 2;
        self.collect(2 * node, (from, middle), span, found);
        self.collect(2 * node + 1, (middle, to), span, found);
    }

    /// The end of what is taken at some moment from `begin` to before `end`.
    pub(crate) fn top(&self, begin: u32, end: u32) -> u32 {
        self.highest(1, (0, self.moments), (begin, end))
    }

    fn highest(&self, node: usize, (from, to): Range, span: Range) -> u32 {
        let last = |list: &[Range]| list.last().map_or(0, |(_, end)| *end);
        if span.1 <= from || to <= span.0 {
            return 0;
        }
        if span.0 <= from && to <= span.1 {
            return last(&self.nodes[node].some);
        }
        let middle = from + (to - from) / 2;
        let below = self.highest(2 * node, (from, middle), span);
        let above = self.highest(2 * node + 1, (middle, to), span);
        last(&self.nodes[node].whole).max(below).max(above)
    }

    /// A range is taken at every moment from `begin` to before `end`.
    pub(crate) fn take(&mut self, begin: u32, end: u32, range: Range) {
        self.write(1, (0, self.moments), (begin, end), range);
    }

    fn write(&mut self, node: usize, (from, to): Range, span: Range, range: Range) {
        if span.1 <= from || to <= span.0 {
            return;
        }
        insert(&mut self.nodes[node].some, range);
        if span.0 <= from && to <= span.1 {
            insert(&mut self.nodes[node].whole, range);
            return;
        }
        let middle = from + (to - from) / 2;
        self.write(2 * node, (from, middle), span, range);
        self.write(2 * node + 1, (middle, to), span, range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::Dice;

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        let mut list = Vec::new();
        for range in [(10, 20), (30, 40), (0, 5), (20, 25), (4, 10), (50, 60), (24, 55)] {
            insert(&mut list, range);
        }
        assert_eq!(list, [(0, 60)]);
    }

    /// Against a table of moments and offsets.
    #[test]
    fn agrees_with_a_table() {
        const MOMENTS: u32 = 37;
        let mut dice = Dice::of_step_1(5);
        let mut random = |below: u32| dice.below(below.into()) as u32;
        let mut busy = Busy::new(MOMENTS);
        let mut table = vec![[false; 64]; MOMENTS as usize];
        for _ in 0..200 {
            let begin = random(MOMENTS);
            let end = begin + 1 + random(MOMENTS - begin);
            let want = |offset: usize| (begin..end).any(|moment| table[moment as usize][offset]);
            let taken = busy.taken(begin, end).to_vec();
            for offset in 0..64 {
                let found = taken.iter().any(|(from, to)| (*from..*to).contains(&(offset as u32)));
                assert_eq!(found, want(offset), "offset {offset} in {begin}..{end}");
            }
            assert!(taken.windows(2).all(|two| two[0].1 < two[1].0), "{taken:?}");
            assert_eq!(busy.top(begin, end), taken.last().map_or(0, |(_, end)| *end));
            let (from, length) = (random(60), 1 + random(4));
            busy.take(begin, end, (from, from + length));
            for moment in begin..end {
                table[moment as usize][from as usize..(from + length) as usize].fill(true);
            }
        }
    }
}
