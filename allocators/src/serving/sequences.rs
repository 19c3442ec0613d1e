//! Live sequences in slots, with the tokens that callers hold for them.

use vramlab_sim::kv::{KvError, Sequence};

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Live sequences. A token is the slot and how often it was used before, so that an old one is told from a new one.
#[derive(Debug)]
pub(super) struct Sequences<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Sequences<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Sequences<T> {
    pub(super) fn insert(&mut self, value: T) -> Sequence {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        place.value = Some(value);
        Sequence(u64::from(place.generation) << 32 | u64::from(slot))
    }

    pub(super) fn get(&self, sequence: Sequence) -> Result<&T, KvError> {
        let slot = self.slots.get(sequence.0 as u32 as usize);
        slot.filter(|slot| u64::from(slot.generation) == sequence.0 >> 32)
            .and_then(|slot| slot.value.as_ref())
            .ok_or(KvError::UnknownSequence(sequence))
    }

    pub(super) fn get_mut(&mut self, sequence: Sequence) -> Result<&mut T, KvError> {
        let slot = self.slots.get_mut(sequence.0 as u32 as usize);
        slot.filter(|slot| u64::from(slot.generation) == sequence.0 >> 32)
            .and_then(|slot| slot.value.as_mut())
            .ok_or(KvError::UnknownSequence(sequence))
    }

    pub(super) fn remove(&mut self, sequence: Sequence) -> Result<T, KvError> {
        self.get(sequence)?;
        let slot = sequence.0 as u32;
        self.vacant.push(slot);
        self.slots[slot as usize].value.take().ok_or(KvError::UnknownSequence(sequence))
    }

    /// The live ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Tokens of the live ones.
    pub(super) fn all(&self) -> Vec<Sequence> {
        let live = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        live.map(|(at, slot)| Sequence(u64::from(slot.generation) << 32 | at as u64)).collect()
    }

    /// How many are live.
    pub(super) fn len(&self) -> u64 {
        (self.slots.len() - self.vacant.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_is_not_taken_for_the_new_one_of_its_slot() {
        let mut live = Sequences::default();
        let first = live.insert('a');
        assert_eq!(live.remove(first), Ok('a'));
        let second = live.insert('b');
        assert_eq!(first.0 as u32, second.0 as u32, "the slot is used again");
        assert_eq!(live.remove(first), Err(KvError::UnknownSequence(first)));
        assert_eq!((live.get(second), live.len()), (Ok(&'b'), 1));
    }
}
