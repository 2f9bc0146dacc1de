//! The primitives of state that threads share. `tests/loom` has loom's in their place, and so runs the files
//! that use them in all orders that the memory model allows.

pub(crate) use std::sync::atomic::AtomicU64;

pub(crate) use parking_lot::Mutex;
