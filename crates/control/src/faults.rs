//! Faults: their list, and their switches. A switch can let calls fail, so it needs a token that does not
//! only read.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use egret_clock::Timestamp;
use egret_config::Duration;
use egret_flow::{FlowStats, RemedyStats};
use egret_remedy::{FaultKind, FaultSnapshot, FaultSwitch};
use serde::{Deserialize, Serialize};

use crate::config::ConfigChanges;
use crate::problem::Problem;
use crate::source::Source;

/// Switches of faults, with the data behind them.
#[derive(Clone)]
pub(crate) struct Faults {
    source: Arc<dyn Source>,
    /// `true` if the token only reads.
    is_off: bool,
}

/// The query parameters of a switch.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SwitchQuery {
    /// The flow; all flows without it.
    flow: Option<String>,
    /// The fault in it; all of them without it.
    remedy: Option<String>,
    /// Time for which the faults are on.
    #[serde(rename = "for")]
    time: Option<String>,
}

/// The result of a switch.
#[derive(Debug, Serialize)]
pub(crate) struct Switched {
    /// Number of faults that were switched.
    switched: usize,
}

/// A fault: an entry of `/api/v1/faults`, and the member `fault` of a remedy.
#[derive(Debug, Serialize)]
pub(crate) struct FaultView {
    /// `on`, `off`, or `ended` if it is switched on and its end has passed.
    state: &'static str,
    /// The end, in microseconds since the epoch.
    until_us: Option<u64>,
    /// Number of injected failures by kind.
    injected: BTreeMap<&'static str, u64>,
}

/// A fault with its place.
#[derive(Debug, Serialize)]
struct PlacedFault<'a> {
    flow: &'a str,
    remedy: &'a str,
    does: &'a str,
    #[serde(flatten)]
    fault: FaultView,
}

impl From<FaultSnapshot> for FaultView {
    fn from(FaultSnapshot { is_active, is_on, end, counts }: FaultSnapshot) -> Self {
        let state = match (is_on, is_active) {
            (true, true) => "on",
            (true, false) => "ended",
            (false, _) => "off",
        };
        let injected = FaultKind::ALL.iter().map(|kind| kind.word()).zip(counts).collect();
        Self { state, until_us: end.map(Timestamp::as_micros), injected }
    }
}

impl Faults {
    pub(crate) fn new(source: Arc<dyn Source>, changes: ConfigChanges) -> Self {
        Self { source, is_off: changes == ConfigChanges::Off }
    }

    fn switch(&self, query: &SwitchQuery, switch: FaultSwitch) -> Result<Json<Switched>, Problem> {
        if self.is_off {
            let detail = "the token only reads: `control.config_changes` is `off`, so no fault is switched";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        let SwitchQuery { flow, remedy, .. } = query;
        let switched = self.source.switch_faults(flow.as_deref(), remedy.as_deref(), switch);
        let switched =
            switched.map_err(|unknown| Problem::new(StatusCode::NOT_FOUND, unknown.to_string()))?;
        tracing::warn!(flow, remedy, ?switch, switched, "switched faults");
        Ok(Json(Switched { switched }))
    }
}

/// Lists the faults of all flows.
pub(crate) async fn list(State(faults): State<Faults>) -> Json<serde_json::Value> {
    let flows = faults.source.flows(0).flows;
    let listed: Vec<PlacedFault<'_>> = flows.iter().flat_map(of_flow).collect();
    Json(serde_json::json!({ "faults": listed }))
}

fn of_flow(flow: &FlowStats) -> impl Iterator<Item = PlacedFault<'_>> {
    let place = |remedy: &RemedyStats| remedy.state.fault;
    flow.remedies.iter().filter_map(move |stats| {
        let fault = place(stats)?.into();
        Some(PlacedFault { flow: &flow.name, remedy: &stats.remedy, does: &stats.description, fault })
    })
}

/// Switches faults on: those of a flow, which must be named.
pub(crate) async fn on(
    State(faults): State<Faults>,
    query: Result<Query<SwitchQuery>, QueryRejection>,
) -> Result<Json<Switched>, Problem> {
    let wrong = |detail: &'static str| Problem::new(StatusCode::BAD_REQUEST, detail);
    let named = "name the faults with `flow`, and `remedy` if it is one of several; `for` is the time until they end, like `10m`";
    let Query(query) = query.map_err(|_| wrong(named))?;
    if query.flow.is_none() {
        return Err(wrong(named));
    }
    let time = query.time.as_deref().map(str::parse::<Duration>).transpose();
    let time = time.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("`for`: {error}")))?;
    if time.is_some_and(Duration::is_zero) {
        return Err(wrong("`for` must be greater than 0; `/api/v1/faults/off` ends a fault"));
    }
    faults.switch(&query, FaultSwitch::On(time.map(Duration::get)))
}

/// Switches faults off: those of a flow, or all.
pub(crate) async fn off(
    State(faults): State<Faults>,
    query: Result<Query<SwitchQuery>, QueryRejection>,
) -> Result<Json<Switched>, Problem> {
    let detail = "the only parameters are `flow` and `remedy`; without them, all faults are switched off";
    let wrong = || Problem::new(StatusCode::BAD_REQUEST, detail);
    let Query(query) = query.map_err(|_| wrong())?;
    if query.time.is_some() {
        return Err(wrong());
    }
    faults.switch(&query, FaultSwitch::Off)
}
