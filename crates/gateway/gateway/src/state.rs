//! The plain data of one exchange, which its steps fill and read in turn.

pub(crate) mod changes;
pub(crate) mod flow_run;
pub(crate) mod follow_up;
pub(crate) mod request;
