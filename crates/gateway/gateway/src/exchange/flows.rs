//! Runs an exchange through the flows that match it: the request passes the remedies inwards, the response
//! passes them outwards, and a remedy may repeat the call.
//!
//! `egret-flow` makes the remedies' decisions; this file and `outcome` carry them out. Exchanges that no flow
//! matches never come here.

mod outcome;

use std::borrow::Cow;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_cache::Served;
use egret_clock::{Moment, Timestamp, planted};
use egret_flow::{Flows, RemedyChain, RequestStep, ResponseStep};
use egret_http1::{RequestHead, Span, TargetForm};
use egret_match::expression::EXPRESSION_BODY_BYTES_MAX;
use egret_match::router::Matches;
use egret_message::grpc::GrpcStatus;
use egret_message::request_target::split_target;
use egret_message::{Outcome, ReceivedMessage};
use egret_net::event_loop::{Alarm, now, sleep_until};
use egret_observe::failure::{ErrorKind, Failure};
use egret_remedy::{Exchange, PendingChanges, SecondCall};
use egret_store::coalescer::Background;

use crate::exchange::call::Call;
use crate::exchange::gather::{await_first_event, await_first_message, gather_request, gather_response};
use crate::exchange::reply::{self, Ended};
use crate::exchange::stop::{Stop, check_generation};
use crate::exchange::{credentials, endpoint, hedge};
use crate::recorder::{RecordedRequest, Recording};
use crate::state::changes::Outbound;
use crate::state::flow_run::{ExchangeView, FlowRun, StoredPart};
use egret_upstream::{CallTarget, Connection, Upstream, View};

/// Minimum time before a waiting remedy is polled again.
const WAKE_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Maximum time that an exchange waits for a place in the queue of records. A disk that hangs must not block
/// traffic for ever.
const PLACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a waiting exchange checks for a place.
const PLACE_INTERVAL: Duration = Duration::from_millis(5);

/// The detail of a call that a fault has reset.
pub(crate) const RESET: &str = "the remedy `fault` has reset this call to test how the application copes";

/// The outcome of the request on its way inwards.
enum CallOutcome {
    /// A provider responded: the response state holds the head.
    Response(Box<Connection>),
    /// A remedy responded in the provider's place: the response state holds the whole response.
    LocalResponse(Option<Failure>),
    /// A stored response. The response state holds its head if remedies need it.
    Stored(Box<Served>),
    /// The call failed.
    Failure(Failure),
}

/// A wait for a remedy's decision, with its timer.
struct PendingTimer {
    since: Moment,
    alarm: Option<Alarm>,
}

/// An exchange with its run through the flows.
struct Guided<'c, 'a> {
    call: &'c mut Call<'a>,
    run: Box<FlowRun>,
}

/// Returns `true` if the exchange is recorded for the readers of live traffic, `false` if it only has to pass
/// the flows or has a choice of endpoints, and `None` if there is neither.
pub(crate) fn records_live(call: &Call<'_>) -> Option<bool> {
    let is_watched = call.client.connection.worker.is_sampled(&call.view);
    let is_guided = !call.view.plan.flows.is_empty() || call.upstream.has_endpoints();
    (is_watched || is_guided).then_some(is_watched)
}

/// Serves the request of `call` through the flows that match it, or straight from the provider if none of
/// them has a remedy and the provider has one endpoint alone. Records it for the readers of live traffic if
/// `is_watched`. Returns how it ended, with the run through the remedies if there was one.
pub(crate) async fn serve(
    call: &mut Call<'_>,
    target: &CallTarget,
    is_watched: bool,
) -> (Option<Box<FlowRun>>, Ended) {
    if let Err(stop) = check_generation(call) {
        let ended = Box::pin(reply::stop(call, stop)).await;
        return (None, ended);
    }
    let mut guided = Guided::new(call);
    guided.run.is_watched = is_watched;
    // These calls are boxed, so exchanges without flows stay below 1 KiB, the limit of the allocator's fast
    // path.
    let has_remedies = match guided.find_flows(target).await {
        Ok(has_remedies) => has_remedies,
        Err(stop) => {
            let ended = Box::pin(reply::stop(guided.call, stop)).await;
            return (Some(guided.run), ended);
        }
    };
    if has_remedies || target.upstream.has_endpoints() {
        let ended = Box::pin(guided.run_or_stop(target)).await;
        return (Some(guided.run), ended);
    }
    let Guided { call, run } = guided;
    call.client.connection.worker.return_flow_run(run);
    (None, reply::run(call, target).await)
}

