//! The buses that exist. A new bus adds one line here.
