//! One exchange: a request to a provider, and its response.

pub(crate) mod call;
pub(crate) mod connect;
pub(crate) mod credentials;
pub(crate) mod endpoint;
pub(crate) mod fill;
pub(crate) mod flows;
pub(crate) mod forward;
pub(crate) mod gather;
pub(crate) mod grpc;
pub(crate) mod hedge;
pub(crate) mod identity;
pub(crate) mod reply;
pub(crate) mod rewritten;
pub(crate) mod route;
pub(crate) mod serve;
pub(crate) mod stop;
pub(crate) mod stored;
pub(crate) mod stream;
pub(crate) mod tunnel;
