//! `serving.vattention`: a sequence has contiguous addresses, and pages behind them as it grows. Built from the source of microsoft/vattention, commit ef3fff25;
//! not checked against the real one yet.
//!
//! | rule | what it says | source (`vattention/`) |
//! |---|---|---|
//! | `pages` | pages of 2 MiB; smaller ones need a driver (here a device with a granule) that has them | `utils.h` 81-86 |
//! | `tokens_per_page` | page / bytes of a token's K in one layer; with `megacache`, of all layers | `vattention.cu` 38-47 |
//! | `addresses` | per request: greatest context × bytes of a token, up to the page; times the batch; a range for K and one for V in each layer, or one each of all layers; what passes the address space is refused | `vattention.cu` 49-74, 172-182 |
//! | `up_front` | all pages are created at the start: share of the memory / page, down to a multiple of 2 × layers; they never go back | `utils.h` 221-228; `cudaInternal.h` 45-59 |
//! | `one_block` | a block is one page in each range; a request grows by a block at its end, never past its addresses: where a page is no whole number of tokens, those hold the last tokens too | `vattention.cu` 268-323 |
//! | `best_fit_slot` | a new request takes the inactive place with the fewest blocks that suffice; but the first inactive one stands until a smaller one that suffices comes, though it may not suffice | `vattention.cu` 564-589 |
//! | `in_step` | what the lengths of a step need is mapped before it | `vattention.cu` 376-392 |
//! | `ahead` | after a step, blocks for one more token of every active request; then for 2, 3, … 9 more, until 2 blocks were mapped; nothing if there are too few even after reclaiming | `vattention.cu` 497-549 |
//! | `kept` | a request that ends keeps its blocks for the next one in its place | `utils.h` 78; `vattention.cu` 591-594 |
//! | `on_demand` | where blocks are missing, places lose what their length does not need, from the highest down, last block first | `vattention.cu` 420-438 |
//! | `eager_reclaim` | with `deferred_reclaim=false`, a step that needed no new block takes one from the highest inactive place, but never from the lowest | `vattention.cu` 444-469 |
//! | `free_blocks` | free are the blocks in no place, and those beyond what lengths need | `vattention.cu` 194-204; `utils.h` 177-183 |
//! | `no_sharing` | nothing is found by content; a fork is a copy | - |
//!
//! A step ends when a sequence gets tokens for the second time, or at a mark. The real one maps ahead on a thread of its own, beside the device's work: here those calls
//! take the host's time as any other. Where the real one would abort (no pages, no place), the sequence is refused and nothing changes.

mod pages;
#[cfg(test)]
mod tests;

use vramlab_sim::allocator::{AllocError, Notice, Reply};
use vramlab_sim::driver::Driver;
use vramlab_sim::kv::{
    Admitted, Below, KvCache, KvError, KvFull, KvUsage, MoreTokens, NewSequence, Sequence,
    SlotRange,
};
use vramlab_sim::units::Bytes;

use self::pages::{Geometry, Pages};
use super::options::{
    ARENA, LAYERS, TOKEN, TokenBytes, UTILIZATION, count, layers, positive, share,
};
use super::pool::share_of_device;
use super::sequences::Sequences;
use crate::options::{OptionDoc, OptionError, Options};
use crate::registry::{MadeCache, Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::cache(
    "serving.vattention",
    new,
    Status::Rules("microsoft/vattention ef3fff25"),
    OPTIONS,
    "contiguous addresses, pages mapped on demand",
);

const PAGE: OptionDoc = OptionDoc {
    name: "page_size",
    default: "2MiB",
    help: "bytes of a page: 2MiB; 64KiB, 128KiB or 256KiB on a device with such a granule",
};
const BATCH: OptionDoc = OptionDoc {
    name: "max_batch_size",
    default: "256",
    help: "sequences that have addresses at once",
};
const CONTEXT: OptionDoc = OptionDoc {
    name: "max_context_length",
    default: "as the workload says, or 4096",
    help: "most tokens of a sequence; longer ones are refused",
};
/// Tokens of that, where neither the workload nor the option says.
const CONTEXT_USUAL: u64 = 4096;
const MEGACACHE: OptionDoc = OptionDoc {
    name: "megacache",
    default: "false",
    help: "one range of K and one of V for all layers: true or false",
};
const DEFERRED: OptionDoc = OptionDoc {
    name: "deferred_reclaim",
    default: "true",
    help: "take pages of sequences that ended only when they are missing elsewhere: true or false",
};
const SHARE: OptionDoc = OptionDoc { default: "0.85", ..UTILIZATION };
const OPTIONS: &[OptionDoc] =
    &[PAGE, LAYERS, BATCH, CONTEXT, MEGACACHE, DEFERRED, SHARE, TOKEN, ARENA];

/// Sizes of pages that there are.
const PAGES: [u64; 4] = [2 << 20, 256 << 10, 128 << 10, 64 << 10];
/// Tokens ahead of a request's length for which blocks may be mapped.
const STEPS_AHEAD: u64 = 9;
/// Blocks after which mapping further ahead stops.
const BLOCKS_AHEAD: u64 = 2;

fn new(options: &Options) -> MadeCache {
    Ok(Box::new(Vattention::from_options(options)?))
}

/// A place for a request.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    active: bool,
    tokens: u64,
    /// It got tokens in this step.
    stepped: bool,
}

