//! The receiver of finished dicts and lists: where a pickle turns into columns while it is being read.

use super::heap::Heap;
use super::value::Value;

/// Takes dicts and lists out of the stream as they are filled, in place of a tree of values.
///
/// What a sink takes is from then on a [`Value::taken`] handle, on the stack, in the memo and inside other values; what it
/// declines is kept in the [`Heap`]. A sink should decline whatever it does not understand completely: the owner of the
/// whole value can then say where in it the problem lies.
pub trait Sink {
    /// So many of `total` bytes are read. Called now and then, where the total is known; good for making room.
    fn expect(&mut self, done: u64, total: u64);

    /// An empty dict gets its first items (key, value, key, value…). `Some(handle)` takes it.
    fn take_dict(&mut self, heap: &Heap, items: &[Value]) -> Option<u64>;

    /// A dict with these keys was just taken, and more like it may come. `Some(number)` asks for them by
    /// [`Sink::take_again`].
    fn learn(&mut self, heap: &Heap, keys: &[Value]) -> Option<u32>;

    /// An empty dict gets values for the keys of shape `number`, in their order. `Some(handle)` takes it; after `None` the
    /// same dict is offered to [`Sink::take_dict`].
    fn take_again(&mut self, heap: &Heap, number: u32, values: &[Value]) -> Option<u64>;

    /// An empty list gets its first items. `Some(handle)` takes it.
    fn take_list(&mut self, heap: &Heap, items: &[Value]) -> Option<u64>;

    /// A dict that was taken gets more items.
    ///
    /// # Errors
    /// What was found and what was expected, if they do not fit.
    fn more_items(&mut self, heap: &mut Heap, handle: u64, items: &[Value]) -> Refusal;

    /// A list that was taken gets more items.
    ///
    /// # Errors
    /// What was found and what was expected, if they do not fit.
    fn more_list(&mut self, heap: &mut Heap, handle: u64, items: &[Value]) -> Refusal;
}

/// What was found and what was expected.
pub type Refusal = Result<(), (String, String)>;

/// Takes nothing: the whole pickle becomes values of the heap.
#[derive(Debug, Default)]
pub struct KeepAll;

impl Sink for KeepAll {
    fn expect(&mut self, _: u64, _: u64) {}

    fn take_dict(&mut self, _: &Heap, _: &[Value]) -> Option<u64> {
        None
    }

    fn learn(&mut self, _: &Heap, _: &[Value]) -> Option<u32> {
        None
    }

    fn take_again(&mut self, _: &Heap, _: u32, _: &[Value]) -> Option<u64> {
        None
    }

    fn take_list(&mut self, _: &Heap, _: &[Value]) -> Option<u64> {
        None
    }

    fn more_items(&mut self, _: &mut Heap, _: u64, _: &[Value]) -> Refusal {
        Err(("an object of a sink".into(), "a dict".into()))
    }

    fn more_list(&mut self, _: &mut Heap, _: u64, _: &[Value]) -> Refusal {
        Err(("an object of a sink".into(), "a list".into()))
    }
}
