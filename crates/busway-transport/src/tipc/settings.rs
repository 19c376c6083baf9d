//! The tables of a TIPC link in the system file: one [`HostSettings`] a host, joined to
//! [`LinkSettings`] as one host sees them.

use std::time::Duration;

use serde::Deserialize;

pub use super::address::Scope;
use super::address::ServiceAddress;
use crate::contract::{self, Role, SettingError, Tables, duration, optional_duration};

/// Service type of Busway's links where the system file names none: the bytes `BUSW`.
pub const DEFAULT_SERVICE_TYPE: u32 = 0x4255_5357;
/// Service types below this are TIPC's own (`TIPC_RESERVED_TYPES` in linux/tipc.h).
const LEAST_SERVICE_TYPE: u32 = 64;
/// Bounds of a link tolerance (`TIPC_MIN_LINK_TOL`, `TIPC_MAX_LINK_TOL` in linux/tipc_config.h).
const LINK_TOLERANCES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(30)];
/// Shortest send timeout: below this a peer that is merely not scheduled would count as dead.
const LEAST_SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// What the kernel drops last when a link is congested, and sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Importance {
    /// The system's default.
    Low = 0,
    /// Above most other users of TIPC.
    Medium = 1,
    /// Above nearly all.
    High = 2,
    /// As important as the conversation of the link itself.
    Critical = 3,
}

/// One host's table: `tipc.vision = { importance = "high" }`. What belongs to both hosts may be in
/// either table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// Service type of the link's address; default [`DEFAULT_SERVICE_TYPE`], at least 64. Both
    /// hosts use the same one.
    pub service_type: Option<u32>,
    /// Instance of the link's address; default: derived from the names of the link's two hosts.
    /// Both hosts use the same one. Needed only where two pairs of names have the same hash, which
    /// the links report.
    pub instance: Option<u32>,
    /// How far the address is known; default `"cluster"`. Both hosts use the same one.
    pub scope: Option<Scope>,
    /// Silence after which the kernel declares a link to the peer's node lost: 50 ms to 30 s.
    /// Default: the value of `tipc link set` or of the bearer (1500 ms unless changed). Setting it
    /// needs the capability `CAP_NET_ADMIN`.
    #[serde(deserialize_with = "optional_duration")]
    pub link_tolerance: Option<Duration>,
    /// Importance of what this host sends in channels; default `"low"`, as for every TIPC socket.
    /// The conversation is always critical.
    pub importance: Importance,
    /// How long the peer may leave the conversation unread before this host declares the link lost;
    /// default 5 s, at least 100 ms.
    #[serde(deserialize_with = "duration")]
    pub send_timeout: Duration,
}

impl Default for HostSettings {
    fn default() -> Self {
        HostSettings {
            service_type: None,
            instance: None,
            scope: None,
            link_tolerance: None,
            importance: Importance::Low,
            send_timeout: Duration::from_secs(5),
        }
    }
}

/// The two tables of a link as one host sees them. The first host accepts the connections, the
/// second one makes them.
pub type LinkSettings = Tables<HostSettings>;

impl contract::LinkSettings for LinkSettings {
    fn validate(&self) -> Result<(), SettingError> {
        for (local, table) in [(true, &self.local), (false, &self.peer)] {
            table.validate(local)?;
        }
        self.shared("service_type", |table| table.service_type)?;
        self.shared("instance", |table| table.instance)?;
        self.shared("scope", |table| table.scope)?;
        Ok(())
    }
}

impl LinkSettings {
    /// What both tables may say, and must say alike.
    fn shared<T: PartialEq + std::fmt::Debug>(
        &self,
        key: &'static str,
        of: impl Fn(&HostSettings) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        match (of(&self.local), of(&self.peer)) {
            (Some(local), Some(peer)) if local != peer => Err(SettingError {
                local: true,
                key,
                problem: format!(
                    "{local:?} here, but {peer:?} in the other host's table: the hosts would never meet"
                ),
                mend: "give the same value in both, or leave one away".into(),
            }),
            (local, peer) => Ok(local.or(peer)),
        }
    }

    /// This host's part: the first host accepts on the link's address, the second connects to it.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub(super) fn role(&self, local: &str, peer: &str) -> Result<Role<ServiceAddress>, SettingError> {
        let (first, second) = if self.local_is_first {
            (local, peer)
        } else {
            (peer, local)
        };
        let address = ServiceAddress {
            service_type: self
                .shared("service_type", |table| table.service_type)?
                .unwrap_or(DEFAULT_SERVICE_TYPE),
            instance: self
                .shared("instance", |table| table.instance)?
                .unwrap_or_else(|| ServiceAddress::instance_of(&[first, second])),
            scope: self
                .shared("scope", |table| table.scope)?
                .unwrap_or(Scope::Cluster),
        };
        Ok(if self.local_is_first {
            Role::Accept(address)
        } else {
            Role::Connect(address)
        })
    }
}

