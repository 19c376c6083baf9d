//! What the tables of all buses in the system file have in common.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A mistake in the settings of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: `{key}`: {problem}; {mend}", if *.local { "this host" } else { "the peer" })]
pub struct SettingError {
    /// Whether it lies in this host's table (`true`) or in the peer's.
    pub local: bool,
    /// The key in that table.
    pub key: &'static str,
    /// What is wrong, with the value. `this host`, `the peer` and `the other host` (the one whose
    /// table is right) stand for names, see [`naming`](Self::naming).
    pub problem: String,
    /// What would be right.
    pub mend: String,
}

impl SettingError {
    /// Problem and mend, with the hosts' names in place of `this host`, `the peer` and `the other
    /// host`.
    pub fn naming(&self, local: &str, peer: &str) -> (String, String) {
        let other = if self.local { peer } else { local };
        let named = |text: &str| {
            [
                ("this host", local),
                ("the peer", peer),
                ("the other host", other),
            ]
            .iter()
            .fold(text.to_string(), |text, (role, name)| {
                text.replace(role, &format!("host {name:?}"))
            })
        };
        (named(&self.problem), named(&self.mend))
    }
}

/// The two hosts' tables of one link over one bus, as one of them sees it; the `LinkSettings` of
/// most buses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables<H> {
    /// This host's table.
    pub local: H,
    /// The peer's table.
    pub peer: H,
    /// Whether this host comes first in the link's `hosts`.
    pub local_is_first: bool,
}

impl<H> Tables<H> {
    /// Joins two hosts' tables.
    pub fn new(local: H, peer: H, local_is_first: bool) -> Tables<H> {
        Tables {
            local,
            peer,
            local_is_first,
        }
    }
}

/// Two hosts for which a program (the benchmark, the demonstration, a test) writes a system file.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Their names.
    pub hosts: [&'a str; 2],
    /// An address of each at which the other one reaches it, with a free port.
    pub addresses: [SocketAddr; 2],
    /// A file that both can map, and its length in MiB.
    pub window: (&'a Path, u32),
}

impl Site<'_> {
    /// The lines of a link over `bus` that gives each host its address: the first accepts the
    /// conversation.
    pub fn listen_lines(&self, bus: &str) -> String {
        let tables = self.hosts.iter().zip(self.addresses);
        tables
            .map(|(host, address)| format!("{bus}.{host} = {{ listen = \"{address}\" }}\n"))
            .collect()
    }

    /// The line of a link over `bus` whose two windows are halves of one file.
    pub fn window_line(&self, bus: &str) -> String {
        let (path, length_mib) = self.window;
        format!("{bus} = {{ path = {path:?}, length = \"{length_mib}MiB\" }}\n")
    }
}

/// Checks the two hosts' heartbeat settings, which every bus has, against each other.
///
/// # Errors
/// A heartbeat of zero, or a timeout that the other side's heartbeat can't keep.
pub fn validate_heartbeat(
    (local_heartbeat, local_timeout): (Duration, Duration),
    (peer_heartbeat, peer_timeout): (Duration, Duration),
) -> Result<(), SettingError> {
    let least = Duration::from_millis(1);
    for (local, own_heartbeat, own_timeout, other_heartbeat) in [
        (true, local_heartbeat, local_timeout, peer_heartbeat),
        (false, peer_heartbeat, peer_timeout, local_heartbeat),
    ] {
        if own_heartbeat < least {
            return Err(SettingError {
                local,
                key: "heartbeat",
                problem: format!("{own_heartbeat:?} between heartbeats is less than {least:?}"),
                mend: "leave it away (200ms), or give at least 1ms".into(),
            });
        }
        if own_timeout < other_heartbeat.saturating_mul(2) {
            return Err(SettingError {
                local,
                key: "timeout",
                problem: format!(
                    "a peer silent for {own_timeout:?} is held for lost, but the other host's heartbeat comes every {other_heartbeat:?}"
                ),
                mend: format!("give at least {:?}", other_heartbeat.saturating_mul(2)),
            });
        }
    }
    Ok(())
}

/// The longest duration in the settings of a bus, so that sums of a few of them do not overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads durations written as text, such as `"200ms"`: `#[serde(deserialize_with = "duration")]`.
///
/// # Errors
/// What is no duration or longer than a day, with an example of one.
pub fn duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
    let problem = match humantime::parse_duration(&text) {
        Ok(duration) if duration <= LONGEST => return Ok(duration),
        Ok(_) => "is longer than a day".into(),
        Err(error) => format!("is no duration ({error})"),
    };
    Err(serde::de::Error::custom(format!(
        "`{text}` {problem}; write for example \"200ms\" or \"2s\""
    )))
}

/// [`duration`] for a key that may be left away (with `#[serde(default)]`).
///
/// # Errors
/// Those of [`duration`].
pub fn optional_duration<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}
