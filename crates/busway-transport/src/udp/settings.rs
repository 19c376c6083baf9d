//! The settings of a UDP link in the system file: one [`HostSettings`] a host. The conversation is
//! a TCP link's, so its settings are TCP's.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;

use crate::contract::Size;
use crate::contract::{self, Addresses, SettingError, Tables, duration, refuse_link_local};
use crate::tcp;

/// Least window in bytes: two of the largest datagrams.
const MIN_WINDOW_BYTES: u64 = 128 << 10;
const MAX_WINDOW_BYTES: u64 = 1 << 30;
/// What every IPv6 path carries (RFC 8200, 5), and any IPv4 path worth the name.
const MIN_MTU_BYTES: u16 = 1280;

/// What happens to a message of a queuing channel that the network loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// It is sent again, until it arrives.
    #[default]
    Reliable,
    /// It is lost and counted; what follows does not wait for it.
    BestEffort,
}

/// One host's table: `udp.vision = { listen = "192.0.2.1:7400" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Address and TCP port of the conversation. Datagrams use the same address unless `address`
    /// names another.
    pub listen: Option<SocketAddr>,
    /// Address to which this host connects for the conversation, if it differs from the peer's
    /// `listen`.
    pub connect: Option<SocketAddr>,
    /// Address of this host's datagrams, if it differs from that of `listen`. Each host has one of
    /// the two; a link-local one is refused.
    pub address: Option<IpAddr>,
    /// Time between this host's heartbeats; default 200 ms, at least 1 ms.
    #[serde(deserialize_with = "duration")]
    pub heartbeat: Duration,
    /// Silence after which this host declares the link lost; default 1500 ms, at least two
    /// heartbeats of the peer.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// Delivery of the queuing channels that this host sends: `"reliable"` (default) or
    /// `"best-effort"`. Sampling channels retransmit nothing.
    pub delivery: Delivery,
    /// Bytes in flight to a channel that this host receives; default 2 MiB, 128 KiB to 1 GiB. A
    /// channel carries at most this in a round trip. A reliable channel reserves this memory. Any
    /// other uses at most half of the socket's buffer, which `net.core.rmem_max` limits (without
    /// CAP_NET_ADMIN).
    pub window: Size,
    /// Multicast group to which this host sends messages for several hosts, if their links have
    /// this bus. Hosts that the group does not reach, and retransmissions, get unicast.
    pub multicast: Option<IpAddr>,
    /// Largest packet that this host sends, in bytes, IP header included; at least 1280. Default:
    /// what the path carries.
    pub mtu: Option<u16>,
}

impl Default for HostSettings {
    fn default() -> Self {
        let of_tcp = tcp::settings::HostSettings::default();
        HostSettings {
            listen: None,
            connect: None,
            address: None,
            heartbeat: of_tcp.heartbeat,
            timeout: of_tcp.timeout,
            delivery: Delivery::default(),
            window: Size(2 << 20),
            multicast: None,
            mtu: None,
        }
    }
}

impl HostSettings {
    /// The address of its datagrams.
    pub fn datagram_address(&self) -> Option<IpAddr> {
        self.address.or(self.listen.map(|address| address.ip()))
    }

    fn of_conversation(&self) -> tcp::settings::HostSettings {
        tcp::settings::HostSettings {
            listen: self.listen,
            connect: self.connect,
            heartbeat: self.heartbeat,
            timeout: self.timeout,
            ..Default::default()
        }
    }

