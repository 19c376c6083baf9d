//! Ports of one message type: what is written is a value, and so is what is read.
//!
//! Contract: a thin layer on the ports of bytes ([`crate::SamplingSource`] and its kin), with the
//! same services and the same return codes. A [`Message`] is its bytes: no padding, no pointer, and
//! every pattern of bits is a value. So a message of the right length is always a value, and only
//! the length is checked. (Types with forbidden patterns, such as `bool` and most enums, would need
//! a refusal that the standard does not have: make them an integer in the message and check it
//! where it is used.)
//!
//! - The configured size must be the type's: anything else is INVALID_CONFIG when the port is
//!   created.
//! - A message of another length, from a program that does not use the type, is INVALID_CONFIG when
//!   it is read. A queue has given it away then.
//! - Numbers lie in the message as the host has them, and Busway's hosts are little-endian. Types
//!   of `zerocopy::byteorder` say so themselves.
//!
//! A type needs nothing but `zerocopy` with its feature `derive`, which has no use for `std`:
//! messages can be declared in a `no_std` crate.
//!
//! ```
//! use busway_port::{Module, Partition, Store};
//! use zerocopy::{FromBytes, Immutable, IntoBytes};
//!
//! #[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
//! #[repr(C)]
//! struct Attitude {
//!     roll_rad: f32,
//!     pitch_rad: f32,
//!     yaw_rad: f32,
//!     /// 1 if the sensor trusts itself.
//!     is_good: u32,
//! }
//!
//! # use busway_port::{ChannelConfig, Direction, PartitionConfig, PortConfig, PortKind, PortRef};
//! # fn port(name: &str, direction: Direction) -> PortConfig {
//! #     PortConfig::new(name, direction, 16, PortKind::SAMPLING)
//! # }
//! # fn partition(name: &str, port: PortConfig) -> PartitionConfig {
//! #     PartitionConfig { name: name.into(), identifier: 1, ports: vec![port] }
//! # }
//! # fn module() -> Module {
//! #     let (from, to) = (PortRef::new("sensors", "ATTITUDE_OUT"), PortRef::new("navigation", "ATTITUDE"));
//! #     Module {
//! #         partitions: vec![
//! #             partition("sensors", port("ATTITUDE_OUT", Direction::Source)),
//! #             partition("navigation", port("ATTITUDE", Direction::Destination)),
//! #         ],
//! #         channels: vec![ChannelConfig::new("attitude", from, vec![to])],
//! #     }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let store = Store::open(directory.path(), module())?;
//! let (sensors, navigation) = (store.join("sensors")?, store.join("navigation")?);
//! let out = sensors.typed_sampling_source::<Attitude>("ATTITUDE_OUT")?;
//! let port = navigation.typed_sampling_destination::<Attitude>("ATTITUDE", 20_000_000)?;
//!
//! let level = Attitude { roll_rad: 0.0, pitch_rad: 0.0, yaw_rad: 1.5, is_good: 1 };
//! out.write(&level)?;
//! assert_eq!(port.read()?.message, level);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::apex::{Refusal, SystemTime, Updated, Validity};
use crate::config::{Direction, Discipline};
use crate::partition::Partition;
use crate::port::{QueuingDestination, QueuingSource, SamplingDestination, SamplingSource};

/// A type that is its bytes: every type that has the three traits of `zerocopy`, which its derive
/// macros prove.
///
/// A reference is not, nor is a type with padding:
///
/// ```compile_fail
/// fn is_message<M: busway_port::typed::Message>() {}
/// is_message::<&u32>();
/// ```
///
/// ```compile_fail
/// #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
/// #[repr(C)]
/// struct Padded(u8, u32);
/// ```
pub trait Message: FromBytes + IntoBytes + Immutable {}

impl<M: FromBytes + IntoBytes + Immutable> Message for M {}

/// What a sampling port has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled<M> {
    /// The latest message.
    pub message: M,
    /// `VALIDITY`: whether its age is within the port's refresh period.
    pub validity: Validity,
}

/// What a queuing port has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<M> {
    /// The first message.
    pub message: M,
    /// Whether the queue has overflowed since the message before: the service's code was
    /// INVALID_CONFIG.
    pub overflowed: bool,
}

macro_rules! typed {
    ($(#[$documentation:meta])* $name:ident of $port:ident) => {
        $(#[$documentation])*
        pub struct $name<'p, M> {
            port: $port<'p>,
            message: PhantomData<fn() -> M>,
        }

        impl<'p, M> $name<'p, M> {
            fn new(port: $port<'p>) -> Self {
                Self { port, message: PhantomData }
            }

            /// The same port, of bytes.
            #[must_use]
            pub fn bytes(&self) -> $port<'p> {
                self.port
            }
        }

        impl<M> Clone for $name<'_, M> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<M> Copy for $name<'_, M> {}

        impl<M> fmt::Debug for $name<'_, M> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let message = std::any::type_name::<M>();
                write!(formatter, "{}<{message}>({})", stringify!($name), self.port.id())
            }
        }
    };
}

typed! {
    /// Writes the latest message.
    TypedSamplingSource of SamplingSource
}
typed! {
    /// Reads the latest message.
    TypedSamplingDestination of SamplingDestination
}
typed! {
    /// Sends messages into a queue.
    TypedQueuingSource of QueuingSource
}
typed! {
    /// Receives messages from a queue.
    TypedQueuingDestination of QueuingDestination
}

