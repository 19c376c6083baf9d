//! The contract of every bus, for the example.

#[path = "../../../crates/busway-transport/tests/contract/mod.rs"]
mod contract;

use std::any::Any;
use std::fs;

use busway_example_bus_unix::{Table, Unix};
use busway_transport::contract::{Bus, LinkSettings as _};
use busway_transport::{Link, LinkIdentity};
use contract::harness::Buffer;
use contract::{BusUnderTest, Side, conversation};
use socket2::SockAddr;
use tempfile::TempDir;

/// A folder of its own, in which host `one` listens.
struct Folder(TempDir);

impl Folder {
    fn address(&self) -> SockAddr {
        SockAddr::unix(self.0.path().join("socket")).expect("a short path")
    }
}

impl BusUnderTest for Folder {
    fn new() -> Folder {
        Folder(TempDir::new().expect("a folder"))
    }

    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>> {
        let path = self.0.path().join("socket");
        let text = format!("path = {path:?}\nheartbeat = '20ms'\ntimeout = '1s'");
        let table: Table = toml::from_str(&text).expect("a good table");
        let settings = Unix::join(table.clone(), table, side == Side::One);
        settings.validate().expect("good settings");
        let shared = <Unix as Bus>::Shared::default();
        Unix::open(&shared, &identity, &settings, side.other().name()).expect("the link opens")
    }

    fn attack(&self, victim: Side, seed: u64) {
        if victim == Side::One {
            conversation::attack(self.address(), seed);
        }
    }

    fn other_version(&self, side: Side) -> Box<dyn Any> {
        if side == Side::One {
            // Left there by the host whose place it takes.
            let _ = fs::remove_file(self.0.path().join("socket"));
        }
        conversation::other_version(side, self.address())
    }
}

contract::contract_tests!(Folder);

#[test]
fn file_in_the_socket_s_place_is_kept() {
    let folder = Folder::new();
    let path = folder.0.path().join("socket");
    fs::write(&path, "somebody's").expect("a file");
    let mut link = folder.open(Side::One, contract::harness::identity(Side::One));
    let refused = link.poll(std::time::Instant::now());
    assert!(matches!(refused, Some(busway_transport::LinkEvent::Refused(_))));
    assert_eq!(fs::read_to_string(path).expect("still there"), "somebody's");
}