#[derive(Debug)]
struct Vattention {
    page: u64,
    /// As the options say; decided by the first sequence.
    layers_option: Option<u64>,
    context_option: Option<u64>,
    /// 0 before the first sequence.
    context: u64,
    megacache: bool,
    deferred: bool,
    utilization: f64,
    bytes: TokenBytes,
    pages: Pages,
    places: Vec<Place>,
    live: Sequences<usize>,
    tokens: u64,
    /// Blocks that the lengths need.
    needed: u64,
    /// Blocks in places.
    mapped: u64,
    copied: u64,
}

impl Vattention {
    fn from_options(options: &Options) -> Result<Self, OptionError> {
        options.check(STRATEGY.name, OPTIONS)?;
        let page = options.get(PAGE.name).unwrap_or(PAGE.default);
        let page = page.parse::<Bytes>().ok().map(|page| page.0).filter(|p| PAGES.contains(p));
        let page = page.ok_or_else(|| {
            let text = options.get(PAGE.name).unwrap_or_default();
            OptionError(format!("option page_size={text}: expected 2MiB, 256KiB, 128KiB or 64KiB"))
        })?;
        let places = count(options, &BATCH, 256)?;
        if places > 999 {
            return Err(OptionError(format!("option max_batch_size={places}: expected 1 to 999")));
        }
        Ok(Self {
            page,
            layers_option: positive(options, LAYERS.name)?,
            context_option: positive(options, CONTEXT.name)?,
            context: 0,
            megacache: options.switch(&MEGACACHE)?,
            deferred: options.switch(&DEFERRED)?,
            utilization: share(options, &SHARE)?,
            bytes: TokenBytes::parse(options)?,
            pages: Pages::default(),
            places: vec![Place::default(); places as usize],
            live: Sequences::default(),
            tokens: 0,
            needed: 0,
            mapped: 0,
            copied: 0,
        })
    }

    /// Rules `tokens_per_page` and `addresses`.
    fn geometry(&self, token_bytes: u64, layers: u64, context: u64) -> Result<Geometry, KvError> {
        let layers_of_a_range = if self.megacache { layers } else { 1 };
        let token = (token_bytes / layers.saturating_mul(2)).saturating_mul(layers_of_a_range);
        if token == 0 || token > self.page {
            let why = format!(
                "a token's keys take {token} bytes of a page of {}; expected at least 1 and at most the page (options token_bytes, num_layers)",
                self.page
            );
            return Err(AllocError::BadSetting(why.into()).into());
        }
        Ok(Geometry {
            page: self.page,
            ranges: layers * 2 / layers_of_a_range,
            token,
            tokens: self.page / token,
            most: token.saturating_mul(context).div_ceil(self.page),
            requests: self.places.len() as u64,
        })
    }

    fn start(&mut self, below: &mut Below<'_>, new: &NewSequence<'_>) -> Result<(), KvError> {
        let Some(bytes) = self.bytes.undecided(new.token_bytes) else { return Ok(()) };
        let layers = layers(self.layers_option, new.layers)?;
        let said = new.longest.filter(|longest| *longest > 0);
        let context = self.context_option.or(said).unwrap_or(CONTEXT_USUAL);
        let geometry = self.geometry(bytes, layers, context)?;
        let pages = share_of_device(below, self.utilization)? / self.page;
        let pages = pages - pages % (2 * layers);
        self.pages.start(below.driver, geometry, pages)?;
        self.context = context;
        self.bytes.decide(bytes);
        Ok(())
    }

