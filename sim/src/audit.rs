//! The audit: a wrapper that holds a strategy to what every strategy promises.
//!
//! It sits directly around the strategy that owns device addresses, and watches both seams:
//!
//! | promise | judged on |
//! |---|---|
//! | no two resident buffers share physical bytes | (physical handle, offset) of mapped pages and mallocs |
//! | every placement lies in memory that the driver gave | the ranges it was seen to give |
//! | alignment holds | addresses, against [`Audit::new`]'s alignment |
//! | reserved is what the driver gave | the strategy's usage against the driver calls, for the memory that it manages (a pool of the driver holds at least what it gave) |
//! | active + free = reserved | the pieces of each walk against the usage; between walks, active ≤ reserved |
//! | live request sizes ≤ allocated | the requests against the usage |
//! | a free consumes its token | the tokens handed out |
//!
//! Around a strategy that moves buffers ([`Audit::of_mover`]) a placement lapses with the next announcement of work, and is held to the promises
//! anew where work uses it; of the others it is not known where they are. Only device memory counts as reserved, and only requests that lie
//! in it as live.
//!
//! A broken promise ends the run as a driver error that names the buffer and the numbers. For tests: it costs a tree walk per op.

mod book;
mod layout;

use std::collections::BTreeMap;

use crate::allocator::{
    AllocError, Allocator, Block, Layout, Notice, Placement, Reply, Request, Usage, Use,
};
use crate::driver::{Answer, Call, Driver, DriverError, Families};
use crate::machine::Memory;
use crate::units::StreamId;

use book::Book;

/// A live or waiting block.
#[derive(Clone, Copy, Debug)]
struct Resident {
    placement: Placement,
    asked: u64,
    /// Of that, in device memory as far as is known: all or nothing.
    requested: u64,
    /// Its free was deferred or waits for a stream: the strategy may give the bytes back without our seeing it.
    dropped: bool,
}

/// The wrapper.
pub struct Audit<A> {
    inner: A,
    align: u64,
    /// What the strategy's `reserved` counts.
    memory: Memory,
    moves: bool,
    book: Book,
    live: BTreeMap<Block, Resident>,
    /// Live null placements by token, which they may share.
    nulls: BTreeMap<Block, u64>,
    requested: u64,
}

impl<A: Allocator> Audit<A> {
    /// Around `inner`, a strategy of device memory, whose placements are promised to be multiples of `align` bytes.
    pub fn new(inner: A, align: u64) -> Self {
        Self::of_memory(Memory::Device, inner, align)
    }

    /// Around a strategy of this memory.
    pub fn of_memory(memory: Memory, inner: A, align: u64) -> Self {
        Self {
            inner,
            align,
            memory,
            moves: false,
            book: Book::default(),
            live: BTreeMap::new(),
            nulls: BTreeMap::new(),
            requested: 0,
        }
    }

    /// Around a strategy that moves buffers in between announcements.
    pub fn of_mover(inner: A, align: u64) -> Self {
        Self { moves: true, ..Self::new(inner, align) }
    }

    /// The strategy inside.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    fn check_totals(&self) -> Result<(), AllocError> {
        let usage = self.inner.usage();
        let given = self.book.reserved(self.memory);
        if !self.book.allows(self.memory, usage.reserved) {
            return Err(broken(format!(
                "says it holds {} bytes, the driver gave it {given}",
                usage.reserved
            )));
        }
        if usage.active > usage.reserved || usage.allocated > usage.active {
            return Err(broken(format!(
                "allocated {} ≤ active {} ≤ reserved {} does not hold",
                usage.allocated, usage.active, usage.reserved
            )));
        }
        if self.requested > usage.allocated {
            return Err(broken(format!(
                "live requests of {} bytes in {} allocated",
                self.requested, usage.allocated
            )));
        }
        Ok(())
    }

    fn check_placement(&mut self, request: u64, placement: Placement) -> Result<(), AllocError> {
        let Placement { block, address, size } = placement;
        if size < request {
            return Err(broken(format!("asked {request} bytes, got a block of {size}")));
        }
        if address == 0 || !address.is_multiple_of(self.align) {
            return Err(broken(format!(
                "address {address:#x} is not a multiple of {}",
                self.align
            )));
        }
        let pieces = self.book.pieces(address, size).map_err(|at| {
            broken(format!("block of {size} bytes at {address:#x}: byte {at:#x} is in no memory that the driver gave"))
        })?;
        self.book.occupy(&pieces, block.0).map_err(|other| {
            broken(format!(
                "block {} of {size} bytes at {address:#x} shares bytes with live block {other}",
                block.0
            ))
        })
    }

    fn drop_block(&mut self, block: Block) {
        if let Some(count) = self.nulls.get_mut(&block) {
            *count -= 1;
            if *count == 0 {
                self.nulls.remove(&block);
            }
            return;
        }
        if let Some(resident) = self.live.remove(&block) {
            if !resident.dropped {
                self.requested -= resident.requested;
            }
            self.book.vacate(block.0);
        }
    }

    fn live_or_error(&self, block: Block) -> Result<(), AllocError> {
        match self.live.get(&block) {
            Some(resident) if !resident.dropped => Ok(()),
            None if self.nulls.contains_key(&block) => Ok(()),
            _ => Err(AllocError::UnknownBlock(block)),
        }
    }
}

