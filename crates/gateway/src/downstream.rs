//! The clients' side: their connections, and the requests on them.

pub(crate) mod connection;
