//! Endpoints that delay their response or send it in pieces.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::any;
use egret_clock::Random;
use egret_config::Size;
use futures_util::stream;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use crate::call::ProviderCall;
use crate::delay::Delay;
use crate::echo::{self, EchoedRequest};
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::parameters::{Parameters, clamped};
use crate::query::Values;
use crate::random::Draw as _;
use crate::respond::{self, field_value};
use crate::{clock, duration, status};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/delay/{duration}", || any(delay))
        .about("The response of `/anything` after this delay, which `Server-Timing` reports. 400 above the maximum (10s); delays drawn from a distribution are capped at it.")
        .parameters(
            "`duration` as `0.15`, `150ms` or a distribution: `normal:150ms,20ms`, `lognormal:150ms,0.5`, `percentiles:50=100ms,99=1s`; `seed`",
        )
        .example("/delay/0.15"),
    Endpoint::new("any", "/drip", || any(drip))
        .about("`numbytes` bytes, one by one over the duration, with `Content-Length`.")
        .parameters(
            "`duration` (2s), `delay` (2s), together at most the maximum; `numbytes` 1 to 1048576 (10); `code` 100 to 599 (200)",
        )
        .example("/drip?numbytes=5&duration=1s&delay=0"),
    Endpoint::new("any", "/stream/{n}", || any(lines))
        .about("`n` lines of JSON, each in its own chunk.")
        .parameters("`n`, clamped to 1 to 100")
        .example("/stream/5"),
    Endpoint::new("any", "/jsonl", || any(json_lines))
        .about("`count` lines of JSON as `application/x-ndjson`, spread over the duration.")
        .parameters(
            "`count` (10), clamped to its bounds; `duration` (0), `delay` (0), together at most the maximum; `jitter` 0 to 1 (0)",
        )
        .example("/jsonl?count=5"),
    Endpoint::new("any", "/sse", || any(events))
        .about("Server-sent events over the duration; the trailer `Server-Timing` reports their timing.")
        .parameters(
            "`count` (10); `duration` (5s), `delay` (0), together at most the maximum; `jitter` 0 to 1 (0)",
        )
        .example("/sse?count=5&duration=1s"),
    Endpoint::new("any", "/bandwidth/{rate}/{n}", || any(bandwidth))
        .about("`n` bytes at this rate, with `Content-Length`.")
        .parameters(
            "`rate` per second, as `64KiB` or `65536`; `n` bytes, 0 to 1048576; together at most the maximum duration",
        )
        .example("/bandwidth/64KiB/65536"),
];

/// Maximum number of lines from `/stream`.
const LINES_MAX: usize = 100;

/// Approximate length of a line from `/jsonl`, in bytes. It limits the number of lines to the maximum content
/// size.
const LINE_BYTES: usize = 172;

/// The same for an event from `/sse`.
const EVENT_BYTES: usize = 56;

/// Pause between pieces sent at a rate: long enough for the timer, short enough to look steady.
const RATE_PAUSE: Duration = Duration::from_millis(10);

async fn delay(Path(text): Path<String>, call: ProviderCall) -> EndpointResult {
    let max = call.state.options().duration_max;
    let refuse = |error: &dyn std::fmt::Display| ProviderError::parameter("duration", error);
    let delay = if text.contains(':') {
        let delay: Delay = text.parse().map_err(|error| refuse(&error))?;
        delay.draw(&mut Parameters::of(&call).random()?, max)
    } else {
        duration::parse(&text, max).map_err(|error| refuse(&error))?
    };
    pause(delay).await;
    let timing = server_timing(&[("initial_delay", delay, "initial delay")]);
    let response = echo::anything(call).await.unwrap_or_else(IntoResponse::into_response);
    Ok(respond::with(response, SERVER_TIMING, timing))
}

