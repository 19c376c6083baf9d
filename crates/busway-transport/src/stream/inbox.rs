//! What a link of connections is handed by its listener and by the ends of its channels.

use super::opening::Opening;
use crate::session::mailbox::{Linger, Mailbox};

/// One item of an [`Inbox`].
pub(super) enum Incoming<S> {
    /// A connection whose first bytes say that it is for this link.
    Opened(S, Opening),
    /// A stream that outlives its channel end: kept until the peer has it all.
    Linger(Box<dyn Linger>),
}

/// Read by the link, written by any thread.
pub(super) type Inbox<S> = Mailbox<Incoming<S>>;
