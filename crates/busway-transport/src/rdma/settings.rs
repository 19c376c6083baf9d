//! The tables of an RDMA link in the system file, the same for every bus over RDMA: one
//! [`HostSettings`] a host, joined to [`LinkSettings`] as one host sees them. The conversation uses
//! TCP, so its settings are those of TCP.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;

use crate::contract::{self, Addresses, SettingError, Tables, duration, refuse_link_local};
use crate::tcp;

/// One host's table: `rdma-send.vision = { listen = "192.0.2.1:7400" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Address and TCP port of the conversation, as for TCP. The RDMA device has the same address,
    /// unless `device` names another.
    pub listen: Option<SocketAddr>,
    /// Address to which this host connects for the conversation, where it differs from the peer's
    /// `listen`.
    pub connect: Option<SocketAddr>,
    /// Address of this host's RDMA device, where it differs from that of `listen`. Each host has
    /// one of the two; a link-local one is refused.
    pub device: Option<IpAddr>,
    /// Port on which this host waits for the connections of channels, for firewalls; 0 (the
    /// default) lets the system choose one. Two links of one host need different ones.
    pub port: u16,
    /// Time between this host's heartbeats; default 200 ms, at least 1 ms.
    #[serde(deserialize_with = "duration")]
    pub heartbeat: Duration,
    /// Silence of the peer after which this host holds the link for lost; default 1500 ms, at least
    /// two heartbeats of the peer.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// Payload of this length or more, which this host sends, crosses from sample to sample where
    /// the memory of both ends can be registered. Shorter payload is copied into slots, which saves
    /// a round trip. Default 131,072: from there on it costs neither latency nor processor time on
    /// RDMA in software (`docs/results/2026-11-rdma-threshold.md`); cards differ.
    pub zero_copy_from: u64,
}

/// The default of [`HostSettings::zero_copy_from`], in bytes.
const ZERO_COPY_FROM_BYTES: u64 = 128 << 10;

impl Default for HostSettings {
    fn default() -> Self {
        let of_tcp = tcp::settings::HostSettings::default();
        HostSettings {
            listen: None,
            connect: None,
            device: None,
            port: 0,
            heartbeat: of_tcp.heartbeat,
            timeout: of_tcp.timeout,
            zero_copy_from: ZERO_COPY_FROM_BYTES,
        }
    }
}

impl HostSettings {
    /// The address of its RDMA device.
    pub fn device_address(&self) -> Option<IpAddr> {
        self.device.or(self.listen.map(|address| address.ip()))
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
}

/// The two tables of a link as one host sees them.
pub type LinkSettings = Tables<HostSettings>;

impl contract::LinkSettings for LinkSettings {
    fn addresses(&self) -> Option<Addresses> {
        Some(Addresses {
            conversation: self.conversation().role().ok()?,
            messages: Some([self.local.device_address()?, self.peer.device_address()?]),
            group: None,
        })
    }

    fn validate(&self) -> Result<(), SettingError> {
        // First: what the conversation asks of a link-local address would not mend this.
        for (local, host) in [(true, &self.local), (false, &self.peer)] {
            let key = host.device.map_or("listen", |_| "device");
            refuse_link_local(local, key, host.device_address())?;
        }
        self.conversation().validate()?;
        for (local, host) in [(true, &self.local), (false, &self.peer)] {
            if host
                .device_address()
                .is_none_or(|address| address.is_unspecified())
            {
                return Err(SettingError {
                    local,
                    key: if host.listen.is_some() { "device" } else { "listen" },
                    problem: "the address of the host's RDMA device is not known".into(),
                    mend: "give that host `listen = \"ADDRESS:PORT\"` with the device's address, or `device = \"ADDRESS\"`"
                        .into(),
                });
            }
        }
        Ok(())
    }
}

impl LinkSettings {
    /// The settings of the conversation.
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
    use crate::contract::Site;

    fn host(text: &str) -> HostSettings {
        toml::from_str(text).expect("a good table")
    }

    #[test]
    fn each_host_needs_the_address_of_an_rdma_device() {
        let with = host("listen = '192.0.2.1:7400'");
        let error = LinkSettings::new(with.clone(), HostSettings::default(), true)
            .validate()
            .expect_err("the peer has none");
        assert_eq!((error.local, error.key), (false, "listen"));
        let peer = host("device = '192.0.2.2'");
        assert_eq!(LinkSettings::new(with.clone(), peer, true).validate(), Ok(()));
        let everywhere = host("listen = '0.0.0.0:7400'");
        let peer = host("device = '192.0.2.2'\nconnect = '192.0.2.1:7400'");
        let error = LinkSettings::new(everywhere, peer, true)
            .validate()
            .expect_err("0.0.0.0 is no device");
        assert_eq!((error.local, error.key), (true, "device"));
    }

    #[test]
    fn a_link_local_address_is_refused_at_its_own_key() {
        let error = |own: &str, peer: &str| {
            let error = LinkSettings::new(host(own), host(peer), true)
                .validate()
                .expect_err("no device is found by it");
            (error.local, error.key)
        };
        let good = "listen = '[fd00::1]:7400'";
        assert_eq!(
            error("listen = '[fe80::1%2]:7400'", "device = 'fd00::2'"),
            (true, "listen")
        );
        assert_eq!(error(good, "device = 'fe80::2'"), (false, "device"));
        assert_eq!(
            LinkSettings::new(host(good), host("device = 'fd00::2'"), true).validate(),
            Ok(())
        );
    }

    #[test]
    fn long_payload_begins_where_the_host_says() {
        assert_eq!(host("zero_copy_from = 1000").zero_copy_from, 1000);
        assert_eq!(host("port = 1").zero_copy_from, ZERO_COPY_FROM_BYTES);
        let negative: Result<HostSettings, _> = toml::from_str("zero_copy_from = -1");
        assert!(negative.is_err());
    }

    #[test]
    fn lines_made_for_a_site_are_good_settings() {
        let site = Site {
            hosts: ["a", "b"],
            addresses: ["192.0.2.1:7400", "192.0.2.2:7400"].map(|text| text.parse().expect("an address")),
            window: (std::path::Path::new("/dev/shm/none"), 1),
        };
        let lines = site.listen_lines("rdma-send");
        let table: toml::Table = toml::from_str(&lines).expect("TOML");
        let hosts = ["a", "b"].map(|host| {
            table["rdma-send"][host]
                .clone()
                .try_into::<HostSettings>()
                .expect("good")
        });
        let [a, b] = hosts;
        assert_eq!(LinkSettings::new(a, b, true).validate(), Ok(()));
    }
}