/// Returns the call that the remedies of `run` have made of `target`, the one that the client's request, in
/// `received`, stands for. Remedies may have switched the provider. A path set by them that belongs to
/// another provider goes to that provider. Anything that remedies did not change stays.
pub(crate) fn drafted<'t>(
    view: &View,
    run: &FlowRun,
    target: &'t CallTarget,
    received: &[u8],
) -> Result<Cow<'t, CallTarget>, Failure> {
    let elsewhere = run.draft.call.provider.and_then(|number| view.upstreams.get(number)).map(Rc::clone);
    let is_elsewhere = elsewhere.is_some();
    let target = match elsewhere {
        // The alternate call is made as if the client had named its provider.
        Some(upstream) => {
            Cow::Owned(CallTarget { new_target: true, ..CallTarget::whole(upstream, target.target) })
        }
        None => Cow::Borrowed(target),
    };
    let unchanged = || is_elsewhere.then(|| target.target.of(received));
    let Some(path) = run.draft.target.as_deref().or_else(unchanged) else { return Ok(target) };
    let table = &view.plan.table;
    let Some(named) = table.by_name(target.upstream.plan.provider().as_bytes()) else { return Ok(target) };
    let (path, _) = split_target(path);
    let belongs = table.owners_beside(named).of_named(named, path).map_err(|why| {
        Failure::new(ErrorKind::RemedyFailed, format!("a flow changed the path to an invalid one: {why}"))
    })?;
    if belongs.provider == named {
        return Ok(target);
    }
    let upstream = Rc::clone(&view.upstreams[belongs.provider]);
    let based_on = Some(Rc::clone(&target.upstream));
    let target = target.into_owned();
    Ok(Cow::Owned(CallTarget { upstream, based_on, kept_host: None, has_own_host: false, ..target }))
}

/// Returns path and query of a request as records have them. `target` is `None` if it could not be routed.
pub(crate) fn recorded_path(request: &RequestHead, target: Option<&CallTarget>) -> Span {
    match (request.target_form, target) {
        (TargetForm::Authority, _) => Span::default(),
        (_, Some(target)) => target.target,
        (TargetForm::Origin | TargetForm::Asterisk, None) => request.target,
        (TargetForm::Absolute, None) => Span {
            start: request.authority.map_or(request.target.end, |authority| authority.end),
            end: request.target.end,
        },
    }
}

/// Starts to record a request that ends here, if flows with diagnoses match it. `target` is `None` if the
/// request could not be routed. The flows match without its body.
pub(crate) fn record_only(call: &mut Call<'_>, target: Option<&CallTarget>) {
    let is_watched = call.client.connection.worker.is_sampled(&call.view);
    if call.view.plan.flows.diagnoses.is_empty() && !is_watched {
        return;
    }
    let path = recorded_path(&call.state.request, target);
    let mut guided = Guided::new(call);
    guided.run.is_watched = is_watched;
    guided.run.start(target.cloned(), path, guided.call.state);
    let roll = guided.run.draft.random.draw();
    let now = guided.timestamp(guided.call.clock.begun);
    guided.run.find(&guided.call.view.plan.flows, guided.call.state, now, roll);
    guided.start_recording();
    let run = guided.run;
    call.client.connection.worker.return_flow_run(run);
}

