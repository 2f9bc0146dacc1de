//! One exchange: a request to a provider, and its response.

pub(crate) mod authenticate;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod echo;
pub(crate) mod flows;
pub(crate) mod forward;
pub(crate) mod gather;
pub(crate) mod hedge;
pub(crate) mod named_fields;
pub(crate) mod pace;
pub(crate) mod rewrite;
pub(crate) mod route;
pub(crate) mod routing_fields;
pub(crate) mod state;
pub(crate) mod stored;
pub(crate) mod target;
pub(crate) mod timing;
pub(crate) mod tunnel;
pub(crate) mod upgrade;
pub(crate) mod via;
