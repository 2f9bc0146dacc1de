//! The paths of the control port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::rand;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router, middleware};
use egret_cache::label_of;
use egret_diagnosis::propose;
use egret_observe::stats::{BOUNDS_US, HistogramSnapshot, StatsSnapshot};
use egret_store::entries::Purge;
use egret_store::shared::{NotTold, PurgeTold, Purged};
use serde::{Deserialize, Serialize};

use crate::changes::ConfigAccess;
use crate::cluster::ClusterView;
use crate::config::ControlConfig;
use crate::config_paths::{self, ConfigCalls, SharedCalls};
use crate::faults::{self, Faults};
use crate::findings::{Findings, FindingsView};
use crate::flows::{AccountsView, FlowView, QuotaView};
use crate::gateway_info::GatewayInfo;
use crate::guard::{Guard, StyleNonce, guard};
use crate::history::History;
use crate::observed::Observed;
use crate::paths::{
    FAILURE_DETAILS_PATH, FAILURES_PATH, FAULTS_OFF_PATH, FAULTS_ON_PATH, FAULTS_PATH, FILE_PATH, FILES_PATH,
    FINDINGS_PATH, FLOWS_PATH, HISTORY_PATH, PURGE_PATH, RELOAD_PATH, RESEND_PATH, ROLLBACK_PATH,
    TRAFFIC_DETAILS_PATH, TRAFFIC_PATH, TRAFFIC_STREAM_PATH, VALIDATE_PATH, VERSION_PATH, VERSIONS_PATH,
};
use crate::problem::Problem;
use crate::resend::Resends;
use crate::source::Source;
use crate::traffic::SharedTraffic;
use crate::{metrics, process, resend, spend, traffic};

/// The source, shared by the handlers.
type SharedSource = Arc<dyn Source>;

/// Time for the other gateways of a cluster to be told of a purge.
const TOLD_MAX: Duration = Duration::from_secs(1);
/// Maximum number of groups per quota in JSON.
const GROUPS_MAX: usize = 1_000;
/// Maximum number of groups per quota in metrics, where each group is a time series to be stored.
const METRIC_GROUPS_MAX: usize = 50;

/// Returns the paths and their handlers, in the order of the page's footer.
fn paths() -> [(&'static str, MethodRouter<SharedSource>); 15] {
    [
        ("/", get(page)),
        ("/healthz", get(healthz)),
        ("/readyz", get(readyz)),
        ("/api/v1/stats", get(stats)),
        ("/api/v1/quotas", get(quotas)),
        ("/api/v1/spend", get(spend::spend)),
        ("/api/v1/cluster", get(cluster)),
        ("/api/v1/accounts", get(accounts)),
        ("/api/v1/exporters", get(exporters)),
        ("/api/v1/discovery", get(discovery)),
        ("/api/v1/discovery/flows", get(proposed_flows)),
        ("/api/v1/gateway", get(gateway)),
        ("/api/v1/config", get(running_config)),
        ("/api/v1/schema", get(schema)),
        (PURGE_PATH, post(purge)),
    ]
}

/// The names of the paths.
static PATHS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let (paths, of_config) = (paths().map(|(path, _)| path), config_paths().map(|(path, _)| path));
    let of_traffic = traffic_paths().map(|(path, _)| path);
    paths
        .into_iter()
        .chain(["/metrics", FLOWS_PATH, HISTORY_PATH, FINDINGS_PATH])
        .chain(of_traffic)
        .chain([RESEND_PATH, FAULTS_PATH, FAULTS_ON_PATH, FAULTS_OFF_PATH])
        .chain(of_config)
        .collect()
});

