//! Sends the request of a recorded exchange again, as its client would: all flows of the listener apply. The
//! request comes from the gateway's memory, over a connection within the process. It is bound to the
//! provider of the recorded call, whatever the flows say. The client gets only the status, and follows the
//! new exchange in live traffic.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use egret_diagnosis::{Resend, ResendRisk, ResendTarget, Resending, Traffic};
use egret_message::ListenAddress;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use crate::config::ConfigChanges;
use crate::gateway_info::ListenerInfo;
use crate::problem::Problem;
use crate::traffic::{SharedTraffic, no_exchange};

/// Maximum number of requests that are sent again at a time.
const AT_ONCE_MAX: usize = 4;
/// Time for a request and its response. The control port waits a little longer for a handler.
const TIME_MAX: Duration = Duration::from_secs(25);
/// Bytes of a response after which its connection is closed.
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Bytes of it in which the status is looked for.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Time in which the new exchange appears on the list, if it is recorded.
const RECORDED_MAX: Duration = Duration::from_secs(2);
/// Interval at which it is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The path's state, shared by its requests.
pub(crate) type SharedResends = Arc<Resends>;

/// The requests that are being sent again, bounded in number.
pub(crate) struct Resends {
    demand: SharedTraffic,
    /// `true` if the token only reads.
    is_off: bool,
    places: Semaphore,
}

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ResendQuery {
    /// `true` accepts that the provider may act a second time.
    confirmed: bool,
}

/// The result of sending a request again.
#[derive(Debug, Serialize)]
pub(crate) struct Resent {
    /// Status of the response.
    status: u16,
    /// Number of the new exchange; `None` if it was not recorded.
    id: Option<u64>,
}

impl Resends {
    pub(crate) fn new(demand: SharedTraffic, changes: ConfigChanges) -> SharedResends {
        let (is_off, places) = (changes == ConfigChanges::Off, Semaphore::new(AT_ONCE_MAX));
        Arc::new(Self { demand, is_off, places })
    }

    fn place(&self) -> Result<SemaphorePermit<'_>, Problem> {
        if self.is_off {
            let detail =
                "the token only reads: `control.config_changes` is `off`, so no request is sent again";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        self.places.try_acquire().map_err(|_| {
            let detail = "other requests are being sent again: wait until one of them has its response";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })
    }
}

/// Sends the request of an exchange again, and responds when its response has ended.
pub(crate) async fn resend(
    State(resends): State<SharedResends>,
    id: Result<Path<u64>, PathRejection>,
    query: Result<Query<ResendQuery>, QueryRejection>,
) -> Result<Json<Resent>, Problem> {
    let Path(id) = id.map_err(|_| no_exchange())?;
    let wrong = |_| Problem::new(StatusCode::BAD_REQUEST, "the only parameter is `confirmed=true`");
    let Query(ResendQuery { confirmed }) = query.map_err(wrong)?;
    let _place = resends.place()?;
    let traffic = resends.demand.demand()?;
    let conflict = |detail: String| Problem::new(StatusCode::CONFLICT, detail);
    let resend = traffic
        .resend(id)
        .ok_or_else(no_exchange)?
        .map_err(|reason| conflict(format!("the request cannot be sent again: {reason}")))?;
    if resend.risk() == ResendRisk::ActsAgain && !confirmed {
        let detail = "the provider may act on this request a second time: confirm it with `confirmed=true`";
        return Err(conflict(detail.to_owned()));
    }
    let source = &resends.demand.source;
    let (listener, target) = route(&resend, &source.gateway().listeners).ok_or_else(|| {
        conflict("the request cannot be sent again: the listener that accepted it is gone".to_owned())
    })?;
    let resending = traffic.resending(id).ok_or_else(|| {
        let detail = "too many requests are being sent again";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    tracing::info!("resending the request of recorded exchange {id}");
    let failed = |error: io::Error| {
        Problem::new(StatusCode::BAD_GATEWAY, format!("the gateway gave no response: {error}"))
    };
    let opened = source.resend(listener, resend.pin(resending.number()));
    let stream = opened.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => conflict(error.to_string()),
        _ => failed(error),
    })?;
    let sent = timeout(TIME_MAX, send(stream, &resend.message(target))).await;
    let status = sent
        .map_err(|_| {
            Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "the response did not end within 25 seconds, so it was cut",
            )
        })?
        .map_err(failed)?;
    Ok(Json(Resent { status, id: recorded(&traffic, &resending).await }))
}

/// Returns the listener that accepted the request, if it is still there, and the form of the target there. A
/// request out of a tunnel is sent as a forward proxy receives it.
fn route(resend: &Resend, listeners: &[ListenerInfo]) -> Option<(ListenAddress, ResendTarget)> {
    let target = if resend.is_intercepted { ResendTarget::Absolute } else { ResendTarget::Received };
    let accepted = resend.listener.filter(|address| listeners.iter().any(|each| each.address == *address))?;
    Some((accepted, target))
}

/// Sends a message, and reads the response to its end. Returns its status.
async fn send(stream: StdUnixStream, message: &[u8]) -> io::Result<u16> {
    let mut stream = UnixStream::from_std(stream)?;
    stream.write_all(message).await?;
    let (mut start, mut buffer, mut read, mut status) = (Vec::new(), vec![0; 16 << 10], 0, None);
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 || read > RESPONSE_BYTES_MAX {
            break;
        }
        read += length;
        if status.is_none() && start.len() < HEAD_BYTES_MAX {
            start.extend_from_slice(&buffer[..length]);
            status = final_status(&start);
        }
    }
    status.ok_or_else(|| io::Error::other("the connection was closed"))
}

/// Returns the status of the first response that is not informational, if it has arrived.
fn final_status(mut bytes: &[u8]) -> Option<u16> {
    loop {
        // `HTTP/1.1 200`
        let status: u16 = str::from_utf8(bytes.get(9..12)?).ok()?.parse().ok()?;
        if status >= 200 {
            return Some(status);
        }
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        bytes = &bytes[end + 4..];
    }
}

/// Waits until the new exchange is on the list, and returns its number.
async fn recorded(traffic: &Traffic, resending: &Resending) -> Option<u64> {
    let until = Instant::now() + RECORDED_MAX;
    loop {
        let id = resending.id();
        // If only a sample is recorded, this exchange may be left out.
        if id.is_some() || Instant::now() >= until || !traffic.is_open() {
            return id;
        }
        sleep(LOOK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_the_final_response() {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        for (text, expected) in [
            ("HTTP/1.1 404 Not Found\r\n", Some(404)),
            ("HTTP/1.1 4", None),
            (hints, None),
            (&format!("{hints}HTTP/1.1 200 OK\r\n"), Some(200)),
            ("HTTP/1.1 \u{e9}1 OK\r\n", None),
        ] {
            assert_eq!(final_status(text.as_bytes()), expected, "{text}");
        }
    }
}
