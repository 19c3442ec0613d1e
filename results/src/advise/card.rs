//! The smallest card on which a run passes: the least memory that its allocator needs, found by replay, and what a process needs beside it.
//!
//! | part | bytes |
//! |---|---|
//! | least | the least device memory on which no request of the replay fails, with the device's granule; larger devices are tried too, and one that fails again is told |
//! | context | what CUDA takes of a card before the first request: that of the device that is asked for, or else the most of the devices that are built in |
//! | margin | what is left on the card above both |

use serde::Serialize;
use vramlab_sim::device::profile;
use vramlab_sim::units::Bytes;

use super::setting::{Family, Setting};
use crate::failure::Failure;
use crate::job::{Input, Place};
use crate::least::{Least, least};
use crate::room::USUAL_GIB;
use crate::row::Row;

/// Cards below those that recordings are replayed on, in GiB.
const SMALL_GIB: [u64; 7] = [4, 6, 8, 10, 11, 12, 16];

/// What one setting needs. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Card {
    /// The settings text; empty for the defaults.
    pub conf: String,
    /// Least memory for the allocator; none if no device is large enough.
    pub least: Option<u64>,
    /// A larger device on which a request fails all the same.
    pub fails_again: Option<u64>,
    /// What the context takes.
    pub context: u64,
    /// The smallest usual card that holds both.
    pub card: Option<u64>,
    /// What it has left above both.
    pub margin: Option<u64>,
}

impl Card {
    /// Why it is this card, in words.
    pub fn reason(&self) -> String {
        let Some(least) = self.least else {
            return "requests fail on the largest device that was tried".to_owned();
        };
        let mut text = format!(
            "no request fails with {} for the allocator (found by replay); the context takes {} beside it",
            Bytes(least),
            Bytes(self.context)
        );
        match self.card.zip(self.margin) {
            Some((card, margin)) => {
                text += &format!(
                    "; the next usual card has {}, of which {} are left",
                    Bytes(card),
                    Bytes(margin)
                );
            }
            None => text += "; no usual card has as much",
        }
        if let Some(again) = self.fails_again {
            text += &format!("; some request fails again with {}", Bytes(again));
        }
        text
    }
}

/// Searches for a setting that ran as `row` says.
///
/// # Errors
/// Bad options or bad input.
pub fn card(
    input: &Input<'_>,
    place: &Place,
    family: &Family,
    setting: &Setting,
    row: &Row,
) -> Result<Card, Failure> {
    let found = least(input, &family.spec(setting), place, row)?;
    let context = context(place);
    let own = place.profile.options.context; // is in what was found
    let need = found.map(|found| found.capacity.saturating_sub(own).saturating_add(context));
    let card = need.and_then(|need| cards().find(|card| *card >= need));
    Ok(Card {
        conf: setting.text(),
        least: found.map(|found| found.capacity.saturating_sub(own)),
        fails_again: found.and_then(|found: Least| found.fails_again),
        context,
        card,
        margin: card.zip(need).map(|(card, need)| card - need),
    })
}

/// Memory sizes of cards, in bytes: those that recordings are replayed on, and smaller ones.
pub fn cards() -> impl Iterator<Item = u64> {
    SMALL_GIB.iter().chain(&USUAL_GIB).map(|gib| gib << 30)
}

/// The context of the device that is asked for, if it has one, or the largest of those that are built in.
pub fn context(place: &Place) -> u64 {
    match place.profile.options.context {
        0 => profile::devices().iter().map(|profile| profile.options.context).max().unwrap_or(0),
        own => own,
    }
}