/// Waits, unless the duration is zero.
pub(crate) async fn pause(duration: Duration) {
    if !duration.is_zero() {
        clock::sleep(duration).await;
    }
}

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Formats the value of Server-Timing from names, durations and descriptions.
fn server_timing(entries: &[(&str, Duration, &str)]) -> HeaderValue {
    let entries = entries.iter().map(|(name, duration, about)| {
        format!("{name};dur={:.2};desc=\"{about}\"", duration.as_secs_f64() * 1e3)
    });
    field_value(&entries.collect::<Vec<_>>().join(", "))
}

/// A sequence of pieces with pauses between them.
#[derive(Clone, Copy)]
struct PieceSequence {
    count: usize,
    pause: Duration,
    jitter: f64,
}

impl PieceSequence {
    /// Spreads pieces over a duration, with pauses only between them.
    fn over(count: usize, duration: Duration, jitter: f64) -> Self {
        let pauses = u128::try_from(count.saturating_sub(1).max(1)).unwrap_or(1);
        let pause = u64::try_from(duration.as_nanos().div_ceil(pauses)).unwrap_or(u64::MAX);
        Self { count, pause: Duration::from_nanos(pause), jitter }
    }

    /// Creates a body of pieces, each sent separately.
    fn body<P: FnMut(usize) -> Bytes + Send + 'static>(self, random: Random, piece: P) -> Body {
        let next = move |(index, mut piece, mut random): (usize, P, Random)| async move {
            if index == self.count {
                return None;
            }
            if index > 0 {
                self.wait(&mut random).await;
            }
            let bytes = piece(index);
            Some((Ok::<_, Infallible>(bytes), (index + 1, piece, random)))
        };
        Body::from_stream(stream::unfold((0, piece, random), next))
    }

    async fn wait(self, random: &mut Random) {
        if self.pause.is_zero() {
            // Yields, so each piece is flushed before the next is made.
            tokio::task::yield_now().await;
        } else if self.jitter > 0.0 {
            let scale = 1.0 + self.jitter * (2.0 * random.unit() - 1.0);
            clock::sleep(self.pause.mul_f64(scale.max(0.0))).await;
        } else {
            clock::sleep(self.pause).await;
        }
    }
}

/// Rejects a call whose duration and delay together exceed the maximum.
fn check_together(call: &ProviderCall, duration: Duration, delay: Duration) -> Result<(), ProviderError> {
    let max = call.state.options().duration_max;
    if duration + delay > max {
        return Err(ProviderError::bad_request(format!("too much time: {duration:?}+{delay:?} > {max:?}")));
    }
    Ok(())
}

async fn drip(call: ProviderCall) -> EndpointResult {
    let parameters = Parameters::of(&call);
    let duration = parameters.duration("duration", Duration::from_secs(2))?;
    let delay = parameters.duration("delay", Duration::from_secs(2))?;
    let count = parameters.count("numbytes", 10, 1..=call.state.options().body_bytes_max)?;
    let code = call.query.get("code").map_or(Ok(StatusCode::OK), status::parse)?;
    check_together(&call, duration, delay)?;
    pause(delay).await;
    let pace = PieceSequence::over(count, duration, 0.0);
    let timing = server_timing(&[
        ("total_duration", delay + duration, "total request duration"),
        ("initial_delay", delay, "initial delay"),
        ("write_duration", duration, "duration of writes after initial delay"),
        ("pause_per_write", pace.pause, "computed pause between writes"),
    ]);
    let body = if pace.pause.is_zero() {
        Body::from(vec![b'*'; count])
    } else {
        pace.body(call.state.sequences.next(), |_| Bytes::from_static(b"*"))
    };
    let response = respond::with(respond::text(code, body), SERVER_TIMING, timing);
    Ok(respond::with(response, header::CONTENT_LENGTH, count.into()))
}

/// A line of `/stream` and `/jsonl`.
#[derive(Serialize)]
struct StreamedLine {
    id: usize,
    args: Values,
    headers: Values,
    origin: String,
    url: String,
}

impl StreamedLine {
    fn of(call: &ProviderCall) -> Self {
        let EchoedRequest { args, headers, origin, url, .. } = EchoedRequest::of(call);
        Self { id: 0, args, headers, origin, url }
    }