impl HostSettings {
    fn validate(&self, local: bool) -> Result<(), SettingError> {
        if let Some(service_type) = self.service_type
            && service_type < LEAST_SERVICE_TYPE
        {
            return Err(SettingError {
                local,
                key: "service_type",
                problem: format!(
                    "service types below {LEAST_SERVICE_TYPE}, such as {service_type}, are TIPC's own"
                ),
                mend: format!(
                    "leave it away ({DEFAULT_SERVICE_TYPE}), or give at least {LEAST_SERVICE_TYPE}"
                ),
            });
        }
        let [least, most] = LINK_TOLERANCES;
        if let Some(tolerance) = self.link_tolerance
            && !(least..=most).contains(&tolerance)
        {
            return Err(SettingError {
                local,
                key: "link_tolerance",
                problem: format!("TIPC takes no tolerance of {tolerance:?}"),
                mend: format!("give {least:?} to {most:?}, or leave it to `tipc link set`"),
            });
        }
        if self.send_timeout < LEAST_SEND_TIMEOUT {
            return Err(SettingError {
                local,
                key: "send_timeout",
                problem: format!(
                    "a peer that is late by {:?} would be held for dead",
                    self.send_timeout
                ),
                mend: format!("leave it away (5s), or give at least {LEAST_SEND_TIMEOUT:?}"),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::contract::LinkSettings as _;
    use super::*;

    fn table(text: &str) -> HostSettings {
        toml::from_str(text).expect("a good table")
    }

    fn link(local: &str, peer: &str, local_is_first: bool) -> LinkSettings {
        LinkSettings::new(table(local), table(peer), local_is_first)
    }

    #[test]
    fn both_hosts_come_to_the_same_address_and_to_opposite_parts() {
        let one = link("", "", true).role("vision", "control");
        let two = link("", "", false).role("control", "vision");
        let (Ok(Role::Accept(accepts)), Ok(Role::Connect(connects))) = (one, two) else {
            panic!("the first accepts, the second connects");
        };
        assert_eq!(accepts, connects);
        assert_eq!(accepts.service_type, DEFAULT_SERVICE_TYPE);
    }

    #[test]
    fn links_between_other_hosts_have_other_addresses() {
        let pairs = [("a", "b"), ("b", "a"), ("a", "c"), ("ab", ""), ("", "ab")];
        let mut instances: Vec<u32> = pairs
            .iter()
            .map(|(first, second)| ServiceAddress::instance_of(&[first, second]))
            .collect();
        instances.sort_unstable();
        instances.dedup();
        assert_eq!(instances.len(), pairs.len());
    }

    #[test]
    fn what_belongs_to_both_hosts_may_stand_in_either_table_but_not_differently_in_both() {
        for (local, peer) in [
            ("instance = 7", ""),
            ("", "instance = 7"),
            ("instance = 7", "instance = 7"),
        ] {
            assert_eq!(link(local, peer, true).validate(), Ok(()));
            let role = link(local, peer, true).role("a", "b").expect("good settings");
            assert!(matches!(role, Role::Accept(ServiceAddress { instance: 7, .. })));
        }
        let error = link("instance = 7", "instance = 8", true)
            .validate()
            .expect_err("they never meet");
        assert_eq!(error.key, "instance");
        assert!(
            error.problem.contains('7') && error.problem.contains('8'),
            "{error}"
        );
    }

    #[test]
    fn what_tipc_does_not_take_is_refused_with_its_bounds() {
        for (text, key, bound) in [
            ("service_type = 63", "service_type", "64"),
            ("link_tolerance = '10ms'", "link_tolerance", "50ms"),
            ("link_tolerance = '31s'", "link_tolerance", "30s"),
            ("send_timeout = '1ms'", "send_timeout", "100ms"),
        ] {
            for local in [true, false] {
                let (own, other) = if local { (text, "") } else { ("", text) };
                let error = link(own, other, true).validate().expect_err(text);
                assert_eq!((error.local, error.key), (local, key));
                assert!(error.mend.contains(bound), "{error}");
            }
        }
    }

    #[test]
    fn the_words_of_importance_and_scope_are_those_of_tipc() {
        let table = table("importance = 'critical'\nscope = 'node'\nlink_tolerance = '100ms'");
        assert_eq!(table.importance, Importance::Critical);
        assert_eq!(table.scope, Some(Scope::Node));
        assert_eq!(table.link_tolerance, Some(Duration::from_millis(100)));
        assert!(toml::from_str::<HostSettings>("importance = 'urgent'").is_err());
    }
}
