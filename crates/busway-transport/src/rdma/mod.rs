//! RDMA: what the buses over it have in common, for RoCE, InfiniBand and iWARP.
//!
//! | module         | what it does                                        | runs on        |
//! |----------------|-----------------------------------------------------|----------------|
//! | `sys`          | libibverbs and librdmacm, opened at run time        | any            |
//! | `device`       | a device by its address; registered memory          | control thread |
//! | `domain`       | its protection domain                               | any            |
//! | `registration` | memory of messages, registered once                 | lanes          |
//! | `cm`           | connections and their events                        | control thread |
//! | `queue_pair`   | work requests and completions                       | lanes          |
//! | `completion`   | polls for completions, or sleeps until there is one | lanes          |
//! | `landing`      | what the hosts exchange to open a channel           | control thread |
//! | `lane`         | which lanes are about to sleep; wakes them          | both           |
//! | `opens`        | channels that are being opened                      | control thread |
//! | `link`         | the link: a TCP link's conversation, and channels   | control thread |
//! | `channel_kind` | how the two buses' channels differ                  | control thread |
//! | `write`        | the bus `rdma-write`: the remote-write protocols    | lanes          |
//! | `send`         | the bus `rdma-send`: SEND and RECV with credits     | lanes          |
//!
//! Nothing here is needed to build, and a process without an RDMA link never looks for a library.

pub(crate) mod channel_kind;
pub(crate) mod cm;
pub(crate) mod completion;
pub(crate) mod device;
mod domain;
pub(crate) mod error;
pub(crate) mod landing;
pub(crate) mod lane;
pub(crate) mod link;
mod opens;
pub(crate) mod queue_pair;
pub(crate) mod registration;
mod remembered;
pub mod send;
pub mod settings;
mod siw_gap;
mod sys;
pub mod write;

/// What this machine lacks for any bus over RDMA.
pub(crate) fn missing() -> Option<String> {
    if let Err(error) = sys::libraries() {
        return Some(error.to_string());
    }
    let has_device =
        std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    (!has_device).then(|| {
        "an RDMA device (`rdma link` lists them; `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0` makes one of a \
         network card)"
            .into()
    })
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_all(bytes: &[u8]) {
    crate::session::landing::decode_landing(bytes, landing::MAGIC);
    let _ = landing::Request::decode(bytes);
    let _ = send::layout::Layout::decode(bytes);
    let _ = write::decode_place(bytes);
    if let Some((first, rest)) = bytes.split_first_chunk::<{ send::wire::START_BYTES }>() {
        for len_bytes in [rest.len(), bytes.len(), usize::MAX] {
            let _ = send::wire::Piece::decode(first, len_bytes);
        }
    }
    if let Some((first, _)) = bytes.split_first_chunk::<{ send::wire::REPLY_BYTES }>() {
        let (last, sent) = (
            send::wire::Credit { freed: 1, taken: 1 },
            send::wire::Credit { freed: 9, taken: 9 },
        );
        for len_bytes in [send::wire::CREDIT_BYTES, first.len(), bytes.len()] {
            if let Ok(reply) = send::wire::Reply::decode(first, len_bytes, last, sent) {
                let credit = reply.credit;
                assert!((1..=9).contains(&credit.freed) && (1..=9).contains(&credit.taken));
            }
        }
    }
}
