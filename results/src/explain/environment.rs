//! What a log tells beside its messages: settings in force, versions, the platform.
//!
//! | rule | what it says |
//! |---|---|
//! | `setting` | `NAME=value`, `NAME: value`, `"NAME": "value"` and `environ["NAME"] = "value"` of the names below; the last one holds |
//! | `now` | Paddle's `FLAGS_x is v now` |
//! | `hint` | a name behind `setting`, `use`, `try` or `command is`, or with `to` behind its value, is advice in a message and no setting; nor is the value `xxx` |
//! | `version` | the name of a package with a number of at least two parts behind it: `torch==2.1.0`, `PyTorch version: 2.3.1+cu121` |
//! | `platform` | Windows by its name or its paths; a warning that expandable segments are not supported |

use std::collections::BTreeMap;

/// Variables that change where memory comes from, and options of servers.
const NAMES: [&str; 23] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "FLAGS_allocator_strategy",
    "FLAGS_fraction_of_gpu_memory_to_use",
    "FLAGS_gpu_memory_limit_mb",
    "FLAGS_use_cuda_managed_memory",
    "FLAGS_eager_delete_tensor_gb",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "CUPY_GPU_MEMORY_LIMIT",
    "gpu_memory_utilization",
    "gpu-memory-utilization",
    "max_model_len",
    "max-model-len",
    "kv_cache_dtype",
    "kv-cache-dtype",
];

/// Packages, by the names that versions stand behind, longer names first.
const PACKAGES: [(&str, &str); 12] = [
    ("pytorch", "torch"),
    ("torch", "torch"),
    ("paddlepaddle-gpu", "paddle"),
    ("paddlepaddle", "paddle"),
    ("tensorflow-gpu", "tensorflow"),
    ("tensorflow", "tensorflow"),
    ("jaxlib", "jaxlib"),
    ("jax", "jax"),
    ("vllm api server", "vllm"),
    ("vllm", "vllm"),
    ("cupy", "cupy"),
    ("rmm", "rmm"),
];

/// Longest value that is kept.
const VALUE_CHARS_MAX: usize = 300;

/// Settings, versions and platform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    settings: BTreeMap<String, String>,
    versions: BTreeMap<&'static str, (u32, u32)>,
    /// Windows.
    pub windows: bool,
    /// PyTorch said that it cannot grow segments here.
    pub no_expandable: bool,
}

impl Environment {
    /// The value in force of a variable or option, by its name with `_`.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// All settings, by name.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Version of a package (major, minor).
    pub fn version(&self, package: &str) -> Option<(u32, u32)> {
        self.versions.get(package).copied()
    }

    /// The first of these variables that is set.
    pub fn first_set<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        names.iter().find(|name| self.setting(name).is_some()).copied()
    }

    /// Takes a line in.
    pub fn take(&mut self, text: &str) {
        for name in NAMES {
            for (at, _) in text.match_indices(name) {
                let before = text[..at].chars().next_back();
                let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if before.is_none_or(|c| !inside(c)) && !hinted(&text[..at]) {
                    self.value(name, &text[at + name.len()..]);
                }
            }
        }
        self.version_in(text);
        let lower = text.to_ascii_lowercase();
        self.windows |= lower.contains("microsoft windows")
            || lower.contains(r"\site-packages\")
            || lower.contains("os: windows");
        self.no_expandable |= lower.contains("expandable_segments not supported");
    }

    /// What stands behind a name (rules `setting` and `now`).
    fn value(&mut self, name: &str, behind: &str) {
        let said = behind.trim_start_matches(['"', '\'', ']', ' ']);
        let value = match said.strip_prefix(" is ").or_else(|| said.strip_prefix("is ")) {
            Some(rest) => rest.split(' ').next().filter(|_| rest.contains(" now")),
            None => {
                let option = name.contains('-') && said.len() < behind.len();
                let rest = said.strip_prefix(['=', ':']).or(option.then_some(said));
                rest.and_then(|rest| {
                    let rest = rest.trim_start_matches([' ', '"', '\'']);
                    let ends = |c: char| {
                        c.is_whitespace()
                            || matches!(c, '"' | '\'' | ')' | '}' | '`')
                            || c == ',' && !name.ends_with("ALLOC_CONF")
                    };
                    let end = rest.find(ends).unwrap_or(rest.len());
                    (!rest[end..].starts_with(" to ")).then_some(&rest[..end])
                })
            }
        };
        let value = value.map(|value| value.trim_end_matches(['.', ';']));
        if let Some(value) = value.filter(|value| !value.is_empty() && *value != "xxx") {
            let value = value.chars().take(VALUE_CHARS_MAX).collect();
            self.settings.insert(name.replace('-', "_"), value);
        }
    }

    fn version_in(&mut self, text: &str) {
        let lower = text.to_ascii_lowercase();
        for (name, package) in PACKAGES {
            for (at, _) in lower.match_indices(name) {
                let before = lower[..at].chars().next_back();
                let alone = before.is_none_or(|c| !(c.is_ascii_alphanumeric() || c == '_'));
                if let Some(version) = parse_version(&lower[at + name.len()..]).filter(|_| alone) {
                    self.versions.insert(package, version);
                }
            }
        }
    }
}

