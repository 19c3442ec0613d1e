//! Size classes under a two-level bitmap: a first level of powers of two, each cut into `2^SUB` equal classes.
//!
//! ```text
//! rows       1 0 0 1 …             row r ≥ 1: sizes of 2^(r+SUB-1) up to the next power; row 0: sizes below 2^SUB, one class each
//!            │     │
//! columns    0100  0011 …          a bit is set while the class is not empty, so the next one that is not is two bit scans away
//! ```
//! Source: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004, section 3.

/// Rows that a `u32` can need, with `SUB` of 2 or more.
const ROWS: usize = 32;

/// Which classes hold something. Sizes are in units.
#[derive(Clone, Debug)]
pub(crate) struct TwoLevel<const SUB: u32> {
    rows: u32,
    columns: [u64; ROWS],
}

impl<const SUB: u32> TwoLevel<SUB> {
    /// Classes are numbered from 0 to below this.
    pub(crate) const CLASSES: usize = ROWS << SUB;
    const SHIFTS: () = assert!(SUB >= 1 && SUB <= 6, "a row's columns fit a u64");

    pub(crate) const fn new() -> Self {
        let () = Self::SHIFTS;
        Self { rows: 0, columns: [0; ROWS] }
    }

    /// The class that a size lies in.
    #[inline]
    pub(crate) const fn class(units: u32) -> usize {
        let shift = 31 - SUB - (units | 1 << SUB).leading_zeros();
        // the leading bit of the shifted size adds the 1 by which rows above 0 are moved
        ((shift << SUB) + (units >> shift)) as usize
    }

    /// The smallest size of a class; `None` if it passes 2^32.
    pub(crate) const fn floor(class: usize) -> Option<u32> {
        let (row, column) = ((class >> SUB) as u32, (class & ((1 << SUB) - 1)) as u64);
        if row == 0 {
            return Some(column as u32);
        }
        let floor = ((1 << SUB) | column) << (row - 1);
        if floor > u32::MAX as u64 { None } else { Some(floor as u32) }
    }

    /// The smallest class of which every size is `units` (1 or more) or more.
    #[inline]
    pub(crate) const fn class_above(units: u32) -> usize {
        Self::class(units - 1) + 1
    }

    #[inline]
    pub(crate) fn set(&mut self, class: usize) {
        self.rows |= 1 << (class >> SUB);
        self.columns[(class >> SUB) % ROWS] |= 1 << (class & ((1 << SUB) - 1));
    }

    #[inline]
    pub(crate) fn clear(&mut self, class: usize) {
        let columns = &mut self.columns[(class >> SUB) % ROWS];
        *columns &= !(1 << (class & ((1 << SUB) - 1)));
        if *columns == 0 {
            self.rows &= !(1 << (class >> SUB));
        }
    }

    /// Clears a class if `empty`, without a branch that would be guessed wrong often.
    #[inline]
    pub(crate) fn clear_if(&mut self, class: usize, empty: bool) {
        let columns = &mut self.columns[(class >> SUB) % ROWS];
        *columns &= !(u64::from(empty) << (class & ((1 << SUB) - 1)));
        self.rows &= !(u32::from(*columns == 0) << (class >> SUB));
    }

    /// The first class that holds something, from `class` on.
    #[inline]
    pub(crate) fn first_from(&self, class: usize) -> Option<usize> {
        let (row, column) = (class >> SUB, class & ((1 << SUB) - 1));
        let here = self.columns.get(row)? & (u64::MAX << column);
        if here != 0 {
            return Some((row << SUB) | here.trailing_zeros() as usize);
        }
        let above = self.rows & (u32::MAX - 1).checked_shl(row as u32).unwrap_or(0);
        if above == 0 {
            return None;
        }
        let row = above.trailing_zeros() as usize;
        Some((row << SUB) | self.columns[row % ROWS].trailing_zeros() as usize)
    }

    /// The last class that holds something.
    #[inline]
    pub(crate) fn last(&self) -> Option<usize> {
        if self.rows == 0 {
            return None;
        }
        let row = 31 - self.rows.leading_zeros() as usize;
        Some((row << SUB) | (63 - self.columns[row].leading_zeros() as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Levels = TwoLevel<2>;

    #[test]
    fn classes_have_four_steps_per_power_of_two() {
        let floors: Vec<_> = (0..16).map(Levels::floor).collect();
        let want = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28].map(Some);
        assert_eq!(floors, want);
    }

    #[test]
    fn every_size_lies_in_the_class_of_its_floor() {
        for units in (1..5000).chain([u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX]) {
            let class = Levels::class(units);
            assert!(Levels::floor(class).is_some_and(|floor| floor <= units), "for {units}");
            assert!(Levels::floor(class + 1).is_none_or(|floor| floor > units), "for {units}");
            let above = Levels::class_above(units);
            assert!(Levels::floor(above).is_none_or(|floor| floor >= units), "for {units}");
            assert!(above == class || above == class + 1, "for {units}");
        }
    }

    #[test]
    fn scans_find_the_nearest_class() {
        let mut levels = Levels::new();
        for class in [5, 30, 127] {
            levels.set(class);
        }
        let found: Vec<_> = [0, 5, 6, 30, 31, 127, 128].map(|c| levels.first_from(c)).into();
        let want = [Some(5), Some(5), Some(30), Some(30), Some(127), Some(127), None];
        assert_eq!(found, want);
        assert_eq!(levels.last(), Some(127));
        levels.clear(127);
        levels.clear(5);
        assert_eq!((levels.last(), levels.first_from(0)), (Some(30), Some(30)));
    }
}