/// Returns the paths of the config's files and their handlers.
fn config_paths() -> [(&'static str, MethodRouter<SharedCalls>); 7] {
    [
        (VALIDATE_PATH, post(config_paths::validate)),
        (FILES_PATH, get(config_paths::files)),
        (FILE_PATH, get(config_paths::file).put(config_paths::replace)),
        (VERSIONS_PATH, get(config_paths::versions)),
        (VERSION_PATH, get(config_paths::version)),
        (ROLLBACK_PATH, post(config_paths::rollback)),
        (RELOAD_PATH, post(config_paths::reload)),
    ]
}

/// Returns the paths of live traffic and their handlers.
fn traffic_paths() -> [(&'static str, MethodRouter<SharedTraffic>); 5] {
    [
        (TRAFFIC_PATH, get(traffic::list)),
        (TRAFFIC_STREAM_PATH, get(traffic::stream)),
        (TRAFFIC_DETAILS_PATH, get(traffic::details)),
        (FAILURES_PATH, get(traffic::failures)),
        (FAILURE_DETAILS_PATH, get(traffic::failure_details)),
    ]
}

/// The state that the handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub source: SharedSource,
    pub traffic: SharedTraffic,
    pub history: Arc<History>,
    pub findings: Arc<Findings>,
}

/// Builds the router of all paths, behind the guard.
pub(crate) fn router(
    config: &ControlConfig,
    address: SocketAddr,
    shared: &Shared,
    access: ConfigAccess,
) -> Router {
    let ConfigAccess { identity, token, calls } = access;
    let Shared { source, traffic, .. } = shared.clone();
    let of_traffic = traffic_paths()
        .into_iter()
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler))
        .with_state(Arc::clone(&traffic));
    let resends = Resends::new(traffic, config.config_changes);
    let of_resends = Router::new().route(RESEND_PATH, post(resend::resend)).with_state(resends);
    let of_faults = Router::new()
        .route(FAULTS_PATH, get(faults::list))
        .route(FAULTS_ON_PATH, post(faults::on))
        .route(FAULTS_OFF_PATH, post(faults::off))
        .with_state(Faults::new(Arc::clone(&source), config.config_changes));
    let of_history = Router::new()
        .route(FLOWS_PATH, get(running_flows))
        .route(HISTORY_PATH, get(running_history))
        .route(FINDINGS_PATH, get(findings))
        .route("/metrics", get(metrics_text))
        .with_state(shared.clone());
    let of_config = config_paths()
        .into_iter()
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler))
        .with_state(ConfigCalls::new(calls));
    let page = Router::new()
        .route("/page.css", get(page_style))
        .route("/page.js", get(page_script))
        .route("/editor.js", get(page_editor));
    paths()
        .into_iter()
        .fold(page, |router, (path, handler)| router.route(path, handler))
        .fallback(unknown_path)
        .with_state(source)
        .merge(of_config)
        .merge(of_traffic)
        .merge(of_history)
        .merge(of_resends)
        .merge(of_faults)
        .layer(middleware::from_fn_with_state(Arc::new(Guard::new(config, address, token, identity)), guard))
}

/// Stands in the page for the nonce of the editor's styles.
const NONCE_PLACE: &str = "NONCE";
/// Bytes of a nonce: as many as CSP Level 3 §7.1 recommends.
const NONCE_BYTES: usize = 16;

/// Responds with the page, and with a nonce that no other response has.
async fn page() -> Response {
    let page = include_str!("page/index.html");
    let mut bytes = [0; NONCE_BYTES];
    let media_type = "text/html; charset=utf-8";
    if rand::fill(&mut bytes).is_err() {
        // Without randomness the editor has no styles of its own.
        return file(media_type, page);
    }
    let nonce: String = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).collect();
    let page = page.replace(NONCE_PLACE, &nonce);
    let fields = [(header::CONTENT_TYPE, media_type)];
    (fields, Extension(StyleNonce(nonce)), page).into_response()
}

fn hex_digit(digit: u8) -> char {
    char::from_digit(digit.into(), 16).unwrap_or('0')
}

async fn page_editor() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page/editor.js"))
}

async fn page_style() -> Response {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

async fn page_script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page/page.js"))
}

fn file(media_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, media_type)], text).into_response()
}