    fn numbered(&mut self, id: usize) -> Bytes {
        self.id = id;
        let mut line = Vec::new();
        let written = serde_json::to_writer(&mut line, self);
        debug_assert!(written.is_ok(), "{written:?}");
        line.push(b'\n');
        line.into()
    }
}

async fn lines(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    let count = clamped(&n, 1..=LINES_MAX).map_err(|error| ProviderError::parameter("count", error))?;
    let mut line = StreamedLine::of(&call);
    let pace = PieceSequence::over(count, Duration::ZERO, 0.0);
    let body = pace.body(call.state.sequences.next(), move |index| line.numbered(index));
    Ok(respond::text(StatusCode::OK, body))
}

async fn json_lines(call: ProviderCall) -> EndpointResult {
    let parameters = Parameters::of(&call);
    let max = call.state.options().body_bytes_max / LINE_BYTES;
    let count = parameters.clamped("count", 10, 1..=max.max(1))?;
    let (pace, delay, random) = streamed(&call, count, Duration::ZERO)?;
    pause(delay).await;
    let mut line = StreamedLine::of(&call);
    let body = pace.body(random, move |index| line.numbered(index));
    Ok(respond::of(StatusCode::OK, respond::JSON_LINES, body))
}

/// Reads the parameters common to `/jsonl` and `/sse`.
fn streamed(
    call: &ProviderCall,
    count: usize,
    duration: Duration,
) -> Result<(PieceSequence, Duration, Random), ProviderError> {
    let parameters = Parameters::of(call);
    let duration = parameters.duration_above_zero("duration", duration)?;
    let delay = parameters.duration("delay", Duration::ZERO)?;
    let jitter = parameters.share("jitter", 0.0)?;
    if duration + delay > call.state.options().duration_max {
        return Err(ProviderError::text(StatusCode::BAD_REQUEST, "Too much time"));
    }
    Ok((PieceSequence::over(count, duration, jitter), delay, parameters.random()?))
}

async fn events(call: ProviderCall) -> EndpointResult {
    let started = Instant::now();
    let max = (call.state.options().body_bytes_max / EVENT_BYTES).max(1);
    let count = Parameters::of(&call).count("count", 10, 1..=max)?;
    let (pace, delay, random) = streamed(&call, count, Duration::from_secs(5))?;
    pause(delay).await;
    let body = pace.body(random, |index| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        format!("event: ping\ndata: {{\"id\":{index},\"timestamp\":{}}}\n\n", since.as_millis()).into()
    });
    let writes = pace.pause * u32::try_from(count - 1).unwrap_or(u32::MAX);
    let trailers = move || {
        let timing = server_timing(&[
            ("total_duration", started.elapsed(), "total request duration"),
            ("initial_delay", delay, "initial delay"),
            ("write_duration", writes, "duration of writes after initial delay"),
            ("pause_per_write", pace.pause, "computed pause between writes"),
        ]);
        HeaderMap::from_iter([(SERVER_TIMING, timing)])
    };
    let response = respond::of(StatusCode::OK, respond::EVENTS, trailing(body, trailers));
    Ok(respond::with(response, header::TRAILER, HeaderValue::from_static("Server-Timing")))
}

