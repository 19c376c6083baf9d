//! The buses that exist, and how a link over one of them is opened by name. A new bus adds one line to `buses!` below.
//!
//! Called by the system file (to read and check each host's table of a bus) and by whoever opens links (gateway, ports,
//! benchmark). Each bus module gives: `NAME`, `settings::{HostSettings, LinkSettings, link_lines}` (with [`OneSided`] and [`Network`]), a `Shared: Default` for what all
//! links of one process share (listeners), `missing`, and `open`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::contract::{Link, LinkIdentity, Message, OpenError};
use crate::network::{Addresses, Network};
use crate::one_sided::{OneSided, PortPlace, Role};

/// A setting of a link that can't be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: `{key}`: {problem}; {mend}", if *.local { "this host" } else { "the peer" })]
pub struct SettingError {
    /// Whether the fault lies in this host's table (`true`) or in the peer's.
    pub local: bool,
    /// The key in that table.
    pub key: &'static str,
    /// What is wrong, with the value.
    pub problem: String,
    /// What would be right.
    pub mend: String,
}

/// The two hosts' tables of one link over one bus, as one of them sees it; what most buses have as their `LinkSettings`.
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

/// Two hosts that a system file shall join: what whoever writes one by program (the benchmark, the demonstration, tests) knows of them.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Their names.
    pub hosts: [&'a str; 2],
    /// An address of each at which the other one reaches it, and a port that is free there.
    pub addresses: [SocketAddr; 2],
    /// A file that both can map, if the bus needs one, and its length in MiB.
    pub window: (&'a Path, u32),
}

impl Site<'_> {
    /// The lines of a link over `bus` in which each host is given its address: the first accepts the conversation.
    pub(crate) fn listen_lines(&self, bus: &str) -> String {
        let tables = self.hosts.iter().zip(self.addresses);
        tables
            .map(|(host, address)| format!("{bus}.{host} = {{ listen = \"{address}\" }}\n"))
            .collect()
    }
}

