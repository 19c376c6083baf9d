//! What can go wrong with RDMA before a channel stands, in words that name the mend.

use std::io;
use std::net::IpAddr;

use crate::contract::OpenError;

/// Why something of RDMA could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// A library is not installed.
    #[error("{library} is not installed ({why}): apt install libibverbs1 librdmacm1 ibverbs-providers")]
    Missing {
        /// Its file name.
        library: &'static str,
        /// The loader's error.
        why: String,
    },
    /// The kernel has no RDMA, or no device.
    #[error(
        "this host has no RDMA ({error}): `modprobe rdma_ucm`; `rdma link` lists devices, and `modprobe rdma_rxe; rdma link add \
         rxe0 type rxe netdev eth0` makes one of a network card without RDMA"
    )]
    NoRdma {
        /// The system's error.
        error: io::Error,
    },
    /// No device of this host has the address.
    #[error(
        "no RDMA device of this host has the address {address} ({error}): `rdma link` lists them; for a network card without \
         RDMA, `rdma link add rxe0 type rxe netdev eth0` makes one"
    )]
    NoDevice {
        /// The address asked for.
        address: IpAddr,
        /// The system's error.
        error: io::Error,
    },
    /// Memory could not be registered.
    #[error(
        "{len_bytes} bytes could not be registered with the RDMA device ({error}): raise the limit of locked memory (`ulimit -l`, \
         `LimitMEMLOCK=` of systemd)"
    )]
    Registration {
        /// How many.
        len_bytes: usize,
        /// The system's error.
        error: io::Error,
    },
    /// This host can't wait for connections of channels.
    #[error("this host can't listen on {address} over RDMA: {error}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// A call failed.
    #[error("{call} failed: {error}")]
    Call {
        /// The library's function.
        call: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl RdmaError {
    /// The last call of this function set `errno`.
    pub(super) fn last(call: &'static str) -> RdmaError {
        RdmaError::Call {
            call,
            error: io::Error::last_os_error(),
        }
    }

    /// A verb that returns its error code.
    pub(super) fn code(call: &'static str, code: i32) -> RdmaError {
        RdmaError::Call {
            call,
            error: io::Error::from_raw_os_error(code),
        }
    }

    /// Whether a call found an address or a port taken.
    pub(super) fn is_address_in_use(&self) -> bool {
        matches!(self, RdmaError::Call { error, .. } if error.kind() == io::ErrorKind::AddrInUse)
    }
}

impl From<RdmaError> for OpenError {
    fn from(error: RdmaError) -> OpenError {
        OpenError::NoRoom(error.to_string())
    }
}

impl From<RdmaError> for io::Error {
    fn from(error: RdmaError) -> io::Error {
        match error {
            RdmaError::Call { error, .. } => error,
            error => io::Error::other(error.to_string()),
        }
    }
}

/// Why a work request was not taken.
#[derive(Debug)]
pub(crate) enum PostError {
    /// The queue has no room: try again after a completion.
    Full,
    /// The queue pair has failed.
    Failed(io::Error),
}

impl PostError {
    /// From what a posting verb returned.
    pub(super) fn code(code: i32) -> PostError {
        // Some drivers return -1 with `errno` set, most the code itself.
        let error = if code < 0 {
            io::Error::last_os_error()
        } else {
            io::Error::from_raw_os_error(code)
        };
        if error.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error()) {
            PostError::Full
        } else {
            PostError::Failed(error)
        }
    }
}

impl From<PostError> for io::Error {
    fn from(error: PostError) -> io::Error {
        match error {
            PostError::Full => io::Error::other("the queue pair takes no more work than it has"),
            PostError::Failed(error) => error,
        }
    }
}

impl From<PostError> for RdmaError {
    fn from(error: PostError) -> RdmaError {
        RdmaError::Call {
            call: "posting work to a new queue pair",
            error: error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_one_line_that_names_it_and_what_installs_it() {
        #[allow(unsafe_code)]
        // SAFETY: there is no such library, so none of its code runs.
        let why = match unsafe { libloading::Library::new("libbusway-no-such-library.so.1") } {
            Ok(_) => unreachable!("no system has it"),
            Err(error) => error.to_string(),
        };
        let line = RdmaError::Missing {
            library: "libibverbs.so.1",
            why,
        }
        .to_string();
        assert!(line.starts_with("libibverbs.so.1 is not installed"), "{line}");
        assert!(line.contains("apt install libibverbs1"), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
