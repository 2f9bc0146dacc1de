//! Workers: threads that carry traffic, each with its own event loop, connections, pools, timers and counters.

pub(crate) mod acceptor;
pub(crate) mod local;
pub(crate) mod run;
pub(crate) mod view;
