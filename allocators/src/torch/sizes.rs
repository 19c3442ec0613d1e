//! What an analysis may ask of the settings: what a request is rounded to, which pool it goes to, what a page is.

use crate::options::{OptionError, Options};

use super::layout::KIND_NAMES;
use super::rounding::Rounding;
use super::settings::{Backend, Settings};
use super::stats::{LARGE, SMALL};

/// Sizes under one choice of settings. All are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes(Rounding);

impl Sizes {
    /// Of the options of a `torch.caching` spec; `None` if they choose the driver's pool, which rounds in its own way.
    ///
    /// # Errors
    /// An unknown option, or a value that PyTorch refuses, in its own words.
    pub fn of(options: &Options) -> Result<Option<Self>, OptionError> {
        let settings = Settings::from_options(options)?;
        Ok((settings.backend == Backend::Native).then(|| Self(Rounding::new(&settings))))
    }

    /// What a request is rounded up to; a size that 64 bits cannot hold after rounding stays as it is.
    pub fn rounded(&self, size: u64) -> u64 {
        if size == 0 { 0 } else { self.0.round(size).unwrap_or(size) }
    }

    /// The pool that serves a request, as a layout calls it.
    pub fn pool(&self, size: u64) -> &'static str {
        KIND_NAMES[Rounding::kind(self.rounded(size))]
    }

    /// Bytes of a page of an expandable segment of this pool: what goes back to the device once all of it is free.
    pub fn page(&self, pool: &str) -> u64 {
        self.0.page(if pool == KIND_NAMES[SMALL] { SMALL } else { LARGE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(conf: &str) -> Sizes {
        let options = Options::from_pairs([("conf", conf)]);
        Sizes::of(&options).expect("accepted").expect("the caching allocator")
    }

    #[test]
    fn pools_and_pages_follow_the_settings() {
        let plain = sizes("");
        assert_eq!([0, 1, 513].map(|size| plain.rounded(size)), [0, 512, 1024]);
        assert_eq!([1 << 20, (1 << 20) + 1].map(|size| plain.pool(size)), ["small", "large"]);
        assert_eq!(["small", "large"].map(|pool| plain.page(pool)), [2 << 20, 20 << 20]);
        let set = sizes("large_segment_size_mb:32,roundup_power2_divisions:[64:4,>:1]");
        assert_eq!(set.page("large"), 32 << 20);
        assert_eq!(set.rounded(70 << 20), 80 << 20);
    }

    #[test]
    fn the_drivers_pool_rounds_in_its_own_way() {
        let options = Options::from_pairs([("backend", "cudaMallocAsync")]);
        assert!(Sizes::of(&options).expect("accepted").is_none());
    }
}