/// Responds 200 as long as the process lives.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Responds 200 while new exchanges are accepted. The body needs no token, so it names no server.
async fn readyz(State(source): State<SharedSource>) -> Result<&'static str, Problem> {
    let cluster = source.cluster();
    match cluster {
        Some(cluster) if source.ready() && !cluster.is_up() => Ok(
            "ready, but the store of the cluster does not respond: `on_store_error` decides how quotas with `store: redis` go on\n",
        ),
        _ if source.ready() => Ok("ready\n"),
        Some(cluster) if !cluster.is_ready() => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the gateway waits for the first response of the cluster's store, at most for `cluster.learn_for`; `/api/v1/cluster` has the reason",
        )),
        _ => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the gateway is starting or draining")),
    }
}

async fn metrics_text(State(Shared { source, findings, .. }): State<Shared>) -> Response {
    let observed = Observed::of(&*source, METRIC_GROUPS_MAX, process::read());
    let text = metrics::render(&observed, source.ready(), source.version(), &findings.view().findings);
    ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()
}

async fn gateway(State(source): State<SharedSource>) -> Json<GatewayInfo> {
    Json(source.gateway())
}

/// Responds with the JSON Schema of the config.
async fn schema(State(source): State<SharedSource>) -> Response {
    ([(header::CONTENT_TYPE, "application/schema+json")], source.schema()).into_response()
}

async fn running_config(State(source): State<SharedSource>) -> Json<serde_json::Value> {
    Json(source.config())
}

/// The statistics as JSON.
#[derive(Debug, Serialize)]
struct StatsView<'a> {
    version: &'static str,
    ready: bool,
    /// Upper bounds of the histograms' buckets, in microseconds.
    bounds_us: &'static [u64],
    /// Quantiles since start by provider, or by host without one, in microseconds.
    quantiles_us: BTreeMap<&'a str, ProviderQuantiles>,
    #[serde(flatten)]
    stats: &'a StatsSnapshot,
}

#[derive(Debug, Serialize)]
struct ProviderQuantiles {
    latency: Quantiles,
    footprint: Quantiles,
}

/// Quantiles, at most 2 % off; `null` if nothing was counted.
#[derive(Debug, Serialize)]
struct Quantiles {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
}

impl From<&HistogramSnapshot> for Quantiles {
    fn from(histogram: &HistogramSnapshot) -> Self {
        let quantile = |quantile| histogram.quantile_us(quantile);
        Self { p50: quantile(0.5), p90: quantile(0.9), p99: quantile(0.99) }
    }
}

async fn stats(State(source): State<SharedSource>) -> Response {
    let stats = source.stats();
    let quantiles_us = stats
        .providers
        .iter()
        .map(|provider| {
            let quantiles = ProviderQuantiles {
                latency: (&provider.latency).into(),
                footprint: (&provider.footprint).into(),
            };
            (provider.host.as_deref().unwrap_or(&provider.name), quantiles)
        })
        .collect();
    let (version, ready) = (source.version(), source.ready());
    Json(StatsView { version, ready, bounds_us: &BOUNDS_US, quantiles_us, stats: &stats }).into_response()
}

async fn running_flows(State(shared): State<Shared>) -> Response {
    let (flows, before) = (shared.source.flows(0).flows, shared.findings.decisions_before());
    let views: Vec<FlowView<'_>> = flows.iter().map(|flow| FlowView::new(flow, &before)).collect();
    Json(BTreeMap::from([("flows", views)])).into_response()
}

async fn running_history(State(shared): State<Shared>) -> Response {
    let list = shared.source.traffic().map(|traffic| traffic.status().into());
    Json(shared.history.view(list)).into_response()
}

async fn findings(State(shared): State<Shared>) -> Json<FindingsView> {
    Json(shared.findings.view())
}

async fn quotas(State(source): State<SharedSource>) -> Response {
    let quotas = source.flows(GROUPS_MAX).quotas;
    let views: Vec<QuotaView<'_>> = quotas.iter().map(QuotaView::from).collect();
    Json(BTreeMap::from([("quotas", views)])).into_response()
}

