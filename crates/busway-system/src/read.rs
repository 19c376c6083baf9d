//! Typed reads from a TOML table that knows its places.
//!
//! Contract: each reader returns the value, or reports exactly one problem at the right place and
//! returns `None`, so that its caller continues and finds the next problem. Used by
//! [`crate::parse`] only.

use std::ops::Range;

use busway_transport::contract::Size;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Notes, nearest, one_of};

/// A value with its place.
pub(crate) type At<T> = (T, Range<usize>);

/// A table with its key (`link[0]`) and place.
pub(crate) struct Fields<'a, 'i> {
    pub(crate) key: String,
    pub(crate) span: Range<usize>,
    pub(crate) table: &'a DeTable<'i>,
}

impl<'a, 'i> Fields<'a, 'i> {
    /// `value` as a table.
    pub(crate) fn of(value: &'a Spanned<DeValue<'i>>, key: String, notes: &mut Notes<'_>) -> Option<Self> {
        match value.get_ref().as_table() {
            Some(table) => Some(Fields {
                key,
                span: value.span(),
                table,
            }),
            None => {
                wrong_type(value, &key, "a table", "{ .. }", notes);
                None
            }
        }
    }

    /// The key of a field, for messages.
    pub(crate) fn key_of(&self, field: &str) -> String {
        if self.key.is_empty() {
            field.to_string()
        } else {
            format!("{}.{field}", self.key)
        }
    }

    /// The raw value of a field.
    pub(crate) fn get(&self, field: &str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.table.get(field)
    }

    /// Keys, their places and values, in the order of the file.
    pub(crate) fn entries(&self) -> Vec<(&'a str, Range<usize>, &'a Spanned<DeValue<'i>>)> {
        let mut entries: Vec<_> = self
            .table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
            .collect();
        entries.sort_by_key(|(_, span, _)| span.start);
        entries
    }

    /// Notes every key that is not one of `known`.
    pub(crate) fn only(&self, known: &[&str], notes: &mut Notes<'_>) {
        for (field, span, _) in self.entries() {
            if !known.contains(&field) {
                unknown_key(&self.key_of(field), field, &span, known, notes);
            }
        }
    }

    /// A text.
    pub(crate) fn text(&self, field: &str, example: &str, notes: &mut Notes<'_>) -> Option<At<&'a str>> {
        let value = self.get(field)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            wrong_type(
                value,
                &self.key_of(field),
                "a text",
                &format!("{example:?}"),
                notes,
            );
        }
        Some((text?, value.span()))
    }

    /// A text that must be there and not be empty.
    pub(crate) fn required(&self, field: &str, example: &str, notes: &mut Notes<'_>) -> Option<At<&'a str>> {
        if self.get(field).is_none() {
            notes.error(
                &self.span,
                &self.key,
                format!("`{field}` is missing"),
                format!("add {field} = {example:?}"),
            );
        }
        let (text, span) = self.text(field, example, notes)?;
        if text.is_empty() {
            notes.error(
                &span,
                self.key_of(field),
                "is empty",
                format!("write for example {example:?}"),
            );
            return None;
        }
        Some((text, span))
    }

    /// A whole number within `range`.
    pub(crate) fn number(
        &self,
        field: &str,
        range: std::ops::RangeInclusive<i64>,
        notes: &mut Notes<'_>,
    ) -> Option<i64> {
        let value = self.get(field)?;
        let right = format!("write a whole number from {} to {}", range.start(), range.end());
        let Some(integer) = value.get_ref().as_integer() else {
            let problem = format!("{} is not a whole number", shown(value.get_ref()));
            notes.error(&value.span(), self.key_of(field), problem, right);
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            notes.error(
                &value.span(),
                self.key_of(field),
                format!("{} is out of range", shown(value.get_ref())),
                right,
            );
        }
        number
    }

    /// A number of bytes within `range`: an integer, or a text with a unit such as `"4KiB"`.
    pub(crate) fn size(
        &self,
        field: &str,
        range: std::ops::RangeInclusive<u64>,
        notes: &mut Notes<'_>,
    ) -> Option<u64> {
        let value = self.get(field)?;
        let right = || {
            format!(
                "write {} to {} bytes, such as 64 or \"4KiB\"",
                range.start(),
                range.end()
            )
        };
        let read = match value.get_ref() {
            DeValue::String(text) => text.parse::<Size>().map(|size| size.0),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| format!("{number} is no size; {}", right())),
            other => Err(format!("{} is not a size; {}", shown(other), right())),
        };
        let read = read.and_then(|bytes| {
            if range.contains(&bytes) {
                Ok(bytes)
            } else {
                Err(format!("{} is out of range; {}", shown(value.get_ref()), right()))
            }
        });
        note_text(read, value, self.key_of(field), &right(), notes)
    }

