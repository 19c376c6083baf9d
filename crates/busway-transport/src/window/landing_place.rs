//! The landing place of a channel in a window, and its description for the peer.
//!
//! Contract: arithmetic and encoding only. A peer's description is hostile until
//! [`LandingPlace::decode`] and [`LandingPlace::check`] have passed it.

use serde::{Deserialize, Serialize};

use super::layout::{ENTRY_BYTES, WindowLayout};
use crate::remote_write::shape::{Parts, Shape};

/// A landing place, as the receiver describes it to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandingPlace {
    /// Where in the landing area it begins, in bytes, a multiple of 64.
    pub offset: u64,
    /// First position of ring and register, random: identifies this place among all that ever lay
    /// there.
    pub tag: u64,
    /// What lies in it.
    pub shape: Shape,
    /// Entry of the receiver's credit table.
    pub credit: u32,
    /// The receiver's lane, if it can be rung.
    pub lane: Option<u32>,
}

impl LandingPlace {
    /// The description for the peer.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        // At most 1 + 2 * 5 + 4 * 10 bytes and the lane's 6.
        let length = postcard::to_slice(self, &mut bytes).map_or(0, |used| used.len());
        bytes.truncate(length);
        bytes
    }

    /// Reads a peer's description.
    pub fn decode(bytes: &[u8]) -> Result<LandingPlace, String> {
        match postcard::take_from_bytes(bytes) {
            Ok((place, [])) => Ok(place),
            Ok(_) => Err(format!("{} bytes are more than a description has", bytes.len())),
            Err(error) => Err(format!("{} bytes that are no description: {error}", bytes.len())),
        }
    }

    /// Checks a peer's description: the parts, and where in the window the place begins.
    pub fn check(&self, layout: &WindowLayout) -> Result<(Parts, usize), String> {
        let parts = self
            .shape
            .parts(layout.landing_bytes)
            .ok_or_else(|| format!("{self:?} fits no landing area of {} bytes", layout.landing_bytes))?;
        let offset = usize::try_from(self.offset)
            .ok()
            .filter(|offset| offset.is_multiple_of(ENTRY_BYTES))
            .filter(|offset| {
                offset
                    .checked_add(parts.total_bytes)
                    .is_some_and(|end| end <= layout.landing_bytes)
            })
            .ok_or_else(|| {
                format!(
                    "{} bytes at {} lie outside the landing area",
                    parts.total_bytes, self.offset
                )
            })?;
        if self.credit == 0 || layout.credit_at(self.credit).is_none() {
            return Err(format!("credit entry {} does not exist", self.credit));
        }
        Ok((parts, layout.landing_at + offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote_write::shape::tests::SPECS;

    fn place(shape: Shape) -> LandingPlace {
        LandingPlace {
            offset: 64,
            tag: u64::MAX,
            shape,
            credit: u32::MAX,
            lane: Some(u32::MAX),
        }
    }

    #[test]
    fn a_description_survives_the_wire() {
        let place = place(Shape::plan(&SPECS[2], 1 << 20));
        assert_eq!(LandingPlace::decode(&place.encode()), Ok(place));
    }

    #[test]
    fn an_impossible_description_is_refused() {
        let layout = WindowLayout::new(1 << 20).expect("long enough");
        let good = LandingPlace {
            credit: 1,
            ..place(Shape::plan(&SPECS[1], 64 << 10))
        };
        assert!(good.check(&layout).is_ok());
        let with = |change: fn(&mut Shape)| {
            let mut place = good;
            change(&mut place.shape);
            place
        };
        for bad in [
            LandingPlace { offset: 1, ..good },
            LandingPlace {
                offset: u64::MAX - 63,
                ..good
            },
            LandingPlace {
                offset: layout.landing_bytes as u64,
                ..good
            },
            with(|shape| shape.lines = 0),
            with(|shape| shape.lines = u32::MAX),
            with(|shape| shape.lines = 1 << 31),
            with(|shape| shape.data_bytes = 0),
            with(|shape| shape.data_bytes = 1 << 40),
            with(|shape| shape.register_bytes = u64::MAX),
            LandingPlace { credit: 0, ..good },
            LandingPlace {
                credit: u32::MAX,
                ..good
            },
        ] {
            assert!(bad.check(&layout).is_err(), "{bad:?}");
        }
        for garbage in [&[][..], &[0xff; 64], &[0; 3]] {
            assert!(LandingPlace::decode(garbage).is_err(), "{garbage:?}");
        }
    }
}
