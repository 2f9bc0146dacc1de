//! Bodies that a flow wants to see before they go on: received as a whole, up to what was asked for, and left where they came in, so that
//! they go on, or are sent again, as any other does.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll, ready};

use egret_http1::{BodyDecoder, BodyError, RequestFraming, ResponseFraming, Span};
use egret_store::Moment;

use super::{Exchange, Stop};
use crate::client::Tray;
use crate::exchange::clock::RateWindow;
use crate::exchange::failure::{ErrorKind, Failure};
use crate::upstream::Connection;

/// Tells a client that waits for it to send its body (RFC 9110 §10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A body that is gathered.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// What of it is here, without framing.
    pub content: Vec<u8>,
    pub is_whole: bool,
    /// Bytes that it takes with its framing where it was received, if it is whole.
    pub framed_len: usize,
}

impl Body {
    /// All of it, if it is here.
    pub fn whole(&self) -> Option<&[u8]> {
        self.is_whole.then_some(self.content.as_slice())
    }

    pub fn clear(&mut self) {
        self.content.clear();
        self.is_whole = false;
        self.framed_len = 0;
    }
}

/// A body on its way to being whole.
struct Gathering {
    decoder: BodyDecoder,
    /// Bytes of the body, with its framing, that are decoded.
    used: usize,
    /// The most that it may come to without framing.
    most: usize,
    spans: Vec<Span>,
}

/// What there is of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gathered {
    Some,
    All,
    TooMuch,
}

impl Gathering {
    fn new(framing: impl Into<ResponseFraming>, most: usize) -> Self {
        let mut decoder = BodyDecoder::none();
        decoder.restart(framing);
        Self { decoder, used: 0, most, spans: Vec::new() }
    }

    /// Decodes what is new in `framed`, the body as far as it is here, onto the end of `body`.
    fn take(&mut self, framed: &[u8], body: &mut Vec<u8>) -> Result<Gathered, BodyError> {
        let bytes = &framed[self.used..];
        self.spans.clear();
        self.used += self.decoder.decode(bytes, &mut self.spans)?;
        self.spans.iter().for_each(|span| body.extend_from_slice(span.of(bytes)));
        // Chunks of a byte each are mostly framing.
        if body.len() > self.most || self.used > 2 * self.most {
            return Ok(Gathered::TooMuch);
        }
        Ok(if self.decoder.is_done() { Gathered::All } else { Gathered::Some })
    }
}