    /// The first mistake in this table alone: the key, the problem, the fix.
    fn fault(&self) -> Option<(&'static str, String, String)> {
        if self
            .datagram_address()
            .is_none_or(|address| address.is_unspecified())
        {
            let key = if self.listen.is_some() {
                "address"
            } else {
                "listen"
            };
            return Some((
                key,
                "the address of the host's datagrams is not known".into(),
                "give that host `listen = \"ADDRESS:PORT\"` with an address of its own, or `address = \"ADDRESS\"`".into(),
            ));
        }
        if !(MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES).contains(&self.window.0) {
            return Some((
                "window",
                format!("a window of {} bytes", self.window.0),
                "leave it away (2MiB), or give 128KiB to 1GiB".into(),
            ));
        }
        if let Some(fault) = self.multicast_fault() {
            return Some(fault);
        }
        self.mtu.filter(|mtu| *mtu < MIN_MTU_BYTES).map(|mtu| {
            let problem = format!("packets of {mtu} bytes are shorter than any path needs them");
            (
                "mtu",
                problem,
                format!("leave it away, or give at least {MIN_MTU_BYTES}"),
            )
        })
    }
}

impl HostSettings {
    fn multicast_fault(&self) -> Option<(&'static str, String, String)> {
        let group = self.multicast?;
        let (is_v4, example) = match self.datagram_address() {
            Some(IpAddr::V6(_)) => (false, "ff15::7:1"),
            _ => (true, "239.192.7.1"),
        };
        let problem = match group {
            group if !group.is_multicast() => format!("{group} is no multicast address"),
            group if group.is_ipv4() != is_v4 => format!("datagrams of this host don't go to {group}"),
            // RFC 5771, 4: routing protocols; a switch floods it, and hosts answer to it.
            IpAddr::V4(group) if group.octets()[..3] == [224, 0, 0] => {
                format!("{group} belongs to the network's own protocols")
            }
            IpAddr::V6(group) => ipv6_group_problem(group)?,
            IpAddr::V4(_) => return None,
        };
        let mend = format!("leave it away, or give a group such as \"{example}\"");
        Some(("multicast", problem, mend))
    }
}

/// Why a group is unfit for datagrams of a bus. Its address is `ff`, four bits of flags, four bits
/// of scope, and its number (RFC 4291, 2.7).
fn ipv6_group_problem(group: Ipv6Addr) -> Option<String> {
    let [_, flags_and_scope, ..] = group.octets();
    let number = u128::from(group) & (u128::MAX >> 16);
    // Without the flag T these numbers are assigned: to protocols (IANA, IPv6 Multicast Address
    // Space) and to solicited-node addresses.
    let is_given_away = matches!(number, 0..0x1000 | 0x1_0000..0x3_0000 | 0x1_ff00_0000..=0x1_ffff_ffff);
    match (flags_and_scope >> 4, flags_and_scope & 0xf) {
        (_, 0 | 0xf) => Some(format!("{group} has a reserved scope")),
        (_, 1) => Some(format!("nothing that is sent to {group} leaves the host")),
        (flags, _) if flags & 1 == 0 && is_given_away => {
            Some(format!("{group} belongs to the network's own protocols"))
        }
        _ => None,
    }
}

/// The two tables of a link as one host sees them.
pub type LinkSettings = Tables<HostSettings>;

impl contract::LinkSettings for LinkSettings {
    fn addresses(&self) -> Option<Addresses> {
        Some(Addresses {
            conversation: self.conversation().role().ok()?,
            messages: Some([self.local.datagram_address()?, self.peer.datagram_address()?]),
            group: self.local.multicast,
        })
    }

    fn validate(&self) -> Result<(), SettingError> {
        // First: what the conversation asks of a link-local address would not mend this.
        for (local, host) in [(true, &self.local), (false, &self.peer)] {
            let key = host.address.map_or("listen", |_| "address");
            refuse_link_local(local, key, host.datagram_address())?;
        }
        self.conversation().validate()?;
        for (local, host) in [(true, &self.local), (false, &self.peer)] {
            if let Some((key, problem, mend)) = host.fault() {
                return Err(SettingError {
                    local,
                    key,
                    problem,
                    mend,
                });
            }
        }
        let families = (self.local.datagram_address(), self.peer.datagram_address());
        if let (Some(local), Some(peer)) = families
            && local.is_ipv4() != peer.is_ipv4()
        {
            return Err(SettingError {
                local: true,
                key: "address",
                problem: format!("no datagram goes from {local} to {peer}"),
                mend: "give both hosts IPv4 addresses, or both IPv6 addresses".into(),
            });
        }
        Ok(())
    }
}

