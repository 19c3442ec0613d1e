//! vLLM: figures of its start, and what it says when the cache of keys and values is too small.
//!
//! | line | printed by |
//! |---|---|
//! | `# GPU blocks: 229, # CPU blocks: 512` | V0 |
//! | `Memory profiling results: total_gpu_memory=… peak_torch_memory=… non_torch_memory=… kv_cache_size=… gpu_memory_utilization=…` | 0.6 |
//! | `… total_gpu_memory (A) x gpu_memory_utilization (B) = C`, `model weights take A; non_torch_memory takes B; PyTorch activation peak memory takes C; the rest of the memory reserved for KV Cache is D` | 0.6.4 to 0.8 |
//! | `Available KV cache memory: A`, `GPU KV cache size: N tokens`, `Maximum concurrency for N tokens per request: Mx` | V1 |
//! | `The model's max seq len (N) is larger than the maximum number of tokens that can be stored in KV cache (M)` | V0: error |
//! | `… max seq len (N), (A KV cache is needed, which is larger than the available KV cache memory (B). … estimated maximum model length is M` | V1: error |
//! | `No available memory for the cache blocks` | error |
//! | `Free memory on device (A/B GiB) on startup is less than desired GPU memory utilization (R, C)` | since 0.9: error |
//! | `… is preempted by PreemptionMode.RECOMPUTE` | V0: warning |
//!
//! Figures are kept from line to line; an error is a message with all that was said before it, and what follows is of another server. Source: vllm-project/vllm, `vllm/worker/worker.py` (V0),
//! `vllm/v1/core/kv_cache_utils.py`, `vllm/v1/worker/gpu_worker.py`, 0.2 to 0.15.

use crate::explain::message::{Figures, Framework, Kind, Message, Value};
use crate::explain::tokens::{
    Like::{Number, Size, Word},
    Token, places, tokens,
};

/// Tokens of a block that are believed when they are computed from two figures.
const BLOCK_TOKENS_MAX: u64 = 1024;

/// What a server has said so far.
#[derive(Debug, Default)]
pub struct Server {
    figures: Figures,
    first_line: u64,
    v1: bool,
}

impl Server {
    /// Takes a line, as it is and in small letters; gives the error that it is.
    pub fn take(&mut self, text: &str, lower: &str, line: u64) -> Option<Message> {
        let has = |words: &str| lower.contains(words);
        let figure = has("gpu blocks:")
            || has("total_gpu_memory")
            || has("model weights t")
            || has("kv cache memory")
            || has("gpu kv cache size")
            || has("maximum concurrency for");
        let kind = if has("max seq len") && (has("larger than") || has("kv cache")) {
            Some(Kind::CacheTooSmall)
        } else if has("no available memory for the cache blocks") {
            Some(Kind::NoCache)
        } else if has("free memory on device") && has("less than desired") {
            Some(Kind::NotFree)
        } else if has("is preempted by preemptionmode") {
            Some(Kind::Preempted)
        } else {
            None
        };
        if !figure && kind.is_none() {
            return None;
        }
        self.v1 |= has("available kv cache memory")
            || has("gpu kv cache size")
            || has("free memory on device")
            || has("kv cache is needed");
        if self.first_line == 0 {
            self.first_line = line;
        }
        self.read(&tokens(text));
        let message = self.message(kind?, line);
        // what comes later is of another server
        *self = Self::default();
        Some(message)
    }

    /// What was said, if it was no error.
    pub fn finish(&mut self) -> Option<Message> {
        let said = !self.figures.is_empty();
        said.then(|| self.message(Kind::State, self.first_line))
    }

    fn message(&self, kind: Kind, line: u64) -> Message {
        let era = if self.v1 { "V1 (0.8 or later)" } else { "V0 (0.2 to 0.10)" };
        let versions = if self.v1 { (Some((0, 8)), None) } else { (None, Some((0, 11))) };
        let figures = self.figures.clone();
        Message { kind, figures, line, versions, ..Message::new(Framework::Vllm, era) }
    }

