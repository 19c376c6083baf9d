//! The queues between programs' publishers and a subscriber of ours: what was lost in them, and
//! whether anything waits.
//!
//! In a service with safe overflow, a publisher that finds a subscriber's queue full replaces the
//! oldest sample without a report. Samples carry no numbers, so the gateway could not count what it
//! missed. But the queue's read position, in shared memory, moves for each sample that is taken
//! *and* for each that is replaced: the difference to the samples that we took is the loss. The
//! connection is opened through iceoryx2's own storage, which checks the version; its `repr(C)`
//! structure is read through a mirror, as in [`super::registry`]. Read-only.
//!
//! The same two positions show whether a sample waits, with one cache line a publisher. Asking
//! iceoryx2 costs a microsecond for a quiet service, which adds up over a hundred of them.
//!
//! Called by a lane when it takes samples, and when publishers come; opening happens once a
//! publisher.
#![allow(unsafe_code)] // One cast, proved in `SourceQueue::queue`.

use std::mem::size_of;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use iceoryx2::config::Config;
use iceoryx2::identifiers::{UniqueNodeId, UniqueServiceId};
use iceoryx2_bb_container::semantic_string::SemanticString;
use iceoryx2_bb_container::vector::relocatable_vec::RelocatableVec;
use iceoryx2_bb_lock_free::spsc::index_queue::RelocatableIndexQueue;
use iceoryx2_bb_lock_free::spsc::safely_overflowing_index_queue::RelocatableSafelyOverflowingIndexQueue;
use iceoryx2_bb_posix::file::AccessMode;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_cal::dynamic_storage::posix_shared_memory::Storage;
use iceoryx2_cal::dynamic_storage::{DynamicStorage as _, DynamicStorageBuilder as _};
use iceoryx2_cal::named_concept::{NamedConceptBuilder, NamedConceptConfiguration, NamedConceptMgmt};
use iceoryx2_cal::zero_copy_connection::common::details::SharedManagementData;

use super::registry::PortRegistry;

/// With this many publishers known, those that are gone are forgotten.
const FORGET_AT: usize = 16;

type Connection = Storage<SharedManagementData>;

/// Mirror of `SafelyOverflowingIndexQueue` (iceoryx2-bb-lock-free 0.10.0), `repr(C)` there too.
#[repr(C)]
struct QueueMirror {
    _data: isize,
    _flags: [bool; 3],
    _capacity: usize,
    /// Moved by the publisher when it puts a sample in.
    write_position: AtomicU64,
    /// Moved by the subscriber when it takes a sample, by the publisher when it replaces one.
    read_position: AtomicU64,
}

/// Mirror of `Channel` in `zero_copy_connection/common.rs` (iceoryx2-cal 0.10.0), `repr(C)` there
/// too.
#[repr(C)]
struct ChannelMirror {
    _state: AtomicU64,
    _completion: RelocatableIndexQueue,
    submission: QueueMirror,
}

/// Mirror of `SharedManagementData` in the same file, `repr(C)` there too.
#[repr(C)]
struct ConnectionMirror {
    channels: RelocatableVec<ChannelMirror>,
    /// Its elements are of no interest here, and do not matter to the layout.
    _segment_details: RelocatableVec<ChannelMirror>,
    _state: AtomicU8,
    _max_borrowed_samples: usize,
    _number_of_samples_per_segment: usize,
    /// Data segments that the publisher may have in the course of time; 1 where it never replaces
    /// the first.
    number_of_segments: u8,
    _enable_safe_overflow: bool,
}

const _: () = assert!(size_of::<ConnectionMirror>() == size_of::<SharedManagementData>());
const _: () = assert!(size_of::<QueueMirror>() == size_of::<RelocatableSafelyOverflowingIndexQueue>());

struct SourceQueue {
    publisher: u128,
    taken: u64,
    reported: u64,
    connection: Option<Connection>,
}

