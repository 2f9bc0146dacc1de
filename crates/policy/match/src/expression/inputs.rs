//! The inputs of expressions: the names that they may use, and the values behind them.

use egret_clock::Timestamp;
use egret_config::suggest;
use egret_message::{Request, Response};
use egret_usage::UsageRecord;

use super::error::ExpressionError;
use crate::parameters::Parameters;

/// Maximum length of a body that expressions can read. Reading a longer `request.body` is an error.
pub const EXPRESSION_BODY_BYTES_MAX: usize = 1 << 20;

/// The moment at which an expression is evaluated. Each one knows more than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stage {
    /// Before the call: the request is known.
    #[default]
    Request,
    /// The head of the response is known: its status and its header fields.
    ResponseHead,
    /// The body of the response is known too, as far as it is received before it is forwarded.
    Response,
    /// The response has come to its end: its usage is known.
    ResponseEnd,
    /// The exchange is over: its durations and its error are known.
    Finished,
}

impl Stage {
    /// Returns the stage of an expression that is evaluated after a response or a failure if `has_response`,
    /// and before the call otherwise.
    pub fn after_response(has_response: bool) -> Self {
        if has_response { Self::Response } else { Self::Request }
    }

    /// Explains why an expression of this stage cannot use a variable of a later one.
    pub(super) fn limitation(self) -> &'static str {
        match self {
            Self::Request => "this expression is evaluated before the call",
            Self::ResponseHead => {
                "this expression is evaluated when only the status and the header fields of the response are \
                 known"
            }
            Self::Response | Self::ResponseEnd | Self::Finished => {
                "this expression is evaluated before the exchange has ended"
            }
        }
    }
}

/// The names that expressions in one place of the config may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// The moment of the evaluation.
    pub stage: Stage,
    /// Parameters captured by the paths and hosts of the flow's match; for quotas, those of all flows.
    pub parameters: &'a [&'a str],
}

impl Scope<'_> {
    /// Returns an error if neither a path nor a host captures the parameter `name`.
    pub fn missing_parameter(&self, name: &str) -> Option<ExpressionError> {
        if self.parameters.contains(&name) {
            return None;
        }
        let message = format!("no path or host of a match here has a parameter `{{{name}}}`");
        let suggestion = suggest(name, self.parameters.iter().copied()).map(str::to_owned);
        Some(ExpressionError { suggestion, ..ExpressionError::new(message) })
    }
}

/// The inputs of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The response, if there is one.
    pub response: Option<&'a Response<'a>>,
    /// Parameters captured by the flow's path and host.
    pub parameters: Parameters<'a>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The current time.
    pub now: Timestamp,
    /// The usage that the response has reported. `None` if it was not read.
    pub usage: Option<&'a UsageRecord>,
    /// The facts about the exchange that are known once it is over.
    pub ended: Option<Ended<'a>>,
}

/// Facts about an exchange that is over.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ended<'a> {
    /// Time that the client waited for the end of the response, in milliseconds.
    pub duration_ms: f64,
    /// Time from the end of the request until the first byte of the provider's response, in milliseconds; 0
    /// if no provider was called.
    pub provider_ms: f64,
    /// Slug of the error that Egret responded with; empty if there is none.
    pub error: &'a str,
    /// `true` if Egret made the response itself.
    pub is_generated: bool,
    /// Name of the status of the gRPC call, such as `unavailable`; empty if it is none or has no status.
    pub grpc_status: &'a str,
}
