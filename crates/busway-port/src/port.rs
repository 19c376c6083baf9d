//! Ports of bytes as Rust values.
//!
//! Contract: a thin layer on [`crate::apex`]; every method is one service, and every error the
//! service's return code. A port is created if that is still to be done, and found otherwise, so
//! that any process of a partition may come first.

use std::fmt;

use crate::apex::{self, PortId, Received, Refusal, SamplingRead, SystemTime, UpdatedRead};
use crate::config::{Direction, Discipline, PortConfig};
use crate::partition::Partition;

macro_rules! port {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy)]
        pub struct $name<'p> {
            partition: &'p Partition,
            id: PortId,
            max_message_size_bytes: usize,
        }

        impl $name<'_> {
            /// The port's identifier, for the functions of [`apex`].
            #[must_use]
            pub fn id(&self) -> PortId {
                self.id
            }

            /// Longest message in bytes.
            #[must_use]
            pub fn max_message_size_bytes(&self) -> usize {
                self.max_message_size_bytes
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.debug_tuple(stringify!($name)).field(&self.id).finish()
            }
        }
    };
}

port! {
    /// Writes the latest message.
    SamplingSource
}
port! {
    /// Reads the latest message.
    SamplingDestination
}
port! {
    /// Sends messages into a queue.
    QueuingSource
}
port! {
    /// Receives messages from a queue.
    QueuingDestination
}

impl Partition {
    /// The sampling source port `name`, created if need be.
    ///
    /// # Errors
    /// As [`apex::create_sampling_port`], except that it does not matter whether the port is
    /// created already.
    pub fn sampling_source(&self, name: &str) -> Result<SamplingSource<'_>, Refusal> {
        // At a source, the refresh period means nothing but must be positive.
        let (id, max_message_size_bytes) = self.sampling(name, Direction::Source, 1)?;
        Ok(SamplingSource {
            partition: self,
            id,
            max_message_size_bytes,
        })
    }

    /// The sampling destination port `name`, created with `refresh_period` in ns if need be.
    ///
    /// # Errors
    /// As [`sampling_source`](Self::sampling_source).
    pub fn sampling_destination(
        &self,
        name: &str,
        refresh_period: SystemTime,
    ) -> Result<SamplingDestination<'_>, Refusal> {
        let (id, max_message_size_bytes) = self.sampling(name, Direction::Destination, refresh_period)?;
        Ok(SamplingDestination {
            partition: self,
            id,
            max_message_size_bytes,
        })
    }

    /// The queuing source port `name`, created if need be.
    ///
    /// # Errors
    /// As [`apex::create_queuing_port`], except that it does not matter whether the port is created
    /// already.
    pub fn queuing_source(&self, name: &str, discipline: Discipline) -> Result<QueuingSource<'_>, Refusal> {
        let (id, max_message_size_bytes) = self.queuing(name, Direction::Source, discipline)?;
        Ok(QueuingSource {
            partition: self,
            id,
            max_message_size_bytes,
        })
    }

    /// The queuing destination port `name`, created if need be.
    ///
    /// # Errors
    /// As [`queuing_source`](Self::queuing_source).
    pub fn queuing_destination(
        &self,
        name: &str,
        discipline: Discipline,
    ) -> Result<QueuingDestination<'_>, Refusal> {
        let (id, max_message_size_bytes) = self.queuing(name, Direction::Destination, discipline)?;
        Ok(QueuingDestination {
            partition: self,
            id,
            max_message_size_bytes,
        })
    }

    fn sampling(
        &self,
        name: &str,
        direction: Direction,
        refresh_period: SystemTime,
    ) -> Result<(PortId, usize), Refusal> {
        let config = self.config_of(name, direction, true)?;
        let size = config.max_size();
        let id = match apex::create_sampling_port(self, name, size, direction, refresh_period) {
            Err(Refusal::NoAction) => apex::get_sampling_port_id(self, name)?,
            created => created?,
        };
        Ok((id, size))
    }

    fn queuing(
        &self,
        name: &str,
        direction: Direction,
        discipline: Discipline,
    ) -> Result<(PortId, usize), Refusal> {
        let config = self.config_of(name, direction, false)?;
        let (size, Some(max_messages)) = (config.max_size(), config.kind.max_messages()) else {
            return Err(Refusal::InvalidConfig);
        };
        let id = match apex::create_queuing_port(self, name, size, max_messages, direction, discipline) {
            Err(Refusal::NoAction) => apex::get_queuing_port_id(self, name)?,
            created => created?,
        };
        Ok((id, size))
    }

    pub(crate) fn config_of(
        &self,
        name: &str,
        direction: Direction,
        wants_sampling: bool,
    ) -> Result<&PortConfig, Refusal> {
        self.ports()
            .iter()
            .map(|port| &port.config)
            .find(|config| config.name == name)
            .filter(|config| config.direction == direction)
            .filter(|config| config.kind.is_sampling() == wants_sampling)
            .ok_or(Refusal::InvalidConfig)
    }
}

impl SamplingSource<'_> {
    /// WRITE_SAMPLING_MESSAGE.
    ///
    /// # Errors
    /// As [`apex::write_sampling_message`].
    #[inline]
    pub fn write(&self, message: &[u8]) -> Result<(), Refusal> {
        apex::write_sampling_message(self.partition, self.id, message)
    }
}

impl SamplingDestination<'_> {
    /// READ_SAMPLING_MESSAGE into a buffer of at least the longest message.
    ///
    /// # Errors
    /// As [`apex::read_sampling_message`].
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> Result<SamplingRead, Refusal> {
        apex::read_sampling_message(self.partition, self.id, buffer)
    }

    /// READ_UPDATED_SAMPLING_MESSAGE into a buffer of at least the longest message.
    ///
    /// # Errors
    /// As [`apex::read_updated_sampling_message`].
    #[inline]
    pub fn read_updated(&self, buffer: &mut [u8]) -> Result<UpdatedRead, Refusal> {
        apex::read_updated_sampling_message(self.partition, self.id, buffer)
    }
}

impl QueuingSource<'_> {
    /// SEND_QUEUING_MESSAGE, with a time-out in ns (0 does not wait, [`apex::INFINITE`] waits for
    /// ever).
    ///
    /// # Errors
    /// As [`apex::send_queuing_message`].
    pub fn send(&self, message: &[u8], time_out: SystemTime) -> Result<(), Refusal> {
        apex::send_queuing_message(self.partition, self.id, message, time_out)
    }
}

impl QueuingDestination<'_> {
    /// RECEIVE_QUEUING_MESSAGE into a buffer of at least the longest message, with a time-out in ns
    /// (0 does not wait, [`apex::INFINITE`] waits without limit).
    ///
    /// # Errors
    /// As [`apex::receive_queuing_message`].
    pub fn receive(&self, buffer: &mut [u8], time_out: SystemTime) -> Result<Received, Refusal> {
        apex::receive_queuing_message(self.partition, self.id, time_out, buffer)
    }

    /// CLEAR_QUEUING_PORT.
    ///
    /// # Errors
    /// As [`apex::clear_queuing_port`].
    pub fn clear(&self) -> Result<(), Refusal> {
        apex::clear_queuing_port(self.partition, self.id)
    }
}
