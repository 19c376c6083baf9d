//! Reading and writing without blocking, and errors that repeat.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::contract::{ChannelError, HEAD_BYTES};

/// Ends the stream of a channel that was closed in order. It is no head, since its kind is unknown.
pub(super) const END_MARK: [u8; HEAD_BYTES] = *b"the end of this busway channel, in good order\0\0\0";

/// Writes to a connection as much as fits; `None` if nothing does.
pub(crate) fn write(socket: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    not_now(rustix::net::sendmsg(
        socket,
        slices,
        &mut SendAncillaryBuffer::default(),
        flags,
    ))
}

/// The result of a call that does not block: `None` where it would have.
pub(crate) fn not_now(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    use rustix::io::Errno;
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same error again: an end that has failed keeps reporting why.
pub(crate) fn again(error: &ChannelError) -> ChannelError {
    match error {
        ChannelError::Closed => ChannelError::Closed,
        ChannelError::Corrupt(what) => ChannelError::Corrupt(what),
        ChannelError::Io(error) => ChannelError::Io(match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        }),
    }
}
