//! Parts of an iteration that are not static, by the text of marks.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `sections` | ours: a mark holds until the next one. Text with the word `eval` is evaluation; with `STALLOC_DYNAMIC=1` text with `moe` or `mlp` is a layer of experts, but not with `shared` or `router`. The real one hooks Megatron's modules | `main.cpp` checkpoint, is_in_dynamic_layer; `hook_model.py` |

/// What a request is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Static,
    Dynamic,
    Evaluation,
}

impl Section {
    /// The one that a mark begins.
    pub(super) fn of(mark: &str, dynamic: bool) -> Self {
        let has = |word: &str| {
            let mut words = mark.split(|c: char| !c.is_ascii_alphanumeric());
            words.any(|other| other.eq_ignore_ascii_case(word))
        };
        if has("eval") {
            Self::Evaluation
        } else if dynamic && (has("moe") || has("mlp")) && !has("shared") && !has("router") {
            Self::Dynamic
        } else {
            Self::Static
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_by_the_words_of_a_mark() {
        for (mark, dynamic, want) in [
            ("step 3 forward", true, Section::Static),
            ("layers.3.moe F", true, Section::Dynamic),
            ("layers.3.moe F", false, Section::Static),
            ("MLP", true, Section::Dynamic),
            ("moe shared experts", true, Section::Static),
            ("moe.router", true, Section::Static),
            ("step 9 eval", false, Section::Evaluation),
            ("evaluated", false, Section::Static),
        ] {
            assert_eq!(Section::of(mark, dynamic), want, "{mark}");
        }
    }
}
