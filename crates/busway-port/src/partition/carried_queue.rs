//! How a gateway takes the messages of a queue that leaves the host: it looks at them, and takes
//! them out once the other host has them.
//!
//! Contract: as [`super::queuing`]. Called by [`crate::carry`].

use busway_core::ring::Position;

use super::queuing::QueueReader;

/// Messages are compared in pieces of this length.
const PIECE_BYTES: usize = 1024;

impl QueueReader {
    /// Copies the message at `position`, or the first one, into `buffer`, which is as long as the
    /// longest, and leaves it in the queue. Returns its length in bytes, its source time in ns and
    /// the position behind it; `None` if there is none, or if the ring is damaged.
    pub(crate) fn look(
        &self,
        position: Option<Position>,
        buffer: &mut [u8],
    ) -> Option<(usize, i64, Position)> {
        let mut consumer = self.consumer_at(self.position_or(position))?;
        let message = consumer.peek().ok()??;
        consumer.copy(0, buffer.get_mut(..message.len_bytes)?).ok()?;
        consumer.release_later();
        Some((message.len_bytes, message.time_ns as i64, consumer.position()))
    }

    /// The position behind the message at `position`, or the first one, if it is `message` of
    /// `time_ns`.
    pub(crate) fn look_like(
        &self,
        position: Option<Position>,
        message: &[u8],
        time_ns: i64,
    ) -> Option<Position> {
        let mut consumer = self.consumer_at(self.position_or(position))?;
        let next = consumer.peek().ok()??;
        if next.len_bytes != message.len() || next.time_ns as i64 != time_ns {
            return None;
        }
        let mut piece = [0; PIECE_BYTES];
        for (index, part) in message.chunks(PIECE_BYTES).enumerate() {
            let piece = &mut piece[..part.len()];
            consumer.copy(index * PIECE_BYTES, piece).ok()?;
            if piece != part {
                return None;
            }
        }
        consumer.release_later();
        Some(consumer.position())
    }

    fn position_or(&self, position: Option<Position>) -> Position {
        position.unwrap_or_else(|| self.record().load())
    }

    /// Number of the message behind `position`, or of the first one, whether it is there or not.
    pub(crate) fn number_at(&self, position: Option<Position>) -> u64 {
        self.position_or(position).line.wrapping_add(1)
    }

    /// Takes `messages` out of the queue that were [`look`](Self::look)ed at, for the holder of the
    /// port's lock.
    pub(crate) fn skip(&self, messages: u64) {
        let Some(mut consumer) = self.consumer() else {
            return;
        };
        for _ in 0..messages {
            if !matches!(consumer.peek(), Ok(Some(_))) {
                break;
            }
            consumer.release_later();
        }
        self.record().store(consumer.position());
        let _ = consumer.flush_credits();
        self.wake();
    }

    /// Where the first message stands. Its line counts the messages taken so far.
    pub(crate) fn position(&self) -> Position {
        self.record().load()
    }
}