/// Makes a background call through the remedy that requested it and the inner ones. Returns how it ended,
/// with the run through the remedies, or `None` if it was not made.
pub(crate) async fn revalidate(
    call: &mut Call<'_>,
    target: &CallTarget,
    matches: Matches,
    background: Background,
    outer: &PendingChanges,
) -> Option<(Box<FlowRun>, Ended)> {
    let mut guided = Guided::new(call);
    let view = Rc::clone(&guided.call.view);
    let flows = &view.plan.flows;
    guided.run.start(Some(target.clone()), target.target, guided.call.state);
    let is_there = guided.run.start_revalidation(flows, matches, background, outer);
    let max = guided.run.request_body_max(guided.call.state);
    if !is_there || (!guided.run.body.is_whole && guided.gather_request(max).await.is_err()) {
        let Guided { call, run } = guided;
        call.client.connection.worker.return_flow_run(run);
        return None;
    }
    let ended = Box::pin(guided.run_or_stop(target)).await;
    Some((guided.run, ended))
}

impl<'c, 'a> Guided<'c, 'a> {
    /// Lends a flow run to `call`.
    fn new(call: &'c mut Call<'a>) -> Self {
        let mut run = call.client.connection.worker.take_flow_run();
        run.is_watched = false;
        Self { call, run }
    }

    fn timestamp(&self, at: Moment) -> Timestamp {
        self.call.client.connection.worker.shared.clock.timestamp(at)
    }

    /// Finds the flows that match the request. Returns `true` if they have any remedy.
    async fn find_flows(&mut self, target: &CallTarget) -> Result<bool, Stop> {
        let view = Rc::clone(&self.call.view);
        let flows = &view.plan.flows;
        let now = self.timestamp(self.call.clock.begun);
        self.run.start(Some(target.clone()), target.target, self.call.state);
        if view.plan.forwarded_for {
            self.run.draft.client = self.call.client.peer_address();
        }
        let roll = self.run.draft.random.draw();
        let mut found = self.run.find(flows, self.call.state, now, roll);
        if found.is_none() {
            self.gather_request(EXPRESSION_BODY_BYTES_MAX).await?;
            found = self.run.find(flows, self.call.state, now, roll);
        }
        self.start_recording();
        if self.call.waits_for_place() {
            Box::pin(self.wait_for_place()).await?;
        }
        if found == Some(true) && !self.run.body.is_whole {
            let max = self.run.request_body_max(self.call.state);
            self.gather_request(max).await?;
        }
        Ok(found.unwrap_or_default())
    }

    /// Receives the request's whole body, unless it has more than `max` bytes.
    async fn gather_request(&mut self, max: usize) -> Result<(), Stop> {
        let FlowRun { body, told_to_continue, .. } = &mut *self.run;
        // Boxed, so exchanges that gather nothing stay small.
        Box::pin(gather_request(self.call, body, told_to_continue, max)).await
    }

    /// Starts to record the client's call, if any matching flow has diagnoses.
    fn start_recording(&mut self) {
        let has_readers = self.run.is_watched || !self.call.view.plan.flows.diagnoses.is_empty();
        if !has_readers || check_generation(self.call).is_err() {
            return;
        }
        let worker = &self.call.client.connection.worker;
        let bytes = self.call.state.input.filled();
        let request = RecordedRequest {
            head: &self.call.state.request,
            bytes,
            call: self.run.forward.as_ref(),
            target: self.run.target.of(bytes),
            generation: self.call.view.plan.generation,
        };
        let flows = &self.call.view.plan.flows;
        let recording = Recording::start(flows, &self.run.matches, worker, self.run.is_watched, request);
        self.call.record(recording);
    }

    /// Waits for a place for the record. After the timeout the exchange continues, and may not be recorded.
    async fn wait_for_place(&mut self) -> Result<(), Stop> {
        let since = Moment::now();
        let mut now = since;
        while self.call.waits_for_place() && now.since(since) < PLACE_TIMEOUT {
            self.wait_until(self.timestamp(now + PLACE_INTERVAL)).await?;
            now = Moment::now();
        }
        self.call.note_waited(since, now);
        Ok(())
    }

    async fn run_or_stop(&mut self, target: &CallTarget) -> Ended {
        match self.run_remedies(target).await {
            Ok(ended) => ended,
            Err(stop) => reply::stop(self.call, stop).await,
        }
    }

