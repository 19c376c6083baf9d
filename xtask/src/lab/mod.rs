//! Virtual machines ("guests") with the kernel parts that a development machine lacks: TIPC, RDMA (RoCE and iWARP), PREEMPT_RT.
//!
//! A guest is a Debian kernel and an initramfs that this crate writes: no root file system, no network beyond Debian's packages. Its first
//! program is this very binary, which does there what it is told over a virtio-serial port; so a scenario is plain code on the host.
//!
//! * [`host`]: what the host must have. * [`packages`]: Debian packages, unpacked, never installed. * [`kernel`]: kernel and modules of them.
//! * [`siw`]: the module of iWARP, which Debian does not build. * [`image`]: the initramfs. * [`protocol`], [`agent`]: what guest and host say, the guest's end.
//! * [`guest`]: one machine, the host's end. * [`preset`]: the devices that a guest can be set up with. * [`cli`]: the command.

pub mod agent;
pub mod cli;
pub mod guest;
pub mod host;
pub mod image;
pub mod kernel;
pub mod packages;
pub mod preset;
pub mod protocol;
pub mod siw;
pub mod store;
