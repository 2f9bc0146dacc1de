//! Runs an exchange through the flows that match it: the request passes the remedies inwards, the response
//! passes them outwards, and a remedy may repeat the call.
//!
//! `egret-flow` makes the remedies' decisions; this file carries them out. Exchanges that no flow matches
//! never come here.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_accounts::SecretPatterns;
use egret_cache::Served;
use egret_clock::Moment;
use egret_clock::Timestamp;
use egret_flow::{Backward, Flows, Onward, RemedyChain, Tells};
use egret_http1::{
    Field, HeadLimits, Method, Progress, RequestFraming, ResponseFraming, ResponseHead, Span, TargetForm,
};
use egret_match::expression::BODY_BYTES_MAX;
use egret_match::matching::Question;
use egret_match::router::Matches;
use egret_match::seen_at_end;
use egret_message::request_target::split_target;
use egret_message::{Changes, Fields, Json};
use egret_message::{Destination, Outcome, Received};
use egret_remedy::exchange::{Exchange as FlowExchange, PendingChanges};
use egret_remedy::local_response::LocalResponse;
use egret_store::coalescer::Background;
use egret_store::entries::Block;

use crate::downstream::connection::End;
use crate::exchange::body::{Pipe, Tap};
use crate::exchange::call::{Exchange, Stop};
use crate::exchange::forward::{Reply, edit_generated};
use crate::exchange::gather::Body;
use crate::exchange::hedge::Hedge;
use crate::exchange::pace::RateWindow;
use crate::exchange::state::{RequestState, ResponseState};
use crate::exchange::stored::write_head;
use crate::exchange::target::CallTarget;
use crate::failure::{self, ErrorKind, Failure};
use crate::upstream::{Connection, DialTimes, Upstream};
use crate::worker::local::Worker;
use egret_net::budget::{Budget, Share};
use egret_net::buffer::BUFFER_BYTES;
use egret_net::event_loop::{Alarm, sleep_until};

/// Number of spare flow runs that a worker keeps.
const SPARE_FLOW_RUNS: usize = 256;

/// Minimum time before a waiting remedy is polled again.
const WAKE_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The state of one exchange's run through its flows. A worker lends one to each exchange that a flow
/// matches.
#[derive(Debug, Default)]
pub(crate) struct FlowRun {
    chain: RemedyChain,
    /// The changes that the remedies have made to the exchange so far.
    pub draft: PendingChanges,
    pub matches: Matches,
    /// The call that the client's request stands for. `None` if it cannot be routed.
    pub forward: Option<CallTarget>,
    /// The target, relative to the provider's URL.
    pub target: Span,
    /// The request's body, if a flow needs it.
    pub body: Body,
    /// `true` once the client has been sent 100 (Continue).
    pub told_to_continue: bool,
    /// The response's body, if a remedy needs it before it is forwarded.
    pub response_body: Body,
    /// `true` while that body is being received.
    pub gathers_response: bool,
    /// The part of a stored response that the response state holds.
    pub held: Held,
    /// The share of the budget for gathered bodies that bodies replaced by remedies take.
    drafted: Share,
    /// The secrets to mask in the response to the last call, if any.
    pub echoes: Option<Arc<SecretPatterns>>,
    /// A second call that runs beside a slow one.
    pub hedge: Option<Hedge>,
    /// The head of the response, kept for remedies that inspect it after the body has ended.
    response_head: Vec<u8>,
    /// Memory for the end of the response's body.
    tail: Vec<u8>,
}

/// The part of a stored response that the response state holds, so remedies see it like a received one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Held {
    /// The response state holds none of it.
    #[default]
    Nothing,
    /// The response state holds its head.
    Head,
    /// The response state holds all of it.
    Whole,
}

/// The outcome of the request on its way inwards.
enum Brought {
    /// A provider responded: the response state holds the head.
    Response(Box<Connection>),
    /// A remedy responded in the provider's place: the response state holds the whole response.
    LocalResponse(Option<ErrorKind>),
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

/// The parts of the exchange that the flow run does not own.
#[derive(Clone, Copy)]
struct ExchangeView<'a> {
    worker: &'a Worker,
    at: Moment,
    state: &'a RequestState,
    repeatable: bool,
    outcome: Outcome<'a>,
}

