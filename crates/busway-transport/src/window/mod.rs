//! Links through two windows of memory, one for each direction: the engine of the buses `memory`
//! and `pci`.
//!
//! One host writes a window and the other reads it. So a window may lie behind a bus over which
//! reading is slow or impossible, and its reader may map it read-only. A bus defines its keys in
//! the system file as a [`settings::Table`].
//!
//! ```text
//! link ── conversation ── control_stream            control thread
//!   │          ├── landings ── landing_place
//!   │          └── crate::remote_write ── channel_access ── write_permission, doorbell ── armed
//!   ├── header, layout                              lanes
//!   └── mapping ── source ── pci, ivshmem
//! ```

pub mod ivshmem;
pub mod medium;
pub mod pci;
pub mod region;
pub mod settings;
pub mod source;

mod armed;
mod channel_access;
mod control_stream;
mod conversation;
mod doorbell;
mod header;
mod landing_place;
mod landings;
mod layout;
mod link;
mod mapping;
mod register;
mod set_aside;
mod sync;
mod write_permission;

pub use link::WindowLink;

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn decode_place(bytes: &[u8]) {
    let layout = layout::WindowLayout::new(1 << 20).expect("long enough");
    if let Ok(place) = landing_place::LandingPlace::decode(bytes)
        && let Ok((parts, at)) = place.check(&layout)
    {
        assert!(at + parts.total_bytes <= 1 << 20, "a place outside its window");
    }
}
