//! RDMA: what the buses over it have in common, for RoCE, InfiniBand and iWARP.
//!
//! | module         | what it does                                                             | runs on        |
//! |----------------|--------------------------------------------------------------------------|----------------|
//! | `sys`        | libibverbs and librdmacm, opened at run time                             | any            |
//! | [`device`]     | a device by its address; registered memory                               | control thread |
//! | [`cm`]         | connections and their events                                             | control thread |
//! | [`queue_pair`] | work requests and completions                                            | lanes          |
//! | [`completion`] | polling them, or sleeping for them                                       | lanes          |
//!
//! Nothing here is needed to build, and a process without an RDMA link never looks for a library.

pub mod cm;
pub mod completion;
pub mod device;
pub mod error;
pub mod queue_pair;
mod sys;