    /// Runs the exchange through its remedies, and again for each repetition that they request.
    async fn run_remedies(&mut self, target: &CallTarget) -> Result<Ended, Stop> {
        loop {
            let mut outcome = self.run_request(target).await?;
            let at = loop {
                match self.run_response(&outcome) {
                    ResponseStep::Pass => return Ok(self.conclude(outcome).await),
                    ResponseStep::LocalResponse(response) => {
                        self.discard(outcome).await?;
                        outcome = self.hold_response(*response);
                    }
                    ResponseStep::Repeat(at) => {
                        self.note_attempt(&outcome);
                        self.discard(outcome).await?;
                        break at;
                    }
                }
            };
            self.wait_until(at).await?;
            self.call.prepare_repetition();
        }
    }

    /// Records the attempt that is about to be repeated, if the exchange is recorded and a call was made.
    fn note_attempt(&mut self, outcome: &CallOutcome) {
        let (status, error) = match outcome {
            CallOutcome::Response(_) => {
                let failed = self.call.grpc_outcome().status().filter(|status| *status != GrpcStatus::Ok);
                (self.call.state.response_state.response.status, failed.map(GrpcStatus::word))
            }
            CallOutcome::Failure(failure) => (0, Some(failure.kind.slug())),
            CallOutcome::LocalResponse(_) | CallOutcome::Stored(_) => return,
        };
        self.call.note_attempt(status, error);
    }

    /// Runs the request through its remedies, and calls the provider if they let it pass.
    async fn run_request(&mut self, target: &CallTarget) -> Result<CallOutcome, Stop> {
        loop {
            match self.pass_remedies().await? {
                RequestStep::LocalResponse(response) => {
                    self.request_revalidation(target);
                    return Ok(self.hold_response(*response));
                }
                RequestStep::Call => {
                    let called = loop {
                        let called = self.call_and_gather(target).await;
                        if !endpoint::is_left(self.call, &mut self.run, &called) {
                            break called;
                        }
                        self.leave_endpoint(called);
                    };
                    match called {
                        Ok(connection) => return Ok(CallOutcome::Response(connection)),
                        Err(Stop::Failure(failure)) => return Ok(CallOutcome::Failure(failure)),
                        Err(Stop::NotPermitted) => self.decide_again(RemedyChain::take_again),
                        Err(Stop::Stale) => {
                            self.decide_again(RemedyChain::draw_again);
                            self.run.draft.needs_new_connection = true;
                        }
                        Err(stop) => return Err(stop),
                    }
                }
            }
        }
    }

    /// Prepares to call another endpoint, after there was no connection to one.
    #[cold]
    fn leave_endpoint(&mut self, called: Result<Box<Connection>, Stop>) {
        self.run.draft.calls -= 1;
        if let Err(Stop::Failure(failure)) = called {
            self.note_attempt(&CallOutcome::Failure(failure));
        }
        self.call.prepare_repetition();
    }

