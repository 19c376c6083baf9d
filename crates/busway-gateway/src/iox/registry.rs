//! Who publishes and who subscribes: iceoryx2's registry of a service's ports, read without taking
//! part.
//!
//! A program that opens a service takes one of its `max_nodes` places, and keeps the service alive.
//! The gateway must know of ports in services where it has no business, and must take nothing from
//! programs; so it maps the service's registry (iceoryx2's "dynamic config", in POSIX shared
//! memory) and only reads (writable all the same: iceoryx2's read ends with a compare-and-exchange
//! of a value with itself). Opening goes through iceoryx2's own storage, which checks the version;
//! the structure inside is public in type but private in its fields, so it is read through a mirror
//! of its `repr(C)` layout. `tests` prove the mirror against real services; the exact pin of
//! iceoryx2 keeps it true.
//!
//! Called by the control thread, and by a lane for who publishes in a service that it subscribes
//! to.
#![allow(unsafe_code)] // One cast, proved in `PortRegistry::mirror`.

use std::mem::{align_of, size_of};

use iceoryx2::config::Config;
use iceoryx2::identifiers::{UniqueNodeId, UniqueServiceId};
use iceoryx2::service::dynamic_config::{
    DynamicConfig, blackboard, event, publish_subscribe, request_response,
};
use iceoryx2_bb_container::semantic_string::SemanticString;
use iceoryx2_bb_elementary::CallbackProgression;
use iceoryx2_bb_posix::file::AccessMode;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_cal::bag::BagFamily;
use iceoryx2_cal::dynamic_storage::{DynamicStorage as _, DynamicStorageBuilder as _};
use iceoryx2_cal::named_concept::{NamedConceptBuilder, NamedConceptConfiguration, NamedConceptMgmt};

use super::Service;
use crate::description::TypeDescription;

type Family = <Service as iceoryx2::service::Service>::Bag;
type Registry = DynamicConfig<Family>;
type Storage = <Service as iceoryx2::service::Service>::DynamicStorage<Registry>;

/// Mirror of `iceoryx2::service::dynamic_config::MessagingPattern` (0.10.0), `repr(C)` there too.
#[repr(C)]
#[allow(dead_code)] // The variants that we do not read fix the layout.
enum PatternMirror {
    RequestResponse(request_response::DynamicConfig<Family>),
    PublishSubscribe(publish_subscribe::DynamicConfig<Family>),
    Event(event::DynamicConfig<Family>),
    Blackboard(blackboard::DynamicConfig<Family>),
}

/// Mirror of `iceoryx2::service::dynamic_config::DynamicConfig` (0.10.0), `repr(C)` there too.
#[repr(C)]
struct RegistryMirror {
    pattern: PatternMirror,
    nodes: <Family as BagFamily>::Bag<UniqueNodeId>,
}

const _: () = assert!(size_of::<RegistryMirror>() == size_of::<Registry>());
const _: () = assert!(align_of::<RegistryMirror>() == align_of::<Registry>());

/// The ports of other nodes than ours in one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Nodes of programs that have the service open.
    pub nodes: usize,
    /// Publishers (publish/subscribe services) or notifiers (event services) of programs.
    pub sources: usize,
    /// Subscribers or listeners of programs.
    pub sinks: usize,
    /// Most elements in a message of one of the publishers, as it was made; 0 for notifiers.
    pub longest_slice: usize,
}

impl Census {
    /// Length in bytes of the longest messages of `payload`; `None` if no program publishes.
    pub fn longest_bytes(&self, payload: &TypeDescription) -> Option<u64> {
        let longest = payload.size_bytes.saturating_mul(self.longest_slice as u64);
        (self.sources > 0).then_some(longest)
    }
}

/// One service's registry, mapped.
pub struct PortRegistry {
    storage: Storage,
}

impl PortRegistry {
    /// Maps the registry of a service; `None` if it does not exist (yet, or any more) or is of
    /// another iceoryx2 version.
    pub fn open(config: &Config, service: UniqueServiceId) -> Option<PortRegistry> {
        let name = FileName::new(service.value().to_string().as_bytes()).ok()?;
        let configuration = <Storage as NamedConceptMgmt>::Configuration::default()
            .prefix(&config.global.prefix)
            .suffix(&config.global.service.dynamic_config_storage_suffix)
            .path_hint(config.global.root_path());
        let storage =
            <<Storage as iceoryx2_cal::dynamic_storage::DynamicStorage<Registry>>::Builder<'_> as NamedConceptBuilder<
                Storage,
            >>::new(&name)
            .config(&configuration)
            .has_ownership(false)
            .open(AccessMode::ReadWrite)
            .ok()?;
        Some(PortRegistry { storage })
    }