async fn cluster(State(source): State<SharedSource>) -> Response {
    let status = source.cluster();
    let quotas = status.as_ref().map(|_| source.flows(GROUPS_MAX).quotas).unwrap_or_default();
    let view = status.as_ref().map(|status| ClusterView::new(status, &quotas));
    Json(BTreeMap::from([("cluster", view)])).into_response()
}

async fn accounts(State(source): State<SharedSource>) -> Response {
    Json(AccountsView::from(&source.flows(0))).into_response()
}

async fn exporters(State(source): State<SharedSource>) -> Response {
    Json(BTreeMap::from([("exporters", source.exporters())])).into_response()
}

async fn discovery(State(source): State<SharedSource>) -> Response {
    Json(BTreeMap::from([("flows", source.discovered())])).into_response()
}

/// Responds with a config for the discovered endpoints. RFC 9512 defines the media type.
async fn proposed_flows(State(source): State<SharedSource>) -> Response {
    ([(header::CONTENT_TYPE, config_paths::YAML)], propose(&source.discovered())).into_response()
}

/// The selection of a purge: one of the first four, and optionally a flow.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PurgeQuery {
    /// Selects the responses stored for this URL.
    url: Option<String>,
    /// Selects the responses stored for URLs with this prefix.
    prefix: Option<String>,
    /// Selects the responses with this tag.
    tag: Option<String>,
    /// `true` selects everything.
    all: Option<bool>,
    /// Restricts the purge to the cache of this flow.
    flow: Option<String>,
}

/// Purges stored responses from the caches.
async fn purge(
    State(source): State<SharedSource>,
    query: Result<Query<PurgeQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let wrong = |detail: &'static str| Problem::new(StatusCode::BAD_REQUEST, detail);
    let one_of = || {
        wrong(
            "select the responses to purge with exactly one of `url`, `prefix`, `tag` and `all=true`; add `flow` to purge one flow only",
        )
    };
    let Query(PurgeQuery { url, prefix, tag, all, flow }) = query.map_err(|_| one_of())?;
    let label =
        |url: String| label_of(&url).ok_or(wrong("a URL must begin with `https://` or `http://` and a host"));
    let (url, prefix) = (url.map(label).transpose()?, prefix.map(label).transpose()?);
    let selection = match (&url, &prefix, &tag, all) {
        (Some(url), None, None, None) => Purge::Label(url),
        (None, Some(prefix), None, None) => Purge::Prefix(prefix),
        (None, None, Some(tag), None) => Purge::Tag(tag),
        (None, None, None, Some(true)) => Purge::All,
        _ => return Err(one_of()),
    };
    let purged = source.purge(flow.as_deref(), selection);
    let Purged { removed, told } =
        purged.map_err(|unknown| Problem::new(StatusCode::NOT_FOUND, unknown.to_string()))?;
    tracing::info!(purged = removed, "purged stored responses");
    Ok(Json(PurgeView::new(removed, told).await).into_response())
}

/// The result of a purge.
#[derive(Debug, Serialize)]
struct PurgeView {
    purged: usize,
    /// `true` if the other gateways of the cluster were told; none without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<bool>,
    /// Reason why they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl PurgeView {
    /// Waits until the other gateways were told, or could not be.
    async fn new(purged: usize, told: Vec<PurgeTold>) -> Self {
        if told.is_empty() {
            return Self { purged, told: None, reason: None };
        }
        let all_told = async {
            for told in told {
                // Without an answer, the gateway leaves the cluster.
                told.await.unwrap_or(Err(NotTold::Away))?;
            }
            Ok(())
        };
        let result = tokio::time::timeout(TOLD_MAX, all_told).await.unwrap_or(Err(NotTold::Away));
        Self { purged, told: Some(result.is_ok()), reason: result.err().map(|reason| reason.to_string()) }
    }
}

async fn unknown_path() -> Problem {
    let detail = "the control port has no such path; `paths` lists the existing ones";
    Problem::new(StatusCode::NOT_FOUND, detail).with_paths(&PATHS)
}
