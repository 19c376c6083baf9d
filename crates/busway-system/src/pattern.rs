//! Patterns that service names are matched with.
//!
//! `*` stands for any characters (none, and `/`, included), `?` for exactly one; everything else
//! for itself. The whole name must match. Used by rules and lanes.

use std::fmt;

use serde::{Serialize, Serializer};
use wildmatch::WildMatch;

/// A pattern for service names, such as `camera/*`.
#[derive(Clone, PartialEq)]
pub struct Pattern {
    text: String,
    matcher: WildMatch,
}

impl Pattern {
    /// Every text is a pattern.
    pub fn new(text: &str) -> Pattern {
        Pattern {
            text: text.to_string(),
            matcher: WildMatch::new(text),
        }
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.matcher.matches(name)
    }

    /// As it stands in the file.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether every name matches.
    pub fn is_everything(&self) -> bool {
        !self.text.is_empty() && self.text.bytes().all(|byte| byte == b'*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_crosses_slashes_and_may_be_empty() {
        let pattern = Pattern::new("camera/*");
        assert!(pattern.matches("camera/left/raw"));
        assert!(pattern.matches("camera/"));
        assert!(!pattern.matches("camera"));
        assert!(!pattern.matches("my/camera/left"));
    }

    #[test]
    fn a_question_mark_is_exactly_one_character() {
        let pattern = Pattern::new("imu?");
        assert!(pattern.matches("imu1"));
        assert!(!pattern.matches("imu"));
        assert!(!pattern.matches("imu12"));
    }

    #[test]
    fn a_pattern_without_wildcards_is_a_name() {
        assert!(Pattern::new("a.b").matches("a.b"));
        assert!(!Pattern::new("a.b").matches("axb"));
    }
}