    fn mirror(&self) -> &RegistryMirror {
        let registry: *const Registry = self.storage.get();
        // SAFETY: `registry` points to a live, initialised `DynamicConfig` (the storage checks
        // version and completion at opening and stays mapped as long as `self`). `RegistryMirror`
        // has the same `repr(C)` fields in the same order and of the same types as that structure
        // in iceoryx2 0.10.0, to which we are pinned; size and alignment are asserted above.
        unsafe { &*registry.cast::<RegistryMirror>() }
    }

    /// Counts the nodes and ports that are not `own`.
    pub fn census(&self, own: &UniqueNodeId) -> Census {
        let mirror = self.mirror();
        let mut census = Census::default();
        self.for_each_node(|node| census.nodes += usize::from(node != own));
        let count = |total: &mut usize, node: &UniqueNodeId| {
            *total += usize::from(node != own);
            CallbackProgression::Continue
        };
        match &mirror.pattern {
            PatternMirror::PublishSubscribe(ports) => {
                ports.list_publishers(|details| {
                    if details.node_id != *own {
                        census.longest_slice = census.longest_slice.max(details.max_slice_len);
                    }
                    count(&mut census.sources, &details.node_id)
                });
                ports.list_subscribers(|details| count(&mut census.sinks, &details.node_id));
            }
            PatternMirror::Event(ports) => {
                ports.list_notifiers(|details| count(&mut census.sources, &details.node_id));
                ports.list_listeners(|details| count(&mut census.sinks, &details.node_id));
            }
            PatternMirror::RequestResponse(_) | PatternMirror::Blackboard(_) => {}
        }
        census
    }

    /// Calls `each` with the id of every publisher whose node is not `own`.
    pub fn for_each_publisher(&self, own: &UniqueNodeId, mut each: impl FnMut(u128)) {
        let PatternMirror::PublishSubscribe(ports) = &self.mirror().pattern else {
            return;
        };
        ports.list_publishers(|details| {
            if details.node_id != *own {
                each(details.publisher_id.value());
            }
            CallbackProgression::Continue
        });
    }

    /// Calls `each` with every node that has the service open.
    pub fn for_each_node(&self, mut each: impl FnMut(&UniqueNodeId)) {
        // SAFETY: the bag was initialised by the creator of the service before the storage could be
        // opened.
        let state = unsafe { self.mirror().nodes.get_state() };
        state.for_each(|_, node| {
            each(node);
            CallbackProgression::Continue
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iox::domain;
    use iceoryx2::prelude::*;
    use iceoryx2::service::Service as _;

    #[test]
    fn the_registry_shows_ports_and_nodes_of_real_services_without_taking_a_place() {
        let (_temporary, config) = domain::tests::temporary("reg");
        let ours = domain::create_node(&config, "test").expect("our node");
        let node = domain::tests::program(&config);
        let service = node
            .service_builder(&"A/Service".try_into().expect("valid"))
            .publish_subscribe::<u64>()
            .max_nodes(1)
            .max_publishers(3)
            .max_subscribers(5)
            .create()
            .expect("created");
        let events = node
            .service_builder(&"A/Service".try_into().expect("valid"))
            .event()
            .create()
            .expect("created");

        let unique_id = |pattern| {
            ipc::Service::details(service.name(), &config, pattern)
                .expect("readable")
                .expect("exists")
                .static_details
                .unique_service_id()
        };
        let registry =
            PortRegistry::open(&config, unique_id(MessagingPattern::PublishSubscribe)).expect("it is there");
        let event_registry =
            PortRegistry::open(&config, unique_id(MessagingPattern::Event)).expect("it is there");
        assert_eq!(
            registry.census(ours.id()),
            Census {
                nodes: 1,
                sources: 0,
                sinks: 0,
                longest_slice: 0,
            }
        );

        let publishers: Vec<_> = (0..2)
            .map(|_| service.publisher_builder().create().expect("p"))
            .collect();
        let subscribers: Vec<_> = (0..3)
            .map(|_| service.subscriber_builder().create().expect("s"))
            .collect();
        let listener = events.listener_builder().create().expect("l");
        assert_eq!(
            registry.census(ours.id()),
            Census {
                nodes: 1,
                sources: 2,
                sinks: 3,
                longest_slice: 1,
            }
        );
        assert_eq!(registry.census(node.id()), Census::default());
        assert_eq!(
            event_registry.census(ours.id()),
            Census {
                nodes: 1,
                sources: 0,
                sinks: 1,
                longest_slice: 0,
            }
        );

        drop(publishers);
        drop(subscribers);
        drop(listener);
        assert_eq!(
            registry.census(ours.id()),
            Census {
                nodes: 1,
                sources: 0,
                sinks: 0,
                longest_slice: 0,
            }
        );
    }
}
