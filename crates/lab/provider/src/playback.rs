//! Plays back a HAR file: finds recorded responses by method, path and query.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::Response;
use egret_har::replay;

use crate::options::Playback;
use crate::respond::{self, field_value};
use crate::start_error::StartError;

/// A recording, indexed for playback.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    paced: bool,
    /// Responses by method and by path with query.
    calls: HashMap<(String, String), RecordedCall>,
}

/// The responses to one call. They are returned in turn, then again from the first.
#[derive(Debug, Default)]
struct RecordedCall {
    next: AtomicUsize,
    responses: Vec<RecordedResponse>,
}

#[derive(Debug)]
struct RecordedResponse {
    status: StatusCode,
    fields: HeaderMap,
    content: Bytes,
    duration: Duration,
}

impl Recording {
    /// Reads the recording's file.
    pub fn read(playback: &Playback) -> Result<Self, StartError> {
        let entries = replay::read(&playback.file)
            .map_err(|error| StartError::Recording { file: playback.file.clone(), error })?;
        let mut recording = Self { paced: playback.paced, ..Self::default() };
        for entry in entries {
            recording.add(entry);
        }
        Ok(recording)
    }

    fn add(&mut self, entry: replay::ReplayedRequest) {
        // Without a final status code, no response was recorded.
        let status = StatusCode::from_u16(entry.status).ok().filter(|status| !status.is_informational());
        let (Some(status), Ok(uri)) = (status, entry.url.parse::<Uri>()) else { return };
        let response = RecordedResponse {
            status,
            fields: fields(&entry.response_fields),
            content: entry.response_body.into(),
            duration: entry.times.wait.unwrap_or_default() + entry.times.receive.unwrap_or_default(),
        };
        self.calls.entry((entry.method, target(&uri).to_owned())).or_default().responses.push(response);
    }

    /// Returns the recorded response to a call, and the delay before it is sent.
    pub fn next_response(&self, method: &Method, uri: &Uri) -> Option<(Duration, Response)> {
        let recorded = self.calls.get(&(method.to_string(), target(uri).to_owned()))?;
        let turn = recorded.next.fetch_add(1, Relaxed) % recorded.responses.len();
        let found = recorded.responses.get(turn)?;
        let mut response = respond::empty(found.status);
        *response.headers_mut() = found.fields.clone();
        *response.body_mut() = found.content.clone().into();
        Some((if self.paced { found.duration } else { Duration::ZERO }, response))
    }
}

fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}

/// Converts the recorded fields, except those that concern the recorded connection or a compression that HAR
/// has removed.
fn fields(recorded: &[(String, String)]) -> HeaderMap {
    const LEFT_OUT: [HeaderName; 8] = [
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::DATE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let named = recorded.iter().filter_map(|(name, value)| Some((name.parse::<HeaderName>().ok()?, value)));
    let kept = named.filter(|(name, _)| !LEFT_OUT.contains(name) && name != "keep-alive");
    let mut fields = HeaderMap::new();
    for (name, value) in kept {
        fields.append(name, field_value(value));
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn entry(method: &str, url: &str, status: u16, content: &str) -> replay::ReplayedRequest {
        replay::ReplayedRequest {
            method: method.into(),
            url: url.into(),
            request_fields: Vec::new(),
            request_body: Vec::new(),
            status,
            response_fields: vec![
                ("Content-Encoding".into(), "gzip".into()),
                ("Content-Length".into(), "1".into()),
                ("Set-Cookie".into(), "a=1".into()),
                ("Set-Cookie".into(), "b=2".into()),
                ("bad name".into(), "x".into()),
            ],
            response_body: content.into(),
            started: SystemTime::UNIX_EPOCH,
            times: replay::PhaseTimes {
                wait: Some(Duration::from_millis(20)),
                receive: Some(Duration::from_millis(5)),
                ..replay::PhaseTimes::default()
            },
        }
    }

    #[tokio::test]
    async fn responses_are_given_in_turn_to_the_calls_they_were_recorded_for() {
        let mut recording = Recording { paced: true, ..Recording::default() };
        recording.add(entry("GET", "https://a.test/x?y=1", 200, "first"));
        recording.add(entry("GET", "https://a.test/x?y=1", 404, "second"));
        recording.add(entry("GET", "https://a.test/aborted", 0, ""));
        let uri: Uri = "/x?y=1".parse().unwrap();
        for (status, content) in [(200, "first"), (404, "second"), (200, "first")] {
            let (duration, response) = recording.next_response(&Method::GET, &uri).unwrap();
            assert_eq!((response.status().as_u16(), duration.as_millis()), (status, 25));
            assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
            assert_eq!(response.headers().len(), 2, "{:?}", response.headers());
            assert_eq!(axum::body::to_bytes(response.into_body(), 100).await.unwrap(), content);
        }
        let unknown = |method, uri: &str| recording.next_response(&method, &uri.parse().unwrap()).is_none();
        assert!(
            unknown(Method::POST, "/x?y=1") && unknown(Method::GET, "/x") && unknown(Method::GET, "/aborted")
        );
    }
}
