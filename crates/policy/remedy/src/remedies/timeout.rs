//! `timeout`: limits the time that the provider may take, for the exchanges of one flow.

use std::task::{Context, Poll};

use egret_config::Duration;

use crate::exchange::Exchange;
use crate::remedy::{CompileContext, Remedy, Step};

egret_config::keys! {
    /// Time limits for the provider. A limit that is not set is taken from the provider's config. If several
    /// flows set one, the shortest applies. A text alone is its `total`.
    #[derive(Copy, Eq)]
    #[serde(rename = "short form: total")]
    #[schemars(rename = "TimeoutConfig", transform = egret_config::or_text)]
    pub struct TimeoutConfig {
        /// From the end of the request to the head of the response. A repeated call starts the limit again.
        pub first_byte: Option<Duration>,
        /// From the end of the request to the first event with content, if the response is a stream of events
        /// (`text/event-stream`). Comments, pings and events that announce a response are no content. The
        /// response is held back until then, so the call can be repeated or replaced.
        pub first_event: Option<Duration>,
        /// From one event with content to the next, in place of the provider's `timeouts.idle`. A stream that
        /// stalls is cut, because the client has a part of it already. So is one that the client does not
        /// read.
        pub stall: Option<Duration>,
        /// The whole exchange, from the first byte of the request to the last byte of the response, including
        /// waits and repeated calls.
        pub total: Option<Duration>,
    }
}

/// Limits the time that the provider may take.
#[derive(Debug)]
pub struct Timeout(TimeoutConfig);

impl TimeoutConfig {
    /// Returns the limits with their keys and what they are called in a sentence.
    fn limits(&self) -> [(&'static str, &'static str, Option<Duration>); 4] {
        [
            ("first_byte", "first byte", self.first_byte),
            ("first_event", "first event", self.first_event),
            ("stall", "next event", self.stall),
            ("total", "whole exchange", self.total),
        ]
    }
}

impl Remedy for Timeout {
    type Config = TimeoutConfig;
    type Run = ();

    fn compile(config: &TimeoutConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        if config.limits().iter().all(|(_, _, limit)| limit.is_none()) {
            context.problem("", "one of `first_byte`, `first_event`, `stall` and `total` is required");
            return None;
        }
        for (key, _, limit) in config.limits() {
            if limit.is_some_and(Duration::is_zero) {
                context.problem(key, "must be greater than 0: leave the key out for no limit in this flow");
                return None;
            }
        }
        Some(Self(*config))
    }

    fn describe(&self) -> String {
        let limits = self.0.limits().into_iter();
        let words = limits.filter_map(|(_, name, limit)| Some(format!("{name} within {:?}", limit?.get())));
        words.collect::<Vec<_>>().join(", ")
    }

    fn request(&self, exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        let call = &mut exchange.draft.call;
        for (limit, own) in [
            (&mut call.first_byte, self.0.first_byte),
            (&mut call.first_event, self.0.first_event),
            (&mut call.stall, self.0.stall),
            (&mut call.total, self.0.total),
        ] {
            *limit = shorter(*limit, own.map(Duration::get));
        }
        if self.0.first_event.is_some() || self.0.stall.is_some() {
            // The ends of events cannot be seen in a coded body.
            exchange.draft.request.set(b"accept-encoding", b"identity");
        }
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
