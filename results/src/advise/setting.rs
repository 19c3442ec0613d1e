//! One choice of settings: as a strategy's spec, and as the text that a person pastes.
//!
//! PyTorch reads its settings from `PYTORCH_CUDA_ALLOC_CONF` in every version. `PYTORCH_ALLOC_CONF` is its name since 2.10, of which the
//! other is an alias; 2.9 has the new name and warns of the old one, but reads that alone for CUDA (pytorch/pytorch#183387, #165135, #167659). So
//! the old name is what is pasted.

use vramlab_allocators::options::boolean;
use vramlab_allocators::{Options, Spec, find};

use super::ladder::{Release, since};

/// Options of one strategy, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    /// Option and value, in the order in which the ladder has them.
    pub pairs: Vec<(&'static str, String)>,
    /// A settings text as it was recorded, instead of pairs.
    pub verbatim: Option<String>,
}

/// Whose settings are searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The strategy, with what is not searched: its version, and options that are to stay as they are.
    pub base: Spec,
}

impl Setting {
    /// These options.
    pub fn of(pairs: &[(&'static str, &str)]) -> Self {
        let own = |(key, value): &(&'static str, &str)| (*key, (*value).to_owned());
        Self { pairs: pairs.iter().map(own).collect(), verbatim: None }
    }

    /// A recorded text.
    pub fn recorded(text: &str) -> Self {
        Self { pairs: Vec::new(), verbatim: Some(text.to_owned()) }
    }

    /// No option is set.
    pub fn is_default(&self) -> bool {
        self.pairs.is_empty() && self.verbatim.as_deref().unwrap_or_default().is_empty()
    }

    /// With this option, instead of what it had.
    #[must_use]
    pub fn with(&self, key: &'static str, value: &str) -> Self {
        let mut pairs = self.without(key).pairs;
        pairs.push((key, value.to_owned()));
        pairs.sort();
        Self { pairs, verbatim: None }
    }

    /// Without this option.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        let pairs = self.pairs.iter().filter(|(other, _)| *other != key).cloned().collect();
        Self { pairs, verbatim: None }
    }

    /// The value of an option.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(other, _)| *other == key).map(|(_, value)| value.as_str())
    }

    /// The first release of PyTorch that reads all of them, and the option that needs it.
    pub fn since(&self) -> Option<(Release, &'static str)> {
        self.pairs.iter().filter_map(|(key, value)| Some((since(key, value)?, *key))).max()
    }

    /// In the spelling of the real system's settings: `key:value,key:value`.
    pub fn text(&self) -> String {
        if let Some(text) = &self.verbatim {
            return text.clone();
        }
        let pair = |(key, value): &(&'static str, String)| format!("{key}:{value}");
        self.pairs.iter().map(pair).collect::<Vec<_>>().join(",")
    }
}

/// The strategy of which PyTorch's own settings text is known.
const TORCH: &str = "torch.caching";

/// Options of it that PyTorch has no setting for.
const OURS: [&str; 3] = ["version", "conf", "research_pool_after_sync"];

impl Family {
    /// That of a strategy as a recording has it, with its version, and the settings text that is in force.
    pub fn of(recorded: &Spec) -> (Self, String) {
        let own = recorded.strategy();
        let version = own.options.get("version").map(|version| ("version", version));
        let base = Spec::new(&own.name, Options::from_pairs(version));
        (Self { base }, own.options.get("conf").unwrap_or_default().to_owned())
    }

    /// Is this option one that is not searched?
    pub fn keeps(&self, key: &str) -> bool {
        self.base.strategy().options.get(key).is_some()
    }

    /// The strategy's name.
    pub fn name(&self) -> &str {
        &self.base.strategy().name
    }

    /// Is it PyTorch's, whose settings are one text?
    pub fn is_torch(&self) -> bool {
        self.name() == TORCH
    }

    /// The first release of the real system that reads a setting, as `2.11`, and the option that needs it; none where that is not known.
    pub fn since(&self, setting: &Setting) -> Option<(String, &'static str)> {
        let ((major, minor), key) = setting.since().filter(|_| self.is_torch())?;
        Some((format!("{major}.{minor}"), key))
    }

    /// A setting as a spec.
    pub fn spec(&self, setting: &Setting) -> Spec {
        let own = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
        let base = self.base.strategy().options.iter().map(own);
        let mut spec = self.base.clone();
        let text = setting.text();
        let more: Vec<(String, String)> = if self.is_torch() {
            [("conf".to_owned(), text)].into_iter().filter(|(_, text)| !text.is_empty()).collect()
        } else {
            setting.pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
        };
        spec.parts[0].options = Options::from_pairs(base.chain(more));
        spec
    }

    /// What is pasted into an environment or a program for it, exactly.
    pub fn paste(&self, setting: &Setting) -> String {
        if self.is_torch() {
            let parts = std::iter::once(setting.text()).chain(self.kept());
            let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
            let text = parts.join(",");
            return match text.contains([' ', '[', '>', '\'']) {
                true => format!("PYTORCH_CUDA_ALLOC_CONF='{text}'"),
                false => format!("PYTORCH_CUDA_ALLOC_CONF={text}"),
            };
        }
        format!("--strategy {}", self.spec(setting))
    }

    /// What stays as it is, as PyTorch's settings text spells it.
    fn kept(&self) -> impl Iterator<Item = String> + '_ {
        let docs = find(self.name()).map_or(&[][..], |strategy| strategy.options);
        let is_switch =
            |key: &str| docs.iter().any(|doc| doc.name == key && boolean(doc.default).is_some());
        let options = self.base.strategy().options.iter();
        options.filter(|(key, value)| !OURS.contains(key) && *value != "none").map(
            move |(key, value)| match boolean(value).filter(|_| is_switch(key)) {
                Some(true) => format!("{key}:True"),
                Some(false) => format!("{key}:False"),
                None => format!("{key}:{value}"),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_one_text_whatever_the_order_in_which_it_was_made() {
        let a = Setting::default().with("b", "2").with("a", "1");
        let b = Setting::default().with("a", "3").with("b", "2").with("a", "1");
        assert_eq!(a, b);
        assert_eq!(a.text(), "a:1,b:2");
        assert!(a.without("a").without("b").is_default());
    }

    #[test]
    fn a_text_with_brackets_is_quoted_for_a_shell() {
        let base = Spec::new(TORCH, Options::from_pairs([("version", "2.15")]));
        let family = Family { base };
        let set = Setting::of(&[("roundup_power2_divisions", "[256:1,>:8]")]);
        assert_eq!(
            family.paste(&set),
            "PYTORCH_CUDA_ALLOC_CONF='roundup_power2_divisions:[256:1,>:8]'"
        );
        assert_eq!(family.spec(&set).strategy().options.get("version"), Some("2.15"));
        assert_eq!(family.spec(&Setting::default()), family.base);
    }

    /// What was not to be changed was missing in what was to be pasted.
    #[test]
    fn options_that_stay_are_pasted_too() {
        let kept =
            [("version", "2.15"), ("max_split_size_mb", "200"), ("expandable_segments", "on")];
        let family = Family { base: Spec::new(TORCH, Options::from_pairs(kept)) };
        assert_eq!(
            family.paste(&Setting::of(&[("large_segment_size_mb", "32")])),
            "PYTORCH_CUDA_ALLOC_CONF=large_segment_size_mb:32,max_split_size_mb:200,expandable_segments:True"
        );
    }
}
