//! What the engine may ask of the simulated machine.

use super::cost::Other;
use super::{Device, Effort, SimMachine, base, invalid};
use crate::driver::{Address, DriverError};
use crate::machine::{
    CallCounts, Direction, DriverWork, Held, Machine, Origin, Physical, Stamp, Toucher,
};
use crate::units::{DeviceId, Nanos, StreamId};

impl Machine for SimMachine {
    fn select(&mut self, device: DeviceId) -> Result<(), DriverError> {
        if usize::from(device.0) >= self.devices.len() {
            return Err(invalid(
                "cudaSetDevice",
                format!("found device {device}, expected one of {} devices", self.devices.len()),
            ));
        }
        self.current = device.0.into();
        Ok(())
    }

    fn thread(&mut self, thread: u32) {
        self.time.thread(thread);
    }

    fn now(&self) -> Nanos {
        Nanos(self.time.now)
    }

    fn wait_until(&mut self, time: Nanos) {
        self.time.now = self.time.now.max(time.0);
    }

    fn spend(&mut self, ns: u64) {
        self.time.spend(ns);
    }

    fn launch(&mut self, stream: StreamId, duration: u64) -> Result<(), DriverError> {
        self.pay_price(Other::Launch, 0);
        let slot = self.slot(stream);
        self.time.queue(slot, duration, 0);
        Ok(())
    }

    fn transfer(
        &mut self,
        stream: StreamId,
        bytes: u64,
        direction: Direction,
    ) -> Result<(), DriverError> {
        self.pay_price(Other::Launch, 0);
        self.queue_transfer(stream, bytes, direction);
        Ok(())
    }

    fn touch(
        &mut self,
        address: Address,
        bytes: u64,
        write: bool,
        by: Toucher,
    ) -> Result<(), DriverError> {
        if let Toucher::Device(stream) = by {
            // an access is a point in its stream's order, whatever it costs
            let slot = self.slot(stream);
            self.time.queue(slot, 0, 0);
        }
        if (base::MANAGED..base::MALLOC).contains(&address) {
            return self.touch_managed(address, bytes, write, by);
        }
        let device = &self.devices[self.current];
        let fine = match by {
            Toucher::Host => device.host.origin(address).is_some(),
            Toucher::Device(_) => device.reaches(address, bytes),
        };
        if fine {
            return Ok(());
        }
        let from = if by == Toucher::Host { "host" } else { "device" };
        let what = format!(
            "found {bytes} bytes at {address:#x}, expected memory that the {from} can access"
        );
        Err(invalid("touch", what))
    }

    fn held(&self) -> Held {
        self.devices[self.current].books.held()
    }

    fn origin(&self, address: Address) -> Option<Origin> {
        let device = &self.devices[self.current];
        match address {
            base::RESERVED.. => device.vmm.origin(address),
            base::POOL.. => device.pools.origin(address),
            base::MALLOC.. => device.mallocs.origin(address),
            base::MANAGED.. => device.managed.origin(address),
            _ => device.host.origin(address),
        }
    }

    fn physical(&self, address: Address) -> Option<Physical> {
        let device = &self.devices[self.current];
        match address {
            base::RESERVED.. => device.vmm.physical(address),
            base::POOL.. => device.pools.physical(address),
            base::MALLOC.. => device.mallocs.physical(address),
            _ => device.managed.physical(address),
        }
    }

    fn stamp(&self, stream: StreamId) -> Option<Stamp> {
        let slot = self.time.known(&self.devices[self.current].streams, stream);
        Some(Stamp { stream, epoch: slot.map_or(0, |slot| self.time.epoch(slot)) })
    }

    fn ordered(&self, earlier: Stamp, stream: StreamId) -> bool {
        let names = &self.devices[self.current].streams;
        let later = self.time.known(names, stream);
        self.time
            .known(names, earlier.stream)
            .is_none_or(|slot| self.time.ordered(slot, earlier.epoch, later))
    }

    fn capture(&mut self, stream: StreamId, on: bool) {
        let slot = self.slot(stream);
        self.time.set_capturing(slot, on);
    }

    fn other_process(&mut self, bytes: u64) {
        self.device().books.set_other(bytes);
    }

    fn calls(&self) -> CallCounts {
        CallCounts(self.calls)
    }

    fn driver_work(&self) -> DriverWork {
        let mut work = DriverWork::default();
        for device in &self.devices {
            device.pools.add_work(&mut work);
            device.managed.add_work(&mut work.managed);
        }
        work
    }
}

impl SimMachine {
    fn touch_managed(
        &mut self,
        address: Address,
        bytes: u64,
        write: bool,
        by: Toucher,
    ) -> Result<(), DriverError> {
        let Device { managed, books, .. } = self.device();
        match by {
            Toucher::Host => {
                let effort = managed.host_access(books, address, bytes, write)?;
                self.host_effort(&effort);
            }
            Toucher::Device(stream) => {
                let effort = managed.device_access(books, address, bytes, write)?;
                if effort != Effort::default() {
                    let slot = self.slot(stream);
                    self.stream_effort(slot, &effort);
                }
            }
        }
        Ok(())
    }
}
