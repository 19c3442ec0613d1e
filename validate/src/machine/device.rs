//! One device of the machine: its context, streams, pools and kernels, and what its limit leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;

use vramlab_sim::driver::{DEFAULT_POOL, DriverError, Families};
use vramlab_sim::units::{PoolId, StreamId, round_up};

use super::books::{Books, invalid};
use crate::cuda::calls::{self, Context, Pool, Stream};
use crate::cuda::kernels::Kernels;
use crate::cuda::{self, Refusal, families};
use crate::probe::Trouble;

/// `cudaStreamCreate` numbers its streams from here on, as the simulated machine does.
const CREATED_STREAMS: u32 = 1 << 31;
/// Physical granule of a device that cannot tell it.
const GRANULE: u64 = 2 << 20;
/// Requests up to this size share granules (pytorch/pytorch#17120).
const SHARED_MAX: u64 = 1 << 20;
/// Without a limit a run takes at most so many hundredths of what is free at the start.
const LIMIT_PERCENT: u64 = 90;

/// A pool, and when it was made.
pub(super) struct PoolState {
    pub(super) pool: Pool,
    pub(super) made: u64,
}

/// A device.
pub(super) struct Device {
    pub(super) number: c_int,
    compute: (c_int, c_int),
    pub(super) context: Option<Context>,
    pub(super) families: Families,
    pub(super) granule: u64,
    /// Most bytes of the device that the run may hold.
    pub(super) limit: u64,
    /// Bytes that someone else is said to hold.
    pub(super) other: u64,
    pub(super) books: Books,
    pub(super) streams: BTreeMap<StreamId, (Stream, u64)>,
    created: u32,
    pub(super) capturing: BTreeSet<StreamId>,
    /// By number; the default pool is looked for at its first use.
    pub(super) pools: Vec<Option<PoolState>>,
    pub(super) kernels: Option<Kernels>,
}

impl Device {
    /// Makes the context of a device and makes it current. `limit`: most bytes to hold; if not given, most of what is free. `aside`: bytes of it
    /// that are not the run's.
    pub(super) fn open(number: c_int, limit: Option<u64>, aside: u64) -> Result<Self, Trouble> {
        let (_, compute) = cuda::about(number)?;
        let (pools, vmm, managed) = cuda::families_of(number)?;
        let context = calls::context(number)?;
        let asked = || -> Result<(u64, u64), Refusal> {
            let granule = if vmm { families::granularity(number)? } else { GRANULE };
            Ok((granule, calls::mem_info()?.0))
        };
        let (granule, free) = match asked() {
            Ok(answers) => answers,
            Err(refusal) => {
                calls::release(number, context).ok();
                return Err(refusal.into());
            }
        };
        let most = limit.unwrap_or(free / 100 * LIMIT_PERCENT);
        Ok(Self {
            number,
            compute,
            context: Some(context),
            families: Families { pools, vmm, managed, host: true, files: false },
            granule,
            limit: most.min(free).saturating_sub(aside) / granule * granule,
            other: 0,
            books: Books::default(),
            streams: BTreeMap::new(),
            created: 0,
            capturing: BTreeSet::new(),
            pools: std::iter::once(None).collect(),
            kernels: None,
        })
    }

    /// Bytes that the run may still take.
    pub(super) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.books.taken).saturating_sub(self.other)
    }

    /// Is there room for so many more bytes of host memory? Host memory and managed ranges together stay within the limit too.
    ///
    /// # Errors
    /// When the limit does not leave so much.
    pub(super) fn check_host(&self, asked: u64) -> Result<(), DriverError> {
        let held = &self.books.held;
        let free = self.limit.saturating_sub(held.host).saturating_sub(held.managed);
        if asked > free { Err(DriverError::OutOfMemory { asked, free }) } else { Ok(()) }
    }

    /// Whole granules for so many bytes.
    ///
    /// # Errors
    /// When the limit does not leave so much.
    pub(super) fn granules(&self, asked: u64) -> Result<u64, DriverError> {
        let room = self.room();
        round_up(asked, self.granule)
            .filter(|taken| *taken <= room)
            .ok_or(DriverError::OutOfMemory { asked, free: room })
    }

    /// What a malloc takes of the limit (rule `limit`).
    ///
    /// # Errors
    /// When the limit does not leave so much.
    pub(super) fn malloc_takes(&self, asked: u64) -> Result<u64, DriverError> {
        if asked > SHARED_MAX {
            return self.granules(asked);
        }
        let room = self.room();
        if asked > room {
            return Err(DriverError::OutOfMemory { asked, free: room });
        }
        Ok(asked)
    }

    /// A number that no stream has.
    pub(super) fn new_stream(&mut self) -> StreamId {
        self.created += 1;
        StreamId(CREATED_STREAMS + self.created - 1)
    }

    /// The kernels, loaded at their first use.
    pub(super) fn kernels(&mut self) -> Result<(), Refusal> {
        if self.kernels.is_none() {
            self.kernels = Some(Kernels::load(self.compute)?);
        }
        Ok(())
    }

    /// Looks for the pool that the device has without being asked.
    pub(super) fn find_default_pool(
        &mut self,
        call: &'static str,
        made: u64,
    ) -> Result<(), DriverError> {
        let pool = families::pool_default(self.number);
        let pool = pool.map_err(|refusal| super::failed(call, &refusal))?;
        self.pools[DEFAULT_POOL.0 as usize] = Some(PoolState { pool, made });
        Ok(())
    }

    /// A pool that was made or found.
    pub(super) fn pool(&self, call: &'static str, pool: PoolId) -> Result<&Pool, DriverError> {
        let found = self.pools.get(pool.0 as usize).and_then(Option::as_ref);
        let found = found.map(|state| &state.pool);
        found.ok_or_else(|| invalid(call, format!("found pool {pool}, expected one that was made")))
    }
}