async fn bandwidth(Path((rate, n)): Path<(String, String)>, call: ProviderCall) -> EndpointResult {
    let options = call.state.options();
    let count = super::parameters::number(&n, 0..=options.body_bytes_max)
        .map_err(|error| ProviderError::parameter("byte count", error))?;
    let rate = rate.parse().ok().or_else(|| Some(rate.parse::<Size>().ok()?.bytes()));
    let rate = rate
        .filter(|rate: &u64| *rate > 0)
        .ok_or_else(|| ProviderError::parameter("rate", "write bytes per second like 65536 or 64KiB"))?;
    let per_piece = u64::try_from(RATE_PAUSE.as_millis()).unwrap_or(1) * rate / 1_000;
    let piece = usize::try_from(per_piece.max(1)).unwrap_or(usize::MAX).min(64 << 10);
    #[expect(clippy::cast_precision_loss, reason = "a duration's last nanoseconds do not count")]
    let duration = Duration::try_from_secs_f64(count as f64 / rate as f64).unwrap_or(Duration::MAX);
    if duration > options.duration_max {
        return Err(ProviderError::bad_request(format!(
            "too much time: {duration:?} > {:?}",
            options.duration_max
        )));
    }
    let content = Bytes::from(call.state.sequences.next().bytes(count));
    let pieces = count.div_ceil(piece);
    let mut pace = PieceSequence::over(pieces, duration, 0.0);
    if pieces > 0 {
        // The last piece takes its time as well: at a given rate, content has not arrived before the whole
        // duration is over.
        pace.pause = duration / u32::try_from(pieces).unwrap_or(u32::MAX);
    }
    pause(pace.pause).await;
    let body = pace.body(call.state.sequences.next(), move |index| {
        content.slice(index * piece..content.len().min((index + 1) * piece))
    });
    let response = respond::of(StatusCode::OK, respond::BYTES, body);
    Ok(respond::with(response, header::CONTENT_LENGTH, count.into()))
}

/// Creates a body with trailers that are made when the body has ended.
pub(crate) fn trailing(body: Body, trailers: impl FnOnce() -> HeaderMap + Send + Unpin + 'static) -> Body {
    Body::new(Trailing { body, trailers: Some(trailers) })
}

struct Trailing<F> {
    body: Body,
    trailers: Option<F>,
}

impl<F: FnOnce() -> HeaderMap + Unpin> HttpBody for Trailing<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.trailers.is_none() {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.or_else(|| self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers())))))
    }

    fn size_hint(&self) -> SizeHint {
        // An exact size hint of the inner body would make the body look as if it had no trailers.
        SizeHint::new()
    }
}

