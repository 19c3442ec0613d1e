//! Are all ids different? Most files count upwards, which needs no memory to see.

use rustc_hash::FxHashSet;

use crate::readers::text::whole;

/// Ids of the buffers so far.
#[derive(Default)]
pub(super) struct Ids {
    /// The last one, as long as they are numbers that rise.
    last: Option<u64>,
    count: u64,
    /// Numbers, once they do not rise.
    numbers: Option<FxHashSet<u64>>,
    /// Names, once one is no number.
    names: Option<Names>,
}

struct Names {
    seen: FxHashSet<Box<str>>,
    list: Vec<Box<str>>,
}

impl Ids {
    /// The number of one more buffer, whose id is this text; `digits` is its value where that is known. `earlier` gives the numbers of those before
    /// it, if they are needed.
    #[inline]
    pub(super) fn add(
        &mut self,
        text: &[u8],
        digits: Option<u64>,
        earlier: impl Iterator<Item = u64>,
    ) -> Result<u64, String> {
        let line = self.count;
        self.count += 1;
        let number = match self.names {
            None => digits.or_else(|| whole(text).ok()),
            Some(_) => None,
        };
        if let Some(number) = number {
            if self.numbers.is_none() {
                let rises = self.last.is_none_or(|last| last < number);
                self.last = Some(number);
                if rises {
                    return Ok(number);
                }
            }
            let numbers = self.numbers.get_or_insert_with(|| earlier.collect());
            return numbers.insert(number).then_some(number).ok_or_else(|| again(text));
        }
        let name = std::str::from_utf8(text.trim_ascii())
            .map_err(|_| "found bytes that are no UTF-8, expected an id".to_owned())?;
        let names = self.names.get_or_insert_with(|| {
            let list: Vec<Box<str>> = earlier.map(|id| id.to_string().into()).collect();
            Names { seen: list.iter().cloned().collect(), list }
        });
        names.list.push(name.into());
        names.seen.insert(name.into()).then_some(line).ok_or_else(|| again(text))
    }

    /// The names, if there are some.
    pub(super) fn names(self) -> Vec<Box<str>> {
        self.names.map_or(Vec::new(), |names| names.list)
    }
}

fn again(text: &[u8]) -> String {
    format!("found id {:?} again, expected each once", String::from_utf8_lossy(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(texts: &[&str]) -> (Vec<Result<u64, String>>, Vec<Box<str>>) {
        let (mut ids, mut all) = (Ids::default(), Vec::new());
        for text in texts {
            let earlier = all.iter().filter_map(|id: &Result<u64, String>| id.clone().ok());
            let id = ids.add(text.as_bytes(), None, earlier);
            all.push(id);
        }
        (all, ids.names())
    }

    #[test]
    fn numbers_that_rise_fall_and_come_again() {
        let (ids, names) = add(&["3", "7", "5", "6", "7", "3"]);
        let again = |id: &str| Err(format!("found id {id:?} again, expected each once"));
        assert_eq!(ids, [Ok(3), Ok(7), Ok(5), Ok(6), again("7"), again("3")]);
        assert!(names.is_empty());
        assert_eq!(add(&["3", "3"]).0[1], again("3"));
    }

    #[test]
    fn with_a_name_all_are_names() {
        let (ids, names) = add(&["3", "b", "4", "b"]);
        assert_eq!(ids[..3], [Ok(3), Ok(1), Ok(2)]);
        assert!(ids[3].is_err());
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["3", "b", "4", "b"]);
    }
}
