//! What guests can be set up with: the lines of shell that load modules and make devices, on `eth0`.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use super::guest::{Guest, Plan};

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

    fn lines(self, plan: &Plan) -> String {
        match self {
            Preset::Tipc => format!(
                "modprobe tipc\ntipc node set identity {}\ntipc bearer enable media eth device eth0",
                plan.name
            ),
            Preset::Roce => {
                "modprobe -a ib_uverbs rdma_ucm rdma_rxe\nrdma link add rxe0 type rxe netdev eth0".to_owned()
            }
            Preset::Iwarp => {
                "modprobe -a ib_uverbs rdma_ucm siw\nrdma link add siw0 type siw netdev eth0".to_owned()
            }
        }
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
    // Memory of a program that registers it with a device must stay: no limit.
    lines.push("sysctl -q kernel.panic_on_oops=1".to_owned());
    lines.extend(presets.iter().map(|preset| preset.lines(plan)));
    guest.shell(&lines.join("\n"), Duration::from_secs(60)).map(drop)
}
