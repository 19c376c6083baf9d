//! The sending end of a sampling channel that writes a register in the receiver's port store.
//!
//! Contract: messages carry their source's numbers, which set the register's sequences
//! ([`crate::contract::LandingRegister`]); a message that is no newer than the one before is left
//! out. One message waits where the queue pair has no room, and a newer one replaces it. Made by
//! [`super::register`], used on a lane; nothing here blocks.

use std::os::fd::RawFd;

use busway_core::RemoteError;
use busway_core::register::{Layout, RegisterWriter, WriteError};

use super::access::Far;
use super::pipe::{Handle, Pipe};
use crate::contract::{ChannelError, Flushed, HEAD_BYTES, Head, Kind, Message, Refused, Sender, WaitFor};

/// See the module.
pub(super) struct RegisterSender<M> {
    far: Far,
    handle: Handle,
    /// Of the pipe that `handle` has.
    fd: RawFd,
    layout: Layout,
    start: u64,
    /// A number of the source, and the register's sequence that belongs to it.
    first: (u64, u64),
    /// The register's sequence written last.
    written: u64,
    /// Waits for room.
    pending: Option<M>,
    overwritten: u64,
    copied: u64,
}

impl<M: Message> RegisterSender<M> {
    /// Writes over the pipe of `handle`, whose descriptor is `fd`, a register of this shape and
    /// start. `first` is a number of the source with its sequence, both written already.
    pub(super) fn new(handle: Handle, fd: RawFd, register: (Layout, u64), first: (u64, u64)) -> Self {
        let (layout, start) = register;
        RegisterSender {
            far: Far::new(&handle, 0, layout.required_bytes()),
            handle,
            fd,
            layout,
            start,
            first,
            written: first.1,
            pending: None,
            overwritten: 0,
            copied: 0,
        }
    }

    /// Writes a message; `false` if there is no room now.
    fn write(&mut self, head: &Head, payload: &[u8]) -> Result<bool, ChannelError> {
        let (number, sequence) = self.first;
        let Some(ahead) = head.sequence.checked_sub(number).filter(|ahead| *ahead > 0) else {
            return Ok(true);
        };
        let sequence = sequence.wrapping_add(ahead);
        if sequence.wrapping_sub(self.written).cast_signed() <= 0 {
            return Ok(true);
        }
        let before = sequence.wrapping_sub(1);
        // Readers count on the index to be one behind before a slot is written.
        if before != self.written {
            match self.layout.prepare(&mut self.far, before) {
                Ok(()) => self.written = before,
                Err(error) => return self.without_room(error),
            }
        }
        let writer = RegisterWriter::resume(self.far.clone(), self.layout, self.start, before);
        let mut writer = writer.map_err(|_| ChannelError::Corrupt("a register shorter than its layout"))?;
        match writer.write(&[payload], head.time_ns) {
            Ok(sequence) => {
                self.written = sequence;
                self.copied += 1;
                Ok(true)
            }
            Err(WriteError::Remote(error)) => self.without_room(error),
            // The caller checks it: `send` refuses what is too long.
            Err(_) => Ok(true),
        }
    }

    fn without_room(&self, error: RemoteError) -> Result<bool, ChannelError> {
        match self.failure() {
            Some(failure) => Err(failure),
            None if error == RemoteError::Busy => Ok(false),
            None => Err(ChannelError::Corrupt("a write outside the register")),
        }
    }

    fn failure(&self) -> Option<ChannelError> {
        self.handle.with(|pipe| pipe.failure()).flatten()
    }

    fn is_behind(&self) -> bool {
        self.handle.with(|pipe| pipe.is_behind()).unwrap_or(false)
    }
}

impl<M: Message> Sender<M> for RegisterSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        if message.head().kind != Kind::Data || message.payload().len() > self.layout.max_size_bytes() {
            let limit_bytes = (HEAD_BYTES + self.layout.max_size_bytes()) as u64;
            return Err(Refused::TooLong { message, limit_bytes });
        }
        self.overwritten += u64::from(self.pending.take().is_some());
        match self.write(message.head(), message.payload()) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.pending = Some(message);
                Ok(())
            }
            Err(error) => Err(Refused::Failed(message, error)),
        }
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        self.handle.with(|pipe| {
            pipe.reap();
            pipe.post();
        });
        if let Some(message) = self.pending.take()
            && !self.write(message.head(), message.payload())?
        {
            self.pending = Some(message);
        }
        let is_waiting = self.pending.is_some() || self.is_behind();
        if is_waiting {
            self.handle.with(Pipe::wake_with_next_completion);
        }
        match self.failure() {
            Some(failure) => Err(failure),
            None if is_waiting => Ok(Flushed::Waiting),
            None => Ok(Flushed::Idle),
        }
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        self.pending.is_none() && !self.is_behind()
    }

    fn outstanding(&self) -> u64 {
        // Nobody acknowledges: the register has the message, or the channel fails.
        u64::from(self.pending.is_some())
    }

    fn overwritten(&self) -> u64 {
        self.overwritten
    }

    fn copied(&self) -> Option<u64> {
        Some(self.copied)
    }

    /// A queue pair that has ended is noticed by its completions.
    fn needs_flush(&self) -> bool {
        true
    }

    fn copy_out(&mut self, head: &Head, payload: &[u8]) -> Result<bool, ChannelError> {
        if payload.len() > self.layout.max_size_bytes() {
            return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput).into());
        }
        self.handle.with(|pipe| {
            pipe.reap();
            pipe.post();
        });
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        // Behind what waits for the device a message would only grow old.
        let is_out = !self.is_behind() && self.write(head, payload)? && !self.is_behind();
        match self.failure() {
            Some(failure) => Err(failure),
            None => Ok(is_out),
        }
    }

    /// The completion channel's: the lane's doorbell ends with the conversation.
    fn wait_for(&self) -> WaitFor {
        WaitFor::Fd {
            fd: self.fd,
            writable: false,
        }
    }
}
