//! Which blocks to compute again so that what is kept stays under a budget, at the least cost.
//!
//! A block is kept (all that its backward needs stays), or is one of a group of neighbours of which only the first one's input stays. When a group's turn comes in
//! backward all it needs is there at once, so
//!
//! ```text
//! kept = Σ kept blocks + Σ inputs of groups + the largest group ≤ budget
//! ```
//!
//! is to hold while the operations that are done again are as few as can be. For each bound on the largest group, a table over blocks and bytes left
//! (dynamic programming; bytes in 1/512 of the budget, rounded up, so that the budget holds). Where rounding leaves no choice, the one that keeps
//! least is taken if it fits. Source: Chen et al. 2016; the table as in knapsacks.

use std::ops::Range;

use crate::graph::network::{Graph, Node};
use crate::graph::tensor::{Role, Tensor, TensorId};

/// Steps in which bytes are counted.
const BUCKETS: usize = 512;
/// Most bounds on the largest group that are tried.
const BOUNDS_MAX: usize = 32;

/// What a block costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Block {
    /// What its backward needs (B).
    pub(super) saved: u64,
    /// What it begins from (B).
    pub(super) input: u64,
    /// Operations of its forward.
    pub(super) work: f64,
}

impl Block {
    /// Of the operators of a range.
    pub(super) fn of(graph: &Graph, range: &Range<usize>) -> Self {
        let nodes = &graph.nodes()[range.clone()];
        let made: Vec<TensorId> = nodes.iter().flat_map(|node| node.outputs.clone()).collect();
        let saved = storages(graph, nodes.iter().flat_map(|node| graph.saved(node)));
        let outer = |id: &TensorId| !made.contains(&graph.storage(*id));
        let input = storages(graph, nodes.iter().flat_map(|n| n.inputs.clone()).filter(outer));
        Self { saved, input, work: nodes.iter().map(|node| work(graph, node)).sum() }
    }
}

/// Bytes of the activations behind these, each storage once.
fn storages(graph: &Graph, ids: impl Iterator<Item = TensorId>) -> u64 {
    let mut bases: Vec<TensorId> = ids.map(|id| graph.storage(id)).collect();
    bases.sort_unstable();
    bases.dedup();
    let activations = bases.into_iter().map(|id| graph.get(id));
    activations.filter(|t| t.role == Role::Activation).map(Tensor::bytes).sum()
}

/// Operations of an operator, or the numbers that it writes where it has none.
fn work(graph: &Graph, node: &Node) -> f64 {
    let written: u64 = node.outputs.iter().map(|id| graph.get(*id).numbers()).sum();
    graph.flops(node).max(written as f64)
}

/// Groups of blocks to compute again, as ranges of blocks.
///
/// # Errors
/// When the budget cannot be met: what is kept at least (B).
pub(super) fn choose(blocks: &[Block], budget: u64) -> Result<Vec<Range<usize>>, u64> {
    let mut best: Option<(f64, Vec<Range<usize>>)> = None;
    let bounds = bounds(blocks);
    for bound in &bounds {
        let Some(left) = budget.checked_sub(*bound) else { continue };
        if let Some(found) = with_bound(blocks, *bound, left)
            && best.as_ref().is_none_or(|(cost, _)| found.0 < *cost)
        {
            best = Some(found);
        }
    }
    if let Some((_, groups)) = best {
        return Ok(groups);
    }
    // rounding may hide the last choice that fits
    let leanest = bounds.iter().map(|bound| leanest(blocks, *bound));
    let least = leanest.map(|groups| (kept(blocks, &groups), groups)).min_by_key(|(b, _)| *b);
    match least {
        Some((bytes, groups)) if bytes <= budget => Ok(groups),
        Some((bytes, _)) => Err(bytes),
        None => Ok(Vec::new()),
    }
}

/// The choice that keeps least beside the largest group, whatever it costs, where no group needs more than `bound`.
fn leanest(blocks: &[Block], bound: u64) -> Vec<Range<usize>> {
    // by block: bytes that are kept from there on, and the end of what begins there (the block itself: it is kept)
    let mut table = vec![(0_u64, 0); blocks.len() + 1];
    for first in (0..blocks.len()).rev() {
        let mut best = (blocks[first].saved.saturating_add(table[first + 1].0), first);
        let mut saved = 0_u64;
        for end in first + 1..=blocks.len() {
            saved = saved.saturating_add(blocks[end - 1].saved);
            let whole = blocks[first].input.saturating_add(table[end].0);
            if saved > bound {
                break;
            }
            if whole < best.0 {
                best = (whole, end);
            }
        }
        table[first] = best;
    }
    let (mut at, mut groups) = (0, Vec::new());
    while at < blocks.len() {
        let end = table[at].1;
        if end > at {
            groups.push(at..end);
        }
        at = end.max(at + 1);
    }
    groups
}