impl FlowRun {
    /// Returns the number of request-body bytes to keep, so the request can be sent again.
    pub fn replay_bytes(&self) -> usize {
        self.chain.needs().replay
    }

    /// Returns the decisions made so far, if the client requested a trace.
    pub fn trace(&self) -> Option<&str> {
        self.chain.trace()
    }

    /// Returns the decisions made so far.
    pub fn decisions(&self) -> &str {
        self.chain.decisions()
    }

    /// Prepares a background call that passes the remedy that requested it and the inner ones. Returns
    /// `false` if that remedy does not run.
    pub fn start_revalidation(
        &mut self,
        flows: &Flows,
        (matches, background, outer): (Matches, Background, &PendingChanges),
        forward: CallTarget,
        state: &RequestState,
    ) -> bool {
        let target = forward.target;
        self.start(Some(forward), target, state);
        self.matches = matches;
        self.draft.inherit(outer);
        let has_remedies = self.chain.start(flows, &self.matches, Tells::default());
        let is_there = has_remedies && self.chain.begin_at(&background, &self.draft);
        self.draft.background = Some(background);
        is_there
    }

    /// Prepares for the request in `state`: the call to make, if any, and its `target`.
    fn start(&mut self, forward: Option<CallTarget>, target: Span, state: &RequestState) {
        self.draft.clear();
        self.forward = forward;
        self.target = target;
        self.body.clear();
        self.body.is_whole = state.request.framing == RequestFraming::None;
        self.told_to_continue = false;
        self.response_body.clear();
        self.drafted.release();
        self.gathers_response = false;
        self.echoes = None;
        self.hedge = None;
    }

    /// Returns the largest number of request-body bytes that remedies need before they decide.
    fn request_body_max(&self, state: &RequestState) -> usize {
        let needs = self.chain.needs();
        let is_json = needs.request_json > 0 && is_plain_json(&state.request.fields, state.input.filled());
        needs.request_body.max(if is_json { needs.request_json } else { 0 })
    }

    /// Returns the largest number of response-body bytes that remedies need before the response is forwarded.
    fn response_body_max(&self, response_state: &ResponseState) -> usize {
        let needs = self.chain.needs();
        let ResponseHead { status, framing, fields, .. } = &response_state.response;
        // Part of a JSON document is not valid JSON.
        let is_whole = !matches!(status, 101 | 206) && *framing != ResponseFraming::None;
        let is_json =
            needs.response_json > 0 && is_whole && is_plain_json(fields, response_state.output.filled());
        if is_json { needs.response_json } else { 0 }
    }

    /// Charges the budget for bodies that remedies made from gathered ones. They already exist, so they are
    /// never refused.
    fn count_drafted(&mut self, budget: &Arc<Budget>) {
        let PendingChanges { request_body, response_body, .. } = &self.draft;
        let bytes = [request_body, response_body].into_iter().flatten().map(|body| body.len()).sum();
        self.drafted.cover_anyway(budget, bytes);
    }

    /// Releases the large bodies of a finished exchange.
    fn forget_bodies(&mut self) {
        self.body.clear();
        self.response_body.clear();
        self.tail.clear();
        self.tail.shrink_to(BUFFER_BYTES);
        self.drafted.release();
        self.draft.request_body = None;
        self.draft.response_body = None;
        // Other exchanges may wait for these two.
        self.draft.filling = None;
        self.draft.background = None;
        // Secrets must not outlive their config.
        self.echoes = None;
    }

    /// Finds the flows that match the request, and returns `true` if they have remedies. Returns `None` if
    /// that depends on a body that has not been received.
    fn find(&mut self, flows: &Flows, state: &RequestState, now: Timestamp, roll: u64) -> Option<bool> {
        let Self { chain, draft, matches, forward, target, body, .. } = self;
        let bytes = state.input.filled();
        let received = Received { head: &state.request, bytes, body: body.whole(bytes) };
        let destination = forward.as_ref().map_or(Destination::NOWHERE, CallTarget::destination);
        let exchange = FlowExchange::new(now, destination, received, target.of(bytes), draft);
        let request = exchange.request();
        flows.find(Question { request: &request, roll, now, has_body: body.is_whole }, matches);
        if matches.is_undecided() && !body.is_whole {
            return None;
        }
        let tells = Tells {
            client: request.fields.get(b"x-egret-trace").is_some(),
            diagnoses: flows.diagnoses.is_for(matches),
        };
        Some(chain.start(flows, matches, tells))
    }

