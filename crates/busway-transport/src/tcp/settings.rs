//! The tables of a TCP link in the system file: one [`HostSettings`] a host, joined to
//! [`LinkSettings`] as one host sees them.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::contract::Size;
use crate::contract::{
    self, Addresses, Role, SettingError, Tables, duration, is_link_local, validate_heartbeat,
};

/// One host's table: `tcp.vision = { listen = "192.0.2.1:7400" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Address on which this host accepts the peer's connections. At least one host of a link has
    /// it. Where both have it, the first of the link's `hosts` accepts and the second connects.
    pub listen: Option<SocketAddr>,
    /// Address to which this host connects, where it differs from the peer's `listen` (address
    /// translation, `listen = "0.0.0.0:…"`).
    pub connect: Option<SocketAddr>,
    /// Time between this host's heartbeats; default 200 ms, at least 1 ms.
    #[serde(deserialize_with = "duration")]
    pub heartbeat: Duration,
    /// Silence of the peer after which this host declares the link lost; default 1500 ms, at least
    /// two heartbeats of the peer.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// Send buffer of each channel that this host sends; default 128 KiB, 0 leaves it to the
    /// system. A small one keeps the data in the caches between copies (half the CPU time for large
    /// messages on one host or a short wire), but a channel carries at most about twice this in a
    /// round trip: enlarge it for long distances.
    pub send_buffer: Size,
}

impl Default for HostSettings {
    fn default() -> Self {
        HostSettings {
            listen: None,
            connect: None,
            heartbeat: Duration::from_millis(200),
            timeout: Duration::from_millis(1500),
            send_buffer: Size(128 << 10),
        }
    }
}

/// The two tables of a link as one host sees them.
pub type LinkSettings = Tables<HostSettings>;

impl contract::LinkSettings for LinkSettings {
    fn validate(&self) -> Result<(), SettingError> {
        self.role()?;
        validate_heartbeat(
            (self.local.heartbeat, self.local.timeout),
            (self.peer.heartbeat, self.peer.timeout),
        )
    }

    fn addresses(&self) -> Option<Addresses> {
        Some(Addresses {
            conversation: self.role().ok()?,
            messages: None,
            group: None,
        })
    }
}

impl LinkSettings {
    /// This host's part. The two hosts of a link get opposite ones, since they differ in
    /// `local_is_first`.
    ///
    /// # Errors
    /// Nobody listens, or nobody can connect.
    pub fn role(&self) -> Result<Role<SocketAddr>, SettingError> {
        let local_listens = match (self.local.listen, self.peer.listen) {
            (Some(_), Some(_)) => self.local_is_first,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => {
                return Err(SettingError {
                    local: self.local_is_first,
                    key: "listen",
                    problem: "neither host of the link listens".into(),
                    mend: "give one of them `listen = \"ADDRESS:PORT\"`".into(),
                });
            }
        };
        let (listener, connector) = if local_listens {
            (&self.local, &self.peer)
        } else {
            (&self.peer, &self.local)
        };
        let Some(listen) = listener.listen else {
            unreachable!("the listening host was chosen because it has an address")
        };
        let connect = connector.connect.unwrap_or(listen);
        for (at_listener, key, address, any_is_good) in [
            (true, "listen", listen, connector.connect.is_some()),
            (false, "connect", connect, false),
        ] {
            if address.port() == 0 || (address.ip().is_unspecified() && !any_is_good) {
                return Err(SettingError {
                    local: local_listens == at_listener,
                    key,
                    problem: format!("nobody can connect to {address}"),
                    mend:
                        "give an address and port that the other host reaches, or give that host `connect = \
                           \"ADDRESS:PORT\"`"
                            .into(),
                });
            }
        }
        check_interfaces(local_listens, listen, connector.connect)?;
        Ok(if local_listens {
            Role::Accept(listen)
        } else {
            Role::Connect(connect)
        })
    }
}

/// Each host names the interface of a link-local address by a number of its own.
fn check_interfaces(
    local_listens: bool,
    listen: SocketAddr,
    connect: Option<SocketAddr>,
) -> Result<(), SettingError> {
    for (local, key, address) in [
        (local_listens, "listen", Some(listen)),
        (!local_listens, "connect", connect),
    ] {
        if let Some(SocketAddr::V6(address)) = address
            && is_link_local((*address.ip()).into())
            && address.scope_id() == 0
        {
            let (ip, port) = (address.ip(), address.port());
            return Err(SettingError {
                local,
                key,
                problem: format!("the link-local address {ip} means nothing without its interface"),
                mend: format!(
                    "add the interface's number on that host (`ip link`), as in \"[{ip}%2]:{port}\""
                ),
            });
        }
    }
    if connect.is_none() && is_link_local(listen.ip()) {
        let (ip, port) = (listen.ip(), listen.port());
        return Err(SettingError {
            local: !local_listens,
            key: "connect",
            problem: format!(
                "the interface in {listen} is counted by the other host, and every host counts its own"
            ),
            mend: format!(
                "add `connect = \"[{ip}%2]:{port}\"` with the number of the interface on the host that connects (`ip link`)"
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::contract::LinkSettings as _;
    use super::*;

    fn settings(local: Option<&str>, peer: Option<&str>, local_is_first: bool) -> LinkSettings {
        let host = |listen: Option<&str>| HostSettings {
            listen: listen.map(|text| text.parse().expect("an address")),
            ..Default::default()
        };
        LinkSettings {
            local: host(local),
            peer: host(peer),
            local_is_first,
        }
    }

    #[test]
    fn where_both_hosts_listen_the_first_accepts_and_the_second_connects_to_it() {
        let (one, two) = ("127.0.0.1:1", "127.0.0.1:2");
        assert_eq!(
            settings(Some(one), Some(two), true).role(),
            Ok(Role::Accept(one.parse().expect("an address")))
        );
        assert_eq!(
            settings(Some(two), Some(one), false).role(),
            Ok(Role::Connect(one.parse().expect("an address")))
        );
    }

    #[test]
    fn a_link_where_nobody_listens_is_refused() {
        let error = settings(None, None, true).validate().expect_err("nobody listens");
        assert_eq!(error.key, "listen");
    }

    #[test]
    fn each_host_numbers_the_interface_of_a_link_local_address_itself() {
        let error = |listen: &str, connect: Option<&str>| {
            let mut link = settings(Some(listen), None, true);
            link.peer.connect = connect.map(|text| text.parse().expect("an address"));
            link.validate().map_err(|error| (error.local, error.key))
        };
        let (bare, here, there) = ("[fe80::1]:7400", "[fe80::1%2]:7400", "[fe80::1%3]:7400");
        assert_eq!(error(bare, None), Err((true, "listen")));
        assert_eq!(error(here, Some(bare)), Err((false, "connect")));
        assert_eq!(error(here, None), Err((false, "connect")));
        assert_eq!(error(here, Some(there)), Ok(()));
        assert_eq!(error("[fd00::1]:7400", None), Ok(()));
    }

    #[test]
    fn listening_on_all_addresses_needs_a_connect_address_at_the_other_host() {
        let mut link = settings(Some("0.0.0.0:7400"), None, true);
        let error = link.validate().expect_err("nobody can connect to 0.0.0.0");
        assert_eq!((error.local, error.key), (true, "listen"));
        link.peer.connect = Some("192.0.2.1:7400".parse().expect("an address"));
        assert_eq!(link.validate(), Ok(()));
    }
}