/// What the largest group may need: 0, the largest block, all blocks, and sizes of groups between.
fn bounds(blocks: &[Block]) -> Vec<u64> {
    let largest = blocks.iter().map(|block| block.saved).max().unwrap_or(0);
    let mut sizes = vec![0];
    for first in 0..blocks.len() {
        let mut sum = 0_u64;
        for block in &blocks[first..] {
            sum = sum.saturating_add(block.saved);
            sizes.push(sum);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    let step = sizes.len().div_ceil(BOUNDS_MAX).max(1);
    let all = sizes.last().copied();
    let mut chosen: Vec<u64> = sizes.into_iter().step_by(step).collect();
    chosen.extend(all.into_iter().chain([largest]));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// The cheapest choice in which no group needs more than `bound` and what is kept comes to at most `left`.
fn with_bound(blocks: &[Block], bound: u64, left: u64) -> Option<(f64, Vec<Range<usize>>)> {
    let unit = (left / BUCKETS as u64).max(1);
    let need = |bytes: u64| bytes.div_ceil(unit) as usize;
    // by block and buckets left: the least cost from there on, and the end of what begins there (the block itself: it is kept)
    let mut table = vec![vec![(f64::INFINITY, 0); BUCKETS + 1]; blocks.len() + 1];
    table[blocks.len()].fill((0.0, 0));
    for first in (0..blocks.len()).rev() {
        for room in 0..=BUCKETS {
            let mut best = (f64::INFINITY, first);
            if let Some(after) = room.checked_sub(need(blocks[first].saved)) {
                best.0 = table[first + 1][after].0;
            }
            if let Some(after) = room.checked_sub(need(blocks[first].input)) {
                let (mut saved, mut cost) = (0_u64, 0.0);
                for end in first + 1..=blocks.len() {
                    saved = saved.saturating_add(blocks[end - 1].saved);
                    cost += blocks[end - 1].work;
                    if saved > bound {
                        break;
                    }
                    let whole = cost + table[end][after].0;
                    if whole < best.0 {
                        best = (whole, end);
                    }
                }
            }
            table[first][room] = best;
        }
    }
    let all = (left / unit).min(BUCKETS as u64) as usize;
    let (mut at, mut room, mut groups) = (0, all, Vec::new());
    let cost = table[0][room].0;
    if cost.is_infinite() {
        return None;
    }
    while at < blocks.len() {
        let end = table[at][room].1;
        if end == at {
            room -= need(blocks[at].saved);
            at += 1;
        } else {
            room -= need(blocks[at].input);
            groups.push(at..end);
            at = end;
        }
    }
    Some((cost, groups))
}

/// What a choice keeps at most (B).
pub(super) fn kept(blocks: &[Block], groups: &[Range<usize>]) -> u64 {
    let again = |i: usize| groups.iter().any(|group| group.contains(&i));
    let alone = (0..blocks.len()).filter(|i| !again(*i)).map(|i| blocks[i].saved).sum::<u64>();
    let inputs = groups.iter().map(|group| blocks[group.start].input).sum::<u64>();
    let of = |group: &Range<usize>| blocks[group.clone()].iter().map(|b| b.saved).sum::<u64>();
    alone + inputs + groups.iter().map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// All choices, for few blocks.
    fn cheapest(blocks: &[Block], budget: u64) -> Option<f64> {
        fn walk(
            blocks: &[Block],
            at: usize,
            groups: &mut Vec<Range<usize>>,
            budget: u64,
            best: &mut Option<f64>,
        ) {
            if at == blocks.len() {
                if kept(blocks, groups) <= budget {
                    let cost = groups.iter().flat_map(|g| &blocks[g.clone()]).map(|b| b.work).sum();
                    *best = Some(best.map_or(cost, |old: f64| old.min(cost)));
                }
                return;
            }
            walk(blocks, at + 1, groups, budget, best);
            for end in at + 1..=blocks.len() {
                groups.push(at..end);
                walk(blocks, end, groups, budget, best);
                groups.pop();
            }
        }
        let mut best = None;
        walk(blocks, 0, &mut Vec::new(), budget, &mut best);
        best
    }

    #[test]
    fn a_choice_keeps_the_budget_and_is_nearly_the_cheapest() {
        let mut rng = Rng::new(7, "budget");
        for _ in 0..60 {
            let blocks: Vec<Block> = (0..rng.between(1, 6))
                .map(|_| Block {
                    saved: rng.between(10, 100) << 20,
                    input: rng.between(1, 9) << 20,
                    work: rng.between(1, 50) as f64,
                })
                .collect();
            let budget = rng.between(20, 300) << 20;
            let best = cheapest(&blocks, budget);
            match choose(&blocks, budget) {
                Ok(groups) => {
                    assert!(kept(&blocks, &groups) <= budget);
                    let cost: f64 =
                        groups.iter().flat_map(|g| &blocks[g.clone()]).map(|b| b.work).sum();
                    // rounding by 1/512 may cost a block
                    assert!(cost <= best.unwrap() + 50.0, "{cost} {best:?}");
                }
                Err(least) => {
                    assert!(least > budget && best.is_none());
                    assert!(cheapest(&blocks, least).is_some());
                    assert!(cheapest(&blocks, least - 1).is_none());
                }
            }
        }
    }

    #[test]
    fn without_need_nothing_is_computed_again() {
        let block = Block { saved: 100, input: 10, work: 1.0 };
        assert_eq!(choose(&[block; 4], 1 << 20), Ok(Vec::new()));
        assert_eq!(choose(&[block; 4], 50), Err(140));
    }

    /// A bound of one block was left out where blocks are many and alike, and what it alone makes possible was refused.
    #[test]
    fn many_equal_blocks_fit_down_to_one_block_and_all_inputs() {
        let block = Block { saved: 650, input: 9, work: 1.0 };
        let least = 48 * 9 + 650;
        assert!(choose(&[block; 48], least).is_ok_and(|groups| groups.len() == 48));
        assert_eq!(choose(&[block; 48], least - 1), Err(least));
    }
}
