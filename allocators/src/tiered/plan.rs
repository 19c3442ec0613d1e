//! Foresight by prediction: what comes next is thought to be what came after the like before.
//!
//! What happens is a sequence of tokens, and a [`Predictor`] says which comes next:
//!
//! | token | what happened |
//! |---|---|
//! | 0 | a buffer was requested |
//! | 1 | a piece of work ends its list of uses |
//! | 2 + d | a buffer was used that had last been used or requested d tokens before |
//!
//! In a loop the distances come again, though the buffers are others; and a distance says which buffer is meant. So what is foretold token by
//! token is a list of uses to come, as far as the predictor goes. It is kept for as long as it comes true, and grows; at the first token that
//! is another one it is thrown away.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `deltas` | distances are predicted, not addresses, and foretold one after the other, each from those before | Hashemi et al., Learning Memory Access Patterns (ICML 2018) 4; Joseph, Grunwald, Markov prefetchers (ISCA 1997) |
//! | `trust` | buffers come ahead as many works as came true since the list began, and no more | Srinath et al., Feedback directed prefetching (HPCA 2007): how far ahead goes by how often it was right |
//! | `accuracy` | of all uses, those that were the next token of the list | - |

use std::collections::VecDeque;

use vramlab_sim::allocator::Block;

use super::foresight::{Foresight, Used};

/// Foretells tokens.
pub(super) trait Predictor: Send {
    /// This happened. `kind` tells buffers of different sizes, and reads from writes, apart.
    fn see(&mut self, token: u32, kind: u32);

    /// What is foretold from here on follows what was seen.
    fn rewind(&mut self);

    /// The next token, which is then taken as true.
    fn foretell(&mut self) -> Option<u32>;

    /// Tokens that may be foretold for each work, and works that the list may reach ahead.
    fn reach(&self) -> (u32, u64);

    /// Of buffers without a foreseen use, does the one used last leave first?
    fn recent_first(&self) -> bool {
        false
    }

    /// Names and values of its own.
    fn counters(&mut self, _counters: &mut Vec<(&'static str, u64)>) {}
}

/// A request.
pub(super) const BIRTH: u32 = 0;
/// The end of a work's uses.
pub(super) const END: u32 = 1;
/// A use at distance 0; there is none.
pub(super) const USE: u32 = 2;

/// Tokens that are remembered, a power of two: a buffer that was used longer ago is not found again.
const REMEMBERED: u64 = 1 << 16;

/// A foretold token.
#[derive(Clone, Copy, Debug)]
struct Foretold {
    token: u32,
    /// The buffer meant, if it is known.
    slot: Option<u32>,
    /// The work that it belongs to.
    work: u64,
    /// Position of the next use of the same buffer in the list.
    again: Option<u64>,
}

/// What is known of a buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    live: bool,
    kind: u32,
    /// Position of its last token.
    last: u64,
    /// Position of its last token in the list, if not before `now`.
    foretold_last: u64,
    /// Its next use in the list.
    next: Option<u64>,
}

/// The list.
pub(super) struct Plan<P> {
    pub(super) predictor: P,
    /// Position of the next token.
    now: u64,
    /// The work under way.
    work: u64,
    /// The buffer of each remembered position.
    who: Vec<u32>,
    known: Vec<Known>,
    list: VecDeque<Foretold>,
    /// The work after the list's last token.
    list_work: u64,
    /// The first work whose uses all came true since the list began.
    trusted_from: u64,
    changed: Vec<u32>,
    asked: u64,
    right: u64,
}

/// No slot has this number.
const NOBODY: u32 = u32::MAX;

impl<P: Predictor> Plan<P> {
    pub(super) fn new(predictor: P) -> Self {
        Self {
            predictor,
            now: 0,
            work: 0,
            who: vec![NOBODY; REMEMBERED as usize],
            known: Vec::new(),
            list: VecDeque::new(),
            list_work: 0,
            trusted_from: 0,
            changed: Vec::new(),
            asked: 0,
            right: 0,
        }
    }

    /// Something happened; was it foretold?
    fn happened(&mut self, token: u32, kind: u32, slot: u32) -> bool {
        if self.list.is_empty() {
            self.extend(1);
        }
        let front = self.list.front().copied();
        let foretold = front.filter(|front| front.token == token);
        self.predictor.see(token, kind);
        match foretold {
            Some(front) => {
                self.list.pop_front();
                if let Some(slot) = front.slot {
                    let next = front.again.map(|at| self.list[(at - self.now - 1) as usize].work);
                    self.known[slot as usize].next = next;
                    self.changed.push(slot);
                }
                if self.list.is_empty() {
                    self.predictor.rewind();
                }
            }
            None => self.discard(),
        }
        self.who[(self.now % REMEMBERED) as usize] = slot;
        self.now += 1;
        if self.list.is_empty() {
            self.list_work = self.work;
        }
        foretold.is_some()
    }