fn broken(what: String) -> AllocError {
    AllocError::Driver(DriverError::Failed { call: "audit", what: what.into() })
}

/// Passes calls on and keeps the book.
struct Watched<'a> {
    driver: &'a mut dyn Driver,
    book: &'a mut Book,
}

impl Driver for Watched<'_> {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let answer = self.driver.call(call)?;
        self.book.note(&call, &answer);
        Ok(answer)
    }

    fn families(&self) -> Families {
        self.driver.families()
    }
}

impl<A: Allocator> Allocator for Audit<A> {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let answer = self.inner.alloc(&mut Watched { driver, book: &mut self.book }, request);
        match &answer {
            Ok(placement) if request.size == 0 && placement.address == 0 => {
                *self.nulls.entry(placement.block).or_default() += 1; // it owns nothing
            }
            Ok(placement) => {
                if self.live.get(&placement.block).is_some_and(|r| !r.dropped) && request.size > 0 {
                    return Err(broken(format!(
                        "token {} was handed out twice",
                        placement.block.0
                    )));
                }
                self.drop_block(placement.block);
                self.check_placement(request.size, *placement)?;
                self.put(*placement, request.size);
            }
            Err(AllocError::Driver(_)) => return answer,
            Err(_) => {}
        }
        self.check_totals()?;
        answer
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        let known = self.live_or_error(block);
        let answer = self.inner.free(&mut Watched { driver, book: &mut self.book }, block, stream);
        match (known, &answer) {
            (Err(_), Ok(())) => {
                return Err(broken(format!("took back block {}, which is not live", block.0)));
            }
            (Err(_), Err(_)) | (Ok(()), Err(_)) => return answer,
            (Ok(()), Ok(())) => self.drop_block(block),
        }
        self.check_totals()?;
        answer
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        let before = notice.clone();
        let reply = self.inner.notice(&mut Watched { driver, book: &mut self.book }, notice)?;
        match (&before, &reply) {
            (_, Reply::Unsupported) => {}
            (Notice::FreeDeferred { block }, _) => {
                self.live_or_error(*block)?;
                self.drop_block(*block);
            }
            (Notice::Resize { block, size }, Reply::Placed(placement)) => {
                self.drop_block(*block);
                self.check_placement(*size, *placement)?;
                self.put(*placement, *size);
            }
            (Notice::Adopt(layout), Reply::Adopted(tokens)) => {
                self.book.adopt(layout);
                self.adopted(layout, tokens)?;
            }
            (_, Reply::Layout(layout)) => {
                layout::check(layout, self.inner.usage()).map_err(broken)?;
            }
            _ => {}
        }
        self.check_totals()?;
        Ok(reply)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        let answer =
            self.inner.before_work(&mut Watched { driver, book: &mut self.book }, stream, uses);
        if self.moves {
            self.moved(if answer.is_ok() { uses } else { &[] })?;
            self.check_totals()?;
        }
        answer
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.inner.after_work(&mut Watched { driver, book: &mut self.book }, stream, uses)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}

impl<A: Allocator> Audit<A> {
    fn adopted(&mut self, layout: &Layout, tokens: &[Block]) -> Result<(), AllocError> {
        use crate::allocator::BlockState;
        let used =
            layout.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state != BlockState::Free);
        for (block, token) in used.zip(tokens) {
            let placement = Placement { block: *token, address: block.address, size: block.size };
            self.check_placement(block.requested, placement)?;
            let dropped = block.state == BlockState::Pending;
            if !dropped {
                self.requested += block.requested;
            }
            let asked = block.requested;
            self.live.insert(*token, Resident { placement, asked, requested: asked, dropped });
        }
        Ok(())
    }

    /// A new live block.
    fn put(&mut self, placement: Placement, asked: u64) {
        let requested = if self.book.is_host(placement.address) { 0 } else { asked };
        self.requested += requested;
        let resident = Resident { placement, asked, requested, dropped: false };
        self.live.insert(placement.block, resident);
    }

    /// All placements lapse but those that were announced.
    fn moved(&mut self, uses: &[Use]) -> Result<(), AllocError> {
        let known = self.live.iter_mut().filter(|(_, resident)| !resident.dropped);
        for (block, resident) in known {
            self.book.vacate(block.0);
            self.requested -= std::mem::take(&mut resident.requested);
        }
        for (at, used) in uses.iter().enumerate() {
            let Some(resident) = self.live.get(&used.block).copied() else { continue };
            if uses[..at].iter().all(|before| before.block != used.block) {
                let (block, size) = (used.block, resident.asked); // rounded anew, who knows how
                let placement = Placement { block, address: used.address, size };
                self.check_placement(resident.asked, placement)?;
                self.put(placement, resident.asked);
            }
        }
        Ok(())
    }

    /// Where the live blocks are, for tests.
    pub fn placements(&self) -> impl Iterator<Item = Placement> + '_ {
        self.live.values().filter(|r| !r.dropped).map(|r| r.placement)
    }
}
