//! One exchange: a request to a provider, and its response.

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod changes;
pub(crate) mod close;
pub(crate) mod credentials;
pub(crate) mod flow_run;
pub(crate) mod flows;
pub(crate) mod follow_up;
pub(crate) mod forward;
pub(crate) mod gather;
pub(crate) mod gathered;
pub(crate) mod hedge;
pub(crate) mod hedge_order;
pub(crate) mod mask;
pub(crate) mod reply;
pub(crate) mod route;
pub(crate) mod serve;
pub(crate) mod slot;
pub(crate) mod state;
pub(crate) mod stored;
pub(crate) mod target;
pub(crate) mod timing;
pub(crate) mod tunnel;