    /// Throws the list away.
    pub(super) fn discard(&mut self) {
        for slot in self.list.drain(..).filter_map(|foretold| foretold.slot) {
            if self.known[slot as usize].next.take().is_some() {
                self.changed.push(slot);
            }
        }
        self.list_work = self.work;
        self.trusted_from = self.work + 1;
        self.predictor.rewind();
    }

    /// The order of these may have changed.
    pub(super) fn touch_all(&mut self, slots: impl Iterator<Item = u32>) {
        self.changed.extend(slots);
    }

    /// Foretells up to so many tokens more.
    fn extend(&mut self, tokens: u32) {
        let (_, works) = self.predictor.reach();
        for _ in 0..tokens {
            if self.list_work >= self.work + works || self.list.len() as u64 >= REMEMBERED / 2 {
                return;
            }
            let Some(token) = self.predictor.foretell() else { return };
            let at = self.now + self.list.len() as u64;
            let slot = token.checked_sub(USE).and_then(|d| self.meant(at.checked_sub(d.into())?));
            let work = self.list_work;
            if let Some(slot) = slot {
                let known = &mut self.known[slot as usize];
                match known.next {
                    Some(_) => {
                        let before = (known.foretold_last - self.now) as usize;
                        self.list[before].again = Some(at);
                    }
                    None => {
                        known.next = Some(work);
                        self.changed.push(slot);
                    }
                }
                known.foretold_last = at;
            }
            self.list.push_back(Foretold { token, slot, work, again: None });
            self.list_work += u64::from(token == END);
        }
    }

    /// The live buffer whose last token, seen or foretold, is at this position.
    fn meant(&self, at: u64) -> Option<u32> {
        if let Some(ahead) = at.checked_sub(self.now) {
            let slot = self.list.get(ahead as usize)?.slot?;
            return (self.known[slot as usize].foretold_last == at).then_some(slot);
        }
        if self.now - at > REMEMBERED {
            return None;
        }
        let slot = self.who[(at % REMEMBERED) as usize];
        let known = self.known.get(slot as usize)?;
        (known.live && known.last == at && known.next.is_none()).then_some(slot)
    }
}

impl<P: Predictor> Foresight for Plan<P> {
    fn born(&mut self, slot: u32, _block: Block, _ordinal: u64, size: u64) {
        if self.known.len() <= slot as usize {
            self.known.resize(slot as usize + 1, Known::default());
        }
        let kind = (size as u32) ^ (size >> 32) as u32;
        self.happened(BIRTH, kind, slot);
        self.known[slot as usize] =
            Known { live: true, kind, last: self.now - 1, ..Known::default() };
    }

    fn gone(&mut self, slot: u32) {
        let known = &mut self.known[slot as usize];
        known.live = false;
        if known.next.is_some() {
            self.discard(); // a use of it was foretold
        }
    }

    fn announced(&mut self, uses: &[Used]) {
        for used in uses {
            let known = self.known[used.slot as usize];
            let distance = (self.now - known.last).min(u64::from(u32::MAX - USE)) as u32;
            let kind = known.kind.rotate_left(1) ^ u32::from(used.write);
            self.asked += 1;
            self.right += u64::from(self.happened(USE + distance, kind, used.slot));
            self.known[used.slot as usize].last = self.now - 1;
        }
        self.happened(END, 0, NOBODY);
        self.work += 1;
        if self.list.is_empty() {
            self.list_work = self.work;
        }
        self.extend(self.predictor.reach().0);
    }

    fn next_use(&self, slot: u32) -> Option<u64> {
        self.known.get(slot as usize)?.next
    }

    fn changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed)
    }

    fn coming(&self, lead: u64, found: &mut Vec<(u64, u32)>) {
        let until = self.work + lead.min(self.work.saturating_sub(self.trusted_from));
        let soon = self.list.iter().take_while(|foretold| foretold.work < until);
        found.extend(soon.filter_map(|foretold| Some((foretold.work, foretold.slot?))));
    }

    fn recent_first(&self) -> bool {
        self.predictor.recent_first()
    }

    fn counters(&mut self, counters: &mut Vec<(&'static str, u64)>) {
        counters.extend([
            ("predictor_accuracy_permille", self.right * 1000 / self.asked.max(1)),
            ("predictor_uses", self.asked),
            ("predictor_right", self.right),
        ]);
        self.predictor.counters(counters);
    }
}