    fn blocks(&self, tokens: u64) -> u64 {
        self.pages.geometry.blocks(tokens)
    }

    /// Rule `free_blocks`.
    fn free(&self) -> u64 {
        self.pages.free() + self.mapped - self.needed
    }

    /// Rule `best_fit_slot`; `None` if all places are taken.
    fn place_for(&self, blocks: u64) -> Option<usize> {
        let inactive = (0..self.places.len()).filter(|at| !self.places[*at].active);
        inactive.reduce(|best, at| {
            let (has, least) = (self.pages.mapped(at), self.pages.mapped(best));
            if has >= blocks && has < least { at } else { best }
        })
    }

    fn check_length(&self, tokens: u64) -> Result<(), KvError> {
        let limit = self.context;
        if tokens > limit { Err(KvError::TooLong { tokens, limit }) } else { Ok(()) }
    }

    /// A place for a sequence of so many tokens, and room for `room`.
    fn enter(
        &mut self,
        driver: &mut dyn Driver,
        tokens: u64,
        room: u64,
    ) -> Result<Admitted, KvError> {
        self.check_length(room)?;
        let limit = self.places.len() as u64;
        let at = self.place_for(self.blocks(tokens)).ok_or(KvError::NoPlace { limit })?;
        let (needed, free) = (self.blocks(room), self.free());
        if needed > free {
            return Err(KvError::Full(KvFull { needed, free, ..KvFull::default() }));
        }
        self.places[at] = Place { active: true, tokens: 0, stepped: true };
        let blocks = self.lengthen(driver, at, tokens)?;
        Ok(Admitted { sequence: self.live.insert(at), hit: 0, blocks })
    }

    /// A request is longer; maps what that needs (rule `in_step`). There must be enough with `on_demand`.
    fn lengthen(
        &mut self,
        driver: &mut dyn Driver,
        at: usize,
        tokens: u64,
    ) -> Result<u64, KvError> {
        let before = self.places[at].tokens;
        self.places[at].tokens = tokens;
        self.tokens += tokens - before;
        self.needed += self.blocks(tokens) - self.blocks(before);
        let missing = self.missing(at, 0);
        self.reclaim(driver, missing)?;
        for _ in 0..missing {
            self.map(driver, at)?;
        }
        Ok(missing)
    }

    fn map(&mut self, driver: &mut dyn Driver, at: usize) -> Result<(), KvError> {
        self.pages.map(driver, at)?;
        self.mapped += 1;
        Ok(())
    }

    fn unmap(&mut self, driver: &mut dyn Driver, at: usize) -> Result<(), KvError> {
        self.pages.unmap(driver, at)?;
        self.mapped -= 1;
        Ok(())
    }

    /// Blocks that a place lacks for so many tokens more.
    fn missing(&self, at: usize, more: u64) -> u64 {
        let (place, mapped) = (self.places[at], self.pages.mapped(at));
        let grows = place.active && mapped < self.pages.geometry.most;
        if grows { self.blocks(place.tokens + more).saturating_sub(mapped) } else { 0 }
    }

    /// Rule `on_demand`.
    fn reclaim(&mut self, driver: &mut dyn Driver, blocks: u64) -> Result<(), KvError> {
        for at in (0..self.places.len()).rev() {
            let keep = self.blocks(self.places[at].tokens);
            while self.pages.free() < blocks && self.pages.mapped(at) > keep {
                self.unmap(driver, at)?;
            }
        }
        Ok(())
    }

