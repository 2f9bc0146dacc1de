//! Runs a second call beside a slow one. The first response wins, and the other call is dropped.

use std::fmt;
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::{Method, Progress};
use tracing::debug;

use crate::exchange::call::{Exchange, Stop};
use crate::exchange::state::ResponseState;
use crate::failure::{ErrorKind, Failure};
use crate::upstream::{Connection, Upstream};
use crate::worker::local::{View, Worker};
use egret_net::event_loop::{Alarm, sleep};

/// The result of a second call: the connection, and the head of a final response with the bytes behind it.
type Second = Result<(Box<Connection>, Box<ResponseState>), Failure>;

/// A second call that waits for its start time or is in progress.
pub(crate) struct Hedge {
    /// The request: head and body.
    message: Vec<u8>,
    alarm: Alarm,
    call: Option<Pin<Box<dyn Future<Output = Second>>>>,
}

impl fmt::Debug for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hedge").field("called", &self.call.is_some()).finish_non_exhaustive()
    }
}

impl Hedge {
    /// Sends `message` again if there is no response within `after`.
    pub fn new(message: Vec<u8>, after: Duration) -> Self {
        Self { message, alarm: sleep(after), call: None }
    }
}

impl Exchange<'_> {
    /// Polls the second call. Once it is ready, its response and connection replace those of the slow call.
    pub(super) fn poll_hedge(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<()> {
        let Some(hedge) = self.flow_run.as_mut().and_then(|flow_run| flow_run.hedge.as_mut()) else {
            return Poll::Pending;
        };
        let mut hedged = false;
        if hedge.call.is_none() {
            if Pin::new(&mut hedge.alarm).poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.upstream.counters().repeats.add(1);
            let (worker, view) = (Rc::clone(&self.client.worker), Rc::clone(&self.view));
            let message = std::mem::take(&mut hedge.message);
            hedged = true;
            hedge.call = Some(Box::pin(call(
                worker,
                view,
                Rc::clone(&self.upstream),
                message,
                self.state.request.method,
            )));
        }
        if hedged && let Some(flow_run) = &mut self.flow_run {
            flow_run.draft.hedged = true;
        }
        let hedge = self.flow_run.as_mut().and_then(|flow_run| flow_run.hedge.as_mut());
        let Some(second) = hedge.and_then(|hedge| hedge.call.as_mut()) else { return Poll::Pending };
        match second.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok((other, response_state))) => {
                debug!(provider = self.upstream.plan.stats.name(), "the second call was faster");
                *connection = *other;
                self.received_bytes += response_state.output.filled().len() as u64;
                self.state.return_response_state(&self.client.worker.pools);
                self.state.set_response_state(response_state);
                self.clock.first_byte = Moment::now();
                self.end_hedge();
                Poll::Ready(())
            }
            Poll::Ready(Err(failure)) => {
                debug!(error = failure.kind.slug(), "the second call failed");
                self.end_hedge();
                Poll::Pending
            }
        }
    }

    /// Waits for the second call, if it is in progress, after the first has failed. Returns `true` if it has
    /// a response.
    pub(super) async fn is_saved_by_hedge(&mut self, connection: &mut Connection) -> Result<bool, Stop> {
        let is_called = |exchange: &Self| {
            let hedge = exchange.flow_run.as_ref().and_then(|flow_run| flow_run.hedge.as_ref());
            hedge.is_some_and(|hedge| hedge.call.is_some())
        };
        poll_fn(|cx| {
            if !is_called(self) {
                return Poll::Ready(Ok(false));
            }
            if self.poll_hedge(cx, connection).is_ready() {
                return Poll::Ready(Ok(true));
            }
            if !is_called(self) {
                return Poll::Ready(Ok(false));
            }
            self.poll_waiting(cx)
        })
        .await
    }

    /// Drops the second call.
    pub(super) fn end_hedge(&mut self) {
        if let Some(flow_run) = &mut self.flow_run {
            flow_run.hedge = None;
        }
    }
}

/// Makes the second call.
async fn call(
    worker: Rc<Worker>,
    view: Rc<View>,
    upstream: Rc<Upstream>,
    message: Vec<u8>,
    method: Method,
) -> Second {
    let mut connection = match upstream.take_idle(Moment::now()) {
        Some(connection) => connection,
        None => upstream.connect(&worker.shared.network).await?.0,
    };
    let mut sent = 0;
    let gone =
        || Failure::new(ErrorKind::ProviderClosed, "the provider closed the connection of the second call");
    poll_fn(|cx| {
        while sent < message.len() {
            match connection.stream.poll_write(cx, &[IoSlice::new(&message[sent..])]) {
                Poll::Ready(Ok(count)) if count > 0 => sent += count,
                Poll::Ready(_) => return Poll::Ready(Err(gone())),
                Poll::Pending => return Poll::Pending,
            }
        }
        connection.stream.poll_flush(cx).map_err(|_| gone())
    })
    .await?;
    upstream.counters().sent_bytes.add(message.len() as u64);
    let mut response_state = Box::<ResponseState>::default();
    worker.pools.buffers.lend(&mut response_state.output);
    poll_fn(|cx| poll_head(cx, &worker, &view, &mut connection, &mut response_state, method)).await?;
    Ok((connection, response_state))
}

/// Receives the head of a final response. Informational responses are dropped: the client gets those of the
/// first call.
fn poll_head(
    cx: &mut Context<'_>,
    worker: &Worker,
    view: &View,
    connection: &mut Connection,
    response_state: &mut ResponseState,
    method: Method,
) -> Poll<Result<(), Failure>> {
    let ResponseState { output, response, .. } = response_state;
    loop {
        if output.is_full() {
            worker.pools.buffers.grow(output, view.plan.head_limits.head + 1);
        }
        match connection.stream.poll_read(cx, output.spare()) {
            Poll::Ready(Ok(count)) if count > 0 => output.advance(count),
            Poll::Ready(_) => {
                let detail = "the provider closed the connection of the second call";
                return Poll::Ready(Err(Failure::new(ErrorKind::ProviderClosed, detail)));
            }
            Poll::Pending => return Poll::Pending,
        }
        while !output.filled().is_empty() {
            let progress = response
                .parse(output.filled(), &view.plan.head_limits, method)
                .map_err(Failure::bad_response)?;
            match (progress, response.status) {
                (Progress::Partial, _) => break,
                (Progress::Complete, 102..=199 | 100) => output.remove(0, response.len),
                (Progress::Complete, 200..=599) => return Poll::Ready(Ok(())),
                (Progress::Complete, _) => {
                    let detail = "the provider responded to the second call with an invalid status code";
                    return Poll::Ready(Err(Failure::new(ErrorKind::BadResponse, detail)));
                }
            }
        }
    }
}
