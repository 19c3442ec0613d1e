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
    /// The buffer meant, if it is known: it may be one that is not yet requested.
    slot: Option<u32>,
    /// The work that it belongs to.
    work: u64,
    /// Position of the next token of the same buffer in the list.
    again: Option<u64>,
}

/// What is known of a buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    live: bool,
    kind: u32,
    /// Position of its last token.
    last: u64,
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

    /// Something happened; what was foretold, if it was this.
    fn happened(&mut self, token: u32, kind: u32, slot: u32) -> Option<Foretold> {
        if self.list.is_empty() {
            self.extend(1);
        }
        let foretold = self.list.front().copied().filter(|front| front.token == token);
        self.predictor.see(token, kind);
        self.who[(self.now % REMEMBERED) as usize] = slot;
        match foretold {
            Some(front) => {
                self.list.pop_front();
                self.now += 1;
                if let Some(slot) = front.slot {
                    self.expect(slot, front.again);
                }
                if self.list.is_empty() {
                    self.predictor.rewind();
                }
            }
            None => {
                self.now += 1;
                self.discard();
            }
        }
        if self.list.is_empty() {
            self.list_work = self.work;
        }
        foretold
    }

    /// The buffer's next use in the list is there.
    fn expect(&mut self, slot: u32, at: Option<u64>) {
        self.known[slot as usize].next = at.map(|at| self.list[(at - self.now) as usize].work);
        self.changed.push(slot);
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
            let work = self.list_work;
            let slot = token.checked_sub(USE).and_then(|distance| self.link(at, distance, work));
            self.list.push_back(Foretold { token, slot, work, again: None });
            self.list_work += u64::from(token == END);
        }
    }

    /// A use is foretold at a position: the buffer that it means, if that exists and this is known to be its next token.
    fn link(&mut self, at: u64, distance: u32, work: u64) -> Option<u32> {
        let last = at.checked_sub(distance.into())?;
        if let Some(ahead) = last.checked_sub(self.now) {
            let earlier = self.list.get_mut(ahead as usize)?;
            if earlier.token == END || earlier.again.is_some() {
                return None; // it was no buffer's, or not its last
            }
            earlier.again = Some(at);
            return earlier.slot;
        }
        if self.now - last > REMEMBERED {
            return None;
        }
        let slot = self.who[(last % REMEMBERED) as usize];
        let known = self.known.get_mut(slot as usize)?;
        if !known.live || known.last != last || known.next.is_some() {
            return None;
        }
        known.next = Some(work);
        self.changed.push(slot);
        Some(slot)
    }
}

impl<P: Predictor> Foresight for Plan<P> {
    fn born(&mut self, slot: u32, _ordinal: u64, size: u64) {
        if self.known.len() <= slot as usize {
            self.known.resize(slot as usize + 1, Known::default());
        }
        let kind = (size as u32) ^ (size >> 32) as u32;
        self.known[slot as usize] = Known { live: true, kind, ..Known::default() };
        let foretold = self.happened(BIRTH, kind, slot);
        self.known[slot as usize].last = self.now - 1;
        if let Some(first) = foretold.and_then(|birth| birth.again) {
            self.expect(slot, Some(first));
            let mut next = Some(first);
            while let Some(at) = next {
                let entry = &mut self.list[(at - self.now) as usize];
                (entry.slot, next) = (Some(slot), entry.again);
            }
        }
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
            let foretold = self.happened(USE + distance, kind, used.slot);
            self.right += u64::from(foretold.is_some());
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
