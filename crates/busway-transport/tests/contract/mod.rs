//! The contract of every bus, as tests that know no bus.
//!
//! A bus is tested in a file of its own, `tests/contract_<bus>.rs`:
//!
//! ```text
//! mod contract;
//! struct Memory { directory: TempDir, … }
//! impl contract::BusUnderTest for Memory { fn new() …, fn open(…) …, fn attack(…) …, … }
//! contract::contract_tests!(Memory);
//! ```
//!
//! A bus that needs a feature most kernels lack uses `contract_tests!(Bus, ignore = "needs …")`;
//! the lab runs those tests. The macro makes one `#[test]` of each function of [`delivery`],
//! [`keeping`], [`lifecycle`], [`hostile`] and [`waking`]; add a new one there and to its list.
//! [`harness`] has the two hosts ([`harness::Pair`]), messages with a pattern ([`harness::Buffer`])
//! and a sink that checks them ([`harness::Collector`]). Tests of one bus are in `tests/<bus>*.rs`.
#![allow(dead_code)]

pub mod conversation;
pub mod delivery;
pub mod harness;
pub mod hostile;
pub mod keeping;
pub mod lifecycle;
pub mod raw;
#[path = "../../../../tests/src/skip.rs"]
pub mod skip;
pub mod spot;
pub mod waking;

use busway_transport::{Link, LinkIdentity};
use harness::Buffer;

/// The two hosts of a link. The first is named `one`, the second `two`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    One,
    Two,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::One, Side::Two];

    /// Name of the host.
    pub fn name(self) -> &'static str {
        match self {
            Side::One => "one",
            Side::Two => "two",
        }
    }

    pub fn other(self) -> Side {
        match self {
            Side::One => Side::Two,
            Side::Two => Side::One,
        }
    }
}

/// Where two hosts are connected by one bus: addresses, window files.
pub trait BusUnderTest: Sized {
    /// Addresses or files that nothing uses yet.
    fn new() -> Self;

    /// Opens the link of one side, in a process context of its own, with heartbeats every 20 ms and
    /// a timeout of at most 1 s. Called again after the link was dropped: that host's restart.
    fn open(&self, side: Side, identity: LinkIdentity) -> Box<dyn Link<Buffer>>;

    /// Writes garbage, from `seed`, where bytes of the peer of `victim` arrive: its port or window.
    fn attack(&self, victim: Side, seed: u64);

    /// Acts as `side` with another protocol version, until the returned value is dropped.
    fn other_version(&self, side: Side) -> Box<dyn std::any::Any>;

    /// What this machine lacks, as the end of "needs …"; the tests then report that they are
    /// skipped.
    fn missing() -> Option<String> {
        None
    }

    /// Undoes [`attack`](Self::attack) (fresh windows); most buses have nothing to do.
    fn clean(&self) {}
}

/// A bus whose place (a window's file, an address) opens links, attacks and pretends by itself.
#[allow(unused_macros)] // Not every bus is one.
macro_rules! bus_at_place {
    ($(#[$doc:meta])* $visibility:vis $bus:ident($place:ty) = $new:expr) => {
        $(#[$doc])*
        $visibility struct $bus($visibility $place);

        impl $crate::contract::BusUnderTest for $bus {
            fn new() -> Self {
                $bus($new)
            }

            fn open(
                &self,
                side: $crate::contract::Side,
                identity: busway_transport::LinkIdentity,
            ) -> Box<dyn busway_transport::Link<$crate::contract::harness::Buffer>> {
                self.0.open(side, identity)
            }

            fn attack(&self, victim: $crate::contract::Side, seed: u64) {
                self.0.attack(victim, seed);
            }

            fn other_version(&self, side: $crate::contract::Side) -> Box<dyn std::any::Any> {
                self.0.other_version(side)
            }
        }
    };
}
#[allow(unused_imports)]
pub(crate) use bus_at_place;

/// One `#[test]` for each test of the contract; with `ignore = "needs …"`, all are ignored.
macro_rules! contract_tests {
    ($bus:ty $(, ignore = $why:literal)?) => {
        $crate::contract::contract_tests!(@list $bus; [$(#[ignore = $why])?];
            delivery::payloads_up_to_8_mib_arrive_unchanged_with_user_headers;
            delivery::messages_longer_than_planned_arrive;
            delivery::messages_of_mixed_sizes_arrive_in_order;
            delivery::heads_arrive_unchanged;
            delivery::a_budget_bounds_the_messages_of_one_poll;
            delivery::a_discarded_message_is_skipped_and_the_next_arrives;
            delivery::postponed_message_arrives_later_unchanged;
            delivery::channels_flow_both_ways_at_once;
            delivery::many_channels_flow_while_one_is_stuck;
            keeping::full_queue_refuses_until_receiver_takes;
            keeping::message_is_taken_after_has_room;
            keeping::a_full_queue_loses_nothing;
            keeping::taken_messages_are_acknowledged_to_waiting_sender;
            keeping::latest_message_replaces_older_ones_and_counts_them;
            keeping::events_replace_no_latest_message;
            keeping::latest_message_never_goes_back;
            lifecycle::hosts_connect_in_either_order;
            lifecycle::control_messages_arrive_in_order;
            lifecycle::messages_of_dropped_sender_arrive_before_channel_ends;
            lifecycle::sender_of_dropped_receiver_fails;
            lifecycle::closed_channel_can_be_reopened;
            lifecycle::either_host_restarts_and_new_channels_work;
            lifecycle::a_channel_of_an_earlier_session_fails;
            lifecycle::link_that_is_down_opens_no_channel;
            lifecycle::an_idle_link_is_polled_rarely;
            hostile::link_survives_or_recovers_from_garbage;
            hostile::impossible_landing_place_is_refused;
            hostile::a_peer_of_another_protocol_version_is_refused_with_one_line;
            hostile::a_peer_of_another_name_is_refused_with_one_line;
            waking::a_sleeping_receiver_wakes_for_a_message;
            waking::sender_waiting_for_room_is_woken;
            waking::link_sleeping_on_descriptor_comes_up_and_receives;
        );
    };
    (@list $bus:ty; $ignored:tt; $($module:ident :: $name:ident;)*) => {
        $($crate::contract::contract_tests!(@one $bus; $ignored; $module::$name);)*
    };
    (@one $bus:ty; [$($ignored:tt)*]; $module:ident :: $name:ident) => {
        #[test]
        $($ignored)*
        fn $name() {
            if let Some(needs) = <$bus as $crate::contract::BusUnderTest>::missing() {
                return $crate::contract::skip::skipped(&needs);
            }
            $crate::contract::$module::$name::<$bus>();
        }
    };
}
pub(crate) use contract_tests;
