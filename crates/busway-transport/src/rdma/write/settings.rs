//! The tables of a link over RDMA WRITE in the system file: those of every RDMA link, and whether
//! messages are checked.

use serde::Deserialize;

use super::own_device::OwnDevice;
use crate::contract::{self, Addresses, RegisterDevicePlace, SettingError};
use crate::rdma::settings as of_rdma;

/// The key that other buses over RDMA do not have.
const CHECKED: &str = "checked";
/// Another one.
const PARTITION_WRITES: &str = "partition_writes";
/// The key that this bus does not have: it copies payload once at each end, however long it is.
const OF_SEND: &str = "zero_copy_from";

/// One host's table: `rdma-write.vision = { listen = "192.0.2.1:7400", checked = true }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct HostSettings {
    /// What every bus over RDMA has.
    pub link: of_rdma::HostSettings,
    /// Whether messages that this host receives carry a CRC-32C. Default: over iWARP, where by RFC
    /// 5040 (section 5.5) a message may become visible after the word that publishes it; and on
    /// channels for messages of at most 272 bytes, which then need one WRITE instead of two.
    pub checked: Option<bool>,
    /// Whether partitions of this host may write sampling messages into the peer's ports with a
    /// queue pair of their own. Default true; false leaves that to the gateway.
    pub partition_writes: bool,
}

impl Default for HostSettings {
    fn default() -> Self {
        HostSettings {
            link: of_rdma::HostSettings::default(),
            checked: None,
            partition_writes: true,
        }
    }
}

impl TryFrom<toml::Table> for HostSettings {
    type Error = String;

    fn try_from(mut table: toml::Table) -> Result<HostSettings, String> {
        let checked = take_boolean(&mut table, CHECKED)?;
        let partition_writes = take_boolean(&mut table, PARTITION_WRITES)?;
        if table.contains_key(OF_SEND) {
            return Err(format!(
                "`{OF_SEND}` is a key of `rdma-send`, where long payload is not copied: leave it away here"
            ));
        }
        let link = toml::Value::Table(table)
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_owned())?;
        Ok(HostSettings {
            link,
            checked,
            partition_writes: partition_writes.unwrap_or(true),
        })
    }
}

fn take_boolean(table: &mut toml::Table, key: &str) -> Result<Option<bool>, String> {
    match table.remove(key) {
        None => Ok(None),
        Some(toml::Value::Boolean(value)) => Ok(Some(value)),
        Some(other) => Err(format!(
            "`{key}` is a {}: write true or false, or leave it away",
            other.type_str()
        )),
    }
}

/// The two tables of a link as one host sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// What every bus over RDMA has.
    pub link: of_rdma::LinkSettings,
    /// This host's choice, see [`HostSettings::checked`].
    pub checked: Option<bool>,
    /// See [`HostSettings::partition_writes`].
    pub partition_writes: bool,
}

impl contract::LinkSettings for LinkSettings {
    fn addresses(&self) -> Option<Addresses> {
        self.link.addresses()
    }

    fn validate(&self) -> Result<(), SettingError> {
        self.link.validate()
    }

    fn checks_registers(&self) -> bool {
        self.checked != Some(false)
    }

    fn register_device(&self) -> Option<RegisterDevicePlace> {
        let address = self.link.local.device_address()?;
        let place = RegisterDevicePlace::new(address.to_string(), move || OwnDevice::open(address));
        self.partition_writes.then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<HostSettings, String> {
        let table: toml::Table = toml::from_str(text).expect("test text is TOML");
        toml::Value::Table(table)
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn checking_can_be_forced_either_way_and_is_left_to_the_transport_by_default() {
        for (text, checked) in [
            ("listen = '192.0.2.1:7400'", None),
            ("listen = '192.0.2.1:7400'\nchecked = true", Some(true)),
            ("checked = false", Some(false)),
        ] {
            assert_eq!(table(text).map(|host| host.checked), Ok(checked));
        }
        let error = table("checked = 'yes'").expect_err("no truth value");
        assert!(
            error.contains("string") && error.contains("true or false"),
            "{error}"
        );
    }

    #[test]
    fn partitions_write_by_themselves_unless_the_sending_host_forbids_it() {
        use contract::LinkSettings as _;
        let settings = |local: &str, peer: &str| {
            let [local, peer] = [local, peer].map(|text| table(text).expect("a good table"));
            <super::super::RdmaWrite as contract::Bus>::join(local, peer, true)
        };
        let with = "listen = '192.0.2.1:7400'";
        let without = "listen = '192.0.2.2:7400'\npartition_writes = false";
        let place = settings(with, without).register_device().expect("it may");
        assert_eq!(place.name(), "192.0.2.1");
        assert_eq!(settings(without, with).register_device(), None);
        let error = table("partition_writes = 1").expect_err("no truth value");
        assert!(error.contains("partition_writes"), "{error}");
    }

    #[test]
    fn a_key_of_the_other_bus_is_refused_by_name() {
        let error = table("zero_copy_from = 65536").expect_err("nothing is announced here");
        assert!(
            error.contains("zero_copy_from") && error.contains("rdma-send"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let error = table("listne = '192.0.2.1:7400'").expect_err("misspelt");
        assert!(error.contains("listne") && error.contains("listen"), "{error}");
    }
}
