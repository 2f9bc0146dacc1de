//! Forwards the bodies of an exchange that have not passed with their heads: what is left of both moves at
//! once, as far as each side allows, until the response is complete or cannot be completed.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_observe::failure::ErrorKind;
use tracing::debug;

use crate::downstream::connection::ClientLeg;
use crate::exchange::call::Call;
use crate::exchange::reply::{Finish, trailers_of};
use crate::state::request::ResponseState;
use egret_body::{Kept, PipeError, Stages, StoredSource, StreamProgress};
use egret_upstream::Connection;

/// Maximum time for which a response is read although its client has left.
const READ_ON_MAX: Duration = Duration::from_mins(10);

/// The source of a response's body.
pub(super) enum BodySource {
    Provider(Box<Connection>),
    /// The cache, which the provider fills meanwhile.
    Store(StoredSource),
}

/// A response whose body is forwarded.
pub(super) struct Forwarding<'c, 'a> {
    pub call: &'c mut Call<'a>,
    pub source: BodySource,
}

impl Forwarding<'_, '_> {
    /// Forwards both bodies until the response's body is complete.
    pub async fn run(&mut self) -> Finish {
        self.call.begin_forwarding();
        self.note_moved();
        poll_fn(|cx| self.poll_bodies(cx)).await
    }

    /// Returns `true` if the rest is read although the client has left: for a remedy, or for the cache.
    pub fn reads_on(&self) -> bool {
        let tail = self.call.inbound.as_ref().and_then(|inbound| inbound.tail.as_ref());
        let stages = self.call.state.response_state.down.stages();
        let fills = stages.is_some_and(|stages| stages.are_inseparable() && stages.storing().is_some());
        (fills || tail.is_some_and(|tail| tail.reads_on)) && self.call.upload.is_complete(self.call.state)
    }

    /// Reads the rest of a response whose client has left, so that its end is known. There is a bound for
    /// such responses, and for the time that each takes.
    pub async fn read_on(&mut self) {
        if !self.call.client.connection.worker.take_left_response() {
            debug!("a client has left, and too many such responses are read already");
            return;
        }
        self.call.state.response_state.down.drop_sink();
        self.call.read_on_until(Moment::now() + READ_ON_MAX);
        self.call.note_progress(self.call.timeouts().idle);
        poll_fn(|cx| self.poll_rest(cx)).await;
        self.call.client.connection.worker.has_read_left_response();
    }

