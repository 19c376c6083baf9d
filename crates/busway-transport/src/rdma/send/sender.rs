//! The sending end as its lane sees it: a [`Stream`], until it is dropped.
//!
//! Contract: see [`Sender`]. A dropped end whose last messages have not arrived leaves its stream
//! to the link. Used by one lane.

use std::sync::Arc;

use super::layout::Layout;
use super::stream::Stream;
use crate::contract::{ChannelError, Flushed, Keep, Message, Refused, Sender, WaitFor};
use crate::rdma::error::RdmaError;
use crate::rdma::lane::Lane;
use crate::rdma::queue_pair::QueuePair;
use crate::session::mailbox::{DroppedSenders, Linger};

/// The sending end of a channel.
pub(super) struct SendSender<M: Message> {
    /// `None` only after `drop` took it.
    stream: Option<Stream<M>>,
    /// Where the stream goes when this end is dropped before everything has arrived.
    dropped: Arc<DroppedSenders>,
}

impl<M: Message> SendSender<M> {
    /// See [`Stream::new`].
    pub(super) fn new(
        pair: Arc<QueuePair>,
        layout: Layout,
        keep: Keep,
        zero_copy_from_bytes: usize,
        lane: Arc<Lane>,
        dropped: Arc<DroppedSenders>,
    ) -> Result<Self, RdmaError> {
        Ok(SendSender {
            stream: Some(Stream::new(pair, layout, keep, zero_copy_from_bytes, lane)?),
            dropped,
        })
    }

    fn stream(&mut self) -> &mut Stream<M> {
        self.stream.as_mut().expect("only drop takes the stream")
    }
}

impl<M: Message> Sender<M> for SendSender<M> {
    fn send(&mut self, message: M) -> Result<(), Refused<M>> {
        self.stream().send(message)
    }

    fn flush(&mut self) -> Result<Flushed, ChannelError> {
        self.stream().flush()
    }

    fn has_room(&mut self, _total_bytes: u64) -> bool {
        self.stream().has_room()
    }

    fn outstanding(&self) -> u64 {
        self.stream
            .as_ref()
            .map_or(0, |stream| stream.outstanding() + u64::from(stream.has_pending()))
    }

    fn overwritten(&self) -> u64 {
        self.stream.as_ref().map_or(0, Stream::overwritten)
    }

    fn copied(&self) -> Option<u64> {
        self.stream.as_ref().map(Stream::copied)
    }

    fn wait_for(&self) -> WaitFor {
        WaitFor::Doorbell
    }
}

impl<M: Message> Drop for SendSender<M> {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        stream.take_last();
        if !stream.pump() {
            self.dropped.put(Box::new(stream));
        }
    }
}
