//! PyTorch's settings text as a log has it: which variable this version reads, and the line to paste.
//!
//! | variable | who reads it |
//! |---|---|
//! | `PYTORCH_CUDA_ALLOC_CONF` | CUDA, every version since 1.10; since 2.10 an alias |
//! | `PYTORCH_HIP_ALLOC_CONF` | ROCm, likewise |
//! | `PYTORCH_ALLOC_CONF` | since 2.10 all. 2.9 has it and warns of the others, and yet its CUDA and ROCm allocators read those alone; before it is not there |
//!
//! Source: pytorch/pytorch#183387 (2.9.1 ignores it), #165135 (one reader for all, 2.10), #167659 (aliases); the headers of 2.9.1, 2.10.0 and
//! 2.11.0: `c10/core/AllocatorConfig.h`, `c10/cuda/CUDAAllocatorConfig.h`.

use super::Case;
use crate::explain::message::{Framework, Version};

const NEW: &str = "PYTORCH_ALLOC_CONF";
const NEW_SINCE: Version = (2, 10);

/// The variables that this version may read, the one that it prefers first.
fn names(case: &Case<'_>) -> Vec<&'static str> {
    let old = match case.message.framework {
        Framework::PytorchRocm => ["PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"].as_slice(),
        Framework::PytorchXpu => &[],
        _ => &["PYTORCH_CUDA_ALLOC_CONF"],
    };
    let new = case.may_have("torch", NEW_SINCE).then_some(NEW);
    new.into_iter().chain(old.iter().copied()).collect()
}

/// The settings text in force.
fn text<'c>(case: &Case<'c>) -> Option<&'c str> {
    case.environment.setting(case.environment.first_set(&names(case))?)
}

fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut pairs = text.split([',', ';']).filter_map(|pair| pair.trim().split_once(':'));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value.trim())
}

/// The value in force of a key.
pub(super) fn option<'c>(case: &Case<'c>, key: &str) -> Option<&'c str> {
    value(text(case)?, key)
}

/// Is such a key switched on?
pub(super) fn flag(case: &Case<'_>, key: &str) -> bool {
    option(case, key).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Settings under a name that this version does not read, as the line that it does read.
pub(super) fn unread(case: &Case<'_>) -> Option<String> {
    let set = case.environment.setting(NEW).filter(|_| text(case).is_none())?;
    let name = *names(case).first()?;
    Some(format!("export {name}={set}")).filter(|_| name != NEW)
}

/// Do those have this key?
pub(super) fn unread_has(case: &Case<'_>, key: &str) -> bool {
    let set = case.environment.setting(NEW).filter(|_| unread(case).is_some());
    set.is_some_and(|set| value(set, key).is_some())
}

/// The line to paste: what is set already stays, but for the two that exclude each other.
pub(super) fn export(case: &Case<'_>, option: &str) -> String {
    let names = names(case);
    // where the version is not known, the old name is read whichever it is
    let usual = match case.has("torch", NEW_SINCE) {
        true => names.first(),
        false => names.iter().find(|name| **name != NEW).or(names.first()),
    };
    let name = case.environment.first_set(&names).or(usual.copied()).unwrap_or(NEW);
    let key = option.split(':').next().unwrap_or(option);
    let excluded = ["expandable_segments", "max_split_size_mb"];
    let kept = text(case).unwrap_or_default().split(',').filter(|pair| {
        let other = pair.split(':').next().unwrap_or_default().trim();
        !other.is_empty() && other != key && !(excluded.contains(&other) && excluded.contains(&key))
    });
    let all: Vec<&str> = kept.chain([option]).collect();
    format!("export {name}={}", all.join(","))
}
