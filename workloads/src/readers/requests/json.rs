//! Requests as lines of JSON.

use serde::Deserialize;
use serde_json::value::RawValue;
use vramlab_sim::kv::KeyRun;
use vramlab_sim::units::Nanos;

use super::{Measured, Raw};
use crate::readers::text::{Unit, from_json, nanos};

/// Tokens of a block that a number of `hash_ids` stands for: Mooncake's README, "hash_ids".
const HASH_BLOCK_TOKENS: u64 = 512;

/// A line with every field that any of the formats has.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(alias = "input_toks", alias = "prompt_tokens", alias = "num_prefill_tokens")]
    input_length: Option<u64>,
    #[serde(alias = "output_toks", alias = "output_tokens", alias = "num_decode_tokens")]
    output_length: Option<u64>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow, alias = "arrived_at")]
    arrival_time: Option<&'a RawValue>,
    #[serde(borrow)]
    arrival_time_ns: Option<&'a RawValue>,
    #[serde(default)]
    hash_ids: Vec<u64>,
    #[serde(default)]
    input_tok_ids: Vec<u64>,
    #[serde(borrow)]
    queued_ts: Option<&'a RawValue>,
    #[serde(borrow)]
    scheduled_ts: Option<&'a RawValue>,
    #[serde(borrow)]
    first_token_ts: Option<&'a RawValue>,
    #[serde(borrow)]
    last_token_ts: Option<&'a RawValue>,
}

/// The request of a line; what its tokens are goes to `keys`.
pub(super) fn request(line: &[u8], keys: &mut Vec<KeyRun>) -> Result<Raw, String> {
    let fields: Fields<'_> = from_json(line)?;
    let need = |value: Option<u64>, names| {
        value.ok_or_else(|| format!("found no field {names}, expected one"))
    };
    let prompt_tokens = need(fields.input_length, "input_length or input_toks")?;
    let output_tokens = need(fields.output_length, "output_length or output_toks")?;
    let arrival = [
        ("timestamp", fields.timestamp, Unit::Millis),
        ("arrival_time", fields.arrival_time, Unit::Seconds),
        ("arrival_time_ns", fields.arrival_time_ns, Unit::Nanos),
    ];
    let arrival =
        arrival.into_iter().find_map(|(name, text, unit)| text.map(|text| time(name, text, unit)));
    push_keys(&fields, prompt_tokens, keys)?;
    let (arrival, measured) = (arrival.transpose()?, measured(&fields)?);
    Ok(Raw { arrival, prompt_tokens, output_tokens, measured })
}

fn time(name: &str, text: &RawValue, unit: Unit) -> Result<u64, String> {
    nanos(text.get().as_bytes(), unit).map_err(|what| format!("{name}: {what}"))
}

/// The measured times, where all of them are there.
fn measured(fields: &Fields<'_>) -> Result<Option<Measured>, String> {
    let (Some(queued), Some(scheduled), Some(first_token), Some(last_token)) =
        (fields.queued_ts, fields.scheduled_ts, fields.first_token_ts, fields.last_token_ts)
    else {
        return Ok(None);
    };
    let seconds = |name, text| time(name, text, Unit::Seconds).map(Nanos);
    let measured = Measured {
        queued: seconds("queued_ts", queued)?,
        scheduled: seconds("scheduled_ts", scheduled)?,
        first_token: seconds("first_token_ts", first_token)?,
        last_token: seconds("last_token_ts", last_token)?,
    };
    let order = [measured.queued, measured.scheduled, measured.first_token, measured.last_token];
    if !order.is_sorted() {
        return Err("found times that go back, expected queued_ts, scheduled_ts, first_token_ts and last_token_ts in this order".to_owned());
    }
    Ok(Some(measured))
}

fn push_keys(fields: &Fields<'_>, tokens: u64, keys: &mut Vec<KeyRun>) -> Result<(), String> {
    let (blocks, ids) = (fields.hash_ids.len() as u64, fields.input_tok_ids.len() as u64);
    if blocks > tokens.div_ceil(HASH_BLOCK_TOKENS) {
        return Err(format!(
            "hash_ids: found {blocks} blocks for {tokens} tokens, expected at most {} of {HASH_BLOCK_TOKENS} tokens",
            tokens.div_ceil(HASH_BLOCK_TOKENS)
        ));
    }
    if ids > tokens {
        return Err(format!(
            "input_tok_ids: found {ids} ids for {tokens} tokens, expected at most as many"
        ));
    }
    if blocks > 0 {
        let before = (0..).step_by(HASH_BLOCK_TOKENS as usize);
        keys.extend(fields.hash_ids.iter().zip(before).map(|(stream, before)| KeyRun {
            stream: *stream,
            first: 0,
            count: (tokens - before).min(HASH_BLOCK_TOKENS),
        }));
    } else {
        keys.extend(fields.input_tok_ids.iter().map(|id| KeyRun::token(*id)));
    }
    Ok(())
}
