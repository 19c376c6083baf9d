//! Sends messages that several hosts receive in one transmission to a multicast group.
//!
//! Each channel stays a unicast stream: it has its own packet numbers, window, acknowledgements and
//! retransmissions. Only first transmissions go to the group, and only those for receivers that
//! have shown that they receive it. Unicast code uses this module through four types:
//!
//! | module       | type               | what it does                                             |
//! |--------------|--------------------|----------------------------------------------------------|
//! | `address`    | [`GroupAddress`]   | opens the sockets of a group                             |
//! | `membership` | [`Membership`]     | what a sender knows of its receiver and the group        |
//! | `group`      | [`MulticastGroup`] | chooses what several senders transmit, to whom, and when |
//! | `receiver`   | [`GroupReceiver`]  | merges the datagrams of the group with those of unicast  |

mod address;
mod group;
mod membership;
mod receiver;

pub(super) use address::GroupAddress;
pub(super) use group::{MulticastGroup, MulticastGroups};
pub(super) use membership::Membership;
pub(super) use receiver::{GroupReceiver, Source};