impl SourceQueue {
    fn mirror(&self) -> Option<&ConnectionMirror> {
        let connection: *const SharedManagementData = self.connection.as_ref()?.get();
        // SAFETY: points to a live, initialised `SharedManagementData` (the storage checks version
        // and completion and stays mapped as long as `self`); all structures involved are `repr(C)`
        // with the fields of their mirrors in 0.10.0, to which we are pinned. The vectors and the
        // numbers are only read, and were filled in before the storage could be opened.
        Some(unsafe { &*connection.cast::<ConnectionMirror>() })
    }

    fn queue(&self) -> Option<&QueueMirror> {
        self.mirror()?.channels.first().map(|channel| &channel.submission)
    }

    /// How many samples were lost since this was last asked.
    fn newly_lost(&mut self) -> u64 {
        // Relaxed: a count that only grows; the lane compares it with its own.
        let Some(position) = self
            .queue()
            .map(|queue| queue.read_position.load(Ordering::Relaxed))
        else {
            return 0;
        };
        let lost = position.saturating_sub(self.taken);
        let new = lost.saturating_sub(self.reported);
        self.reported += new;
        new
    }
}

/// What is known of a sample's publisher once the sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// How many of this publisher's samples were lost since the last one.
    pub lost: u64,
    /// Whether all its samples lie in one data segment for as long as it lives.
    pub has_one_segment: bool,
}

/// The queues of one subscriber, one for each publisher that it has [met](SourceQueues::meet_all)
/// or taken a sample of.
pub struct SourceQueues {
    config: Config,
    subscriber: u128,
    sources: Vec<SourceQueue>,
}

impl SourceQueues {
    /// Of a subscriber in the domain of `config`.
    pub fn new(config: &Config, subscriber: u128) -> SourceQueues {
        SourceQueues {
            config: config.clone(),
            subscriber,
            sources: Vec::new(),
        }
    }

    /// Whether some known publisher has put something in. The first sample of one that is not known
    /// is not seen.
    pub fn has_waiting(&self) -> bool {
        self.sources.iter().any(|source| {
            // Relaxed: a hint; iceoryx2's own look at the queue orders the sample itself. A queue
            // that can't be seen may hold something.
            source.queue().is_none_or(|queue| {
                queue.write_position.load(Ordering::Relaxed) != queue.read_position.load(Ordering::Relaxed)
            })
        })
    }

    /// [Meets](Self::meet) all publishers of the service whose node is not `own`. The registry is
    /// mapped for this look only: looks are seldom, and there may be a thousand services.
    pub fn meet_all(&mut self, service: UniqueServiceId, own: &UniqueNodeId) {
        // Without it a publisher's first sample is found only by asking iceoryx2.
        let Some(registry) = PortRegistry::open(&self.config, service) else {
            return;
        };
        registry.for_each_publisher(own, |publisher| self.meet(publisher));
    }

    /// Sees the samples of `publisher` from now on, its first one included, if the subscriber has
    /// connected to it.
    fn meet(&mut self, publisher: u128) {
        let is_known = self.sources.iter().any(|source| source.publisher == publisher);
        if !is_known && let Some(connection) = self.open(publisher) {
            self.add(publisher, Some(connection));
        }
    }

    /// Returns the new one's index.
    fn add(&mut self, publisher: u128, connection: Option<Connection>) -> usize {
        if self.sources.len() >= FORGET_AT {
            self.forget_the_gone();
        }
        self.sources.push(SourceQueue {
            publisher,
            taken: 0,
            reported: 0,
            connection,
        });
        self.sources.len() - 1
    }

    /// A sample of `publisher` was taken.
    pub fn taken(&mut self, publisher: u128) -> Taken {
        let index = self
            .sources
            .iter()
            .position(|source| source.publisher == publisher);
        let index = index.unwrap_or_else(|| self.add(publisher, self.open(publisher)));
        let source = &mut self.sources[index];
        source.taken += 1;
        Taken {
            lost: source.newly_lost(),
            has_one_segment: source
                .mirror()
                .is_some_and(|connection| connection.number_of_segments == 1),
        }
    }

    /// A publisher that is gone has taken its connection's name with it.
    fn forget_the_gone(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        self.sources = sources
            .into_iter()
            .filter(|source| self.open(source.publisher).is_some())
            .collect();
    }