    /// A time in nanoseconds, more than 0, written as a text such as `"20ms"`.
    pub(crate) fn duration_ns(&self, field: &str, notes: &mut Notes<'_>) -> Option<u64> {
        self.time_ns(field, 1, notes)
    }

    /// A time in nanoseconds, at least `least_ns`, written as a text such as `"20ms"`.
    pub(crate) fn time_ns(&self, field: &str, least_ns: u64, notes: &mut Notes<'_>) -> Option<u64> {
        let value = self.get(field)?;
        let right = "write for example \"20ms\" or \"2s\"";
        let read = match value.get_ref().as_str() {
            None => Err(format!("{} is not a duration; {right}", shown(value.get_ref()))),
            Some(text) => match humantime::parse_duration(text) {
                Err(error) => Err(format!("{text:?} is no duration ({error}); {right}")),
                Ok(duration) => i64::try_from(duration.as_nanos())
                    .ok()
                    .and_then(|ns| u64::try_from(ns).ok())
                    .filter(|ns| *ns >= least_ns)
                    .ok_or_else(|| format!("{text:?} is out of range; {right}")),
            },
        };
        note_text(read, value, self.key_of(field), right, notes)
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, field: &str, notes: &mut Notes<'_>) -> Option<bool> {
        let value = self.get(field)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            wrong_type(
                value,
                &self.key_of(field),
                "a truth value",
                "true or false",
                notes,
            );
        }
        flag
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&self, field: &str, words: &[(&str, T)], notes: &mut Notes<'_>) -> Option<T> {
        let known = || words.iter().map(|(word, _)| *word);
        let (text, span) = self.text(field, words[0].0, notes)?;
        let found = words
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, meaning)| *meaning);
        if found.is_none() {
            let mend = match nearest(text, known()) {
                Some(word) => format!("write {word:?}"),
                None => format!("write {}", one_of(known())),
            };
            notes.error(&span, self.key_of(field), format!("{text:?} is unknown"), mend);
        }
        found
    }

    /// A list of texts, none of them empty. Wrong elements are noted and left out.
    pub(crate) fn texts(
        &self,
        field: &str,
        example: &str,
        notes: &mut Notes<'_>,
    ) -> Option<Vec<At<&'a str>>> {
        let value = self.get(field)?;
        let Some(array) = value.get_ref().as_array() else {
            wrong_type(value, &self.key_of(field), "a list of texts", example, notes);
            return None;
        };
        let mut texts = Vec::new();
        for (index, element) in array.iter().enumerate() {
            let key = format!("{}[{index}]", self.key_of(field));
            match element.get_ref().as_str() {
                Some("") => notes.error(&element.span(), key, "is empty", format!("write {example}")),
                Some(text) => texts.push((text, element.span())),
                None => wrong_type(element, &key, "a text", example, notes),
            }
        }
        Some(texts)
    }

    /// The tables of `[[field]]`.
    pub(crate) fn tables(&self, field: &str, notes: &mut Notes<'_>) -> Vec<Fields<'a, 'i>> {
        let Some(value) = self.get(field) else {
            return Vec::new();
        };
        let Some(array) = value.get_ref().as_array() else {
            notes.error(
                &value.span(),
                self.key_of(field),
                format!("{} is not a list of tables", shown(value.get_ref())),
                format!("write [[{field}]], with two brackets"),
            );
            return Vec::new();
        };
        let tables = array.iter().enumerate();
        tables
            .filter_map(|(index, table)| Fields::of(table, format!("{}[{index}]", self.key_of(field)), notes))
            .collect()
    }
}

/// The value, or a note of what `read` says: problem and mend, parted by `; `.
fn note_text<T>(
    read: Result<T, String>,
    value: &Spanned<DeValue<'_>>,
    key: String,
    right: &str,
    notes: &mut Notes<'_>,
) -> Option<T> {
    match read {
        Ok(good) => Some(good),
        Err(said) => {
            let (problem, mend) = said.split_once("; ").unwrap_or((&said, right));
            notes.error(&value.span(), key, problem, mend);
            None
        }
    }
}

/// Notes a key that nobody reads.
pub(crate) fn unknown_key(
    key: &str,
    field: &str,
    span: &Range<usize>,
    known: &[&str],
    notes: &mut Notes<'_>,
) {
    let mend = match nearest(field, known.iter().copied()) {
        Some(word) => format!("write `{word}`"),
        None => format!("known here: {}", one_of(known.iter().copied())),
    };
    notes.error(span, key, format!("unknown key `{field}`"), mend);
}

fn wrong_type(value: &Spanned<DeValue<'_>>, key: &str, wanted: &str, example: &str, notes: &mut Notes<'_>) {
    let problem = format!("{} is not {wanted}", shown(value.get_ref()));
    notes.error(&value.span(), key, problem, format!("write {example}"));
}

/// A value as it is named in a message.
pub(crate) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_string(),
        DeValue::Table(_) => "a table".to_string(),
    }
}
