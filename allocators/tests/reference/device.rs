//! The reference's own fake device, as the golden README describes it: capacity in granules of 2 MiB, first-fit addresses,
//! events that complete only when they are told to, and a list of the calls it saw.

use std::collections::BTreeMap;

/// What a device request takes is a multiple of this.
pub(crate) const GRANULE: u64 = 2 << 20;
const MALLOC_BASE: u64 = 0x7000_0000_0000;
const RESERVE_BASE: u64 = 0x7800_0000_0000;

/// One call that the device saw.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// Label of the range and offset in it, where the call has a place.
    pub(crate) place: Option<(String, u64)>,
    pub(crate) size: u64,
    pub(crate) handle: Option<usize>,
    pub(crate) stream: Option<u64>,
    pub(crate) ok: bool,
}

/// An event: the stream it was recorded on, and how many were recorded there up to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) stream: u64,
    number: u64,
}

#[derive(Debug)]
struct Range {
    /// Bytes, rounded up to the granule.
    size: u64,
    /// Bytes as asked for.
    asked: u64,
    label: String,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    pub(crate) other: u64,
    ranges: BTreeMap<u64, Range>,
    mallocs: u64,
    reserves: u64,
    /// Size of each physical page ever made, by handle.
    pages: Vec<u64>,
    /// Events issued and completed, by stream.
    streams: BTreeMap<u64, (u64, u64)>,
    calls: Vec<Call>,
}

fn round_up(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(GRANULE)
}

impl Device {
    pub(crate) fn new(capacity: u64) -> Self {
        Device {
            capacity,
            used: 0,
            other: 0,
            ranges: BTreeMap::new(),
            mallocs: 0,
            reserves: 0,
            pages: Vec::new(),
            streams: BTreeMap::new(),
            calls: Vec::new(),
        }
    }

    fn note(
        &mut self,
        name: &'static str,
        place: Option<u64>,
        size: u64,
        handle: Option<usize>,
        ok: bool,
    ) {
        let place = place.map(|address| self.label(address));
        self.calls.push(Call { name, place, size, handle, stream: None, ok });
    }

    fn note_stream(&mut self, name: &'static str, stream: u64) {
        let stream = Some(stream);
        self.calls.push(Call { name, place: None, size: 0, handle: None, stream, ok: true });
    }

    /// The calls since the last time. Runs of event calls of one kind come in stream order.
    pub(crate) fn take_calls(&mut self) -> Vec<Call> {
        let mut calls = std::mem::take(&mut self.calls);
        for run in calls.chunk_by_mut(|a, b| a.name == b.name) {
            if run[0].name.starts_with("cudaEvent") {
                run.sort_by_key(|call| call.stream);
            }
        }
        calls
    }

    /// Name of the range that holds an address, and the offset in it.
    pub(crate) fn label(&self, address: u64) -> (String, u64) {
        let (start, range) =
            self.ranges.range(..=address).next_back().expect("address in a live range");
        assert!(
            address - start < range.size,
            "expected an address in a live range, found {address:#x}"
        );
        (range.label.clone(), address - start)
    }

    fn place(&mut self, base: u64, size: u64, asked: u64, label: String) -> u64 {
        let mut at = base;
        for (start, range) in self.ranges.range(base..) {
            if *start - at >= size {
                break;
            }
            at = start + range.size;
        }
        self.ranges.insert(at, Range { size, asked, label });
        at
    }

    fn take(&mut self, size: u64) -> bool {
        let fits = round_up(size).and_then(|size| size.checked_add(self.used + self.other));
        let fits = fits.is_some_and(|total| total <= self.capacity);
        if fits {
            self.used += round_up(size).expect("checked above");
        }
        fits
    }

    pub(crate) fn malloc(&mut self, size: u64) -> Option<u64> {
        if !self.take(size) {
            self.note("cudaMalloc", None, size, None, false);
            return None;
        }
        let rounded = round_up(size).expect("it fits the device");
        // Reserved ranges lie above all of these, so that first fit stops before them.
        let address = self.place(MALLOC_BASE, rounded, size, format!("m{}", self.mallocs));
        self.mallocs += 1;
        self.note("cudaMalloc", Some(address), size, None, true);
        Some(address)
    }

    pub(crate) fn free(&mut self, address: u64) {
        let size = self.ranges.get(&address).expect("cudaFree of the start of a live range").size;
        self.note("cudaFree", Some(address), size, None, true);
        self.ranges.remove(&address);
        self.used -= size;
    }

    pub(crate) fn address_reserve(&mut self, size: u64) -> u64 {
        let rounded =
            round_up(size).expect("a range is at most 9/8 of the device, rounded to a page");
        let address = self.place(RESERVE_BASE, rounded, size, format!("r{}", self.reserves));
        self.reserves += 1;
        self.note("cuMemAddressReserve", Some(address), size, None, true);
        address
    }

    pub(crate) fn address_free(&mut self, address: u64) {
        let asked = self.ranges.get(&address).expect("start of a reserved range").asked;
        self.note("cuMemAddressFree", Some(address), asked, None, true);
        self.ranges.remove(&address);
    }

    pub(crate) fn create(&mut self, size: u64) -> Option<usize> {
        if !self.take(size) {
            self.note("cuMemCreate", None, size, None, false);
            return None;
        }
        let handle = self.pages.len();
        self.pages.push(round_up(size).expect("it fits the device"));
        self.note("cuMemCreate", None, size, Some(handle), true);
        Some(handle)
    }

    /// Gives a page back; it must be unmapped.
    pub(crate) fn release(&mut self, handle: usize) {
        self.note("cuMemRelease", None, self.pages[handle], Some(handle), true);
        self.used -= self.pages[handle];
    }

    pub(crate) fn map(&mut self, address: u64, size: u64, handle: usize) {
        self.note("cuMemMap", Some(address), size, Some(handle), true);
    }

    pub(crate) fn set_access(&mut self, address: u64, size: u64) {
        self.note("cuMemSetAccess", Some(address), size, None, true);
    }

    pub(crate) fn unmap(&mut self, address: u64, size: u64) {
        self.note("cuMemUnmap", Some(address), size, None, true);
    }

    pub(crate) fn record_event(&mut self, stream: u64) -> Event {
        let (issued, _) = self.streams.entry(stream).or_default();
        *issued += 1;
        let event = Event { stream, number: *issued };
        self.note_stream("cudaEventRecord", stream);
        event
    }

    pub(crate) fn is_complete(&self, event: Event) -> bool {
        self.streams[&event.stream].1 >= event.number
    }

    pub(crate) fn wait_event(&mut self, event: Event) {
        let (_, done) = self.streams.get_mut(&event.stream).expect("an event was recorded there");
        *done = event.number.max(*done);
        self.note_stream("cudaEventSynchronize", event.stream);
    }

    pub(crate) fn wait_stream(&mut self, stream: u64) {
        self.complete(stream);
        self.note_stream("cudaStreamSynchronize", stream);
    }

    pub(crate) fn complete(&mut self, stream: u64) {
        if let Some((issued, done)) = self.streams.get_mut(&stream) {
            *done = *issued;
        }
    }

    pub(crate) fn complete_all(&mut self) {
        for (issued, done) in self.streams.values_mut() {
            *done = *issued;
        }
    }
}
