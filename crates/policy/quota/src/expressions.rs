//! The expressions of a quota: the group of a call, and its cost.

use egret_config::Problem;
use egret_match::expression::{Expression, ExpressionError, ExpressionValue, Scope, Stage};

use super::config::{GroupBy, QuotaConfig};

/// The expressions of a quota. They see the path parameters of the flow whose remedy draws; parameters that
/// it does not have are empty.
#[derive(Debug, Clone, Default)]
pub struct QuotaExpressions {
    /// The group of a call, from its request.
    pub group: Option<Expression<String>>,
    /// The units charged before a call, from its request; one unit without an expression.
    pub request_cost: Option<Expression<u64>>,
    /// The actual cost of a call, from its response.
    pub response_cost: Option<Expression<u64>>,
}

impl QuotaExpressions {
    /// Compiles the expressions of the quota at `path`, which may use `parameters`. Wrong ones are left out
    /// and reported as problems.
    pub(super) fn compile(
        config: &QuotaConfig,
        parameters: &[&str],
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut report = |error: ExpressionError, key: &str| problems.push(error.at(format!("{path}.{key}")));
        let group = match &config.group_by {
            Some(GroupBy::Cel(source)) => Some(source.as_str()),
            _ => None,
        };
        let (before, after) =
            (Scope { stage: Stage::Request, parameters }, Scope { stage: Stage::ResponseEnd, parameters });
        let (request, response) = (config.cost.request.as_deref(), config.cost.response.as_deref());
        Self {
            group: compile(group, before, |error| report(error, "group_by")),
            request_cost: compile(request, before, |error| report(error, "cost.request")),
            response_cost: compile(response, after, |error| report(error, "cost.response")),
        }
    }
}

fn compile<T: ExpressionValue>(
    source: Option<&str>,
    scope: Scope<'_>,
    report: impl FnOnce(ExpressionError),
) -> Option<Expression<T>> {
    Expression::compile(source?, scope).map_err(report).ok()
}
