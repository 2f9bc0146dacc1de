//! Runs a second call beside a slow one. The first response wins, and the other call is dropped.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use egret_clock::Moment;
use egret_http1::Method;
use egret_leg::http1::ResponseTo;
use egret_leg::{Framing, HeadRoom, NoHead, Outgoing, OutgoingHead};
use egret_net::event_loop::{Alarm, now, sleep};
use egret_observe::failure::{ErrorKind, Failure};
use egret_quota::{Grant, SecondDraw};
use egret_remedy::SecondCall;
use tracing::debug;

use crate::exchange::call::{Call, ResponseKind, response_kind};
use crate::exchange::stop::{Stop, too_many_informational, unexpected_switch};
use crate::state::changes::HedgeOrder;
use crate::state::request::ResponseState;
use crate::worker::Worker;
use egret_upstream::{CallTarget, Connection, Needs, Upstream, View};

/// The response to a second call: the connection, and the head of a final response with the bytes behind it.
struct Second {
    connection: Box<Connection>,
    /// The worker turned to the first byte of the response.
    first_byte: Moment,
    /// The units of one of the two calls: the other one's are settled by the response.
    _grants: Vec<Grant>,
    response_state: Box<ResponseState>,
}

/// A second call in progress.
type PendingCall = Pin<Box<dyn Future<Output = Result<Second, Failure>>>>;

/// A second call that waits for its start time or is in progress.
struct Hedge {
    /// The request: head and body.
    request: Vec<u8>,
    alarm: Alarm,
    call: Option<PendingCall>,
    /// The time at which the call was made.
    called_at: Moment,
}

/// The means by which a second call is made.
struct Means {
    worker: Rc<Worker>,
    view: Rc<View>,
    upstream: Rc<Upstream>,
    method: Method,
    needs: Needs,
}

/// The call whose response, or failure, ends the exchange.
enum Winner {
    First(Result<Box<Connection>, Stop>),
    Second(Second),
}

