//! What links of several buses do alike while channels are opened and closed; all of it runs on a
//! link's control thread.

pub(crate) mod landing;
pub(crate) mod mailbox;
pub(crate) mod poller;
pub(crate) mod token;
