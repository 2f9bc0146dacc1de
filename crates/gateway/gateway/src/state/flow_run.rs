//! The state of one exchange's run through its flows. A worker lends it to each exchange that a flow matches.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use egret_accounts::{Applied, SecretPatterns};
use egret_clock::Timestamp;
use egret_flow::{Flows, RemedyChain, TraceReaders};
use egret_http1::{Field, RequestFraming, ResponseFraming, ResponseHead, Span};
use egret_match::matching::MatchInput;
use egret_match::router::Matches;
use egret_message::grpc::GrpcOutcome;
use egret_message::{Destination, Fields, Json, Outcome, ReceivedMessage};
use egret_net::budget::{Budget, Share};
use egret_net::buffer::BUFFER_BYTES;
use egret_remedy::{Conventions, Exchange as FlowExchange, PendingChanges, UsageAsk};
use egret_store::coalescer::Background;
use egret_usage::UsageRecord;

use crate::state::changes::{HedgeOrder, Inbound, Outbound, Tail};
use crate::state::request::{RequestState, ResponseState};
use egret_body::GatheredBody;
use egret_upstream::{CallTarget, EndpointCall, Upstream};

/// The state of one exchange's run through its flows. A worker lends one to each exchange that a flow
/// matches.
#[derive(Debug, Default)]
pub(crate) struct FlowRun {
    pub chain: RemedyChain,
    /// The changes that the remedies have made to the exchange so far.
    pub draft: PendingChanges,
    pub matches: Matches,
    /// `true` if the exchange is recorded for the readers of live traffic.
    pub is_watched: bool,
    /// The call that the client's request stands for. `None` if it cannot be routed.
    pub forward: Option<CallTarget>,
    /// The target, relative to the provider's URL.
    pub target: Span,
    /// The request's body, if a flow needs it.
    pub body: GatheredBody,
    /// `true` once the client has been sent 100 (Continue).
    pub told_to_continue: bool,
    /// The response's body, if a remedy needs it before it is forwarded.
    pub response_body: GatheredBody,
    /// The part of a stored response that the response state holds.
    pub held: StoredPart,
    /// The share of the budget for gathered bodies that bodies replaced by remedies take.
    drafted: Share,
    /// The secrets to mask in the response to the last call, if any.
    pub mask: Option<Arc<SecretPatterns>>,
    /// `true` if the last call was made to a host that credentials may be sent to.
    pub takes_credentials: bool,
    /// The endpoints that the request has been sent to, if its provider has several.
    pub tried_endpoints: Vec<Rc<Upstream>>,
    /// The call to one of them, until its response begins.
    pub endpoint: Option<EndpointCall>,
    /// Memory for the head of the response and the end of its body.
    tail: Tail,
    /// Memory for the changes that are lent to a call and to its response.
    outbound: Option<Box<Outbound>>,
    inbound: Option<Box<Inbound>>,
}

/// The part of a stored response that the response state holds, so remedies see it like a received one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StoredPart {
    /// The response state holds none of it.
    #[default]
    Nothing,
    /// The response state holds its head.
    Head,
    /// The response state holds all of it.
    Whole,
}

/// The parts of the exchange that the flow run does not own.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeView<'a> {
    /// The current time.
    pub now: Timestamp,
    /// Number of the worker.
    pub worker: usize,
    pub state: &'a RequestState,
    pub repeatable: bool,
    pub outcome: Outcome<'a>,
    /// The usage that the response has reported, if it was read and has ended.
    pub usage: Option<&'a UsageRecord>,
    /// The status of the gRPC call, as far as it is known.
    pub grpc: GrpcOutcome,
}

impl FlowRun {
    /// Returns the number of request-body bytes to keep, so the request can be sent again.
    pub fn replay_bytes(&self) -> usize {
        self.chain.needs().replay
    }

    /// Returns `true` if remedies must know the status of a gRPC call before its response is forwarded.
    pub fn needs_grpc_status(&self) -> bool {
        self.chain.needs().grpc_status
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
        matches: Matches,
        background: Background,
        outer: &PendingChanges,
    ) -> bool {
        self.matches = matches;
        self.draft.inherit(outer);
        let has_remedies = self.chain.start(flows, &self.matches, TraceReaders::default());
        let is_there = has_remedies && self.chain.begin_at(&background, &self.draft);
        self.draft.background = Some(background);
        is_there
    }