    /// Goes `back` to a remedy that has to decide again, because its grant has ended before the call was
    /// sent, or because the call has to be sent again.
    fn decide_again(&mut self, back: impl FnOnce(&mut RemedyChain, &Flows, &mut Exchange<'_>)) {
        self.run.draft.calls -= 1;
        let now = self.call.note_not_sent();
        let (flows, view) = (&self.call.view.plan.flows, self.call.exchange_at(now));
        self.run.with_exchange(flows, view, |chain, exchange| back(chain, flows, exchange));
    }

    /// Calls the provider, and receives as much of the response as remedies need before it is forwarded.
    async fn call_and_gather(&mut self, target: &CallTarget) -> Result<Box<Connection>, Stop> {
        let mut connection = self.make_call(target).await?;
        if let Some(mask) = &self.run.mask {
            let response_state = &mut self.call.state.response_state;
            credentials::mask_response(response_state, mask).map_err(Stop::Failure)?;
        }
        self.call.note_grpc_head();
        if self.run.needs_grpc_status() {
            await_first_message(self.call, &mut connection).await?;
        }
        if let Some(limit) = self.run.draft.call.first_event {
            // Boxed, because few calls have such a limit.
            Box::pin(await_first_event(self.call, &mut connection, limit)).await?;
        }
        let max = self.run.response_body_max(&self.call.view.plan.flows, &self.call.state.response_state);
        let FlowRun { response_body, mask, .. } = &mut *self.run;
        gather_response(self.call, response_body, mask.as_ref(), &mut connection, max).await?;
        Ok(connection)
    }

    /// Calls the provider with the draft's changes.
    async fn make_call(&mut self, target: &CallTarget) -> Result<Box<Connection>, Stop> {
        self.run.draft.calls += 1;
        self.run.draft.second_call = SecondCall::None;
        let options = self.run.draft.call;
        if let Some(total) = options.total {
            self.call.end_at(self.call.clock.begun + total);
        }
        let received = self.call.state.input.filled();
        let target = drafted(&self.call.view, &self.run, target, received).map_err(Stop::Failure)?;
        if target.based_on.is_some() {
            self.drop_credentials();
        }
        let target = match self.certified(&target.upstream, options.account) {
            Some(upstream) => Cow::Owned(CallTarget { upstream, ..target.into_owned() }),
            None => target,
        };
        self.run.takes_credentials = target.destination().takes_credentials;
        let target = endpoint::choose(&mut self.run, target);
        self.call.switch_to(Rc::clone(&target.upstream));
        let (credential, mask) = credentials::prepare(self.call, &self.run, &target)?;
        let outbound = self.run.lend_outbound(&self.call.view.plan.flows, credential, mask);
        let obtained = self.obtain_response(&target, outbound).await;
        if let Some(outbound) = self.call.take_outbound() {
            self.run.take_back_outbound(outbound);
        }
        obtained
    }

    async fn obtain_response(
        &mut self,
        target: &CallTarget,
        outbound: Box<Outbound>,
    ) -> Result<Box<Connection>, Stop> {
        let hedge = outbound.hedge.clone();
        self.call.lend_outbound(outbound, self.run.replay_bytes());
        match hedge {
            // A new connection cannot be stale, so the request is not sent a third time.
            _ if mem::take(&mut self.run.draft.needs_new_connection) => {
                Box::pin(self.call.obtain_response(target, true)).await
            }
            None => self.call.obtain_response(target, false).await,
            Some(order) => {
                // Boxed, because few calls are hedged.
                let (obtained, second_call) =
                    Box::pin(hedge::obtain_response(self.call, target, &order)).await;
                self.run.draft.second_call = second_call;
                obtained
            }
        }
    }

    /// Removes the credentials that the client sent from the call: they were meant for another provider.
    fn drop_credentials(&mut self) {
        let view = self.call.exchange_at(self.call.clock.begun);
        self.run.with_exchange(&self.call.view.plan.flows, view, |_, exchange| exchange.drop_credentials());
    }

    /// Returns the upstream that shows `account`'s client certificate to the provider of `upstream`, if the
    /// account has one.
    fn certified(&self, upstream: &Upstream, account: Option<usize>) -> Option<Rc<Upstream>> {
        let number = self.call.view.plan.certified(account?, upstream.plan.provider())?;
        self.call.view.upstreams.get(number).map(Rc::clone)
    }

    /// Waits until all remedies let the request pass, or one responds.
    async fn pass_remedies(&mut self) -> Result<RequestStep, Stop> {
        let mut waiting: Option<PendingTimer> = None;
        let clock = &self.call.clock;
        // A call that has failed may have been sent, as it seems, when the exchange began: then the turn's
        // time is later. Quotas would take an old time for that of a clock that was set back.
        let is_first = clock.sent == clock.begun;
        let mut now = match is_first {
            true if planted!(TimeOfThePast) => clock.begun,
            true => clock.begun.max(now::turned()),
            false => Moment::now(),
        };
        poll_fn(|cx| {
            if waiting.is_some() {
                now = Moment::now();
            }
            loop {
                let polled = self.poll_remedies(cx, now);
                self.request_token();
                self.call.add_followers(self.run.draft.followers.take());
                if let Poll::Ready(onward) = polled {
                    let since = waiting.as_ref().map_or(now, |waiting| waiting.since);
                    self.call.note_waited(since, now);
                    return Poll::Ready(Ok(onward));
                }
                if waiting.is_none() {
                    self.call.disarm_phase();
                }
                if let Poll::Ready(left) = self.poll_waiting_client(cx) {
                    return Poll::Ready(left);
                }
                let waiting = waiting.get_or_insert(PendingTimer { since: now, alarm: None });
                // A remedy that asks to be polled again at once is polled after other tasks have run.
                let alarm = self.wake_at().map(|at| at.max(now + WAKE_INTERVAL_MIN));
                waiting.alarm = alarm.map(sleep_until);
                match waiting.alarm.as_mut().map(|alarm| Pin::new(alarm).poll(cx)) {
                    // The alarm expired while it was being set.
                    Some(Poll::Ready(())) => now = Moment::now(),
                    Some(Poll::Pending) | None => return Poll::Pending,
                }
            }
        })
        .await
    }

    fn poll_remedies(&mut self, cx: &mut Context<'_>, at: Moment) -> Poll<RequestStep> {
        let (flows, view) = (&self.call.view.plan.flows, self.call.exchange_at(at));
        let onward =
            self.run.with_exchange(flows, view, |chain, exchange| chain.poll_request(flows, exchange, cx));
        self.run.count_drafted(&self.call.client.connection.worker.pools.buffers.budget);
        onward
    }

    /// Runs the outcome of the request outwards through its remedies.
    fn run_response(&mut self, outcome: &CallOutcome) -> ResponseStep {
        if self.run.held != StoredPart::Head && matches!(outcome, CallOutcome::Stored(_)) {
            return ResponseStep::Pass;
        }
        let at = match outcome {
            // A head may arrive in pieces, seconds apart. Remedies are not told of the past.
            CallOutcome::Response(_) => self.call.clock.first_byte.max(now::turned()),
            CallOutcome::LocalResponse(_) | CallOutcome::Stored(_) | CallOutcome::Failure(_) => Moment::now(),
        };
        let flows = &self.call.view.plan.flows;
        let response_state = &self.call.state.response_state;
        let whole = mem::take(&mut self.run.response_body);
        let body = match outcome {
            CallOutcome::Response(_) => whole.whole(response_state.output.filled()),
            CallOutcome::LocalResponse(_) => {
                response_state.output.filled().get(response_state.response.len..)
            }
            CallOutcome::Stored(_) | CallOutcome::Failure(_) => None,
        };
        let received =
            ReceivedMessage { head: &response_state.response, bytes: response_state.output.filled(), body };
        let outcome = match outcome {
            CallOutcome::Failure(failure) => {
                Outcome::Failure(failure.of_call(self.call.state.up.moved_bytes > 0))
            }
            CallOutcome::Response(_) | CallOutcome::LocalResponse(_) | CallOutcome::Stored(_) => {
                Outcome::Response(&received)
            }
        };
        let view = ExchangeView { outcome, ..self.call.exchange_at(at) };
        let backward = self.run.with_exchange(flows, view, |chain, exchange| chain.response(flows, exchange));
        self.run.response_body = whole;
        self.run.count_drafted(&self.call.client.connection.worker.pools.buffers.budget);
        backward
    }

    /// Waits until the time of the next call.
    async fn wait_until(&mut self, at: Timestamp) -> Result<(), Stop> {
        let mut alarm = pin!(sleep_until(self.call.client.connection.worker.shared.clock.moment(at)));
        self.call.disarm_phase();
        poll_fn(|cx| match self.poll_waiting_client(cx) {
            Poll::Pending => alarm.as_mut().poll(cx).map(Ok),
            left @ Poll::Ready(_) => left,
        })
        .await
    }

    /// Stays pending while the client waits its turn. A client that has closed its sending side counts as
    /// gone at this point: it would take a slot from others, and there is no call that could be finished.
    fn poll_waiting_client<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Stop>> {
        let polled = self.call.poll_waiting(cx);
        let is_gone = self.call.client.has_closed() && !self.call.is_awaited();
        if is_gone { Poll::Ready(Err(Stop::ClientGone)) } else { polled }
    }

    /// Returns the time at which the remedies want to be polled again.
    fn wake_at(&mut self) -> Option<Moment> {
        let at = self.run.draft.take_poll_at()?;
        Some(self.call.client.connection.worker.shared.clock.moment(at))
    }
}