impl Exchange<'_> {
    /// Receives the request's body as a whole, and leaves it in the input too. One of more than `most` bytes is left to pass through.
    pub(super) async fn gather_body(&mut self, most: usize) -> Result<(), Stop> {
        let framing = self.desk.request.framing;
        if most == 0 || matches!(framing, RequestFraming::Length(length) if length > most as u64) {
            return Ok(());
        }
        let Some(guide) = &mut self.guide else { return Ok(()) };
        guide.body.clear();
        let tells = self.desk.request.expect_continue && !mem::replace(&mut guide.told_to_continue, true);
        if tells && !self.client.send_all(CONTINUE).await {
            return Err(Stop::ClientGone);
        }
        let mut gathering = Gathering::new(framing, most);
        self.deadlines.rate = RateWindow::starting(Moment::now(), 0);
        self.note_progress(self.view.plan.timeouts.idle);
        poll_fn(|cx| self.poll_gather(cx, &mut gathering)).await
    }

    fn poll_gather(&mut self, cx: &mut Context<'_>, gathering: &mut Gathering) -> Poll<Result<(), Stop>> {
        let Some(guide) = &mut self.guide else { return Poll::Ready(Ok(())) };
        let head_len = self.desk.request.len;
        let mut progressed = false;
        loop {
            let input = &mut self.desk.input;
            match gathering.take(&input.filled()[head_len..], &mut guide.body.content) {
                Ok(Gathered::Some) => {}
                Ok(ended) => {
                    guide.body.is_whole = ended == Gathered::All;
                    guide.body.framed_len = gathering.used;
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(Stop::Failure(Failure::bad_request_body(error)))),
            }
            if input.is_full() {
                self.client.worker.buffers.grow(input, 2 * input.filled().len());
            }
            match self.client.stream.poll_read(cx, input.spare()) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    input.advance(count);
                    progressed = true;
                    self.client.worker.counters().received_bytes.add(count as u64);
                }
                Poll::Ready(_) => return Poll::Ready(Err(Stop::ClientGone)),
                Poll::Pending => break,
            }
        }
        if progressed {
            self.note_progress(self.view.plan.timeouts.idle);
        }
        self.poll_late_body(cx)
    }

    /// Pending as long as the client may take its time.
    fn poll_late_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let now = Moment::now();
        if !self.client.timer.poll_expired(cx) {
            return Poll::Pending;
        }
        let gathered = self.guide.as_ref().map_or(0, |guide| guide.body.content.len() as u64);
        let is_late = self.deadlines.phase <= now
            || !self.deadlines.rate.keeps_up(now, gathered, self.view.plan.limits.body_rate.bytes());
        if is_late {
            let detail = "the request body, which a flow wants to see, does not arrive in time (`limits.body_rate`, `timeouts.idle`)";
            return Poll::Ready(Err(Stop::Failure(Failure::new(ErrorKind::RequestTimeout, detail))));
        }
        self.deadlines.rearm(self.client, cx, now);
        Poll::Pending
    }

    /// Receives the response's body as a whole, and leaves it in the tray too. One of more than `most` bytes is left to pass through.
    pub(super) async fn gather_response(
        &mut self,
        connection: &mut Connection,
        most: usize,
    ) -> Result<(), Stop> {
        let Some(guide) = &mut self.guide else { return Ok(()) };
        guide.response_body.clear();
        let framing = self.desk.tray.response.framing;
        if most == 0 || matches!(framing, ResponseFraming::Length(length) if length > most as u64) {
            return Ok(());
        }
        guide.gathers_response = true;
        let mut gathering = Gathering::new(framing, most);
        self.note_progress(self.timeouts().idle);
        let gathered = poll_fn(|cx| self.poll_gather_response(cx, &mut gathering, connection)).await;
        if let Some(guide) = &mut self.guide {
            guide.gathers_response = false;
            guide.response_body.framed_len = gathering.used;
            guide.response_body.is_whole = gathered.as_ref().is_ok_and(|gathered| *gathered == Gathered::All);
            if let Some(echoes) = &guide.echoes {
                echoes.mask(&mut guide.response_body.content);
            }
        }
        // Until now the provider was waited for.
        self.clock.first_byte = Moment::now();
        gathered.map(|_| ())
    }

    /// Moves both bodies on until the response's is here, or too much of it.
    fn poll_gather_response(
        &mut self,
        cx: &mut Context<'_>,
        gathering: &mut Gathering,
        connection: &mut Connection,
    ) -> Poll<Result<Gathered, Stop>> {
        if let Poll::Ready(Err(_)) = self.desk.tray.down.poll_backlog(cx, &mut self.client.stream) {
            return Poll::Ready(Err(Stop::ClientGone));
        }
        let before = (self.desk.up.moved_bytes, self.received_bytes);
        if self.is_uploading()
            && let Err(stop) = self.poll_request(cx, connection)
        {
            return Poll::Ready(Err(stop));
        }
        if let Poll::Ready(gathered) = self.poll_response_body(cx, gathering, connection) {
            return Poll::Ready(gathered.map_err(Stop::Failure));
        }
        if (self.desk.up.moved_bytes, self.received_bytes) != before {
            self.note_progress(self.timeouts().idle);
        }
        if self.is_uploading() { self.poll_deadlines(cx) } else { self.poll_waiting(cx) }
    }

    /// Receives the response's body. What of it is here stays in the tray too.
    fn poll_response_body(
        &mut self,
        cx: &mut Context<'_>,
        gathering: &mut Gathering,
        connection: &mut Connection,
    ) -> Poll<Result<Gathered, Failure>> {
        let Some(guide) = &mut self.guide else { return Poll::Ready(Ok(Gathered::TooMuch)) };
        let Tray { output, response, .. } = &mut *self.desk.tray;
        loop {
            match gathering.take(&output.filled()[response.len..], &mut guide.response_body.content) {
                Ok(Gathered::Some) => {}
                Ok(ended) => return Poll::Ready(Ok(ended)),
                Err(error) => return Poll::Ready(Err(Failure::bad_response(error))),
            }
            if output.is_full() {
                self.client.worker.buffers.grow(output, 2 * output.filled().len());
            }
            match ready!(connection.stream.poll_read(cx, output.spare())) {
                Ok(count) if count > 0 => {
                    self.received_bytes += count as u64;
                    output.advance(count);
                }
                Ok(_) if gathering.decoder.end_of_input().is_ok() => {
                    return Poll::Ready(Ok(Gathered::All));
                }
                Ok(_) | Err(_) => {
                    let detail = "the provider closed the connection amid its response, which a flow wants to see whole";
                    return Poll::Ready(Err(Failure::new(ErrorKind::ProviderClosed, detail)));
                }
            }
        }
    }
}