    /// Starts to keep the end of the response, if remedies need it, and to fill the cache, if one stores the
    /// response.
    pub fn tap(&mut self, head: &[u8], down: &mut Pipe, budget: &Arc<Budget>) {
        let most = self.chain.needs().response_tail;
        if most > 0 {
            self.response_head.clear();
            self.response_head.extend_from_slice(head);
            down.tap.get_or_insert_default().keep_end(mem::take(&mut self.tail), most, budget);
        }
        if let Some(filling) = self.draft.filling.take() {
            down.store(filling);
        }
    }

    /// Runs `act` on the chain with a view of the exchange.
    fn go_on<T>(
        &mut self,
        flows: &Flows,
        view: ExchangeView<'_>,
        act: impl FnOnce(&mut RemedyChain, &mut FlowExchange<'_>) -> T,
    ) -> T {
        let Self { chain, draft, matches, forward, target, body, .. } = self;
        let ExchangeView { worker, at, state, repeatable, outcome } = view;
        let bytes = state.input.filled();
        let received = Received { head: &state.request, bytes, body: body.whole(bytes) };
        let destination = forward.as_ref().map_or(Destination::NOWHERE, CallTarget::destination);
        let mut exchange = FlowExchange::new(
            worker.shared.clock.timestamp(at),
            destination,
            received,
            target.of(bytes),
            draft,
        );
        exchange.worker = worker.number;
        exchange.params = flows.params(matches);
        exchange.repeatable = repeatable;
        exchange.outcome = outcome;
        act(chain, &mut exchange)
    }
}

impl Exchange<'_> {
    /// Runs the exchange through the flows that match it, or straight to the provider if none of them has a
    /// remedy.
    pub(super) async fn run_with_flows(&mut self, forward: &CallTarget) -> End {
        let found = match self.find_flows(forward).await {
            Ok(found) => found,
            Err(stop) => return self.stop(stop).await,
        };
        if !found {
            self.return_flow_run();
            return self.run(forward).await;
        }
        // Boxed, so exchanges without flows stay below 1 KiB, the limit of the allocator's fast path.
        match Box::pin(self.guided(forward)).await {
            Ok(end) => end,
            Err(stop) => self.stop(stop).await,
        }
    }

    /// Finds the flows that match the request. Returns `true` if they have any remedy.
    async fn find_flows(&mut self, forward: &CallTarget) -> Result<bool, Stop> {
        let worker = Rc::clone(&self.client.worker);
        let now = worker.shared.clock.timestamp(self.clock.begun);
        let flow_run = self.flow_run.insert(worker.flow_runs.borrow_mut().pop().unwrap_or_default());
        flow_run.start(Some(forward.clone()), forward.target, self.state);
        let roll = flow_run.draft.random.draw();
        let mut found = flow_run.find(&self.view.plan.flows, self.state, now, roll);
        if found.is_none() {
            self.gather_body(BODY_BYTES_MAX).await?;
            found = self
                .flow_run
                .as_mut()
                .and_then(|flow_run| flow_run.find(&self.view.plan.flows, self.state, now, roll));
        }
        self.start_recording();
        if self.waits_for_place() {
            Box::pin(self.wait_for_place()).await?;
        }
        if found == Some(true)
            && let Some(flow_run) = self.flow_run.as_ref().filter(|flow_run| !flow_run.body.is_whole)
        {
            let most = flow_run.request_body_max(self.state);
            self.gather_body(most).await?;
        }
        Ok(found.unwrap_or_default())
    }

    /// Starts to record a request that ends here, if flows with diagnoses match it. `forward` is `None` if
    /// the request could not be routed. The flows match without its body.
    pub(super) fn find_diagnoses(&mut self, forward: Option<&CallTarget>) {
        let flows = &self.view.plan.flows;
        if flows.diagnoses.is_empty() {
            return;
        }
        let worker = Rc::clone(&self.client.worker);
        let now = worker.shared.clock.timestamp(self.clock.begun);
        let request = &self.state.request;
        let target = match (request.target_form, forward) {
            (TargetForm::Authority, _) => Span::default(),
            (_, Some(forward)) => forward.target,
            (TargetForm::Origin | TargetForm::Asterisk, None) => request.target,
            (TargetForm::Absolute, None) => Span {
                start: request.authority.map_or(request.target.end, |authority| authority.end),
                end: request.target.end,
            },
        };
        let flow_run = self.flow_run.insert(worker.flow_runs.borrow_mut().pop().unwrap_or_default());
        flow_run.start(forward.cloned(), target, self.state);
        let roll = flow_run.draft.random.draw();
        flow_run.find(flows, self.state, now, roll);
        self.start_recording();
        self.return_flow_run();
    }

