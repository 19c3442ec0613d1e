//! How a wrapper around a machine passes on what it leaves alone.

/// Methods of [`Machine`](crate::Machine) that go to the field of this name as they are. Each is named, and there is no word for "the rest": a
/// wrapper that forgets one does not compile.
///
/// ```text
/// vramlab_sim::forward_machine!(inner: now, wait_until, spend, held);
/// ```
#[macro_export]
macro_rules! forward_machine {
    ($inner:ident: $($method:ident),+ $(,)?) => {
        $($crate::forward_machine!(@$method $inner);)+
    };
    (@select $inner:ident) => {
        fn select(&mut self, device: $crate::DeviceId) -> Result<(), $crate::DriverError> {
            self.$inner.select(device)
        }
    };
    (@thread $inner:ident) => {
        fn thread(&mut self, thread: u32) {
            self.$inner.thread(thread);
        }
    };
    (@now $inner:ident) => {
        fn now(&self) -> $crate::Nanos {
            self.$inner.now()
        }
    };
    (@wait_until $inner:ident) => {
        fn wait_until(&mut self, time: $crate::Nanos) {
            self.$inner.wait_until(time);
        }
    };
    (@spend $inner:ident) => {
        fn spend(&mut self, ns: u64) {
            self.$inner.spend(ns);
        }
    };
    (@transfer $inner:ident) => {
        fn transfer(
            &mut self,
            stream: $crate::StreamId,
            bytes: u64,
            direction: $crate::machine::Direction,
        ) -> Result<(), $crate::DriverError> {
            self.$inner.transfer(stream, bytes, direction)
        }
    };
    (@touch $inner:ident) => {
        fn touch(
            &mut self,
            address: $crate::driver::Address,
            bytes: u64,
            write: bool,
            by: $crate::machine::Toucher,
        ) -> Result<(), $crate::DriverError> {
            self.$inner.touch(address, bytes, write, by)
        }
    };
    (@held $inner:ident) => {
        fn held(&self) -> $crate::machine::Held {
            self.$inner.held()
        }
    };
    (@origin $inner:ident) => {
        fn origin(&self, address: $crate::driver::Address) -> Option<$crate::machine::Origin> {
            self.$inner.origin(address)
        }
    };
    (@physical $inner:ident) => {
        fn physical(&self, address: $crate::driver::Address) -> Option<$crate::machine::Physical> {
            self.$inner.physical(address)
        }
    };
    (@stamp $inner:ident) => {
        fn stamp(&self, stream: $crate::StreamId) -> Option<$crate::machine::Stamp> {
            self.$inner.stamp(stream)
        }
    };
    (@ordered $inner:ident) => {
        fn ordered(&self, earlier: $crate::machine::Stamp, stream: $crate::StreamId) -> bool {
            self.$inner.ordered(earlier, stream)
        }
    };
    (@capture $inner:ident) => {
        fn capture(&mut self, stream: $crate::StreamId, on: bool) {
            self.$inner.capture(stream, on);
        }
    };
    (@other_process $inner:ident) => {
        fn other_process(&mut self, bytes: u64) {
            self.$inner.other_process(bytes);
        }
    };
    (@calls $inner:ident) => {
        fn calls(&self) -> $crate::machine::CallCounts {
            self.$inner.calls()
        }
    };
    (@driver_work $inner:ident) => {
        fn driver_work(&self) -> $crate::machine::DriverWork {
            self.$inner.driver_work()
        }
    };
}