    fn open(&self, publisher: u128) -> Option<Connection> {
        let name = FileName::new(format!("{publisher}_{}", self.subscriber).as_bytes()).ok()?;
        let configuration = <Connection as NamedConceptMgmt>::Configuration::default()
            .prefix(&self.config.global.prefix)
            .suffix(&self.config.global.service.connection_suffix)
            .path_hint(self.config.global.root_path());
        <<Connection as iceoryx2_cal::dynamic_storage::DynamicStorage<SharedManagementData>>::Builder<'_> as NamedConceptBuilder<
            Connection,
        >>::new(&name)
        .config(&configuration)
        .has_ownership(false)
        .open(AccessMode::Read)
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iox::domain;
    use iceoryx2::prelude::*;

    #[test]
    fn what_overflowed_in_iceoryx2_is_known_to_the_sample() {
        let (_temporary, config) = domain::tests::temporary("ovf");
        let node = domain::tests::program(&config);
        let service = node
            .service_builder(&"A".try_into().expect("valid"))
            .publish_subscribe::<u64>()
            .subscriber_max_buffer_size(3)
            .create()
            .expect("service");
        let publishers: Vec<_> = (0..2)
            .map(|_| service.publisher_builder().create().expect("p"))
            .collect();
        let subscriber = service.subscriber_builder().create().expect("s");
        let mut counter = SourceQueues::new(&config, subscriber.id().value());
        let mut sent = 0u64;
        let mut received = 0u64;
        let mut lost = 0u64;
        for burst in [1u64, 2, 3, 10, 4, 1, 100] {
            for value in 0..burst {
                publishers[(value % 2) as usize].send_copy(value).expect("sent");
                sent += 1;
            }
            let is_known = received > 1;
            assert!(!is_known || counter.has_waiting());
            while let Some(sample) = subscriber.receive().expect("received") {
                received += 1;
                lost += counter.taken(sample.header().publisher_id().value()).lost;
            }
        }
        assert!(!counter.has_waiting());
        assert_eq!(sent, received + lost);
        assert!(lost > 90);
    }

    #[test]
    fn first_sample_of_a_publisher_that_was_met_is_seen() {
        let (_temporary, config) = domain::tests::temporary("met");
        let node = domain::tests::program(&config);
        let service = node
            .service_builder(&"A".try_into().expect("valid"))
            .publish_subscribe::<u64>()
            .create()
            .expect("service");
        let publisher = service.publisher_builder().create().expect("a publisher");
        let id = publisher.id().value();
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        let mut queues = SourceQueues::new(&config, subscriber.id().value());
        assert!(subscriber.receive().expect("received").is_none());
        queues.meet(id);
        assert!(!queues.has_waiting());
        publisher.send_copy(7).expect("sent");
        assert!(queues.has_waiting());
        assert!(subscriber.receive().expect("received").is_some());
        assert_eq!(queues.taken(id).lost, 0);
        assert!(!queues.has_waiting());
    }

    #[test]
    fn publishers_that_replace_their_segment_are_told_from_those_that_do_not() {
        let (_temporary, config) = domain::tests::temporary("dyn");
        let node = domain::create_node(&config, "test").expect("a node");
        let name = "A".try_into().expect("valid");
        let builder = node.service_builder(&name).publish_subscribe::<[u64]>();
        let service = builder.create().expect("a service");
        let lasting = service.publisher_builder().initial_max_slice_len(8).create();
        let growing = service
            .publisher_builder()
            .allocation_strategy(AllocationStrategy::PowerOfTwo);
        let publishers = [lasting, growing.create()].map(|created| created.expect("a publisher"));
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        let mut queues = SourceQueues::new(&config, subscriber.id().value());
        for (publisher, is_lasting) in publishers.iter().zip([true, false]) {
            let sample = publisher.loan_slice(1).expect("memory");
            sample.send().expect("sent");
            let sample = subscriber.receive().expect("received").expect("a sample");
            let id = sample.header().publisher_id().value();
            assert_eq!(queues.taken(id).has_one_segment, is_lasting);
        }
    }
}