    /// Prepares for the request in `state`: the call to make, if any, and its `target`.
    pub fn start(&mut self, forward: Option<CallTarget>, target: Span, state: &RequestState) {
        self.draft.clear();
        self.forward = forward;
        self.target = target;
        self.body.clear();
        self.body.is_whole = state.request.framing == RequestFraming::None;
        self.told_to_continue = false;
        self.response_body.clear();
        self.drafted.release();
        self.mask = None;
        self.takes_credentials = true;
        self.tried_endpoints.clear();
        self.endpoint = None;
    }

    /// Returns the largest number of request-body bytes that remedies need before they decide.
    pub fn request_body_max(&self, state: &RequestState) -> usize {
        let needs = self.chain.needs();
        let is_json = needs.request_json > 0 && is_plain_json(&state.request.fields, state.input.filled());
        needs.request_body.max(if is_json { needs.request_json } else { 0 })
    }

    /// Returns the largest number of response-body bytes that remedies need before the response is forwarded.
    pub fn response_body_max(&self, flows: &Flows, response_state: &ResponseState) -> usize {
        let needs = self.chain.needs();
        let ResponseHead { status, framing, fields, .. } = &response_state.response;
        // Part of a JSON document is not valid JSON.
        let is_whole = !matches!(status, 101 | 206) && *framing != ResponseFraming::None;
        let reads = |known: &Conventions| known.preset.reads_refusals();
        let is_refusal =
            *status >= 400 && needs.refusal_json > 0 && self.conventions(flows).is_some_and(reads);
        let wanted = needs.response_json.max(if is_refusal { needs.refusal_json } else { 0 });
        let is_json = wanted > 0 && is_whole && is_plain_json(fields, response_state.output.filled());
        if is_json { wanted } else { 0 }
    }

