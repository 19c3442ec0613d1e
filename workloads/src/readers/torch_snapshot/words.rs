//! The words of the format, interned before anything else, so that a key is recognised by its number.

use crate::readers::pickle::{StrId, Strings};

macro_rules! words {
    ($($name:ident = $text:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, dead_code)]
        enum Number { $($name,)* }
        // The names of actions are only used by their number.
        $(#[allow(dead_code)]
        pub(super) const $name: StrId = StrId(Number::$name as u32);)*
        const WORDS: &[&str] = &[$($text,)*];
    };
}

words! {
    // Actions come first and in the order of `Action`.
    ALLOC = "alloc",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    SNAPSHOT = "snapshot",
    OOM = "oom",
    ACTION = "action",
    ADDR = "addr",
    SIZE = "size",
    STREAM = "stream",
    TIME_US = "time_us",
    FRAMES = "frames",
    DEVICE_FREE = "device_free",
    COMPILE_CONTEXT = "compile_context",
    USER_METADATA = "user_metadata",
    POOL_ID = "pool_id",
    FILENAME = "filename",
    LINE = "line",
    NAME = "name",
    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    ALLOCATOR_SETTINGS = "allocator_settings",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    HOST_SEGMENTS = "host_segments",
    DEVICE = "device",
    ADDRESS = "address",
    TOTAL_SIZE = "total_size",
    ALLOCATED_SIZE = "allocated_size",
    ACTIVE_SIZE = "active_size",
    REQUESTED_SIZE = "requested_size",
    SEGMENT_TYPE = "segment_type",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",
    BLOCKS = "blocks",
    STATE = "state",
    HISTORY = "history",
    REAL_SIZE = "real_size",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    ACTIVE_AWAITING_FREE = "active_awaiting_free",
    INACTIVE = "inactive",
    SMALL = "small",
    LARGE = "large",
    STAGE = "stage",
    START = "START",
    END = "END",
    ALLOC_CONF = "PYTORCH_CUDA_ALLOC_CONF",
    MAX_SPLIT_SIZE = "max_split_size",
    GC_THRESHOLD = "garbage_collection_threshold",
    EXPANDABLE_SEGMENTS = "expandable_segments",
    ROUNDUP_DIVISIONS = "roundup_power2_divisions",
}

/// Interns all words into a table that has nothing in it yet.
pub(super) fn intern_all(strings: &mut Strings) {
    for word in WORDS {
        strings.intern(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_numbers_of_their_constants() {
        let mut strings = Strings::default();
        intern_all(&mut strings);
        assert_eq!(strings.len(), WORDS.len(), "a word is listed twice");
        assert_eq!(strings.get(OOM), "oom");
        assert_eq!(strings.get(ROUNDUP_DIVISIONS), "roundup_power2_divisions");
    }
}
