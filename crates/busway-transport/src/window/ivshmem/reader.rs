//! Reads the 8-byte messages of an ivshmem server, some of which carry a descriptor.
//!
//! Contract: never blocks and never reads beyond a message, so a descriptor belongs to the message
//! that it came with. Partial messages are put together.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

const MESSAGE_BYTES: usize = 8;

/// What comes through a connection.
#[derive(Debug)]
pub(super) struct MessageReader {
    stream: OwnedFd,
    bytes: [u8; MESSAGE_BYTES],
    /// How many of them have come.
    come: usize,
    descriptor: Option<OwnedFd>,
}

impl MessageReader {
    pub(super) fn new(stream: OwnedFd) -> MessageReader {
        MessageReader {
            stream,
            bytes: [0; MESSAGE_BYTES],
            come: 0,
            descriptor: None,
        }
    }

    /// The next word, with its descriptor; `None` if none has come.
    ///
    /// # Errors
    /// The connection has ended, or what came is no word.
    pub(super) fn next(&mut self) -> Result<Option<(i64, Option<OwnedFd>)>, String> {
        while self.come < MESSAGE_BYTES {
            // Room for two, so that a second one is seen rather than cut off.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let heard = recvmsg(
                &self.stream,
                &mut [IoSliceMut::new(&mut self.bytes[self.come..])],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            );
            let heard = match heard {
                Ok(heard) => heard,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(format!("can't be heard any more ({errno})")),
            };
            for message in ancillary.drain() {
                let RecvAncillaryMessage::ScmRights(descriptors) = message else {
                    continue;
                };
                for descriptor in descriptors {
                    if self.descriptor.replace(descriptor).is_some() {
                        return Err("sends two descriptors with one word".into());
                    }
                }
            }
            if heard.flags.contains(ReturnFlags::CTRUNC) {
                return Err("sends more descriptors than there is room for; raise the limit of open files (ulimit -n)".into());
            }
            match heard.bytes {
                0 if self.come == 0 => return Err("has closed the connection".into()),
                0 => return Err("has closed the connection within a word".into()),
                bytes => self.come += bytes,
            }
        }
        self.come = 0;
        Ok(Some((i64::from_le_bytes(self.bytes), self.descriptor.take())))
    }
}