    /// Returns what is known of the called provider.
    pub fn conventions<'f>(&self, flows: &'f Flows) -> Option<&'f Conventions> {
        let name = self.forward.as_ref().map_or("", |target| target.destination().provider);
        flows.conventions.called(self.draft.call.provider, name)
    }

    /// Charges the budget for bodies that remedies made from gathered ones. They already exist, so they are
    /// never refused.
    pub fn count_drafted(&mut self, budget: &Arc<Budget>) {
        let PendingChanges { request_body, response_body, .. } = &self.draft;
        let bytes = [request_body, response_body].into_iter().flatten().map(|body| body.len()).sum();
        self.drafted.cover_anyway(budget, bytes);
    }

    /// Releases the large bodies of a finished exchange.
    pub fn forget_bodies(&mut self) {
        self.body.clear();
        self.response_body.clear();
        self.tail.memory.clear();
        self.tail.memory.shrink_to(BUFFER_BYTES);
        self.drafted.release();
        self.draft.request_body = None;
        self.draft.response_body = None;
        // Other exchanges may wait for these two.
        self.draft.body_writer = None;
        self.draft.body_fault = None;
        self.draft.background = None;
        // Secrets must not outlive their config, nor connections.
        self.mask = None;
        self.forward = None;
        self.tried_endpoints.clear();
        self.endpoint = None;
    }

    /// Finds the flows that match the request, and returns `true` if they have remedies. Returns `None` if
    /// that depends on a body that has not been received.
    pub fn find(&mut self, flows: &Flows, state: &RequestState, now: Timestamp, roll: u64) -> Option<bool> {
        let Self { chain, draft, matches, forward, target, body, is_watched, .. } = self;
        let bytes = state.input.filled();
        let received = ReceivedMessage { head: &state.request, bytes, body: body.whole(bytes) };
        let destination = forward.as_ref().map_or(Destination::NO_UPSTREAM, CallTarget::destination);
        let exchange = FlowExchange::new(now, destination, received, target.of(bytes), draft);
        let request = exchange.request();
        flows.find(MatchInput { request: &request, roll, now, has_body: body.is_whole }, matches);
        if matches.is_undecided() && !body.is_whole {
            return None;
        }
        let tells = TraceReaders {
            client: request.fields.get(b"x-egret-trace").is_some(),
            diagnoses: *is_watched || flows.diagnoses.is_for(matches),
        };
        Some(chain.start(flows, matches, tells))
    }

    /// Lends the remedies' changes to a call, with those of a credential. The call gives them back.
    pub fn lend_outbound(
        &mut self,
        flows: &Flows,
        credential: Option<Applied>,
        mask: Option<Arc<SecretPatterns>>,
    ) -> Box<Outbound> {
        self.mask.clone_from(&mask);
        let hedge = self.draft.call.hedge.map(|after| HedgeOrder::new(after, self.chain.redraws(flows)));
        let mut outbound = self.outbound.take().unwrap_or_default();
        let PendingChanges { request, target, request_body, call, .. } = &mut self.draft;
        mem::swap(&mut outbound.fields, request);
        outbound.target.clone_from(target);
        outbound.has_secret_target = call.has_secret_target;
        outbound.body.clone_from(request_body);
        outbound.credential = credential;
        outbound.framed_len = self.body.framed_len;
        outbound.first_byte = call.first_byte;
        outbound.mask = mask;
        outbound.hedge = hedge;
        outbound.reads_on = self.chain.needs().whole_response;
        self.chain.add_permits(flows, &mut outbound.permits);
        outbound
    }

    /// Takes the changes back from a call that has ended.
    pub fn take_back_outbound(&mut self, mut outbound: Box<Outbound>) {
        mem::swap(&mut outbound.fields, &mut self.draft.request);
        outbound.release();
        self.outbound = Some(outbound);
    }

    /// Lends the remedies' changes to the response that is about to be sent. The response gives them back.
    pub fn lend_inbound(&mut self) -> Box<Inbound> {
        let needs = self.chain.needs();
        let (max, wants_usage, reads_on) = (needs.response_tail, needs.usage, needs.whole_response);
        let tail = (max > 0 || wants_usage).then(|| {
            self.tail.head.clear();
            Tail { max, wants_usage, reads_on, ..mem::take(&mut self.tail) }
        });
        let trace = self.trace().map(str::to_owned);
        let mut inbound = self.inbound.take().unwrap_or_default();
        let PendingChanges { response, response_body, body_fault, body_writer, call, .. } = &mut self.draft;
        mem::swap(&mut inbound.fields, response);
        inbound.body.clone_from(response_body);
        inbound.framed_len = self.response_body.framed_len;
        inbound.trace = trace;
        inbound.mask.clone_from(&self.mask);
        inbound.tail = tail;
        inbound.fault = body_fault.take();
        inbound.stall = call.stall;
        inbound.hides_usage = call.usage == UsageAsk::LeftOut && response_body.is_none();
        inbound.filling = body_writer.take();
        inbound
    }

    /// Takes the changes back from a response that has ended, and the copy of its head.
    pub fn take_back_inbound(&mut self, mut inbound: Box<Inbound>) -> Option<Tail> {
        mem::swap(&mut inbound.fields, &mut self.draft.response);
        let tail = inbound.tail.take();
        inbound.release();
        self.inbound = Some(inbound);
        tail
    }

    /// Keeps the memory of a tail for the next response.
    pub fn keep_tail(&mut self, tail: Tail) {
        self.tail = tail;
    }

    /// Runs `act` on the chain with a view of the exchange.
    pub fn with_exchange<T>(
        &mut self,
        flows: &Flows,
        view: ExchangeView<'_>,
        act: impl FnOnce(&mut RemedyChain, &mut FlowExchange<'_>) -> T,
    ) -> T {
        let Self { chain, draft, matches, forward, target, body, .. } = self;
        let ExchangeView { now, worker, state, repeatable, outcome, usage, grpc } = view;
        let bytes = state.input.filled();
        let received = ReceivedMessage { head: &state.request, bytes, body: body.whole(bytes) };
        let destination = forward.as_ref().map_or(Destination::NO_UPSTREAM, CallTarget::destination);
        let mut exchange = FlowExchange::new(now, destination, received, target.of(bytes), draft);
        exchange.worker = worker;
        exchange.request_id = state.request_id.bytes();
        exchange.params = flows.params(matches);
        exchange.repeatable = repeatable;
        exchange.outcome = outcome;
        exchange.usage = usage;
        exchange.grpc = grpc;
        act(chain, &mut exchange)
    }
}

/// Returns `true` if these fields describe a JSON body that has no content coding.
pub(crate) fn is_plain_json(fields: &[Field], bytes: &[u8]) -> bool {
    Fields::received(fields, bytes).json() == Json::Plain
}
