//! Sizes in the system file: `4096`, `"64MiB"`.

use serde::{Deserialize, Deserializer, de};

/// A length or offset in bytes, written as an integer or as a string with the unit KiB, MiB or GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let text = text.trim();
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            other => {
                return Err(format!(
                    "`{text}` has the unknown unit `{other}`; use KiB, MiB or GiB, as in \"64MiB\""
                ));
            }
        };
        let number: u64 = digits
            .replace('_', "")
            .parse()
            .map_err(|_| format!("`{text}` is no size; write an integer or a string like \"64MiB\""))?;
        number
            .checked_mul(factor)
            .map(Size)
            .ok_or_else(|| format!("`{text}` is more than 64 bits can count"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size: an integer of bytes, or a string like \"64MiB\"")
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::custom(format!("{bytes} is negative; a size is not")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
