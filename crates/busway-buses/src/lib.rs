//! The buses of this build, and how to open a link over one by its name.
//!
//! A new bus implements [`Bus`] and adds one line to `buses!` below; `docs/adding-a-bus.md` shows a
//! complete one. Called by the system file (which reads each host's table of a bus) and by all that
//! open links or name buses: the gateway, the ports, the benchmark, `busway check`.
#![cfg(not(loom))] // Under loom there is no bus.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use busway_transport::contract::{Bus, Link, LinkIdentity, LinkSettings, Message, OpenError, Site};

macro_rules! buses {
    ($($(#[doc = $doc:literal])* $(#[cfg($cfg:meta)])? $name:ident = $bus:ty),+ $(,)?) => {
        /// Names of the buses, as in the system file.
        pub const BUS_NAMES: &[&str] = &[$($(#[cfg($cfg)])? <$bus as Bus>::NAME),+];

        /// The settings of one link over one bus, seen from this host.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant)] // One for each link, made at start.
        pub enum BusSettings {
            $($(#[doc = $doc])* $(#[cfg($cfg)])? $name(<$bus as Bus>::LinkSettings)),+
        }

        /// One host's table of one bus, as in the system file (`tcp.vision = { … }`).
        #[derive(Clone, Debug)]
        pub enum HostTable {
            $($(#[doc = $doc])* $(#[cfg($cfg)])? $name(<$bus as Bus>::HostSettings)),+
        }

        impl BusSettings {
            /// The bus's name as in the system file.
            pub fn name(&self) -> &'static str {
                match self { $($(#[cfg($cfg)])? BusSettings::$name(_) => <$bus as Bus>::NAME),+ }
            }
        }

        impl Deref for BusSettings {
            type Target = dyn LinkSettings;

            fn deref(&self) -> &Self::Target {
                match self { $($(#[cfg($cfg)])? BusSettings::$name(settings) => settings),+ }
            }
        }

        impl DerefMut for BusSettings {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self { $($(#[cfg($cfg)])? BusSettings::$name(settings) => settings),+ }
            }
        }

        impl HostTable {
            /// The bus's name as in the system file.
            pub fn name(&self) -> &'static str {
                match self { $($(#[cfg($cfg)])? HostTable::$name(_) => <$bus as Bus>::NAME),+ }
            }

            /// The table of a host that has none; `None` if there is no such bus.
            pub fn default_of(bus: &str) -> Option<HostTable> {
                $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                    return Some(HostTable::$name(Default::default()));
                })+
                None
            }
        }

        /// Whether programs can write into the other host's memory over the bus of this name.
        pub fn is_one_sided(bus: &str) -> bool {
            $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                return <$bus as Bus>::IS_ONE_SIDED;
            })+
            false
        }

        /// Whether programs of both hosts share memory over the bus of this name, where it is
        /// coherent.
        pub fn shares_memory(bus: &str) -> bool {
            $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                return <$bus as Bus>::SHARES_MEMORY;
            })+
            false
        }

        /// Whether the sender of a sampling channel can write the register in the other host's port
        /// store over the bus of this name.
        pub fn writes_registers(bus: &str) -> bool {
            $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                return <$bus as Bus>::WRITES_REGISTERS;
            })+
            false
        }

        /// Whether a link over the bus of this name needs memory that both hosts map.
        pub fn needs_window(bus: &str) -> bool {
            $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                return <$bus as Bus>::NEEDS_WINDOW;
            })+
            false
        }

        /// The lines that a `[[link]]` over the bus of this name needs at `site`, beside `hosts`
        /// and `buses`; none where there is no such bus.
        pub fn link_lines(bus: &str, site: &Site<'_>) -> String {
            $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                return <$bus as Bus>::link_lines(site);
            })+
            String::new()
        }

        /// What this machine lacks for the bus of this name, and how to get it, as the end of
        /// "needs …". Looked for once in a process.
        pub fn missing(bus: &str) -> Option<String> {
            $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                static FOUND: OnceLock<Option<String>> = OnceLock::new();
                return FOUND.get_or_init(<$bus as Bus>::missing).clone();
            })+
            None
        }

        /// Reads one host's table of a bus.
        ///
        /// # Errors
        /// In words: there is no such bus, or what is wrong in the table.
        pub fn parse_host(bus: &str, value: toml::Value) -> Result<HostTable, String> {
            $($(#[cfg($cfg)])? if bus == <$bus as Bus>::NAME {
                return value
                    .try_into::<<$bus as Bus>::HostSettings>()
                    .map(HostTable::$name)
                    .map_err(|error| error.message().to_owned());
            })+
            Err(format!("there is no bus `{bus}`; there are: {}", BUS_NAMES.join(", ")))
        }

        /// Joins the two hosts' tables of one bus into the settings of their link. `local_is_first`
        /// says whether this host comes first in the link's `hosts`.
        ///
        /// # Panics
        /// If a table is not one of `bus`: a mistake of the caller, which no input can provoke.
        pub fn link_settings(
            bus: &str,
            local: HostTable,
            peer: HostTable,
            local_is_first: bool,
        ) -> BusSettings {
            match (local, peer) {
                $($(#[cfg($cfg)])? (HostTable::$name(local), HostTable::$name(peer)) if bus == <$bus as Bus>::NAME => {
                    BusSettings::$name(<$bus as Bus>::join(local, peer, local_is_first))
                })+
                (local, peer) => panic!("tables of {} and {} for a link over {bus}", local.name(), peer.name()),
            }
        }

        /// What the links of one process share.
        #[derive(Default)]
        #[allow(non_snake_case)] // One field for each bus, by the name of its variant.
        struct Shared {
            $($(#[cfg($cfg)])? $name: <$bus as Bus>::Shared),+
        }

        impl Buses {
            /// Opens a link to `peer_host`. From then on the link tries to come up, whether or not
            /// the peer is there.
            ///
            /// # Errors
            /// Only what can't change by itself: see each bus.
            pub fn open<M: Message>(
                &self,
                settings: &BusSettings,
                peer_host: &str,
            ) -> Result<Box<dyn Link<M>>, OpenError> {
                match settings {
                    $($(#[cfg($cfg)])? BusSettings::$name(settings) => {
                        <$bus as Bus>::open(&self.shared.$name, &self.identity, settings, peer_host)
                    })+
                }
            }
        }
    };
}

// Each bus adds its line here.
buses! {
    /// Windows of shared memory.
    Memory = busway_transport::memory::Memory,
    /// Windows in PCI functions.
    Pci = busway_transport::pci::Pci,
    /// TCP connections.
    Tcp = busway_transport::tcp::Tcp,
    /// TIPC connections.
    Tipc = busway_transport::tipc::Tipc,
    /// UDP datagrams.
    Udp = busway_transport::udp::Udp,
    /// RDMA, messages by SEND and RECV.
    RdmaSend = busway_transport::rdma::send::RdmaSend,
    /// RDMA, remote-write protocols by WRITE.
    RdmaWrite = busway_transport::rdma::write::RdmaWrite,
    /// Unix-domain sockets, the example of `docs/adding-a-bus.md`.
    #[cfg(feature = "example-bus")]
    Unix = busway_example_bus_unix::Unix,
}

/// Opens links for one process: knows who it is, and keeps what its links share.
pub struct Buses {
    identity: LinkIdentity,
    shared: Shared,
}

impl Buses {
    /// For a process that is `identity`.
    pub fn new(identity: LinkIdentity) -> Buses {
        Buses {
            identity,
            shared: Shared::default(),
        }
    }

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