impl Partition {
    /// The sampling source port `name` of messages `M`, created if need be.
    ///
    /// # Errors
    /// [`Refusal::InvalidConfig`] if the configured size is not that of `M`; else as
    /// [`sampling_source`](Self::sampling_source).
    pub fn typed_sampling_source<M: Message>(
        &self,
        name: &str,
    ) -> Result<TypedSamplingSource<'_, M>, Refusal> {
        self.check_size::<M>(name, Direction::Source, true)?;
        self.sampling_source(name).map(TypedSamplingSource::new)
    }

    /// The sampling destination port `name` of messages `M`, created with `refresh_period` in ns if
    /// need be.
    ///
    /// # Errors
    /// As [`typed_sampling_source`](Self::typed_sampling_source).
    pub fn typed_sampling_destination<M: Message>(
        &self,
        name: &str,
        refresh_period: SystemTime,
    ) -> Result<TypedSamplingDestination<'_, M>, Refusal> {
        self.check_size::<M>(name, Direction::Destination, true)?;
        self.sampling_destination(name, refresh_period)
            .map(TypedSamplingDestination::new)
    }

    /// The queuing source port `name` of messages `M`, created if need be.
    ///
    /// # Errors
    /// As [`typed_sampling_source`](Self::typed_sampling_source).
    pub fn typed_queuing_source<M: Message>(
        &self,
        name: &str,
        discipline: Discipline,
    ) -> Result<TypedQueuingSource<'_, M>, Refusal> {
        self.check_size::<M>(name, Direction::Source, false)?;
        self.queuing_source(name, discipline).map(TypedQueuingSource::new)
    }

    /// The queuing destination port `name` of messages `M`, created if need be.
    ///
    /// # Errors
    /// As [`typed_sampling_source`](Self::typed_sampling_source).
    pub fn typed_queuing_destination<M: Message>(
        &self,
        name: &str,
        discipline: Discipline,
    ) -> Result<TypedQueuingDestination<'_, M>, Refusal> {
        self.check_size::<M>(name, Direction::Destination, false)?;
        self.queuing_destination(name, discipline)
            .map(TypedQueuingDestination::new)
    }

    fn check_size<M>(&self, name: &str, direction: Direction, wants_sampling: bool) -> Result<(), Refusal> {
        let configured = self.config_of(name, direction, wants_sampling)?;
        if configured.max_size() != size_of::<M>() {
            return Err(Refusal::InvalidConfig);
        }
        Ok(())
    }
}

impl<M: Message> TypedSamplingSource<'_, M> {
    /// WRITE_SAMPLING_MESSAGE.
    ///
    /// # Errors
    /// As [`SamplingSource::write`].
    #[inline]
    pub fn write(&self, message: &M) -> Result<(), Refusal> {
        self.port.write(message.as_bytes())
    }
}

impl<M: Message> TypedSamplingDestination<'_, M> {
    /// READ_SAMPLING_MESSAGE.
    ///
    /// # Errors
    /// As [`SamplingDestination::read`]; [`Refusal::InvalidConfig`] for a message of another
    /// length.
    #[inline]
    pub fn read(&self) -> Result<Sampled<M>, Refusal> {
        let mut message = M::new_zeroed();
        let read = self.port.read(message.as_mut_bytes())?;
        whole::<M>(read.length)?;
        Ok(Sampled {
            message,
            validity: read.validity,
        })
    }

    /// READ_UPDATED_SAMPLING_MESSAGE: the latest message, if no process of the partition has read
    /// it at this port.
    ///
    /// # Errors
    /// [`Refusal::NoAction`] if it was read before, or nothing was ever written; else as
    /// [`read`](Self::read).
    #[inline]
    pub fn read_updated(&self) -> Result<M, Refusal> {
        let mut message = M::new_zeroed();
        let read = self.port.read_updated(message.as_mut_bytes())?;
        if read.updated != Updated::NewMessage {
            return Err(Refusal::NoAction);
        }
        whole::<M>(read.length)?;
        Ok(message)
    }
}

impl<M: Message> TypedQueuingSource<'_, M> {
    /// SEND_QUEUING_MESSAGE, with a time-out in ns (0 does not wait, [`crate::apex::INFINITE`]
    /// waits without limit).
    ///
    /// # Errors
    /// As [`QueuingSource::send`].
    pub fn send(&self, message: &M, time_out: SystemTime) -> Result<(), Refusal> {
        self.port.send(message.as_bytes(), time_out)
    }
}

impl<M: Message> TypedQueuingDestination<'_, M> {
    /// RECEIVE_QUEUING_MESSAGE, with a time-out in ns (0 does not wait, [`crate::apex::INFINITE`]
    /// waits without limit).
    ///
    /// # Errors
    /// As [`QueuingDestination::receive`]; [`Refusal::InvalidConfig`] for a message of another
    /// length, which is out of the queue then.
    pub fn receive(&self, time_out: SystemTime) -> Result<Received<M>, Refusal> {
        let mut message = M::new_zeroed();
        let received = self.port.receive(message.as_mut_bytes(), time_out)?;
        whole::<M>(received.length)?;
        Ok(Received {
            message,
            overflowed: received.overflowed,
        })
    }

    /// CLEAR_QUEUING_PORT.
    ///
    /// # Errors
    /// As [`QueuingDestination::clear`].
    pub fn clear(&self) -> Result<(), Refusal> {
        self.port.clear()
    }
}

/// Whether a message of `length_bytes` is an `M`.
#[inline]
fn whole<M>(length_bytes: usize) -> Result<(), Refusal> {
    if length_bytes == size_of::<M>() {
        Ok(())
    } else {
        Err(Refusal::InvalidConfig)
    }
}
