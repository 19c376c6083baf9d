//! The tables of a link over RDMA WRITE in the system file: those of every RDMA link, and whether
//! messages are checked.

use serde::Deserialize;

use crate::contract::{self, Addresses, SettingError};
use crate::rdma::settings as of_rdma;

/// The key that other buses over RDMA do not have.
const CHECKED: &str = "checked";
/// The key that this bus does not have: it copies payload once at each end, however long it is.
const OF_SEND: &str = "zero_copy_from";

/// One host's table: `rdma-write.vision = { listen = "192.0.2.1:7400", checked = true }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct HostSettings {
    /// What every bus over RDMA has.
    pub link: of_rdma::HostSettings,
    /// Whether messages that this host receives carry a CRC-32C. Default: over iWARP, where by RFC
    /// 5040 (section 5.5) a message may become visible after the word that publishes it; and on
    /// channels for messages of at most 272 bytes, which then need one WRITE instead of two.
    pub checked: Option<bool>,
}

impl TryFrom<toml::Table> for HostSettings {
    type Error = String;

    fn try_from(mut table: toml::Table) -> Result<HostSettings, String> {
        let checked = match table.remove(CHECKED) {
            None => None,
            Some(toml::Value::Boolean(checked)) => Some(checked),
            Some(other) => {
                let kind = other.type_str();
                return Err(format!(
                    "`{CHECKED}` is a {kind}: write true or false, or leave it away"
                ));
            }
        };
        if table.contains_key(OF_SEND) {
            return Err(format!(
                "`{OF_SEND}` is a key of `rdma-send`, where long payload is not copied: leave it away here"
            ));
        }
        let link = toml::Value::Table(table)
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_owned())?;
        Ok(HostSettings { link, checked })
    }
}

/// The two tables of a link as one host sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// What every bus over RDMA has.
    pub link: of_rdma::LinkSettings,
    /// This host's choice, see [`HostSettings::checked`].
    pub checked: Option<bool>,
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