/// Creates a body sent in pieces, each after a pause of the time that its bytes take.
pub(crate) fn slowed(content: Bytes, per_byte: Duration) -> Body {
    const PIECE: usize = 32 << 10;
    let next = move |rest: Bytes| async move {
        if rest.is_empty() {
            return None;
        }
        let mut rest = rest;
        let piece = rest.split_to(rest.len().min(PIECE));
        clock::sleep(per_byte * u32::try_from(piece.len()).unwrap_or(u32::MAX)).await;
        Some((Ok::<_, Infallible>(piece), rest))
    };
    Body::from_stream(stream::unfold(content, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestProvider, TestResponse, get, request};
    use crate::options::Options;

    #[test]
    fn pauses_lie_between_pieces_and_fill_the_duration() {
        let pause =
            |count, millis| PieceSequence::over(count, Duration::from_millis(millis), 0.0).pause.as_micros();
        assert_eq!((pause(1, 90), pause(2, 90), pause(10, 90), pause(4, 0)), (90_000, 90_000, 10_000, 0));
    }

    #[test]
    fn timings_are_written_as_browsers_read_them() {
        let timing = server_timing(&[
            ("a", Duration::from_micros(1_500), "first"),
            ("b", Duration::from_secs(2), "second"),
        ]);
        assert_eq!(timing, "a;dur=1.50;desc=\"first\", b;dur=2000.00;desc=\"second\"");
    }

    /// A response, and the time until it was complete.
    async fn timed(target: &str) -> (TestResponse, Duration) {
        let started = tokio::time::Instant::now();
        (get(target).await, started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn responses_take_the_time_that_their_path_names() {
        for (target, millis, pieces) in [
            ("/delay/0.25", 250, 1),
            ("/delay/250ms", 250, 1),
            ("/delay/constant:1s", 1_000, 1),
            ("/drip?duration=1s&delay=500ms&numbytes=5", 1_500, 5),
            ("/drip?duration=0&delay=0&numbytes=5", 0, 1),
            ("/stream/3", 0, 3),
            ("/jsonl?count=3&duration=600ms", 600, 3),
            ("/bandwidth/1000/500", 500, 50),
            ("/range/100?duration=200ms", 200, 1),
        ] {
            let (response, elapsed) = timed(target).await;
            assert_eq!(response.status, 200, "{target}");
            assert_eq!((elapsed.as_millis(), response.pieces.len()), (millis, pieces), "{target}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_report_their_timing_in_a_trailer() {
        // hyper does not send trailers, so only an HTTP/1.0 client gets this response from it.
        let mut request = request("GET", "/sse?count=4&duration=900ms&delay=100ms", &[], "");
        *request.version_mut() = axum::http::Version::HTTP_10;
        let started = tokio::time::Instant::now();
        let response = TestProvider::new(Options::default()).send(request).await;
        assert_eq!((started.elapsed().as_millis(), response.pieces.len()), (1_000, 4));
        assert!(response.text().starts_with("event: ping\ndata: {\"id\":0,\"timestamp\":"), "{response:?}");
        let timing = response.trailers[&SERVER_TIMING].to_str().unwrap();
        assert!(timing.contains("initial_delay;dur=100.00;"), "{timing}");
        assert!(
            timing.contains("write_duration;dur=900.00;") && timing.contains("pause_per_write;dur=300.00;")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_is_drawn_from_its_distribution_and_reported() {
        let mut millis = Vec::new();
        for seed in 0..200 {
            let (response, elapsed) = timed(&format!("/delay/normal:150ms,20ms?seed={seed}")).await;
            let reported = response.field("server-timing").strip_prefix("initial_delay;dur=").unwrap();
            let reported: f64 = reported.split(';').next().unwrap().parse().unwrap();
            assert!((reported - elapsed.as_secs_f64() * 1e3).abs() < 2.0, "{reported} {elapsed:?}");
            millis.push(reported);
        }
        let mean = egret_measure::statistics::mean(&millis).unwrap();
        let deviation = egret_measure::statistics::standard_deviation(&millis).unwrap();
        assert!((mean - 150.0).abs() < 5.0 && (deviation - 20.0).abs() < 4.0, "{mean} {deviation}");
    }

    #[tokio::test(start_paused = true)]
    async fn times_beyond_the_maximum_are_refused_at_once() {
        for (target, detail) in [
            ("/delay/11", "invalid duration: longer than 10s"),
            ("/delay/soon", "invalid duration: write seconds like 0.15 or a duration like 150ms"),
            ("/drip?duration=6s&delay=5s", "too much time: 6s+5s > 10s"),
            ("/drip?numbytes=0", "invalid numbytes: \"0\" is not a whole number from 1 to 1048576"),
            ("/jsonl?duration=0", "invalid duration: too short"),
            ("/sse?jitter=2", "invalid jitter: write a number from 0 to 1"),
            ("/bandwidth/1/100", "too much time: 100s > 10s"),
            ("/bandwidth/0/100", "invalid rate: write bytes per second like 65536 or 64KiB"),
        ] {
            let (response, elapsed) = timed(target).await;
            assert_eq!((response.status, elapsed), (400, Duration::ZERO), "{target}");
            assert_eq!(response.json()["detail"], detail, "{target}");
        }
        let together = get("/sse?duration=6s&delay=6s").await;
        assert_eq!((together.status, together.text()), (400, "Too much time\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_moves_each_piece_by_at_most_its_share() {
        let (_, elapsed) = timed("/jsonl?count=101&duration=1s&jitter=0.5&seed=3").await;
        // A hundred pauses of 5 to 15 ms each, 10 ms on average.
        assert!((900..1_100).contains(&elapsed.as_millis()) && elapsed.as_millis() != 1_000, "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn numbers_of_lines_are_clamped_to_their_bounds() {
        for (target, lines) in
            [("/stream/0", 1), ("/stream/-5", 1), ("/stream/1000", 100), ("/jsonl?count=0", 1)]
        {
            let text = get(target).await;
            assert_eq!(text.text().lines().count(), lines, "{target}");
            let last: serde_json::Value = serde_json::from_str(text.text().lines().last().unwrap()).unwrap();
            assert_eq!(last["id"], lines - 1, "{target}");
        }
    }
}