macro_rules! buses {
    ($($(#[$doc:meta])* $variant:ident => $module:ident),+ $(,)?) => {
        /// Names of the buses, as in the system file.
        pub const BUS_NAMES: &[&str] = &[$(crate::$module::NAME),+];

        /// The settings of one link over one bus, seen from this host.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant)] // One a link, made at start.
        pub enum BusSettings {
            $($(#[$doc])* $variant(crate::$module::settings::LinkSettings)),+
        }

        /// One host's table of one bus, as it stands in the system file (`tcp.vision = { … }`).
        #[derive(Clone, Debug)]
        pub enum HostTable {
            $($(#[$doc])* $variant(crate::$module::settings::HostSettings)),+
        }

        impl BusSettings {
            /// The bus's name as in the system file.
            pub fn name(&self) -> &'static str {
                match self { $(BusSettings::$variant(_) => crate::$module::NAME),+ }
            }

            /// Checks both hosts' tables, alone and against each other.
            ///
            /// # Errors
            /// The first thing that can't be right.
            pub fn validate(&self) -> Result<(), SettingError> {
                match self { $(BusSettings::$variant(settings) => settings.validate()),+ }
            }
        }

        impl BusSettings {
            /// See [`OneSided::port_room_bytes`].
            pub fn port_room_bytes(&self, role: Role) -> u64 {
                match self { $(BusSettings::$variant(settings) => settings.port_room_bytes(role)),+ }
            }

            /// See [`OneSided::set_port_bytes`].
            pub fn set_port_bytes(&mut self, read_bytes: u64, write_bytes: u64) {
                match self { $(BusSettings::$variant(settings) => settings.set_port_bytes(read_bytes, write_bytes)),+ }
            }

            /// See [`OneSided::port_place`].
            pub fn port_place(&self, role: Role) -> Option<PortPlace> {
                match self { $(BusSettings::$variant(settings) => settings.port_place(role)),+ }
            }

            /// See [`Network::addresses`].
            pub fn addresses(&self) -> Option<Addresses> {
                match self { $(BusSettings::$variant(settings) => settings.addresses()),+ }
            }

            /// See [`OneSided::silence`].
            pub fn silence(&self) -> Duration {
                match self { $(BusSettings::$variant(settings) => settings.silence()),+ }
            }
        }

        /// Whether programs can write into the other host's memory over the bus of this name, see [`OneSided`].
        pub fn is_one_sided(bus: &str) -> bool {
            $(if bus == crate::$module::NAME {
                return <crate::$module::settings::LinkSettings as OneSided>::IS_ONE_SIDED;
            })+
            false
        }

        /// The lines that a `[[link]]` over the bus of this name needs at this site, beside `hosts` and `buses`; none where the defaults do.
        pub fn link_lines(bus: &str, site: &Site<'_>) -> String {
            $(if bus == crate::$module::NAME {
                return crate::$module::settings::link_lines(site);
            })+
            String::new()
        }

        /// What this machine lacks for the bus of this name, and the mend, as the end of "needs …". It is looked for once in a process.
        pub fn missing(bus: &str) -> Option<String> {
            $(if bus == crate::$module::NAME {
                static FOUND: OnceLock<Option<String>> = OnceLock::new();
                return FOUND.get_or_init(crate::$module::missing).clone();
            })+
            None
        }

        impl HostTable {
            /// The bus's name as in the system file.
            pub fn name(&self) -> &'static str {
                match self { $(HostTable::$variant(_) => crate::$module::NAME),+ }
            }

            /// The table of a host that says nothing about the bus; `None` if there is no such bus.
            pub fn default_of(bus: &str) -> Option<HostTable> {
                $(if bus == crate::$module::NAME {
                    return Some(HostTable::$variant(Default::default()));
                })+
                None
            }
        }

        /// Reads one host's table of a bus.
        ///
        /// # Errors
        /// In words: there is no such bus, or what is wrong in the table.
        pub fn parse_host(bus: &str, value: toml::Value) -> Result<HostTable, String> {
            $(if bus == crate::$module::NAME {
                return value
                    .try_into::<crate::$module::settings::HostSettings>()
                    .map(HostTable::$variant)
                    .map_err(|error| error.message().to_owned());
            })+
            Err(format!("there is no bus `{bus}`; there are: {}", BUS_NAMES.join(", ")))
        }

        /// Joins the two hosts' tables of one bus into the settings of their link. `local_is_first` says whether this host comes
        /// first in the link's `hosts` (the two sides of a link must differ in that).
        ///
        /// # Panics
        /// If a table is not one of `bus`: a mistake of the caller, which no input can provoke.
        pub fn link_settings(bus: &str, local: HostTable, peer: HostTable, local_is_first: bool) -> BusSettings {
            match (local, peer) {
                $((HostTable::$variant(local), HostTable::$variant(peer)) if bus == crate::$module::NAME => {
                    BusSettings::$variant(crate::$module::settings::LinkSettings::new(local, peer, local_is_first))
                })+
                (local, peer) => panic!("tables of {} and {} for a link over {bus}", local.name(), peer.name()),
            }
        }

        /// Opens links for one process: knows who it is, and keeps what its links share.
        pub struct Buses {
            identity: LinkIdentity,
            $($module: crate::$module::Shared),+
        }

        impl Buses {
            /// For a process that is `identity`.
            pub fn new(identity: LinkIdentity) -> Buses {
                Buses { identity, $($module: Default::default()),+ }
            }

            /// Opens a link to `peer_host`. It works at coming up from then on, whether or not the peer is there.
            ///
            /// # Errors
            /// Only what can never come right by itself: see each bus.
            pub fn open<M: Message>(
                &self,
                settings: &BusSettings,
                peer_host: &str,
            ) -> Result<Box<dyn Link<M>>, OpenError> {
                match settings {
                    $(BusSettings::$variant(settings) => {
                        crate::$module::open(&self.$module, &self.identity, settings, peer_host)
                    })+
                }
            }
        }
    };
}

// Each bus adds its line here.
buses! {
    /// Windows of shared memory.
    Memory => memory,
    /// Windows in PCI functions.
    Pci => pci,
    /// TCP connections.
    Tcp => tcp,
    /// TIPC connections.
    Tipc => tipc,
    /// UDP datagrams.
    Udp => udp,
    /// RDMA, messages by SEND and RECV.
    RdmaSend => rdma_send,
    /// RDMA, remote-write protocols by WRITE.
    RdmaWrite => rdma_write,
}

impl SettingError {
    /// Problem and mend with the hosts' names in the place of `this host` and `the peer`; `the other host` is the one whose table is
    /// not at fault.
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

impl Buses {
    /// Who this process is.
    pub fn identity(&self) -> &LinkIdentity {
        &self.identity
    }
}

impl std::fmt::Debug for Buses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buses")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Checks the two hosts' heartbeat settings, which every bus has, against each other.
///
/// # Errors
/// A heartbeat of zero, or a timeout that the other side's heartbeat can't keep.
pub(crate) fn validate_heartbeat(
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

/// The longest duration in the settings of a bus. Sums of a few of them are moments that the clock knows.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Serde helper for durations written as text, such as `"200ms"`: `#[serde(deserialize_with = "registry::duration")]`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<HostTable, String> {
        parse_host(
            "tcp",
            toml::Value::Table(toml::from_str(text).expect("test text is TOML")),
        )
    }

    #[test]
    fn an_unknown_bus_is_named_with_those_that_exist() {
        let error = parse_host("pigeon", toml::Value::Table(toml::Table::new())).expect_err("no such bus");
        assert!(error.contains("pigeon") && error.contains("tcp"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let error = table("listne = '127.0.0.1:1'").expect_err("misspelt");
        assert!(error.contains("listne") && error.contains("listen"), "{error}");
    }

    #[test]
    fn a_bad_duration_is_an_error_that_shows_a_good_one() {
        for (text, problem) in [
            ("soon", "no duration"),
            ("25h", "longer than a day"),
            ("400000000000y", "longer than a day"),
        ] {
            let error = table(&format!("heartbeat = '{text}'")).expect_err("no duration, or too long");
            let told = [text, problem, "200ms"];
            assert!(told.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn a_timeout_shorter_than_two_heartbeats_of_the_other_host_is_refused() {
        let local = table("timeout = '100ms'\nlisten = '127.0.0.1:1'").expect("good");
        let peer = table("heartbeat = '80ms'").expect("good");
        let error = link_settings("tcp", local, peer, true)
            .validate()
            .expect_err("too short");
        assert_eq!((error.local, error.key), (true, "timeout"));
    }
}
