//! `timeout`: limits the time that the provider may take, for the exchanges of one flow.

use std::task::{Context, Poll};

use egret_config::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::remedy::{CompileContext, Remedy, Step};

/// Time limits for the provider. A limit that is not set is taken from the provider's config. If several
/// flows set one, the shortest applies. A text alone is its `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[serde(rename = "short form: total")]
#[schemars(rename = "TimeoutConfig", transform = egret_config::or_text)]
pub struct TimeoutConfig {
    /// From the end of the request to the head of the response. A repeated call starts the limit again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Duration>,
    /// The whole exchange, from the first byte of the request to the last byte of the response, including
    /// waits and repeated calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Duration>,
}

/// Limits the time that the provider may take.
#[derive(Debug)]
pub struct Timeout {
    first_byte: Option<std::time::Duration>,
    total: Option<std::time::Duration>,
}

impl Remedy for Timeout {
    type Config = TimeoutConfig;
    type Run = ();

    fn compile(config: &TimeoutConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        if config.first_byte.is_none() && config.total.is_none() {
            context.problem("", "one of `first_byte` and `total` is required");
            return None;
        }
        for (key, limit) in [("first_byte", config.first_byte), ("total", config.total)] {
            if limit.is_some_and(Duration::is_zero) {
                context.problem(key, "must be greater than 0: leave the key out for no limit in this flow");
                return None;
            }
        }
        Some(Self {
            first_byte: config.first_byte.map(Duration::get),
            total: config.total.map(Duration::get),
        })
    }

    fn describe(&self) -> String {
        let limit =
            |name, limit: Option<std::time::Duration>| limit.map(|limit| format!("{name} within {limit:?}"));
        let limits = [limit("first byte", self.first_byte), limit("whole exchange", self.total)];
        limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn request(&self, exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        let call = &mut exchange.draft.call;
        call.first_byte = shorter(call.first_byte, self.first_byte);
        call.total = shorter(call.total, self.total);
        Poll::Ready(Step::Next)
    }
}

/// Returns the shorter of two limits. `None` means no limit.
pub(crate) fn shorter(
    one: Option<std::time::Duration>,
    other: Option<std::time::Duration>,
) -> Option<std::time::Duration> {
    one.into_iter().chain(other).min()
}
