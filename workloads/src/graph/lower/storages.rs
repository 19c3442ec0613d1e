//! Storages of a program in the making: new ones, and those that outlive it, by their numbers.

use super::Lower;
use crate::graph::program::{Step, Storage, StorageId};
use crate::graph::spread::Home;
use crate::graph::tensor::{DType, Role, ScopeId, TensorId};

impl Lower<'_> {
    pub(super) fn storage(
        &mut self,
        bytes: u64,
        dtype: DType,
        scope: ScopeId,
        part: &'static str,
    ) -> StorageId {
        self.holders.push(0);
        let storage = Storage { bytes, dtype, scope, part, fixed: None, found: false };
        self.program.storages.push(storage);
        StorageId(self.program.storages.len() as u32 - 1)
    }

    pub(super) fn like(
        &mut self,
        tensor: TensorId,
        scope: ScopeId,
        part: &'static str,
    ) -> StorageId {
        let tensor = self.plan.graph.get(tensor);
        self.storage(tensor.bytes(), tensor.dtype, scope, part)
    }

    /// The fixed storage of this number, of a tensor's size.
    pub(super) fn fixed_like(
        &mut self,
        number: u32,
        tensor: TensorId,
        part: &'static str,
    ) -> StorageId {
        let tensor = self.plan.graph.get(tensor);
        self.fixed_storage(number, tensor.bytes(), tensor.dtype, tensor.scope, part)
    }

    pub(super) fn fixed_storage(
        &mut self,
        number: u32,
        bytes: u64,
        dtype: DType,
        scope: ScopeId,
        part: &'static str,
    ) -> StorageId {
        if let Some(known) = self.fixed[number as usize] {
            return known;
        }
        let id = self.storage(bytes, dtype, scope, part);
        let storage = &mut self.program.storages[id.0 as usize];
        (storage.fixed, storage.found) = (Some(number), self.live[number as usize]);
        self.fixed[number as usize] = Some(id);
        id
    }

    /// What a device keeps of a weight or buffer, by its place in the list; none of a weight that stays on the host.
    pub(super) fn state_storage(&mut self, place: usize) -> Option<StorageId> {
        let id = self.numbers.state()[place];
        let tensor = self.plan.graph.get(id);
        let (dtype, scope) = (tensor.dtype, tensor.scope);
        let bytes = match (tensor.role, self.plan.run.spread.home) {
            (Role::Parameter, Home::Host) => return None,
            (Role::Parameter, Home::Devices(devices)) => {
                tensor.numbers().div_ceil(devices.max(1)) * dtype.bytes()
            }
            _ => tensor.bytes(),
        };
        let storage = self.fixed_storage(self.numbers.of_state(place), bytes, dtype, scope, "");
        self.place[id.0 as usize] = Some(storage);
        Some(storage)
    }

    /// A storage of this program becomes the fixed one of this number.
    pub(super) fn adopt(&mut self, id: StorageId, number: u32) {
        self.program.storages[id.0 as usize].fixed = Some(number);
        self.fixed[number as usize] = Some(id);
        self.live[number as usize] = true;
    }

    /// Drops the fixed storage of this number, if it is there.
    pub(super) fn drop_fixed(&mut self, number: u32, tensor: TensorId) {
        if std::mem::take(&mut self.live[number as usize]) {
            let id = match self.fixed[number as usize].take() {
                Some(known) => known,
                None => {
                    let id = self.like(tensor, self.plan.graph.get(tensor).scope, "");
                    let storage = &mut self.program.storages[id.0 as usize];
                    (storage.fixed, storage.found) = (Some(number), true);
                    id
                }
            };
            self.program.steps.push(Step::Free(id));
        }
    }

    pub(super) fn is_live(&self, number: u32) -> bool {
        self.live[number as usize]
    }

    pub(super) fn born(&mut self, number: u32) {
        self.live[number as usize] = true;
    }
}
