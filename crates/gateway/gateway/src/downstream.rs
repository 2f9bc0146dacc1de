//! The clients' side: their connections, and the requests on them.

pub(crate) mod connection;
pub(crate) mod intercept;
pub(crate) mod redirect;
pub(crate) mod serve;
