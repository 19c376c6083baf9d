//! The bus tables of a link: `tcp.vision = { listen = ".." }`.
//!
//! Each bus reads its own tables ([`registry::parse_host`]) and says in words what is wrong. To
//! find the place in the file, every key is given to the bus alone first; so all wrong keys of a
//! table are found, not only the first.

use std::ops::Range;

use busway_buses as registry;
use busway_transport::contract::SettingError;
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use crate::diagnostic::{Notes, nearest, one_of};
use crate::link::LinkBus;
use crate::read::{At, Fields, shown};

/// The settings of both hosts for a bus; `None` if anything is wrong, which has been noted.
pub(super) fn read(
    link: &Fields<'_, '_>,
    (bus, named_at): &At<&str>,
    ends: &[String; 2],
    notes: &mut Notes<'_>,
) -> Option<LinkBus> {
    let shared = match link.get(bus) {
        Some(value) => Some(Fields::of(value, link.key_of(bus), notes)?),
        None => None,
    };
    let is_host = |field: &str| ends.iter().any(|end| end == field);
    let mut good = true;
    if let Some(shared) = &shared {
        let keys = shared.entries().into_iter().filter(|(field, ..)| !is_host(field));
        good &= check_keys(bus, shared, keys, ends, notes);
    }
    let mut own = [None, None];
    let mut hosts = [None, None];
    for (at, end) in ends.iter().enumerate() {
        if let Some((shared, value)) = shared.as_ref().and_then(|it| Some((it, it.get(end)?))) {
            own[at] = Fields::of(value, shared.key_of(end), notes);
            good &= own[at]
                .as_ref()
                .is_some_and(|own| check_keys(bus, own, own.entries(), &[], notes));
        }
        hosts[at] = merged(bus, [shared.as_ref(), own[at].as_ref()], is_host).ok();
    }
    let [Some(first), Some(second)] = hosts else {
        return None;
    };
    let buses = LinkBus {
        hosts: [first, second],
    };
    let error = (0..2).find_map(|at| Some((at, buses.seen_from(at).validate().err()?)));
    if let (true, Some((at, error))) = (good, error) {
        let at_fault = if error.local { at } else { 1 - at };
        let tables = [own[at_fault].as_ref(), shared.as_ref()];
        let (problem, mend) = error.naming(&ends[at], &ends[1 - at]);
        let error = SettingError {
            problem,
            mend,
            ..error
        };
        note_setting(
            &error,
            tables,
            &format!("{}.{}", link.key_of(bus), ends[at_fault]),
            named_at,
            notes,
        );
        good = false;
    }
    good.then_some(buses)
}

/// One host's table: its own keys over those for both.
fn merged(
    bus: &str,
    tables: [Option<&Fields<'_, '_>>; 2],
    is_host: impl Fn(&str) -> bool,
) -> Result<registry::HostTable, String> {
    let [shared, own] = tables.map(|table| table.map(Fields::entries).unwrap_or_default());
    let mut merged = toml::Table::new();
    for (field, _, value) in shared
        .into_iter()
        .filter(|(field, ..)| !is_host(field))
        .chain(own)
    {
        merged.insert(field.to_string(), owned(value)?);
    }
    registry::parse_host(bus, merged.into())
}

fn owned(value: &Spanned<DeValue<'_>>) -> Result<toml::Value, String> {
    toml::Value::deserialize(toml::de::ValueDeserializer::from(value.clone()))
        .map_err(|error| error.message().to_string())
}

/// Whether the bus takes each of the keys, alone.
fn check_keys<'a, 'i: 'a>(
    bus: &str,
    table: &Fields<'_, '_>,
    keys: impl IntoIterator<Item = (&'a str, Range<usize>, &'a Spanned<DeValue<'i>>)>,
    hosts: &[String],
    notes: &mut Notes<'_>,
) -> bool {
    let mut good = true;
    for (field, span, value) in keys {
        let alone = owned(value).map(|value| toml::Table::from_iter([(field.to_string(), value)]));
        let Err(message) = alone.and_then(|alone| registry::parse_host(bus, alone.into())) else {
            continue;
        };
        good = false;
        note_key(&message, &table.key_of(field), field, &span, value, hosts, notes);
    }
    good
}

