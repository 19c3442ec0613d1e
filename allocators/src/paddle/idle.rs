//! Which chunks are idle, and how old each is.

/// Idle chunks by number; a chunk's number is the slot of its lowest piece.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// By chunk: how many were made before it.
    born: Vec<u64>,
    /// By chunk: where in `list` it is, while it is idle.
    at: Vec<u32>,
    list: Vec<u32>,
    made: u64,
}

impl Idle {
    /// A new chunk, which is idle.
    pub(super) fn born(&mut self, chunk: u32) {
        let slots = self.born.len().max(chunk as usize + 1);
        self.born.resize(slots, 0);
        self.at.resize(slots, 0);
        self.born[chunk as usize] = self.made;
        self.made += 1;
        self.insert(chunk);
    }

    /// The chunk is idle now.
    #[inline]
    pub(super) fn insert(&mut self, chunk: u32) {
        self.at[chunk as usize] = self.list.len() as u32;
        self.list.push(chunk);
    }

    /// The chunk, which was idle, is not.
    #[inline]
    pub(super) fn remove(&mut self, chunk: u32) {
        let at = self.at[chunk as usize];
        self.list.swap_remove(at as usize);
        if let Some(moved) = self.list.get(at as usize) {
            self.at[*moved as usize] = at;
        }
    }

    /// All of them, in order of their making.
    pub(super) fn oldest_first(&self) -> Vec<u32> {
        let mut list = self.list.clone();
        list.sort_unstable_by_key(|chunk| self.born[*chunk as usize]);
        list
    }
}
