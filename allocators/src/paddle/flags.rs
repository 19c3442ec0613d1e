//! `flags='FLAGS_name=value …'`: Paddle's own settings text.
//!
//! | rule | what it says |
//! |---|---|
//! | `text` | names and values joined by `=`, separated by spaces, commas, semicolons or ends of line; `export`, and quotes around a value, are skipped |
//! | `names` | a name that Paddle does not have is refused with the nearest that it has |
//! | `same_name` | a flag of the name of an option is that option; one given beside the text wins |
//! | `another` | a flag that chooses another allocator is refused, with the name of the strategy that it asks for |
//! | `inert` | any other flag of Paddle's is accepted and reported to be without effect, with the reason |
//!
//! Names: all exported flags of PaddlePaddle 15888d1 (`paddle/common/flags.cc` and the files that define their own), and those of the
//! development branch of 2025 that concern its allocators. Those without a row in a table here stand in `flags.txt`.

use crate::options::{OptionDoc, OptionError, Options, nearest};

/// Before every name.
const PREFIX: &str = "FLAGS_";

/// Flags that concern memory: name, and why it has no effect where it is no option.
const MEMORY: &[(&str, &str)] = &[
    ("allocator_strategy", ""),
    ("use_virtual_memory_auto_growth", ""),
    ("eager_delete_tensor_gb", COLLECTOR),
    ("fast_eager_deletion_mode", COLLECTOR),
    ("memory_fraction_of_eager_deletion", COLLECTOR),
    ("use_stream_safe_cuda_allocator", "that is the wrapper stream_safe, which is joined with +"),
    (
        "gpu_allocator_retry_time",
        "it is an option of the wrapper stream_safe: nothing else waits here",
    ),
    ("fraction_of_gpu_memory_to_use", BUDDY),
    ("initial_gpu_memory_in_mb", BUDDY),
    ("reallocate_gpu_memory_in_mb", BUDDY),
    ("auto_growth_chunk_size_in_mb", GROWTH),
    ("free_idle_chunk", GROWTH),
    ("free_when_no_cache_hit", GROWTH),
    ("alignment_size", GROWTH),
    ("small_pool_size_in_mb", GROWTH),
    ("small_pool_auto_growth_chunk_size_in_mb", GROWTH),
    ("large_pool_auto_growth_chunk_size_in_mb", GROWTH),
    ("small_pool_pre_alloc_in_mb", GROWTH),
    ("large_pool_pre_alloc_in_mb", GROWTH),
    ("gpu_memory_limit_mb", "this allocator does not ask for it"),
];
const COLLECTOR: &str = "it is an option of the wrapper eager_deletion, which is joined with +";
const BUDDY: &str = "only paddle.naive_best_fit reads it";
const GROWTH: &str = "only paddle.auto_growth reads it";
const ELSEWHERE: &str = "it does not concern this allocator";

/// Flags that replace the allocator by another when they are set, and the strategy that is asked for then.
const OTHER_ALLOCATORS: &[(&str, &str)] = &[
    ("use_cuda_malloc_async_allocator", "that of cuda.async_pool"),
    ("use_cuda_managed_memory", "that of cuda.managed"),
    ("use_system_allocator", "that of cuda.malloc"),
    ("use_auto_growth_v2", "auto growth \"v2\", which is not modelled"),
];

/// The rest of Paddle's flags.
const OTHERS: &str = include_str!("flags.txt");

fn is_known(name: &str) -> bool {
    known().any(|known| known == name)
}

fn known() -> impl Iterator<Item = &'static str> {
    let tables = MEMORY.iter().chain(OTHER_ALLOCATORS).map(|(name, _)| *name);
    tables.chain(OTHERS.split_ascii_whitespace())
}

/// The names (without prefix) and values of a settings text.
fn parse(text: &str) -> Result<Vec<(&str, &str)>, OptionError> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',' || c == ';');
    words.filter(|word| !word.is_empty() && *word != "export").map(parse_word).collect()
}

fn parse_word(word: &str) -> Result<(&str, &str), OptionError> {
    let Some((name, value)) = word.split_once('=') else {
        return Err(OptionError(format!("flags: found {word:?}, expected FLAGS_name=value")));
    };
    let Some(short) = name.strip_prefix(PREFIX) else {
        return Err(OptionError(format!(
            "flags: found {name:?}, expected a name that begins with FLAGS_"
        )));
    };
    if !is_known(short) {
        let near = nearest(short, known()).replace("known: ", "known are ");
        return Err(OptionError(format!("Paddle has no flag {name}; without FLAGS_, {near}")));
    }
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    Ok((short, unquoted.unwrap_or(value)))
}

/// The options of `name` with those of its `flags` text, which has less say; all are checked to be among `docs`.
pub(super) fn with_flags(
    name: &str,
    given: &Options,
    docs: &[OptionDoc],
) -> Result<Options, OptionError> {
    given.check(name, docs)?;
    let Some(text) = given.get("flags") else { return Ok(given.clone()) };
    let flags = parse(text)?;
    flags.iter().try_for_each(|(flag, value)| check_choice(name, flag, value))?;
    let own = flags.into_iter().filter(|(flag, _)| docs.iter().any(|doc| doc.name == *flag));
    Ok(Options::from_pairs(own.chain(given.iter())))
}

/// Does the flag choose another allocator?
fn check_choice(name: &str, flag: &str, value: &str) -> Result<(), OptionError> {
    let Some(strategy) = name.strip_prefix("paddle.") else { return Ok(()) };
    let on = matches!(value, "true" | "True" | "TRUE" | "1");
    let asked = match flag {
        "allocator_strategy" if strategy != "vmm_auto_growth" && value != strategy => {
            format!("that of paddle.{value}")
        }
        "allocator_strategy" if strategy == "vmm_auto_growth" && value != "auto_growth" => {
            format!("that of paddle.{value}")
        }
        "use_virtual_memory_auto_growth" if on != (strategy == "vmm_auto_growth") => {
            format!("that of paddle.{}", if on { "vmm_auto_growth" } else { "auto_growth" })
        }
        _ => match OTHER_ALLOCATORS.iter().find(|(other, _)| *other == flag && on) {
            Some((_, asked)) => (*asked).to_owned(),
            None => return Ok(()),
        },
    };
    Err(OptionError(format!(
        "FLAGS_{flag}={value} asks for another allocator than {name}: {asked}"
    )))
}

/// The flags of a text that have no effect on a strategy with these options, one sentence each.
pub(super) fn inert(given: &Options, docs: &[OptionDoc]) -> Vec<String> {
    let flags = given.get("flags").and_then(|text| parse(text).ok()).unwrap_or_default();
    let idle = flags.into_iter().filter(|(flag, _)| docs.iter().all(|doc| doc.name != *flag));
    let sentence = |(flag, value): (&str, &str)| {
        let why = MEMORY.iter().find(|(name, _)| *name == flag).map_or(ELSEWHERE, |(_, why)| why);
        (!why.is_empty()).then(|| format!("FLAGS_{flag}={value} has no effect: {why}"))
    };
    idle.filter_map(sentence).collect()
}
