//! Live traffic over the API: the list of recent exchanges, one exchange in detail, and the list as it grows.
//!
//! Exchanges are recorded only on demand: while somebody reads the stream, and for a while after the last
//! request for any of these paths. A reader of the stream has a place in the list and no buffer of its own.
//! So one that is slow holds nothing up: it loses what has left the list, and is told how much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use egret_diagnosis::{Traffic, TrafficFilter, TrafficReader, TrafficStatus};
use futures_util::stream;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::connection::{Streaming, Trust};
use crate::problem::Problem;
use crate::source::Source;

/// Time for which exchanges are recorded after the last request.
const LINGER: Duration = Duration::from_mins(10);
/// Maximum number of readers of the stream.
const READERS_MAX: usize = 16;
/// Number of entries of a list without `limit`, and its maximum.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;
/// Bytes after which a list ends.
const LIST_BYTES_MAX: usize = 4 << 20;
/// Bytes after which a part of the stream is sent.
const CHUNK_BYTES: usize = 32 << 10;
/// Interval at which a stream looks for new entries.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the stream's lines about the state of the list. They also tell a quiet stream from a dead
/// one.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// The media type of one JSON value for each line.
const LINES: &str = "application/x-ndjson";

/// The query parameters, each with its value.
type Parameters = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The paths' state, shared by their handlers.
pub(crate) type SharedTraffic = Arc<TrafficDemand>;

/// Opens live traffic on demand, and closes it when nobody wants it any more.
pub(crate) struct TrafficDemand {
    pub(crate) source: Arc<dyn Source>,
    /// The time until which exchanges are recorded, while they are.
    until: Mutex<Option<Instant>>,
    is_stopping: AtomicBool,
}

impl TrafficDemand {
    pub(crate) fn new(source: Arc<dyn Source>) -> SharedTraffic {
        Arc::new(Self { source, until: Mutex::default(), is_stopping: AtomicBool::new(false) })
    }

    /// Returns the list, and records exchanges from now on.
    pub(crate) fn demand(&self) -> Result<Arc<Traffic>, Problem> {
        let unavailable = |detail: &'static str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        let traffic = self.source.traffic().ok_or(unavailable("the gateway is starting"))?;
        if !traffic.is_on() {
            let detail = "live traffic is switched off: `control.traffic.entries` is 0";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
        *self.until.lock() = Some(Instant::now() + LINGER);
        if !traffic.is_open() {
            self.source.watch_traffic(true);
        }
        Ok(traffic)
    }

    /// Returns the list of failed exchanges.
    fn failures(&self) -> Result<Arc<Traffic>, Problem> {
        let unavailable = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the gateway is starting");
        let failures = self.source.failures().ok_or(unavailable)?;
        if failures.is_on() {
            return Ok(failures);
        }
        let detail = "failed exchanges are not kept: `control.traffic.failures` is 0B";
        Err(Problem::new(StatusCode::NOT_FOUND, detail))
    }

    /// Stops recording if nobody has wanted it for long enough. Call it now and then.
    pub(crate) fn tick(&self) {
        let mut until = self.until.lock();
        let Some(end) = *until else { return };
        let has_readers = self.source.traffic().is_some_and(|traffic| traffic.status().readers > 0);
        if has_readers {
            *until = Some(Instant::now() + LINGER);
        } else if Instant::now() >= end {
            *until = None;
            self.source.watch_traffic(false);
        }
    }

    /// Ends all streams.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
    }
}

/// The parameters of a request: those of the path itself, and a filter.
struct Wanted {
    filter: TrafficFilter,
    own: Vec<(&'static str, u64)>,
}

impl Wanted {
    /// Reads the parameters. Those with a name in `own` are whole numbers, the others make up the filter.
    fn read(parameters: Parameters, own: &[&'static str]) -> Result<Self, Problem> {
        let wrong = |detail: String| Problem::new(StatusCode::BAD_REQUEST, detail);
        let Query(pairs) = parameters.map_err(|_| wrong("the query cannot be read".to_owned()))?;
        let mut numbers = Vec::new();
        let mut conditions = Vec::new();
        for (key, value) in &pairs {
            match own.iter().find(|name| *name == key) {
                Some(name) => {
                    let number =
                        value.parse().map_err(|_| wrong(format!("`{name}`: expected a whole number")))?;
                    numbers.push((*name, number));
                }
                None => conditions.push((key.as_str(), value.as_str())),
            }
        }
        let filter = TrafficFilter::parse(conditions).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { filter, own: numbers })
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.own.iter().find(|(own, _)| *own == name).map(|(_, number)| *number)
    }
}

/// Responds with the newest exchanges that meet the filter.
pub(crate) async fn list(
    State(demand): State<SharedTraffic>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let wanted = Wanted::read(parameters, &["limit", "before"])?;
    Ok(list_response(&*demand.demand()?, &wanted))
}

/// Responds with the newest failed exchanges that meet the filter. They are recorded whether or not somebody
/// reads them.
pub(crate) async fn failures(
    State(demand): State<SharedTraffic>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let wanted = Wanted::read(parameters, &["limit", "before"])?;
    Ok(list_response(&*demand.failures()?, &wanted))
}

fn list_response(traffic: &Traffic, wanted: &Wanted) -> Response {
    let limit = wanted.number("limit").map_or(LIMIT, |limit| usize::try_from(limit).unwrap_or(LIMIT_MAX));
    let before = wanted.number("before").unwrap_or(u64::MAX);
    let status = json!(traffic.status()).to_string();
    let mut body = Vec::with_capacity(64 << 10);
    body.extend_from_slice(b"{\"exchanges\":[");
    traffic.latest(before, &wanted.filter, limit.min(LIMIT_MAX), LIST_BYTES_MAX, &mut body);
    body.extend_from_slice(b"],\"status\":");
    body.extend_from_slice(status.as_bytes());
    body.push(b'}');
    json_response(body)
}

/// Responds with all that is known of an exchange.
pub(crate) async fn details(
    State(demand): State<SharedTraffic>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|_| no_exchange())?;
    let traffic = demand.demand()?;
    demand.source.details(&traffic, id).map(json_response).ok_or_else(no_exchange)
}