    /// After a step (rules `ahead` and `eager_reclaim`).
    fn end_step(&mut self, driver: &mut dyn Driver) -> Result<(), KvError> {
        self.places.iter_mut().for_each(|place| place.stepped = false);
        let count = self.places.len();
        let next: u64 = (0..count).map(|at| self.missing(at, 1)).sum();
        self.reclaim(driver, next)?;
        if self.pages.free() < next {
            return Ok(());
        }
        let mut mapped = 0;
        'ahead: for steps in 1..=STEPS_AHEAD {
            for at in 0..count {
                let missing = self.missing(at, steps);
                if self.pages.free() >= missing {
                    let most = self.pages.geometry.most - self.pages.mapped(at);
                    (0..missing.min(most)).try_for_each(|_| self.map(driver, at))?;
                }
                mapped += missing;
                if steps > 1 && mapped >= BLOCKS_AHEAD {
                    break 'ahead;
                }
            }
        }
        if next == 0 && !self.deferred {
            self.reclaim_one(driver)?;
        }
        Ok(())
    }

    /// Rule `eager_reclaim`.
    fn reclaim_one(&mut self, driver: &mut dyn Driver) -> Result<(), KvError> {
        let inactive = |at: &usize| !self.places[*at].active;
        let Some(spared) = (0..self.places.len()).find(inactive) else { return Ok(()) };
        let has = |at: &usize| *at != spared && inactive(at) && self.pages.mapped(*at) > 0;
        match (0..self.places.len()).rev().find(has) {
            Some(at) => self.unmap(driver, at),
            None => Ok(()),
        }
    }
}

impl KvCache for Vattention {
    fn begin(&mut self, below: &mut Below<'_>, new: &NewSequence<'_>) -> Result<Admitted, KvError> {
        self.start(below, new)?;
        let tokens = new.now(new.tokens)?;
        let room = new.headroom.map_or(tokens, |more| new.tokens.saturating_add(more));
        self.enter(below.driver, tokens, room)
    }

    fn more(
        &mut self,
        below: &mut Below<'_>,
        sequence: Sequence,
        more: &MoreTokens<'_>,
    ) -> Result<u64, KvError> {
        let at = *self.live.get(sequence)?;
        let Place { tokens: before, stepped, .. } = self.places[at];
        let tokens = before.saturating_add(more.tokens);
        self.check_length(tokens)?;
        let (needed, free) = (self.blocks(tokens) - self.blocks(before), self.free());
        if needed > free {
            return Err(KvError::Full(KvFull { needed, free, ..KvFull::default() }));
        }
        if stepped {
            self.end_step(below.driver)?;
        }
        self.places[at].stepped = true;
        self.lengthen(below.driver, at, tokens)
    }

    fn fork(&mut self, below: &mut Below<'_>, from: Sequence) -> Result<Admitted, KvError> {
        let tokens = self.places[*self.live.get(from)?].tokens;
        let admitted = self.enter(below.driver, tokens, tokens)?;
        self.copied += tokens;
        Ok(Admitted { hit: tokens, ..admitted })
    }

    fn end(&mut self, _below: &mut Below<'_>, sequence: Sequence) -> Result<(), KvError> {
        let at = self.live.remove(sequence)?;
        let Place { tokens, .. } = std::mem::take(&mut self.places[at]);
        self.tokens -= tokens;
        self.needed -= self.blocks(tokens);
        Ok(())
    }

    fn notice(&mut self, below: &mut Below<'_>, notice: Notice<'_>) -> Result<Reply, KvError> {
        match notice {
            Notice::Mark { .. } => {
                if self.places.iter().any(|place| place.stepped) {
                    self.end_step(below.driver)?;
                }
            }
            // no content is kept that could be forgotten
            Notice::Set { key: "reset_prefix_cache", .. } => {}
            Notice::Counters => {
                let list = vec![("mapped_blocks", self.mapped), ("copied_tokens", self.copied)];
                return Ok(Reply::Counters(list));
            }
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    fn table(&self, sequence: Sequence) -> Result<Vec<SlotRange>, KvError> {
        let at = *self.live.get(sequence)?;
        let (address, tokens) = (self.pages.address(at), self.places[at].tokens);
        Ok(vec![SlotRange { address, tokens, stride: self.pages.geometry.token }])
    }

    fn usage(&self) -> KvUsage {
        let geometry = &self.pages.geometry;
        KvUsage {
            sequences: self.live.len(),
            tokens: self.tokens,
            filled: self.tokens,
            slots: self.needed * geometry.tokens,
            used: self.needed,
            free: self.free(),
            cached: 0,
            token_bytes: self.bytes.get(),
            allocated: self.needed * geometry.block(),
            arena: 0,
            own: self.pages.bytes(),
        }
    }
}