/// Notes what a bus said about one key.
fn note_key(
    message: &str,
    key: &str,
    field: &str,
    span: &Range<usize>,
    value: &Spanned<DeValue<'_>>,
    hosts: &[String],
    notes: &mut Notes<'_>,
) {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    // The first word that the message quotes may be a key or value inside of this one.
    let inner = quoted.first().and_then(|word| find_inside(value, word));
    if message.starts_with("unknown field") {
        let known: Vec<&str> = quoted
            .iter()
            .skip(1)
            .copied()
            .chain(hosts.iter().map(String::as_str))
            .collect();
        match inner {
            Some((inner_field, inner_span)) => {
                crate::read::unknown_key(
                    &format!("{key}.{inner_field}"),
                    &inner_field,
                    &inner_span,
                    &known,
                    notes,
                );
            }
            None => crate::read::unknown_key(key, field, span, &known, notes),
        }
        return;
    }
    let (key, span) = match inner {
        Some((inner_field, inner_span)) => (format!("{key}.{inner_field}"), inner_span),
        None => (key.to_string(), value.span()),
    };
    let (problem, mend) = explain(message, &quoted, value.get_ref());
    notes.error(&span, key, problem, mend);
}

/// The key inside a table that is called `word` (its own place) or has it as its value (the value's
/// place).
fn find_inside(value: &Spanned<DeValue<'_>>, word: &str) -> Option<(String, Range<usize>)> {
    value.get_ref().as_table()?.iter().find_map(|(key, value)| {
        let name = key.get_ref().to_string();
        if name == word {
            Some((name, key.span()))
        } else if value.get_ref().as_str() == Some(word) {
            Some((name, value.span()))
        } else {
            None
        }
    })
}

/// A message of a bus or of serde as problem and mend.
fn explain(message: &str, quoted: &[&str], value: &DeValue<'_>) -> (String, String) {
    if message.contains("socket address") {
        let address = value
            .as_str()
            .and_then(|text| text.parse::<std::net::IpAddr>().ok());
        let example = match address {
            Some(address) => std::net::SocketAddr::new(address, 7400).to_string(),
            None => "192.0.2.1:7400".to_string(),
        };
        return (
            format!("{} is not an address with a port", shown(value)),
            format!("write {example:?}"),
        );
    }
    if message.contains("IP address") {
        let mend = match value.as_str().is_some_and(|text| text.contains('%')) {
            true => "write one that needs no interface beside it, such as \"fd00::1\"",
            false => "write for example \"192.0.2.1\"",
        };
        return (format!("{} is not an address", shown(value)), mend.to_string());
    }
    if let Some(known) = message
        .starts_with("unknown variant")
        .then(|| quoted.get(1..).unwrap_or_default())
    {
        let mend = match quoted
            .first()
            .and_then(|word| nearest(word, known.iter().copied()))
        {
            Some(word) => format!("write {word:?}"),
            None => format!("write {}", one_of(known.iter().copied())),
        };
        return (format!("{} is unknown", shown(value)), mend);
    }
    if let (true, Some(missing)) = (message.starts_with("missing field"), quoted.first()) {
        return (format!("`{missing}` is missing"), format!("add `{missing}`"));
    }
    if let Some((_, expected)) = message
        .strip_prefix("invalid type: ")
        .and_then(|rest| rest.split_once(", expected "))
    {
        return (
            format!("{} does not fit here", shown(value)),
            format!("write {expected}"),
        );
    }
    match message.split_once("; ") {
        Some((problem, mend)) => (problem.to_string(), mend.to_string()),
        None => (
            format!("{}: {message}", shown(value)),
            "correct the value".to_string(),
        ),
    }
}

/// Notes what is wrong with keys that are right alone: in the host's own table if the key stands
/// there, else where it stands for both, else where the table should be.
fn note_setting(
    error: &SettingError,
    tables: [Option<&Fields<'_, '_>>; 2],
    host_key: &str,
    named_at: &Range<usize>,
    notes: &mut Notes<'_>,
) {
    let tables = tables.into_iter().flatten();
    let found = tables
        .clone()
        .find_map(|table| Some((table.key_of(error.key), table.get(error.key)?.span())));
    let (key, span) = found.unwrap_or_else(|| {
        let span = tables.map(|table| table.span.clone()).next();
        (
            format!("{host_key}.{}", error.key),
            span.unwrap_or_else(|| named_at.clone()),
        )
    });
    notes.error(&span, key, &error.problem, &error.mend);
}