    /// Runs the exchange through its remedies, and again for each repetition that they request.
    async fn guided(&mut self, forward: &CallTarget) -> Result<End, Stop> {
        loop {
            let mut brought = self.inwards(forward).await?;
            let at = loop {
                match self.outwards(&brought) {
                    Backward::Pass => return Ok(self.conclude(brought).await),
                    Backward::LocalResponse(answer) => {
                        self.put_aside(brought).await?;
                        brought = self.take_up(*answer);
                    }
                    Backward::Repeat(at) => {
                        self.note_attempt_of(&brought);
                        self.put_aside(brought).await?;
                        break at;
                    }
                }
            };
            self.wait_until(at).await?;
            self.prepare_repetition();
        }
    }

    /// Records the attempt that is about to be repeated, if the exchange is recorded and a call was made.
    fn note_attempt_of(&mut self, brought: &Brought) {
        match brought {
            Brought::Response(_) => self.note_attempt(self.state.response_state.response.status, None),
            Brought::Failure(failure) => self.note_attempt(0, Some(failure.kind.slug())),
            Brought::LocalResponse(_) | Brought::Stored(_) => {}
        }
    }

    /// Runs the request through its remedies, and calls the provider if they let it pass.
    async fn inwards(&mut self, forward: &CallTarget) -> Result<Brought, Stop> {
        match self.pass_remedies().await? {
            Onward::LocalResponse(answer) => {
                self.send_revalidation(forward);
                Ok(self.take_up(*answer))
            }
            Onward::Call => match self.call_and_gather(forward).await {
                Ok(connection) => Ok(Brought::Response(connection)),
                Err(Stop::Failure(failure)) => Ok(Brought::Failure(failure)),
                Err(stop) => Err(stop),
            },
        }
    }

    /// Calls the provider, and receives as much of the response as remedies need before it is forwarded.
    async fn call_and_gather(&mut self, forward: &CallTarget) -> Result<Box<Connection>, Stop> {
        let mut connection = self.call(forward).await?;
        self.mask_response_head().map_err(Stop::Failure)?;
        let most = self
            .flow_run
            .as_ref()
            .map_or(0, |flow_run| flow_run.response_body_max(&self.state.response_state));
        self.gather_response(&mut connection, most).await?;
        Ok(connection)
    }

    /// Calls the provider with the draft's changes.
    async fn call(&mut self, forward: &CallTarget) -> Result<Box<Connection>, Stop> {
        let Some(flow_run) = &mut self.flow_run else { return self.obtain_response(forward).await };
        flow_run.draft.calls += 1;
        flow_run.draft.hedged = false;
        let call = flow_run.draft.call;
        if let Some(total) = call.total {
            self.deadlines.total = self.clock.begun + total;
        }
        let elsewhere = call.provider.and_then(|number| self.view.upstreams.get(number)).map(Rc::clone);
        let forward = match elsewhere {
            // The alternate call is made as if the client had named its provider.
            Some(upstream) => {
                let forward = CallTarget { new_target: true, ..CallTarget::whole(upstream, forward.target) };
                self.reassigned(forward, true).map_err(Stop::Failure)?
            }
            None => self.reassigned(forward.clone(), false).map_err(Stop::Failure)?,
        };
        if forward.based_on.is_some() {
            self.drop_credentials();
        }
        let upstream = self.certified(&forward.upstream, call.account);
        let upstream = upstream.unwrap_or_else(|| Rc::clone(&forward.upstream));
        self.takes_credentials = forward.destination().takes_credentials;
        self.upstream = Rc::clone(&upstream);
        self.obtain_response(&CallTarget { upstream, ..forward }).await
    }