impl LinkSettings {
    pub(super) fn conversation(&self) -> tcp::settings::LinkSettings {
        tcp::settings::LinkSettings::new(
            self.local.of_conversation(),
            self.peer.of_conversation(),
            self.local_is_first,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::contract::LinkSettings as _;
    use super::*;

    fn host(text: &str) -> HostSettings {
        toml::from_str(text).expect("a good table")
    }

    /// Whose key is refused, for these two tables.
    fn refused(local: &str, peer: &str) -> Option<(bool, &'static str)> {
        let link = LinkSettings::new(host(local), host(peer), true);
        link.validate().err().map(|error| (error.local, error.key))
    }

    #[test]
    fn mistake_is_refused_at_its_key() {
        let (v4, v6) = ("listen = '192.0.2.1:7400'", "listen = '[fd00::1]:7400'");
        let (v4_peer, v6_peer) = ("address = '192.0.2.2'", "address = 'fd00::2'");
        let with = |setting: &str| format!("{v4}\n{setting}");
        let any = "address = '192.0.2.2'\nconnect = '192.0.2.1:7400'";
        let linked = format!("{v6}\naddress = 'febf::1'");
        for (local, peer, expected) in [
            (v4, v4_peer, None),
            (v6, v6_peer, None),
            (v4, "", Some((false, "listen"))),
            ("listen = '0.0.0.0:7400'", any, Some((true, "address"))),
            (&with("window = '1KiB'"), v4_peer, Some((true, "window"))),
            (&with("mtu = 576"), v4_peer, Some((true, "mtu"))),
            (
                &with("multicast = '192.0.2.7'"),
                v4_peer,
                Some((true, "multicast")),
            ),
            (&with("multicast = 'ff15::1'"), v4_peer, Some((true, "multicast"))),
            (
                &with("multicast = '224.0.0.5'"),
                v4_peer,
                Some((true, "multicast")),
            ),
            (v4, "address = '2001:db8::1'", Some((true, "address"))),
            ("listen = '[fe80::1%2]:7400'", v6_peer, Some((true, "listen"))),
            ("listen = '[fe80::1]:7400'", v6_peer, Some((true, "listen"))),
            (&linked, v6_peer, Some((true, "address"))),
            (v6, "address = 'fe80::1'", Some((false, "address"))),
        ] {
            assert_eq!(refused(local, peer), expected, "{local}, {peer}");
        }
    }

    #[test]
    fn assigned_or_host_local_ipv6_group_is_refused() {
        let refused = |group: &str| {
            let own = format!("listen = '[fd00::1]:7400'\nmulticast = '{group}'");
            refused(&own, "address = 'fd00::2'")
        };
        let bad = "ff00::1 ff10::1 ff01::1 ff11::1 ff02::1 ff02::5 ff05::2 ff0e::101 ff02::1:3 \
                   ff02::1:ff00:7 ff1f::1 fd00::7 239.192.7.1";
        for group in bad.split(' ') {
            assert_eq!(refused(group), Some((true, "multicast")), "{group}");
        }
        // Transient ones, by address prefix, and with any scope that leaves the host.
        for group in "ff12::7:1 ff15::7:1 ff18::7:1 ff1e::7:1 ff05::1234 ff35:40:fd00::7".split(' ') {
            assert_eq!(refused(group), None, "{group}");
        }
    }

    #[test]
    fn delivery_is_reliable_by_default() {
        assert_eq!(host("").delivery, Delivery::Reliable);
        assert_eq!(host("delivery = 'best-effort'").delivery, Delivery::BestEffort);
        let wrong = toml::from_str::<HostSettings>("delivery = 'perhaps'").expect_err("no such delivery");
        assert!(wrong.message().contains("best-effort"), "{wrong}");
    }
}