    fn read(&mut self, tokens: &[Token<'_>]) {
        let mut said = Figures::default();
        for (name, pattern, figure) in [
            ("gpu_blocks", &[Word("gpu"), Word("blocks"), Number][..], 2),
            ("cpu_blocks", &[Word("cpu"), Word("blocks"), Number], 2),
            ("weights_bytes", &[Word("weights"), Word("took"), Size], 2),
            ("weights_bytes", &[Word("weights"), Word("take"), Size], 2),
            ("total_bytes", &[Word("total_gpu_memory"), Size], 1),
            ("peak_torch_bytes", &[Word("peak_torch_memory"), Size], 1),
            ("activation_bytes", &[Word("peak"), Word("memory"), Word("takes"), Size], 3),
            ("non_torch_bytes", &[Word("non_torch_memory"), Size], 1),
            ("non_torch_bytes", &[Word("non_torch_memory"), Word("takes"), Size], 2),
            ("kv_bytes", &[Word("kv_cache_size"), Size], 1),
            ("kv_bytes", &[Word("kv"), Word("cache"), Word("is"), Size], 3),
            ("max_model_len", &[Word("concurrency"), Word("for"), Number], 2),
            ("max_model_len", &[Word("seq"), Word("len"), Number], 2),
            ("kv_tokens", &[Word("in"), Word("kv"), Word("cache"), Number], 3),
            ("kv_tokens", &[Word("cache"), Word("size"), Number, Word("tokens")], 2),
            ("needed_bytes", &[Size, Word("kv"), Word("cache"), Word("is")], 0),
            ("available_bytes", &[Word("kv"), Word("cache"), Word("memory"), Size], 3),
            ("estimated_max_len", &[Word("model"), Word("length"), Word("is"), Number], 3),
            ("desired_bytes", &[Word("utilization"), Number, Size], 2),
        ] {
            said.read(name, tokens, pattern, figure);
        }
        for (name, pattern, figure) in [
            ("utilization", &[Word("gpu_memory_utilization"), Number][..], 1),
            ("utilization", &[Word("utilization"), Number, Size], 1),
            ("concurrency", &[Word("per"), Word("request"), Number], 2),
        ] {
            said.read_ratio(name, tokens, pattern, figure);
        }
        free_of_total(&mut said, tokens);
        for (name, value) in said.iter() {
            // a share that is cut behind its point is none
            if name != "utilization" || matches!(value, Value::Ratio(share) if *share > 0.0) {
                self.figures.replace(name, value.clone());
            }
        }
        let count = |name| self.figures.count(name);
        if let (Some(tokens), Some(blocks)) = (count("kv_tokens"), count("gpu_blocks"))
            && blocks > 0
            && tokens.is_multiple_of(blocks)
            && tokens / blocks <= BLOCK_TOKENS_MAX
        {
            self.figures.replace("block_size", Value::Count(tokens / blocks));
        }
    }
}

/// `on device (59.32/79.15 GiB) on startup`: the first has the unit of the second.
fn free_of_total(said: &mut Figures, tokens: &[Token<'_>]) {
    let pattern = [Number, Size, Word("on"), Word("startup")];
    let Some(at) = places(tokens, &pattern).next() else { return };
    if let [Token::Number(free), Token::Size(total), ..] = &tokens[at..]
        && let Some(free) = free.sized("GiB")
    {
        said.keep("free_bytes", Value::Bytes(free));
        said.keep("total_bytes", Value::Bytes(*total));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(lines: &[&str]) -> Message {
        let mut server = Server::default();
        let mut last = None;
        for line in lines {
            last = server.take(line, &line.to_ascii_lowercase(), 1).or(last);
        }
        last.or_else(|| server.finish()).expect("a message")
    }

    #[test]
    fn figures_of_earlier_lines_are_in_the_error() {
        let message = error(&[
            "# GPU blocks: 10, # CPU blocks: 4",
            "The model's max seq len (200) is larger than the maximum number of tokens that can be stored in KV cache (160).",
        ]);
        assert_eq!(message.kind, Kind::CacheTooSmall);
        assert_eq!(message.figures.count("block_size"), Some(16));
    }

    #[test]
    fn free_memory_at_the_start_has_the_unit_of_the_total() {
        let message = error(&[
            "Free memory on device cuda:0 (2.50/8.00 GiB) on startup is less than desired GPU memory utilization (0.9, 7.20 GiB).",
        ]);
        assert_eq!(message.figures.bytes("free_bytes"), Some(5 << 29));
        let message = error(&[
            "Free memory on device (2.50/8.00 GiB) on startup is less than desired GPU memory utilization (0.9, 7.20 GiB).",
        ]);
        assert_eq!(message.figures.bytes("free_bytes"), Some(5 << 29));
        assert_eq!(message.figures.bytes("total_bytes"), Some(8 << 30));
        assert_eq!(message.figures.ratio("utilization"), Some(0.9));
    }

    #[test]
    fn a_start_without_error_is_a_state() {
        let message = error(&["Maximum concurrency for 4,096 tokens per request: 8.53x"]);
        assert_eq!(message.kind, Kind::State);
        assert_eq!(message.figures.count("max_model_len"), Some(4096));
        assert_eq!(message.figures.ratio("concurrency"), Some(8.53));
    }
}