    /// Removes the credentials that the client sent from the call: they were meant for another provider.
    fn drop_credentials(&mut self) {
        let Some(flow_run) = &mut self.flow_run else { return };
        let at = self.clock.begun;
        let view = ExchangeView {
            worker: &self.client.worker,
            at,
            state: self.state,
            repeatable: false,
            outcome: Outcome::None,
        };
        flow_run.go_on(&self.view.plan.flows, view, |_, exchange| exchange.drop_credentials());
    }

    /// Returns the call for the target set by remedies. A target that belongs to another provider goes to
    /// that provider. If `is_elsewhere`, remedies have already switched the provider. Anything that remedies
    /// did not change stays.
    fn reassigned(&self, forward: CallTarget, is_elsewhere: bool) -> Result<CallTarget, Failure> {
        let drafted = self.flow_run.as_ref().and_then(|flow_run| flow_run.draft.target.as_deref());
        let received = || is_elsewhere.then(|| forward.target.of(self.state.input.filled()));
        let Some(target) = drafted.or_else(received) else { return Ok(forward) };
        let plan = &self.view.plan;
        let provider = forward.upstream.plan.provider();
        let Some(named) = plan.provider_by_name(provider.as_bytes()) else { return Ok(forward) };
        let (path, _) = split_target(target);
        let belongs = plan.owners_beside(named).of_named(named, path).map_err(|why| {
            Failure::new(ErrorKind::RemedyFailed, format!("a flow changed the path to an invalid one: {why}"))
        })?;
        let upstream = &self.view.upstreams[belongs.provider];
        if belongs.provider == named {
            return Ok(forward);
        }
        let (upstream, based_on) = (Rc::clone(upstream), Some(forward.upstream));
        Ok(CallTarget { upstream, based_on, kept_host: None, has_own_host: false, ..forward })
    }

    /// Returns the upstream that shows `account`'s client certificate to the provider of `upstream`, if the
    /// account has one.
    fn certified(&self, upstream: &Upstream, account: Option<usize>) -> Option<Rc<Upstream>> {
        let plan = &self.view.plan;
        let number = plan.certified(account?, upstream.plan.provider())?;
        self.view.upstreams.get(number).map(Rc::clone)
    }

