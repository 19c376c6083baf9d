//! The state of a module in shared memory: a directory with one file a channel and one a partition.
//!
//! Contract: [`Store::open`] makes what is missing and checks what is there, so that it does not
//! matter who comes first. A file belongs to one configuration of its channel or partition; another
//! one is an error, never a wrong reading.
//!
//! | file | written by | read by |
//! |---|---|---|
//! | `partition-NAME` | the processes of that partition | the partitions at the other ends of its queuing channels |
//! | `channel-NAME` | the partition with the source port | the partitions with the destination ports |
//! | `bell-PARTITION+PORT` | FIFO: whoever wakes the gateway | the gateway |

mod file;
pub(crate) mod layout;

use std::path::{Path, PathBuf};

use busway_transport::core_queue::Part;

pub use file::StoreError;
pub(crate) use file::{FileSpec, Opened};

use crate::config::{ChannelConfig, FarMemory, Module, PartitionConfig, PortKind, PortRef};
use crate::partition::{JoinError, Partition};
use crate::system::is_other_host;
use layout::{ChannelLayout, PartitionLayout};

/// A module and the directory that holds its state.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    module: Module,
}

impl Store {
    /// The default directory of a module called `name`: `/dev/shm/busway-NAME`.
    #[must_use]
    pub fn default_root(name: &str) -> PathBuf {
        Path::new("/dev/shm").join(format!("busway-{}", file::escape(name)))
    }

    /// Opens the state of `module` in the directory `root`, and makes what is missing of it.
    ///
    /// From then on all ports of the module exist, and keep their messages until the directory is
    /// removed.
    ///
    /// # Errors
    /// [`StoreError`]: the module is impossible, the directory can't be written, or it holds
    /// another configuration.
    pub fn open(root: impl Into<PathBuf>, module: Module) -> Result<Self, StoreError> {
        module.validate()?;
        let root = root.into();
        std::fs::create_dir_all(&root).map_err(|source| StoreError::System {
            action: "make",
            path: root.clone(),
            source,
        })?;
        let store = Self { root, module };
        for partition in &store.module.partitions {
            store.open_partition(partition)?;
            if is_other_host(&partition.name) {
                for port in &partition.ports {
                    crate::doorbell::make(&store.doorbell_path(&PortRef::new(&partition.name, &port.name)))?;
                }
            }
        }
        for channel in &store.module.channels {
            store.open_channel(channel)?;
        }
        Ok(store)
    }

    /// The state of `module` in `root` for looking only: nothing is made, and nothing need be
    /// there.
    ///
    /// # Errors
    /// The module is impossible.
    pub(crate) fn to_look(root: PathBuf, module: Module) -> Result<Self, StoreError> {
        module.validate()?;
        Ok(Self { root, module })
    }

    /// Joins the partition called `name` as one more process of it. The first process to join while
    /// no other lives begins a new incarnation of the partition, in the mode `COLD_START`.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(&self, name: &str) -> Result<Partition, JoinError> {
        Partition::join(self, name)
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The configuration.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The FIFO by which the gateway is woken that has the port `reference`.
    pub(crate) fn doorbell_path(&self, reference: &PortRef) -> PathBuf {
        let [partition, port] = [&reference.partition, &reference.port].map(|name| file::escape(name));
        // An escaped name has no `+`.
        self.root.join(format!("bell-{partition}+{port}"))
    }

    pub(crate) fn open_partition(&self, partition: &PartitionConfig) -> Result<Opened, StoreError> {
        self.partition_file(partition).open()
    }

    /// What the file of `partition` must be.
    pub(crate) fn partition_file(&self, partition: &PartitionConfig) -> FileSpec {
        let layout = PartitionLayout::new(partition.ports.len());
        FileSpec {
            path: self
                .root
                .join(format!("partition-{}", file::escape(&partition.name))),
            text: describe_partition(partition),
            body_bytes: layout.body_bytes(),
        }
    }

    pub(crate) fn open_channel(
        &self,
        channel: &ChannelConfig,
    ) -> Result<(Opened, ChannelLayout), StoreError> {
        let (spec, layout) = self.channel_file(channel)?;
        Ok((spec.open()?, layout))
    }

    /// What the file of `channel` must be.
    pub(crate) fn channel_file(
        &self,
        channel: &ChannelConfig,
    ) -> Result<(FileSpec, ChannelLayout), StoreError> {
        let layout = ChannelLayout::new(&self.module, channel)?;
        let spec = FileSpec {
            path: self.root.join(format!("channel-{}", file::escape(&channel.name))),
            text: describe_channel(&self.module, channel),
            body_bytes: layout.body_bytes(),
        };
        Ok((spec, layout))
    }
}

/// What two processes must agree on about a partition, one thing a line.
fn describe_partition(partition: &PartitionConfig) -> String {
    let mut text = format!("partition {}\n", partition.name);
    for port in &partition.ports {
        text += &format!("{} {} port {}\n", port.kind.name(), port.direction, port.name);
    }
    text
}

/// What two processes must agree on about a channel, one thing a line.
fn describe_channel(module: &Module, channel: &ChannelConfig) -> String {
    let mut text = format!(
        "channel {}\nsource {}\nclock {:?}\n",
        channel.name, channel.source, channel.clock
    );
    if let Some((_, source)) = module.port(&channel.source) {
        text += &format!("{} of {} bytes\n", source.kind.name(), source.max_size_bytes);
        match source.kind {
            PortKind::Sampling { .. } => {
                text += &format!("slots {}\n", channel.slots);
            }
            PortKind::Queuing { .. } => text += &format!("when full {:?}\n", channel.when_full),
        }
        if channel.is_checked {
            text += "with checksums\n";
        }
    }
    for copy in &channel.copies {
        text += &format!("copy in {}\n", describe_far(copy));
    }
    if let Some(landing) = &channel.landing {
        text += &format!("written from afar in {}\n", describe_far(landing));
    }
    for queue in &channel.shared_queues {
        let [source, destination] = [&queue.source, &queue.destination].map(describe_part);
        text += &format!(
            "queue of {} messages in {source} and {destination}, key {:x}\n",
            queue.max_messages, queue.key
        );
    }
    for destination in &channel.destinations {
        text += &format!("destination {destination}");
        let kind = module.port(destination).map(|(_, port)| port.kind);
        if let Some(max_messages) = kind.and_then(|kind| kind.max_messages()) {
            text += &format!(" of {max_messages} messages");
        }
        text += "\n";
    }
    text
}

fn describe_part(part: &Part) -> String {
    let at = part.place.offset_bytes() + part.offset_bytes as u64;
    format!("{} at {at}", part.place.source())
}

fn describe_far(far: &FarMemory) -> String {
    let at = far.place.offset_bytes() + far.offset_bytes as u64;
    format!(
        "{} at {at}, key {:x}, {:?} clock",
        far.place.source(),
        far.key,
        far.clock
    )
}
