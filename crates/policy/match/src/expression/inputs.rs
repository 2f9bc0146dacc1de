//! The inputs of expressions: the names that they may use, and the values behind them.

use egret_clock::Timestamp;
use egret_config::suggest;
use egret_message::{Request, Response};

use super::error::ExpressionError;
use crate::parameters::Parameters;

/// Maximum length of a body that expressions can read. Reading a longer `request.body` is an error.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The names that expressions in one place of the config may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// `true` if there is a response when the expression is evaluated.
    pub has_response: bool,
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
        Some(ExpressionError { message, suggestion })
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
}
