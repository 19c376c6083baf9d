//! What links of several buses do alike while channels are opened and closed; all of it runs on a
//! link's control thread.

pub(crate) mod attic;
pub(crate) mod landing;