/// Is the name that follows a hint (rule `hint`)?
fn hinted(before: &str) -> bool {
    let last = before.trim_end_matches(['`', '"', ' ', '(']).to_ascii_lowercase();
    let last = last.strip_suffix("export").unwrap_or(&last).trim_end_matches(['`', ' ']);
    ["setting", "use", "try", "command is", "increasing"].iter().any(|word| last.ends_with(word))
}

/// `==2.1.0`, ` version: 2.3.1+cu121`, `-2.1`.
fn parse_version(behind: &str) -> Option<(u32, u32)> {
    let rest = behind.trim_start_matches([' ', '=', ':', '-', '"', '\'']);
    let rest = rest.strip_prefix("version").unwrap_or(rest);
    let rest = rest.trim_start_matches([' ', '=', ':', '"', '\'', 'v']);
    if rest.len() == behind.len() {
        return None;
    }
    let mut parts = rest.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.len() - minor.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = minor[digits..].trim_start();
    if ["gib", "mib", "kib", "gb", "mb", "kb"].iter().any(|name| unit.starts_with(name)) {
        return None;
    }
    Some((major, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Environment {
        let mut environment = Environment::default();
        lines.iter().for_each(|line| environment.take(line));
        environment
    }

    #[test]
    fn settings_in_all_their_forms() {
        for line in [
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64",
            "PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True,max_split_size_mb:64",
            "{\"PYTORCH_CUDA_ALLOC_CONF\": \"expandable_segments:True,max_split_size_mb:64\"}",
            "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True,max_split_size_mb:64'",
        ] {
            let environment = of(&[line]);
            assert_eq!(
                environment.setting("PYTORCH_CUDA_ALLOC_CONF"),
                Some("expandable_segments:True,max_split_size_mb:64"),
                "{line}"
            );
        }
        let environment = of(&[
            "--gpu-memory-utilization 0.85 --max-model-len=4096",
            "FLAGS_fraction_of_gpu_memory_to_use is 0.92 now, please",
        ]);
        assert_eq!(environment.setting("gpu_memory_utilization"), Some("0.85"));
        assert_eq!(environment.setting("max_model_len"), Some("4096"));
        assert_eq!(environment.setting("FLAGS_fraction_of_gpu_memory_to_use"), Some("0.92"));
    }

    #[test]
    fn hints_are_no_settings() {
        for line in [
            "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid",
            "Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable",
            "Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
            "The command is `export FLAGS_fraction_of_gpu_memory_to_use=xxx`.",
            "The command is `export FLAGS_use_cuda_managed_memory=false`.",
            "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when",
            "See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
        ] {
            assert_eq!(of(&[line]), Environment::default(), "{line}");
        }
    }

    #[test]
    fn versions_and_platforms() {
        let version = |line| of(&[line]).version("torch");
        assert_eq!(version("torch==2.1.0"), Some((2, 1)));
        assert_eq!(version("PyTorch version: 2.3.1+cu121"), Some((2, 3)));
        assert_eq!(version("torchvision==0.15.2"), None);
        assert_eq!((version("torch 12 GiB"), version("torch: 2.35 GiB")), (None, None));
        assert_eq!(of(&["vLLM API server version 0.6.3"]).version("vllm"), Some((0, 6)));
        assert!(of(&[r"File C:\py\Lib\site-packages\torch\x.py"]).windows);
        assert!(
            of(&["UserWarning: expandable_segments not supported on this platform"]).no_expandable
        );
    }
}
