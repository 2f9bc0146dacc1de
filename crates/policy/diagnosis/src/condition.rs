//! `when_response` of a flow: a condition that is evaluated once the response is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use egret_match::expression::{EXPRESSION_BODY_BYTES_MAX, Expression};

use crate::finished::Finished;

/// Maximum length of a JSON body that a condition reads, as sent. A longer one is `null`.
pub const CONDITION_BODY_BYTES_MAX: usize = 64 << 10;

/// The condition of one flow. For diagnoses it is evaluated on their own thread, over the record.
#[derive(Debug, Clone)]
pub struct ResponseCondition {
    expression: Expression<bool>,
    /// The flow's counter of conditions without a value.
    failures: Arc<AtomicU64>,
}

impl ResponseCondition {
    /// Creates a condition that counts its failures in `failures`.
    pub fn new(expression: Expression<bool>, failures: Arc<AtomicU64>) -> Self {
        Self { expression, failures }
    }

    /// Returns `true` if it reads a body.
    pub(crate) fn wants_bodies(&self) -> bool {
        self.expression.needs_request_body() || self.expression.needs_response_body()
    }

    /// Returns `true` if it reads the usage that a response reports.
    pub(crate) fn wants_usage(&self) -> bool {
        self.expression.needs_usage()
    }

    /// Number of bytes wanted from the beginning of a body with that media type.
    pub(crate) fn wanted_bytes(&self, media_type: &[u8]) -> usize {
        if self.wants_bodies() && egret_message::is_json(media_type) { CONDITION_BODY_BYTES_MAX } else { 0 }
    }

    /// Returns `true` if the exchange meets it. An expression without a value is not met, and is counted.
    pub(crate) fn is_met(&self, exchange: &Finished<'_>) -> bool {
        let bodies =
            if self.wants_bodies() { exchange.whole_bodies(EXPRESSION_BODY_BYTES_MAX) } else { [None, None] };
        let met = exchange.with_inputs(&bodies, |inputs| self.expression.evaluate(inputs));
        met.unwrap_or_else(|_| {
            self.count_failure();
            false
        })
    }

    /// The expression.
    pub fn expression(&self) -> &Expression<bool> {
        &self.expression
    }

    /// Counts an evaluation without a value.
    pub fn count_failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }
}