    /// Waits until all remedies let the request pass, or one responds.
    async fn pass_remedies(&mut self) -> Result<Onward, Stop> {
        let mut waiting: Option<PendingTimer> = None;
        let mut now = if self.clock.sent == self.clock.begun { self.clock.begun } else { Moment::now() };
        poll_fn(|cx| {
            if waiting.is_some() {
                now = Moment::now();
            }
            loop {
                let polled = self.poll_remedies(cx, now);
                self.send_for_token();
                if let Poll::Ready(onward) = polled {
                    let since = waiting.as_ref().map_or(now, |waiting| waiting.since);
                    self.clock.waited_nanos += now.nanos_since(since);
                    return Poll::Ready(Ok(onward));
                }
                if waiting.is_none() {
                    self.wait_on_nobody();
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

    fn poll_remedies(&mut self, cx: &mut Context<'_>, at: Moment) -> Poll<Onward> {
        let Some(flow_run) = &mut self.flow_run else { return Poll::Ready(Onward::Call) };
        let flows = &self.view.plan.flows;
        let repeatable = !self.unrepeatable;
        let worker = &self.client.worker;
        let view = ExchangeView { worker, at, state: self.state, repeatable, outcome: Outcome::None };
        let onward = flow_run.go_on(flows, view, |chain, exchange| chain.poll_request(flows, exchange, cx));
        flow_run.count_drafted(&worker.pools.buffers.budget);
        onward
    }

    /// Runs the outcome of the request outwards through its remedies.
    fn outwards(&mut self, brought: &Brought) -> Backward {
        let Some(flow_run) = &mut self.flow_run else { return Backward::Pass };
        if flow_run.held != Held::Head && matches!(brought, Brought::Stored(_)) {
            return Backward::Pass;
        }
        let flows = &self.view.plan.flows;
        let at = match brought {
            Brought::Response(_) => self.clock.first_byte,
            Brought::LocalResponse(_) | Brought::Stored(_) | Brought::Failure(_) => Moment::now(),
        };
        let response_state = &self.state.response_state;
        let whole = mem::take(&mut flow_run.response_body);
        let body = match brought {
            Brought::Response(_) => whole.whole(response_state.output.filled()),
            Brought::LocalResponse(_) => response_state.output.filled().get(response_state.response.len..),
            Brought::Stored(_) | Brought::Failure(_) => None,
        };
        let received =
            Received { head: &response_state.response, bytes: response_state.output.filled(), body };
        let outcome = match brought {
            Brought::Failure(failure) => Outcome::Failure(failure.of_call(self.state.up.moved_bytes > 0)),
            Brought::Response(_) | Brought::LocalResponse(_) | Brought::Stored(_) => {
                Outcome::Response(&received)
            }
        };
        let repeatable = !self.unrepeatable;
        let view = ExchangeView { worker: &self.client.worker, at, state: self.state, repeatable, outcome };
        let backward = flow_run.go_on(flows, view, |chain, exchange| chain.response(flows, exchange));
        flow_run.response_body = whole;
        flow_run.count_drafted(&self.client.worker.pools.buffers.budget);
        backward
    }

    /// Sends the client the outcome that has passed all remedies.
    async fn conclude(&mut self, brought: Brought) -> End {
        match brought {
            Brought::Response(connection) => self.pass_on(connection).await,
            Brought::LocalResponse(kind) => self.deliver(kind).await,
            Brought::Stored(served) => self.serve(&served).await,
            Brought::Failure(failure) => {
                let drafted = self.flow_run.as_ref().map(|flow_run| &flow_run.draft.response);
                let failure = failure.with_fields(drafted.into_iter().flat_map(Changes::added));
                Box::pin(self.answer(&failure)).await
            }
        }
    }

    /// Puts a remedy's own response into the response state, as if it had been received.
    fn take_up(&mut self, answer: LocalResponse) -> Brought {
        let with_body = self.state.request.method != Method::Head;
        if let Some(flow_run) = &mut self.flow_run {
            flow_run.held =
                if matches!(answer, LocalResponse::Stored(_)) { Held::Whole } else { Held::Nothing };
        }
        let (message, kind) = match answer {
            LocalResponse::Stored(served) => match self.take_up_stored(served) {
                Ok(message) => (message, None),
                Err(brought) => return brought,
            },
            LocalResponse::Fixed(fixed) => (failure::fixed(&fixed, with_body), None),
            LocalResponse::Refused(refused) => {
                let now = self.client.worker.shared.clock.timestamp(Moment::now());
                let failure = Failure::refused(refused, now);
                (failure.message(&self.view.plan.errors, with_body), Some(failure.kind))
            }
        };
        match self.hold_message(&message) {
            Ok(()) => Brought::LocalResponse(kind),
            Err(failure) => Brought::Failure(failure),
        }
    }

    /// Puts a message into the response state, as if it had been received.
    fn hold_message(&mut self, message: &[u8]) -> Result<(), Failure> {
        let worker = &self.client.worker;
        self.state.take_response_state(&worker.pools);
        let ResponseState { output, response, .. } = &mut *self.state.response_state;
        worker.pools.buffers.grow(output, message.len());
        output.clear();
        output.spare()[..message.len()].copy_from_slice(message);
        output.advance(message.len());
        response.reset();
        match response.parse(output.filled(), &HeadLimits::default(), self.state.request.method) {
            Ok(Progress::Complete) => Ok(()),
            _ => {
                Err(Failure::new(ErrorKind::RemedyFailed, "the flow's response head exceeds the size limit"))
            }
        }
    }

    /// Puts a stored response into the response state: the whole message if outer remedies need the body,
    /// otherwise only its head. Puts nothing there if there are no outer remedies.
    fn take_up_stored(&mut self, served: Served) -> Result<Vec<u8>, Brought> {
        let is_seen = self.flow_run.as_mut().is_some_and(|flow_run| {
            flow_run.held = Held::Whole;
            !flow_run.chain.is_out()
        });
        let Some(flow_run) = self.flow_run.as_ref().filter(|_| is_seen) else {
            return Err(Brought::Stored(Box::new(served)));
        };
        let most = flow_run.chain.needs().response_json;
        let mut message = Vec::new();
        write_head(&served, self.state.request.version, &self.client.worker.shared.via, &mut message);
        message.extend_from_slice(b"\r\n");
        if let Err(failure) = self.hold_message(&message) {
            return Err(Brought::Failure(failure));
        }
        let ResponseState { output, response, .. } = &*self.state.response_state;
        let is_wanted = served.status() != 206 && is_plain_json(&response.fields, output.filled());
        let whole =
            served.body().blocks().filter(|_| is_wanted && served.has_body() && served.pieces().is_none());
        match whole {
            Some(blocks) if self.makes_room(message.len(), blocks, most) => {
                for block in blocks {
                    message.extend_from_slice(block);
                }
                Ok(message)
            }
            _ => {
                if let Some(flow_run) = &mut self.flow_run {
                    flow_run.held = Held::Head;
                }
                Err(Brought::Stored(Box::new(served)))
            }
        }
    }

    /// Returns `true` if a stored body of these `blocks`, behind a head of `head_len` bytes, fits into the
    /// response state. It must not exceed `most`, the size that remedies need, nor the memory left for
    /// gathered bodies.
    fn makes_room(&mut self, head_len: usize, blocks: &[Block], most: usize) -> bool {
        let len: usize = blocks.iter().map(|block| block.len()).sum();
        let buffers = &self.client.worker.pools.buffers;
        len <= most && buffers.grow_gathered(&mut self.state.response_state.output, head_len + len).is_ok()
    }

    /// Makes a background call. Returns `true` if it was made.
    pub async fn run_revalidation(
        &mut self,
        forward: &CallTarget,
        matches: Matches,
        background: Background,
        outer: &PendingChanges,
    ) -> bool {
        let worker = Rc::clone(&self.client.worker);
        let flow_run = self.flow_run.insert(worker.flow_runs.borrow_mut().pop().unwrap_or_default());
        let flows = &self.view.plan.flows;
        let is_there =
            flow_run.start_revalidation(flows, (matches, background, outer), forward.clone(), self.state);
        let most = flow_run.request_body_max(self.state);
        if !is_there || (!flow_run.body.is_whole && self.gather_body(most).await.is_err()) {
            self.return_flow_run();
            return false;
        }
        if let Err(stop) = Box::pin(self.guided(forward)).await {
            self.stop(stop).await;
        }
        true
    }

    /// Sends the response that the response state holds.
    async fn deliver(&mut self, kind: Option<ErrorKind>) -> End {
        // The time spent waiting until now does not count towards the gateway's footprint.
        self.clock.first_byte = Moment::now();
        if let Some(kind) = kind {
            self.client.worker.counters().generated(kind);
            self.failed = Some(kind);
        }
        let persistent = self.can_persist_without_provider();
        let version = self.state.request.version;
        let reply = Reply { version, persistent, chunked: false };
        let ResponseState { output, response, .. } = &*self.state.response_state;
        let status = response.status;
        let message = {
            let mut edits = self.client.worker.pools.edits.borrow_mut();
            edit_generated(response, output.filled(), reply, self.flow_run.as_deref(), &mut edits);
            let mut message = response.render(output.filled(), &edits).to_vec();
            let changed = self.flow_run.as_ref().and_then(|flow_run| flow_run.draft.response_body.as_deref());
            message.extend_from_slice(changed.unwrap_or(&output.filled()[response.len..]));
            message
        };
        let mut share = Share::default();
        share.cover_anyway(&self.client.worker.pools.buffers.budget, message.len());
        // Only a response that came from a provider names that provider's paths.
        let is_stored = self.flow_run.as_ref().is_some_and(|flow_run| flow_run.held == Held::Whole);
        let rewritten = if is_stored { self.rewritten(&message) } else { None };
        let sent = rewritten.as_deref().unwrap_or(&message);
        self.send_answer((sent, &message), status, persistent).await
    }

    /// Discards a response that is not forwarded.
    async fn put_aside(&mut self, brought: Brought) -> Result<(), Stop> {
        self.flush_informational().await?;
        let worker = Rc::clone(&self.client.worker);
        if let Brought::Response(connection) = brought {
            self.keep_if_whole(connection);
        }
        self.state.return_response_state(&worker.pools);
        Ok(())
    }

    /// Finishes sending an informational response of which the client has received a part.
    async fn flush_informational(&mut self) -> Result<(), Stop> {
        poll_fn(|cx| {
            if !self.state.has_response_state() {
                return Poll::Ready(Ok(()));
            }
            match self.state.response_state.down.poll_backlog(cx, &mut self.client.stream) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
                Poll::Ready(Err(_)) => Poll::Ready(Err(Stop::ClientGone)),
                Poll::Pending => self.poll_waiting_client(cx),
            }
        })
        .await
    }

    /// Keeps the connection for reuse if the whole response has been received. Reading the rest would cost
    /// more than a new connection.
    fn keep_if_whole(&mut self, connection: Box<Connection>) {
        let ResponseState { output, response, down } = &mut *self.state.response_state;
        down.start(response.framing, false);
        let body = &output.filled()[response.len..];
        let whole = down.skip(body) == Some(body.len()) && response.framing != ResponseFraming::UntilClose;
        if whole && response.persistent && self.state.up.is_complete() && !self.sink_closed {
            self.keep(connection, Moment::now());
        }
    }

    /// Waits until the time of the next call.
    pub async fn wait_until(&mut self, at: Timestamp) -> Result<(), Stop> {
        let mut alarm = pin!(sleep_until(self.client.worker.shared.clock.moment(at)));
        self.wait_on_nobody();
        poll_fn(|cx| match alarm.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => self.poll_waiting_client(cx),
        })
        .await
    }

    /// Disarms the phase deadlines. While a remedy holds the exchange, only its total timeout applies.
    fn wait_on_nobody(&mut self) {
        self.deadlines.phase = Moment::NEVER;
        self.deadlines.rate = RateWindow::NONE;
        self.deadlines.arm(&self.client.timer);
    }

    /// Resets the exchange's state, so the request can be sent again.
    fn prepare_repetition(&mut self) {
        // The failed call's time counts as waiting too.
        self.clock.dial = DialTimes::default();
        self.clock.waited_nanos += Moment::now().nanos_since(self.clock.sent);
        let counters = self.upstream.counters();
        counters.sent_bytes.add(mem::take(&mut self.sent_bytes) + self.state.up.moved_bytes);
        counters.received_bytes.add(mem::take(&mut self.received_bytes));
        self.state.reset_up();
        self.kept_body = 0;
        self.sink_closed = false;
        self.informational = 0;
    }

    /// Stays pending while the client waits its turn. A client that half-closes at this point counts as gone:
    /// it would take a slot from others, and no response has been started for it.
    fn poll_waiting_client<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Stop>> {
        let polled = self.poll_waiting(cx);
        if self.client.half_closed { Poll::Ready(Err(Stop::ClientGone)) } else { polled }
    }

    /// Returns the time at which the remedies want to be polled again.
    fn wake_at(&mut self) -> Option<Moment> {
        let at = self.flow_run.as_mut()?.draft.take_wake_at()?;
        Some(self.client.worker.shared.clock.moment(at))
    }

    /// Ends the exchange for its remedies, if it has any.
    pub(super) fn end_flow_run(&mut self, at: Moment) {
        self.state.response_state.down.stop_filling();
        let tap = self.state.response_state.down.tap.take().filter(Tap::wants_end);
        let Some(flow_run) = &mut self.flow_run else { return };
        let head_bytes = mem::take(&mut flow_run.response_head);
        let head = &self.state.response_state.response;
        let body = tap.as_ref().and_then(|tap| {
            let fields = Fields::received(&head.fields, &head_bytes);
            seen_at_end(fields, tap.end(), tap.is_whole())
        });
        let received = tap.as_ref().map(|_| Received { head, bytes: &head_bytes, body: body.as_deref() });
        let outcome = received.as_ref().map_or(Outcome::None, Outcome::Response);
        let view =
            ExchangeView { worker: &self.client.worker, at, state: self.state, repeatable: false, outcome };
        let flows = &self.view.plan.flows;
        flow_run.go_on(flows, view, |chain, exchange| chain.end(flows, exchange));
        flow_run.response_head = head_bytes;
        if let Some(tap) = tap {
            flow_run.tail = tap.into_end();
        }
        self.return_flow_run();
    }

    fn return_flow_run(&mut self) {
        let mut flow_runs = self.client.worker.flow_runs.borrow_mut();
        if let Some(mut flow_run) = self.flow_run.take()
            && flow_runs.len() < SPARE_FLOW_RUNS
        {
            flow_run.forget_bodies();
            flow_runs.push(flow_run);
        }
    }
}

/// Returns `true` if these fields describe a JSON body that has no content coding.
fn is_plain_json(fields: &[Field], bytes: &[u8]) -> bool {
    Fields::received(fields, bytes).json() == Json::Plain
}