    /// Ready once the response has ended, or its time is over.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let before = self.call.state.response_state.down.read_bytes;
        if self.poll_down(cx).is_ready() {
            return Poll::Ready(());
        }
        // A store is filled by a task that watches the provider itself.
        let is_stored = matches!(self.source, BodySource::Store(_));
        if is_stored || self.call.state.response_state.down.read_bytes != before {
            self.call.note_progress(self.call.timeouts().idle);
        }
        if self.call.client.timer.poll_expired(cx) {
            let now = Moment::now();
            if self.call.deadlines.total.min(self.call.deadlines.phase) <= now {
                return Poll::Ready(());
            }
            self.call.deadlines.rearm(&self.call.client.timer, cx, now);
        }
        Poll::Pending
    }

    /// Forwards more of the response's body.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PipeError>> {
        let ResponseState { output, down, .. } = &mut *self.call.state.response_state;
        let ClientLeg { leg: sink, connection: client, .. } = &mut *self.call.client;
        let shared = (&client.worker.pools.buffers, trailers_of(&self.call.view, self.call.grpc.is_some()));
        match &mut self.source {
            BodySource::Provider(connection) => {
                down.poll(cx, &mut connection.leg, output, &mut Kept::first(0), sink, shared)
            }
            BodySource::Store(stored) => down.poll_stored(cx, stored, sink, shared),
        }
    }

    /// Sets the time until which more must pass, after some has.
    fn note_moved(&mut self) {
        let stages = self.call.state.response_state.down.stages_mut();
        match stages.map_or(StreamProgress::Bytes, Stages::progress) {
            StreamProgress::Bytes => self.call.note_progress(self.call.timeouts().idle),
            StreamProgress::Content(limit) => self.call.note_progress(Some(limit)),
            StreamProgress::Nothing => {}
        }
    }

    fn poll_bodies(&mut self, cx: &mut Context<'_>) -> Poll<Finish> {
        let before = self.call.state.up.moved_bytes + self.call.state.response_state.down.moved_bytes;
        if let BodySource::Provider(connection) = &mut self.source
            && self.call.is_uploading()
        {
            match self.call.poll_up(cx, connection) {
                Poll::Ready(Err(PipeError::SinkGone)) => self.call.upload.refuse(),
                Poll::Ready(Err(_)) => return Poll::Ready(Finish::ClientGone),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        } else if self.call.watch_client(cx).is_err() {
            return Poll::Ready(Finish::ClientGone);
        }
        if self.call.client.has_closed() && self.call.deadlines.half_close == Moment::NEVER {
            self.call.give_half_closed_client_time(Moment::now());
            self.call.deadlines.arm(&self.call.client.timer);
        }
        match self.poll_down(cx) {
            Poll::Ready(Ok(())) => return Poll::Ready(Finish::Complete),
            Poll::Ready(Err(PipeError::SinkGone)) => return Poll::Ready(Finish::ClientGone),
            Poll::Ready(Err(PipeError::Cut)) => {
                self.call.note_failed(ErrorKind::FaultInjected);
                return Poll::Ready(Finish::CutShort);
            }
            Poll::Ready(Err(error)) => {
                debug!(provider = self.call.upstream.plan.stats.name(), ?error, "a response was cut short");
                let detail = "the provider closed the connection before the end of its response";
                self.call.count_cut(ErrorKind::ProviderClosed, detail);
                return Poll::Ready(Finish::CutShort);
            }
            Poll::Pending => {}
        }
        let down = &self.call.state.response_state.down;
        let (waits, taken) = (down.is_blocked_on_sink(), down.moved_bytes);
        if waits != self.call.deadlines.taking.is_waiting() {
            self.call.deadlines.taking.note(waits, Moment::now(), taken);
            self.call.deadlines.arm(&self.call.client.timer);
        }
        if self.call.state.up.moved_bytes + taken != before {
            self.note_moved();
        }
        if self.call.client.timer.poll_expired(cx)
            && let Some(finish) = self.expired(cx)
        {
            return Poll::Ready(finish);
        }
        Poll::Pending
    }

    fn expired(&mut self, cx: &Context<'_>) -> Option<Finish> {
        let now = Moment::now();
        let due = |deadline: Moment| deadline <= now;
        if due(self.call.deadlines.half_close) {
            // The client may be reading the response as it arrives. If none of it moves, the client is
            // probably gone.
            if self.call.state.response_state.down.moved_bytes == self.call.deadlines.half_close_moved_bytes {
                return Some(Finish::ClientGone);
            }
            self.call.give_half_closed_client_time(now);
        }
        if due(self.call.deadlines.total) || due(self.call.deadlines.phase) {
            // The data that the provider has not sent is given up.
            let is_of_provider = self.call.grpc.as_ref().is_none_or(|grpc| grpc.deadline > now);
            if is_of_provider && !self.call.state.response_state.down.is_blocked_on_sink() {
                self.call
                    .count_cut(ErrorKind::IdleTimeout, "the provider stopped in the middle of its response");
            }
            return Some(Finish::CutShort);
        }
        let down = &self.call.state.response_state.down;
        let (taken, rate) = (down.moved_bytes, self.call.view.plan.limits.body_rate.bytes());
        if !self.call.deadlines.taking.keeps_up(now, taken, rate, || self.call.client.hidden_bytes()) {
            self.call.client.give_up();
            return Some(Finish::CutShort);
        }
        self.call.deadlines.rearm(&self.call.client.timer, cx, now);
        None
    }
}
