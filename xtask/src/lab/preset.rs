//! What guests can be set up with: the lines of shell that load modules and make devices, on `eth0`.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use super::guest::{Guest, Plan};

/// Many times what any of it takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A device, or a protocol, that a guest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Preset {
    /// TIPC, its bearer on eth0, the node's identity the guest's name
    Tipc,
    /// RDMA: RoCE in software on eth0, device rxe0
    Roce,
    /// RDMA: iWARP in software on eth0, device siw0
    Iwarp,
}

impl Preset {
    /// What `plan` needs for it.
    pub fn prepare(self, plan: &mut Plan) {
        plan.with_siw |= self == Preset::Iwarp;
    }

    /// The modules and the lines of shell that make the device, or what stands for one.
    fn device(self, plan: &Plan) -> (&'static [&'static str], String) {
        match self {
            Preset::Tipc => {
                let identity = format!("tipc node set identity {}\n", plan.name);
                (&["tipc"], identity + "tipc bearer enable media eth device eth0")
            }
            Preset::Roce => (
                &["ib_uverbs", "rdma_ucm", "rdma_rxe"],
                "rdma link add rxe0 type rxe netdev eth0".to_owned(),
            ),
            Preset::Iwarp => (
                &["ib_uverbs", "rdma_ucm", "siw"],
                "rdma link add siw0 type siw netdev eth0".to_owned(),
            ),
        }
    }

    /// Takes the device away while programs use it.
    ///
    /// # Errors
    /// It can't be removed.
    pub fn remove_device(self, guest: &Guest) -> Result<()> {
        let line = match self {
            Preset::Tipc => "tipc bearer disable media eth device eth0",
            Preset::Roce => "rdma link delete rxe0",
            Preset::Iwarp => "rdma link delete siw0",
        };
        guest.shell(line, LIMIT).map(drop)
    }

    /// Makes it again.
    ///
    /// # Errors
    /// It can't be made.
    pub fn make_device(self, guest: &Guest) -> Result<()> {
        // The node has its identity already.
        let (_, lines) = self.device(&guest.plan);
        guest
            .shell(lines.lines().next_back().unwrap_or_default(), LIMIT)
            .map(drop)
    }
}

/// Names the guest, gives it its address, then sets up `presets`.
///
/// # Errors
/// A line fails: the message has what it said.
pub fn set_up(guest: &Guest, presets: &[Preset]) -> Result<()> {
    let plan = &guest.plan;
    let mut lines = vec![format!("hostname {}\nip link set lo up", plan.name)];
    if plan.wire.is_some() {
        let address = plan.address();
        lines.push(format!("ip addr add {address}/24 dev eth0\nip link set eth0 up"));
    }
    for (modules, device) in presets.iter().map(|preset| preset.device(plan)) {
        lines.push(format!("modprobe -a {}\n{device}", modules.join(" ")));
    }
    guest.shell(&lines.join("\n"), LIMIT).map(drop)
}