/// Responds with all that is known of a failed exchange.
pub(crate) async fn failure_details(
    State(demand): State<SharedTraffic>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|_| no_exchange())?;
    let failures = demand.failures()?;
    demand.source.details(&failures, id).map(json_response).ok_or_else(no_exchange)
}

pub(crate) fn no_exchange() -> Problem {
    let detail = "no such exchange is on the list: it may have made room for newer ones";
    Problem::new(StatusCode::NOT_FOUND, detail)
}

fn json_response(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Responds with exchanges as they end, one line each, until the client closes the connection.
pub(crate) async fn stream(
    State(demand): State<SharedTraffic>,
    ConnectInfo(trust): ConnectInfo<Trust>,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let wanted = Wanted::read(parameters, &["sample", "after"])?;
    let traffic = demand.demand()?;
    if traffic.status().readers >= READERS_MAX {
        let detail = "live traffic has as many readers as the control port serves";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let one_in = wanted.number("sample").map_or(1, |sample| u32::try_from(sample).unwrap_or(u32::MAX));
    let next = wanted.number("after").map_or_else(|| traffic.next_id(), |after| after.saturating_add(1));
    let stream = TrafficStream {
        _reader: traffic.reader(one_in),
        _streaming: trust.stream(),
        filter: wanted.filter,
        traffic,
        demand,
        next,
        told: None,
    };
    let chunks = stream::unfold(stream, |mut stream| async move {
        let chunk = stream.chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), stream))
    });
    Ok(([(header::CONTENT_TYPE, LINES)], Body::from_stream(chunks)).into_response())
}

/// A reader of the stream.
struct TrafficStream {
    _reader: TrafficReader,
    _streaming: Streaming,
    filter: TrafficFilter,
    traffic: Arc<Traffic>,
    demand: SharedTraffic,
    /// Number of the next entry.
    next: u64,
    /// The state that was told last, and when.
    told: Option<(Instant, TrafficStatus)>,
}

impl TrafficStream {
    /// Waits for the next part of the stream. Returns `None` once the port stops.
    async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.demand.is_stopping.load(Relaxed) {
                return None;
            }
            let mut chunk = Vec::new();
            self.tell_status(&mut chunk);
            let has_more = self.tell_exchanges(&mut chunk);
            if !chunk.is_empty() {
                return Some(chunk.into());
            }
            if has_more {
                // Other requests get their turn.
                tokio::task::yield_now().await;
            } else {
                sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Appends the state of the list, if it is time to.
    fn tell_status(&mut self, chunk: &mut Vec<u8>) {
        let status = self.traffic.status();
        let is_due = self.told.as_ref().is_none_or(|(at, told)| {
            at.elapsed() >= STATUS_INTERVAL
                || (told.one_in, told.missed > 0) != (status.one_in, status.missed > 0)
        });
        if !is_due {
            return;
        }
        let mut line = json!(status);
        line["type"] = "status".into();
        push_line(&line, chunk);
        self.told = Some((Instant::now(), status));
    }

    /// Appends new exchanges. Returns `true` if there are more.
    fn tell_exchanges(&mut self, chunk: &mut Vec<u8>) -> bool {
        let mut lines = Vec::new();
        let batch = self.traffic.lines(self.next, &self.filter, CHUNK_BYTES, &mut lines);
        if batch.lost > 0 {
            push_line(&json!({ "type": "lost", "count": batch.lost }), chunk);
        }
        self.next = batch.next;
        chunk.extend_from_slice(&lines);
        batch.has_more
    }
}

fn push_line(line: &serde_json::Value, chunk: &mut Vec<u8>) {
    chunk.extend_from_slice(line.to_string().as_bytes());
    chunk.push(b'\n');
}
