//! The costs of calls, by one kind of names: the sums of the diagnoses `ledger`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use egret_clock::{Clock, Moment, Timestamp};
use egret_diagnosis::{SpendBy, SpendRange, SpendSum, SpendSums};
use egret_flow::{FlowStats, FlowsSnapshot};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::source::Source;

/// The key of the diagnosis that sums costs.
const LEDGER: &str = "ledger";

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SpendQuery {
    /// Kind of names: `consumer`, the default, `model`, `provider`, `flow` or `label.NAME`.
    by: Option<String>,
    /// Time that is summed.
    range: SpendRange,
}

/// The response of `/api/v1/spend`.
#[derive(Debug, Serialize)]
struct SpendView<'a> {
    by: &'a str,
    range: SpendRange,
    /// `true` if a flow has a ledger, so that costs are summed.
    has_ledger: bool,
    /// Time of the first call that was summed, in microseconds since the epoch.
    since_us: Option<u64>,
    /// Labels that there are sums by.
    labels: Vec<String>,
    /// The names with the highest costs first.
    rows: Vec<NamedSum>,
    /// All names without a row. With the rows, it makes `total`.
    other: SpendSum,
    total: SpendSum,
}

/// The costs of a name.
#[derive(Debug, Serialize)]
struct NamedSum {
    name: String,
    #[serde(flatten)]
    sum: SpendSum,
}

/// Responds with the costs of calls by one kind of names.
pub(crate) async fn spend(
    State(source): State<Arc<dyn Source>>,
    query: Result<Query<SpendQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let wrong = || {
        let detail = "`by` is `consumer`, `model`, `provider`, `flow` or `label.NAME`, and `range` is `hour`, `day` or `month`";
        Problem::new(StatusCode::BAD_REQUEST, detail)
    };
    let Query(SpendQuery { by, range }) = query.map_err(|_| wrong())?;
    let by = by.as_deref().unwrap_or("consumer");
    let names = names(by).ok_or_else(wrong)?;
    let FlowsSnapshot { flows, spend, .. } = source.flows(0);
    let now = Clock::new().timestamp(Moment::now());
    let sums = spend.sums(now, &names, range).ok_or_else(|| {
        let detail =
            "there are no sums by this label: `labels` of the response without `by` lists the labels, at most eight";
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    let SpendSums { since, labels, rows, other, total } = sums;
    let rows = rows.into_iter().map(|(name, sum)| NamedSum { name, sum });
    let view = SpendView {
        by,
        range,
        has_ledger: flows.iter().any(has_ledger),
        since_us: since.map(Timestamp::as_micros),
        labels,
        rows: rows.collect(),
        other,
        total,
    };
    Ok(Json(view).into_response())
}

fn names(by: &str) -> Option<SpendBy> {
    Some(match by {
        "consumer" => SpendBy::Consumer,
        "model" => SpendBy::Model,
        "provider" => SpendBy::Provider,
        "flow" => SpendBy::Flow,
        _ => SpendBy::Label(by.strip_prefix("label.")?.to_owned()),
    })
}

fn has_ledger(flow: &FlowStats) -> bool {
    flow.diagnoses.iter().any(|stats| stats.diagnosis.starts_with(LEDGER))
}
