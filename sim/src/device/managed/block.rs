//! Where the pages of one 2 MiB block are, and what an access does to them. One bit a page; the rules are those of [`super`].

/// Bytes of a page: the driver serves faults of 4 KiB by pages of 64 KiB (rule `page`).
pub(super) const PAGE: u64 = 64 << 10;
/// Bytes of a block: as many pages as a [`Pages`] has bits (rule `block`).
pub(in super::super) const BLOCK: u64 = PAGE * 32;

/// A set of pages of a block.
pub(super) type Pages = u32;

/// Pages that an access or a prefetch moves, populates or drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// They were not there, or not in a way that allows the access.
    pub(super) faults: Pages,
    /// The device takes memory for these; of them, data comes from the host for `copied_in`.
    pub(super) taken: Pages,
    pub(super) copied_in: Pages,
    /// The device gives these back; of them, data goes to the host for `copied_out`.
    pub(super) given: Pages,
    pub(super) copied_out: Pages,
    /// Accessed over the link, where they are.
    pub(super) remote: Pages,
}

/// State of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    pub(super) on_device: Pages,
    pub(super) on_host: Pages,
    /// On the host, and mapped for the device.
    pub(super) mapped: Pages,
    /// Evicted, and not back since.
    pub(super) evicted: Pages,
    pub(super) read_mostly: Pages,
    pub(super) prefer_device: Pages,
    pub(super) prefer_host: Pages,
    pub(super) by_device: Pages,
    /// When the device took memory for it last; 0 if it holds none.
    pub(super) stamp: u64,
}

impl Block {
    /// What a device's access to `pages` does. Nothing is changed yet.
    pub(super) fn device_access(&self, pages: Pages, write: bool) -> Change {
        let both = self.on_device & self.on_host;
        let fine = if write { self.on_device & !both } else { self.on_device };
        let faults = pages & !(fine | self.mapped);
        let nowhere = faults & !(self.on_device | self.on_host);
        let on_host = faults & self.on_host & !self.on_device;
        let at_host = nowhere & self.prefer_host & !self.read_mostly;
        let stays =
            on_host & !self.read_mostly & !self.prefer_device & (self.by_device | self.prefer_host);
        let copied_in = on_host & !stays;
        let taken = copied_in | (nowhere & !at_host);
        let remote = (pages & self.mapped) | at_host | stays;
        Change { faults, taken, copied_in, remote, ..Change::default() }
    }

    /// Makes it so.
    pub(super) fn device_accessed(&mut self, pages: Pages, write: bool, change: &Change) {
        let remote = change.remote & change.faults;
        self.on_host |= remote; // those that were nowhere
        self.mapped |= remote;
        self.arrive(change.taken);
        // what moved, and what is written in two places, is on the device alone
        let alone = (change.copied_in & !self.read_mostly) | if write { pages } else { 0 };
        self.on_host &= !(alone & self.on_device);
    }

    /// What the host's access does, done.
    pub(super) fn host_access(&mut self, pages: Pages, write: bool) -> Change {
        let both = self.on_device & self.on_host;
        let fine = if write { self.on_host & !both } else { self.on_host };
        let faults = pages & !fine;
        let copied_out = faults & self.on_device & !self.on_host;
        let stays = if write { 0 } else { copied_out & self.read_mostly };
        let given = faults & self.on_device & !stays;
        self.on_host |= faults;
        self.leave(given);
        self.map(faults);
        Change { faults, given, copied_out, ..Change::default() }
    }

    /// What a prefetch to the device does. Nothing is changed yet.
    pub(super) fn prefetch_in(&self, pages: Pages) -> Change {
        let taken = pages & !self.on_device;
        Change { taken, copied_in: taken & self.on_host, ..Change::default() }
    }

    /// Makes it so.
    pub(super) fn prefetched_in(&mut self, change: &Change) {
        self.arrive(change.taken);
        self.on_host &= !(change.taken & !self.read_mostly);
    }

    /// What a prefetch to the host does, done.
    pub(super) fn prefetch_out(&mut self, pages: Pages) -> Change {
        let copied_out = pages & self.on_device & !self.on_host;
        let given = copied_out & !self.read_mostly;
        self.on_host |= pages & !(self.on_device & self.on_host);
        self.leave(given);
        self.map(pages);
        Change { given, copied_out, ..Change::default() }
    }

    /// Everything goes to the host.
    pub(super) fn evict(&mut self) -> Change {
        let given = self.on_device;
        let copied_out = given & !self.on_host;
        self.on_host |= given;
        self.evicted |= given;
        self.leave(given);
        self.map(given);
        Change { given, copied_out, ..Change::default() }
    }

    /// Copies of pages that were mostly read are given up: one is left. The pages that the device gives back.
    pub(super) fn collapse(&mut self, pages: Pages) -> Pages {
        let both = pages & self.on_device & self.on_host;
        self.on_host &= !(both & self.prefer_device);
        let given = both & !self.prefer_device;
        self.leave(given);
        self.map(given);
        given
    }

    /// Maps what lies on the host for a device that asked for it (rule `accessed_by`).
    pub(super) fn map(&mut self, pages: Pages) {
        self.mapped |= pages & self.by_device & self.on_host & !self.on_device;
    }

    fn arrive(&mut self, pages: Pages) {
        self.on_device |= pages;
        self.mapped &= !pages;
        self.evicted &= !pages;
    }

    fn leave(&mut self, pages: Pages) {
        self.on_device &= !pages;
    }
}
