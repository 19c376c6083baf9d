//! The link tolerance: the silence after which the kernel declares the links to a node lost.
//!
//! TIPC keeps it for a link, not a connection. So it can be set only once the peer's node is known,
//! and all connections to that node share it. An ioctl gives the names of the links (linux/tipc.h);
//! generic netlink sets the tolerance (linux/tipc_netlink.h), and the kernel answers before the
//! send returns. Called by the bus when a conversation has come up; control thread.
#![allow(unsafe_code)] // An ioctl that no library knows.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// `SIOCGETLINKNAME`: `SIOCPROTOPRIVATE` of linux/sockios.h.
const GET_LINK_NAME: libc::Ioctl = 0x89e0;
/// `TIPC_MAX_LINK_NAME`, its terminating zero included.
const MAX_LINK_NAME: usize = 68;
/// Links to one node at most: one a bearer (`MAX_BEARERS` in net/tipc/core.h).
const MAX_BEARERS: u32 = 3;

/// From linux/netlink.h and linux/genetlink.h.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;
const HEADER_BYTES: usize = 16;
const GENERIC_HEADER_BYTES: usize = 4;
/// The controller of the generic families, its command to name one, and two attributes of that.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// From linux/tipc_netlink.h: `TIPC_NL_LINK_SET`, and the attributes of a link's properties.
const FAMILY: &[u8] = b"TIPCv2\0";
const SET_LINK: u8 = 9;
const LINK: u16 = 4;
const LINK_NAME: u16 = 1;
const LINK_PROPERTIES: u16 = 7;
const TOLERANCE: u16 = 2;

/// `struct tipc_sioc_ln_req`.
#[repr(C)]
struct LinkNameRequest {
    peer: u32,
    bearer: u32,
    name: [u8; MAX_LINK_NAME],
}

/// Sets the tolerance of all links to a node. `tipc_socket` is any TIPC socket. Two hosts on one
/// node have no link; then it does nothing.
///
/// # Errors
/// The kernel refuses: [`io::ErrorKind::PermissionDenied`] without the capability `CAP_NET_ADMIN`.
pub(super) fn set(tipc_socket: BorrowedFd<'_>, node: u32, tolerance: Duration) -> io::Result<()> {
    let names: Vec<Vec<u8>> = (0..MAX_BEARERS)
        .filter_map(|bearer| link_name(tipc_socket, node, bearer))
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::GENERIC),
    )?;
    let ask = |request: &[u8]| -> io::Result<Vec<u8>> {
        rustix::net::send(&kernel, request, SendFlags::empty())?;
        let mut answer = vec![0; 8192];
        let (bytes, _) = rustix::net::recv(&kernel, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(bytes);
        Ok(answer)
    };
    let family = ask(&message(
        CONTROLLER,
        REQUEST,
        GET_FAMILY,
        &attribute(FAMILY_NAME, FAMILY),
    ))?;
    let family = family_id(&family)?;
    let millis = u32::try_from(tolerance.as_millis()).unwrap_or(u32::MAX);
    for name in names {
        let properties = attribute(TOLERANCE, &millis.to_ne_bytes());
        let link = [
            attribute(LINK_NAME, &name),
            attribute(LINK_PROPERTIES | NESTED, &properties),
        ]
        .concat();
        let request = message(
            family,
            REQUEST | ACKNOWLEDGE,
            SET_LINK,
            &attribute(LINK | NESTED, &link),
        );
        acknowledged(&ask(&request)?)?;
    }
    Ok(())
}

/// Name of the link to a node over one bearer, with its terminating zero; `None` if there is none.
fn link_name(tipc_socket: BorrowedFd<'_>, peer: u32, bearer: u32) -> Option<Vec<u8>> {
    let mut request = LinkNameRequest {
        peer,
        bearer,
        name: [0; MAX_LINK_NAME],
    };
    // SAFETY: the descriptor is borrowed and thus open; the kernel reads and writes no more than
    // the request, whose layout is that of the header's structure, and any bytes that it writes
    // make one.
    let result = unsafe { libc::ioctl(tipc_socket.as_raw_fd(), GET_LINK_NAME, &raw mut request) };
    let end = request.name.iter().position(|byte| *byte == 0)?;
    (result == 0 && end > 0).then(|| request.name[..=end].to_vec())
}

/// A generic netlink message.
fn message(family: u16, flags: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + GENERIC_HEADER_BYTES + attributes.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(family.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and sender: one question at a time needs neither.
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attributes);
    bytes
}

/// A netlink attribute, padded to 4 bytes.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 7);
    bytes.extend(((content.len() + 4) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The number of a family in the controller's answer.
fn family_id(answer: &[u8]) -> io::Result<u16> {
    if kind_of(answer) == Some(ERROR) {
        acknowledged(answer)?;
    }
    let mut rest = answer.get(HEADER_BYTES + GENERIC_HEADER_BYTES..).unwrap_or(&[]);
    while let [l0, l1, k0, k1, content @ ..] = rest {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let content_bytes = length.saturating_sub(4);
        if u16::from_ne_bytes([*k0, *k1]) == FAMILY_ID
            && let Some([low, high]) = content.get(..content_bytes)
        {
            return Ok(u16::from_ne_bytes([*low, *high]));
        }
        // An attribute shorter than its own head would never end.
        rest = content.get(content_bytes.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Err(io::Error::other(
        "the kernel named no generic netlink family of TIPC",
    ))
}

/// The result in an acknowledgement.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let code = answer
        .get(HEADER_BYTES..HEADER_BYTES + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind_of(answer), code) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(io::Error::other("the kernel's answer is no acknowledgement")),
    }
}

fn kind_of(answer: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_say_their_length_without_the_padding() {
        assert_eq!(
            attribute(2, b"abc\0d"),
            [9, 0, 2, 0, b'a', b'b', b'c', 0, b'd', 0, 0, 0]
        );
    }

    #[test]
    fn the_family_is_found_behind_other_attributes() {
        let attributes = [
            attribute(FAMILY_NAME, FAMILY),
            attribute(FAMILY_ID, &27u16.to_ne_bytes()),
            attribute(5, &[0; 4]),
        ]
        .concat();
        assert_eq!(
            family_id(&message(CONTROLLER, 0, 1, &attributes)).expect("it is there"),
            27
        );
    }

    #[test]
    fn an_answer_of_any_length_and_content_ends() {
        let whole = message(
            CONTROLLER,
            0,
            1,
            &[attribute(1, &[7, 0]), vec![0; 40], vec![0xff; 40]].concat(),
        );
        for end in 0..whole.len() {
            let _ = acknowledged(&whole[..end]);
            let mut damaged = whole[..end].to_vec();
            if let Some(byte) = damaged.get_mut(20) {
                *byte = 0;
            }
            let _ = family_id(&damaged);
        }
        assert!(family_id(&[]).is_err());
    }

    #[test]
    fn a_refusal_is_the_errors_number() {
        let mut answer = message(ERROR, 0, 0, &[]);
        answer[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        let error = acknowledged(&answer).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