/// Obtains a response like [`Call::obtain_response`], with a second call as `order` has it. Also returns what
/// came of the second call.
pub(crate) async fn obtain_response(
    call: &mut Call<'_>,
    target: &CallTarget,
    order: &HedgeOrder,
) -> (Result<Box<Connection>, Stop>, SecondCall) {
    let means = Means {
        worker: Rc::clone(&call.client.connection.worker),
        view: Rc::clone(&call.view),
        upstream: Rc::clone(&call.upstream),
        method: call.state.request.method,
        needs: call.needs(),
    };
    let (mut hedge, mut second_call) = (None, SecondCall::None);
    let winner = {
        let mut first = pin!(call.obtain_response(target, false));
        poll_fn(|cx| {
            let polled = first.as_mut().poll(cx);
            if let Some(request) = order.take_request() {
                hedge =
                    Some(Hedge { request, alarm: sleep(order.after), call: None, called_at: Moment::NEVER });
            }
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(Winner::First(ended));
            }
            match poll_hedge(cx, &mut hedge, order, &means, &mut second_call) {
                Poll::Ready(second) => Poll::Ready(Winner::Second(second)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    };
    let second = match winner {
        Winner::Second(second) => Some(second),
        Winner::First(Err(Stop::Failure(failure))) if is_called(hedge.as_ref()) => {
            match wait_for_second(call, &mut hedge, order, &means).await {
                Ok(Some(second)) => {
                    let error = failure.kind.slug();
                    debug!(error, "the second call succeeded after the first one failed");
                    Some(second)
                }
                Ok(None) => return (Err(Stop::Failure(failure)), second_call),
                Err(stop) => return (Err(stop), second_call),
            }
        }
        Winner::First(ended) => return (ended, second_call),
    };
    let Some(Second { connection, first_byte, response_state, .. }) = second else {
        return (Err(Stop::ClientGone), second_call);
    };
    call.adopt_response(response_state, first_byte);
    (Ok(connection), SecondCall::Used)
}

fn is_called(hedge: Option<&Hedge>) -> bool {
    hedge.is_some_and(|hedge| hedge.call.is_some())
}

/// Polls the second call, and makes it if its time has come and the quotas inside have units for it. A call
/// that fails is dropped.
fn poll_hedge(
    cx: &mut Context<'_>,
    hedge: &mut Option<Hedge>,
    order: &HedgeOrder,
    means: &Means,
    second_call: &mut SecondCall,
) -> Poll<Second> {
    let Some(Hedge { request, alarm, call, called_at }) = hedge else { return Poll::Pending };
    let second = if let Some(second) = call {
        second
    } else {
        if Pin::new(alarm).poll(cx).is_pending() {
            return Poll::Pending;
        }
        let now = means.worker.shared.clock.timestamp(Moment::now());
        let Some(draw) = SecondDraw::take(&order.redraws, now) else {
            debug!("a quota has nothing left for a second call");
            *hedge = None;
            return Poll::Pending;
        };
        debug!(provider = means.upstream.plan.stats.name(), "a second call is made beside a slow one");
        means.upstream.counters().repeats.add(1);
        (*second_call, *called_at) = (SecondCall::Made, Moment::now());
        call.insert(Box::pin(make_call(means, std::mem::take(request), draw)))
    };
    match second.as_mut().poll(cx) {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(second)) => {
            debug!(provider = means.upstream.plan.stats.name(), "the second call was faster");
            Poll::Ready(second)
        }
        Poll::Ready(Err(failure)) => {
            debug!(error = failure.kind.slug(), "the second call failed");
            *hedge = None;
            Poll::Pending
        }
    }
}

/// Waits for the second call after the first has failed. Returns `None` if it fails too.
async fn wait_for_second(
    call: &mut Call<'_>,
    hedge: &mut Option<Hedge>,
    order: &HedgeOrder,
    means: &Means,
) -> Result<Option<Second>, Stop> {
    // The time of the first call may be over. The second one has as long, from its own beginning.
    let called_at = hedge.as_ref().map_or(Moment::NEVER, |hedge| hedge.called_at);
    call.start_waiting(called_at);
    poll_fn(|cx| {
        if let Poll::Ready(second) = poll_hedge(cx, hedge, order, means, &mut SecondCall::Made) {
            return Poll::Ready(Ok(Some(second)));
        }
        if hedge.is_none() {
            return Poll::Ready(Ok(None));
        }
        call.poll_waiting(cx)
    })
    .await
}

/// Makes the second call with these units.
fn make_call(
    means: &Means,
    request: Vec<u8>,
    draw: SecondDraw,
) -> impl Future<Output = Result<Second, Failure>> + use<> {
    let Means { worker, view, upstream, method, needs } = means;
    let (worker, view, upstream) = (Rc::clone(worker), Rc::clone(view), Rc::clone(upstream));
    let (method, needs) = (*method, *needs);
    async move {
        let limits = view.plan.head_limits;
        let connection = match upstream.take(Moment::now(), needs) {
            Some(connection) => connection,
            None => Rc::clone(&upstream).obtain(&worker.shared.network, needs, limits, false).await?.0,
        };
        if !draw.is_usable() {
            upstream.keep(connection, now::exact(), None, None);
            worker.has_kept();
            return Err(Failure::new(ErrorKind::QuotaExceeded, "the units of the second call have ended"));
        }
        // One value, whose connection is closed before the units are free.
        let mut second = Second {
            connection,
            first_byte: Moment::NEVER,
            _grants: draw.into_grants(),
            response_state: Box::default(),
        };
        send(&worker, &mut second.connection, &request).await?;
        upstream.counters().sent_bytes.add(request.len() as u64);
        worker.pools.buffers.lend(&mut second.response_state.output);
        let mut informational = 0;
        poll_fn(|cx| poll_head(cx, &worker, &view, &mut second, &mut informational, method)).await?;
        Ok(second)
    }
}

fn closed() -> Failure {
    Failure::new(ErrorKind::ProviderClosed, "the provider closed the connection of the second call")
}

async fn send(worker: &Worker, connection: &mut Connection, request: &[u8]) -> Result<(), Failure> {
    let Connection { leg, .. } = connection;
    leg.start(Framing::Length);
    let message = Outgoing { end: Some(&[]), ..Outgoing::head(OutgoingHead::Written(request)) };
    poll_fn(|cx| Poll::Ready(leg.send(cx, &message, &worker.pools.buffers, &mut 0)))
        .await
        .map_err(|_| closed())?;
    poll_fn(|cx| leg.poll_backlog(cx, &mut 0)).await.map_err(|_| closed())
}

/// Receives the head of a final response. Informational responses are dropped: the client gets those of the
/// first call.
fn poll_head(
    cx: &mut Context<'_>,
    worker: &Worker,
    view: &View,
    second: &mut Second,
    informational: &mut u8,
    method: Method,
) -> Poll<Result<(), Failure>> {
    let Second { connection, first_byte, response_state, .. } = second;
    let ResponseState { output, response, .. } = &mut **response_state;
    let room = HeadRoom { limits: &view.plan.head_limits, buffers: &worker.pools.buffers };
    loop {
        let mut head = ResponseTo { method, head: response };
        let is_first = output.filled().is_empty();
        let polled = connection.leg.poll_head(cx, output, &mut head, room);
        if is_first && !output.filled().is_empty() {
            *first_byte = now::turned();
        }
        match ready!(polled) {
            Ok(()) => {}
            Err(NoHead::Malformed(error)) => return Poll::Ready(Err(Failure::bad_response(error))),
            Err(NoHead::End | NoHead::Gone(_) | NoHead::Socks(_)) => return Poll::Ready(Err(closed())),
        }
        match response_kind(response.status)? {
            ResponseKind::Final => return Poll::Ready(Ok(())),
            ResponseKind::Informational => {
                *informational = informational.saturating_add(1);
                if *informational > view.plan.limits.informational {
                    return Poll::Ready(Err(too_many_informational()));
                }
                output.remove(0, response.len);
            }
            ResponseKind::Switching => return Poll::Ready(Err(unexpected_switch())),
        }
    }
}
