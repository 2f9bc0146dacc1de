//! Rehearses requests: reports what the gateway does with each, decided by the code that serves requests.
//! Nothing is sent, looked up or written.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use egret_ca::Interception;
use egret_clients::{Clients, Unproven};
use egret_clock::{Clock, Moment, Timestamp};
use egret_config::Problem;
use egret_flow::config::FlowConfig;
use egret_flow::explain::ExplainedFlow;
use egret_flow::{RequestStep, ResponseStep};
use egret_http1::{HeadLimits, Method, Progress, ResponseHead, Span};
use egret_match::expression::EXPRESSION_BODY_BYTES_MAX;
use egret_match::matching::MatchInput;
use egret_message::authority::Authority;
use egret_message::grpc::GrpcOutcome;
use egret_message::{Fields, Fixed, ListenAddress, Outcome, ReceivedMessage, RequestId, Via, default_port};
use egret_net::policy::{Grounds, Verdict};
use egret_observe::failure::{self, ErrorKind, Failure};
use egret_plan::config::Parts;
use egret_plan::interception;
use egret_plan::{ListenerPlan, ListenerRouting, Plan, UpstreamPlan};
use egret_remedy::LocalResponse;
use serde::Serialize;

use crate::downstream::connection::Inside;
use crate::exchange::flows::{RESET, drafted};
use crate::exchange::route::{Origins, Route, bad_authority, route};
use crate::exchange::{identity, tunnel};
use crate::state::flow_run::{ExchangeView, FlowRun};
use crate::state::request::{Pools, RequestState};
use egret_upstream::{CallTarget, NamedHosts, View, denied};

/// Maximum number of calls that remedies may make of one request.
const CALLS_MAX: usize = 1_000;

/// Maximum number of rolls tried to find one with which all flows apply that sample exchanges.
const ROLLS_MAX: u64 = 1_000;

/// The plan of a gateway that does not run.
#[derive(Debug)]
pub struct Rehearsal {
    view: View,
    hosts: NamedHosts,
    pools: Pools,
    via: Via,
    clock: Clock,
    /// The rules for the tunnels that the gateway serves itself. The plan has none without an authority.
    interception: Option<Interception>,
}

/// A request as its client sends it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The address of the listener that receives it.
    pub listener: ListenAddress,
    /// The tunnel that it is sent in, if the gateway serves that tunnel itself.
    pub tunnel: Option<Tunnel<'a>>,
    /// Head and body.
    pub message: &'a [u8],
    /// The client that has proven who it is, on a listener that asks for it.
    pub client: Option<&'a str>,
}

/// A tunnel that the gateway serves itself.
#[derive(Debug, Clone, Copy)]
pub struct Tunnel<'a> {
    /// The authority in the client's CONNECT, with or without a port.
    pub authority: &'a str,
    /// `true` if the client speaks TLS inside.
    pub tls: bool,
}

/// The message of an [`Asked`] is not one whole request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOneRequest;

/// The gateway's treatment of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Rehearsed {
    /// The destination that the client names. `None` if there is none.
    pub destination: Option<Resolved>,
    /// The destination of the call, if remedies send it elsewhere.
    pub elsewhere: Option<Resolved>,
    /// The verdict about the host that is called. `None` if none is.
    pub egress: Option<Egress>,
    /// Every flow, with the reason if it does not match.
    pub flows: Vec<ExplainedFlow>,
    /// The remedies of the matching flows, outermost first, and their diagnoses.
    pub remedies: Vec<RemedyStep>,
    /// The origin of the response.
    pub answer: Responder,
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolved {
    /// The provider's name, or `-` for a host that the config does not name.
    pub provider: String,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The host, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query, relative to the provider's URL.
    pub target: String,
}

/// A remedy or diagnosis of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemedyStep {
    /// The flow.
    pub flow: String,
    /// Name of the remedy within the flow.
    pub remedy: String,
    /// Description.
    pub does: String,
    /// Its effect on this request, as far as it can be told beforehand.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub now: String,
}

/// The verdict of the egress policy about a host, before it is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Egress {
    /// The host and port.
    pub authority: String,
    /// The verdict.
    pub verdict: EgressVerdict,
    /// Name of the reason of a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The reason, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The rule that decides, like `gateway.egress.deny[0]`. `None` if the default or a built-in one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// `true` if each address of the host is judged as well, once it is looked up.
    pub addresses_follow: bool,
    /// Rules that may then deny an address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<String>,
    /// `true` if the host is a configured provider's.
    pub configured: bool,
    /// The proxy through which the host is reached, without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
}

/// A verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressVerdict {
    /// The policy is off.
    Off,
    /// The host may be called.
    Allowed,
    /// It may be called, and is reported, because the policy only reports.
    Reported,
    /// It may not be called.
    Denied,
}

/// The origin of the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Responder {
    /// The provider, or the host.
    Provider,
    /// Nobody: the bytes of the tunnel are relayed unread.
    Relay,
    /// The gateway: it serves the requests in the tunnel itself.
    Intercepted,
    /// A remedy, with this status code.
    Remedy(u16),
    /// The gateway, with an error.
    Error(GeneratedError),
}

/// An error of the gateway's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GeneratedError {
    /// The value of `x-egret-error`.
    pub error: &'static str,
    /// The status code.
    pub status: u16,
    /// The cause.
    pub detail: String,
}

/// The connection of a rehearsed request.
struct RehearsedConnection<'a> {
    rehearsal: &'a Rehearsal,
    asked: &'a Asked<'a>,
    inside: Option<Inside>,
}

impl Origins for RehearsedConnection<'_> {
    fn listener<'p>(&self, plan: &'p Plan) -> Option<&'p ListenerPlan> {
        plan.listener(self.asked.listener)
    }

    fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn pools(&self) -> &Pools {
        &self.rehearsal.pools
    }

    fn via(&self) -> &Via {
        &self.rehearsal.via
    }

    fn prove(&self, state: &mut RequestState, clients: &Clients) -> Result<Box<str>, Failure> {
        let mut jwts = self.pools().jwts.borrow_mut();
        let by_request =
            clients.of_request(&state.request, state.input.filled(), &mut jwts, self.rehearsal.now());
        match (self.asked.client, by_request) {
            (Some(name), _) => Ok(name.into()),
            (None, Some(Ok(proven))) => Ok(proven.name().into()),
            (None, Some(Err(why))) => Err(identity::unproven(clients, why)),
            (None, None) => {
                let why = clients.without_proof();
                let why = if why == Unproven::Withdrawn { Unproven::Missing } else { why };
                Err(identity::unproven(clients, why))
            }
        }
    }

    fn identify(&self, _: &Plan, _: Option<&[u8]>, id: &mut RequestId) {
        id.clear();
    }

    fn hosts(&self) -> &NamedHosts {
        &self.rehearsal.hosts
    }
}

/// The end of a request that has passed its remedies.
enum Ended {
    /// The provider is called.
    Call,
    /// A remedy responds with this message and status code.
    Response(Vec<u8>, u16),
    /// A remedy refuses the request.
    Refused(Failure),
    /// The gateway cannot make the call.
    Failed(Failure),
}

impl Rehearsal {
    /// Compiles the plan of a configuration, or returns its problems. `own` holds other ports of the process
    /// that would run it.
    pub fn new(parts: Parts<'_>, own: &[SocketAddr]) -> Result<Self, Vec<Problem>> {
        let interception = parts.interception.and_then(|parts| parts.config.compile("interception").ok());
        let plan = Plan::compile(parts, own, 1, None)?;
        Ok(Self {
            view: View::new(Arc::new(plan), 0, false, None),
            hosts: NamedHosts::default(),
            pools: Pools::new(Arc::default()),
            via: Via::new("egret-rehearsal"),
            clock: Clock::new(),
            interception,
        })
    }

    /// Returns the address of the listener that a client names by this authority.
    pub fn listener_named(&self, authority: &str) -> Option<ListenAddress> {
        let is_it = |listener: &&ListenerPlan| listener.is_own_host(authority.as_bytes());
        self.view.plan.listeners.iter().find(is_it).map(|listener| listener.address)
    }

    /// Returns the address of the listener that the clients of a forward proxy use: the first one that is not
    /// for one provider alone.
    pub fn usual_listener(&self) -> Option<ListenAddress> {
        let listeners = &self.view.plan.listeners;
        let usual = listeners.iter().find(|one| one.provider.is_none() && takes_requests(one));
        usual.or_else(|| listeners.first()).map(|listener| listener.address)
    }

    /// Returns `true` if the config has a listener at this address.
    pub fn has_listener(&self, address: ListenAddress) -> bool {
        self.view.plan.listener(address).is_some()
    }

    /// Returns `true` if the clients of the listener at this address know nothing of a gateway.
    pub fn is_redirected(&self, listener: ListenAddress) -> bool {
        self.view.plan.listener(listener).is_some_and(is_redirected)
    }

    /// Returns `true` if each connection to the listener at this address is a tunnel.
    pub fn is_tunnelled(&self, listener: ListenAddress) -> bool {
        self.view.plan.listener(listener).is_some_and(|listener| !takes_requests(listener))
    }

    /// Returns `true` if the gateway serves a tunnel to `authority` itself, whose client uses this listener.
    pub fn serves_tunnel(&self, listener: ListenAddress, authority: &str, tls: bool) -> bool {
        let Some(listener) = self.view.plan.listener(listener) else { return false };
        if is_redirected(listener) && !tls {
            return true;
        }
        let parsed = Authority::parse(authority.as_bytes(), Some(default_port(tls)));
        let is_tunnel = listener.provider.is_none() && (tls || !takes_requests(listener));
        is_tunnel && parsed.is_ok_and(|authority| self.intercepts(&authority))
    }

    fn intercepts(&self, authority: &Authority) -> bool {
        let is_provider = self.view.plan.table.by_authority(authority).is_some();
        let rules = self.interception.as_ref();
        rules.is_some_and(|rules| interception::is_for(rules, &authority.host, is_provider))
    }

    fn now(&self) -> Timestamp {
        self.clock.timestamp(Moment::now())
    }

    /// Rehearses a request. `flows` is the config that the plan was compiled from.
    pub fn rehearse(&self, flows: &[FlowConfig], asked: &Asked<'_>) -> Result<Rehearsed, NotOneRequest> {
        let mut state = RequestState::default();
        self.pools.buffers.lend(&mut state.input);
        self.pools.buffers.replace_front(&mut state.input, 0, asked.message);
        let parsed = state.request.parse(state.input.filled(), &self.view.plan.head_limits);
        if let Some(denied) = self.denied_tunnel(flows, &state, asked) {
            return Ok(denied);
        }
        let route = match parsed {
            Ok(Progress::Complete) => self.route(&mut state, asked),
            Ok(_) => return Err(NotOneRequest),
            Err(error) => Err(Failure::bad_request(error)),
        };
        Ok(match route {
            Ok(Route::Forward(target)) => self.exchange(flows, &mut state, &target),
            Ok(Route::Tunnel(authority)) => self.tunnel(flows, &state, authority),
            Err(failure) => Rehearsed {
                destination: None,
                elsewhere: None,
                egress: None,
                flows: Vec::new(),
                remedies: Vec::new(),
                answer: self.error(&failure),
            },
        })
    }

    /// Rehearses the CONNECT before a request in a tunnel, if it is refused: there is no tunnel to send the
    /// request in.
    fn denied_tunnel(
        &self,
        flows: &[FlowConfig],
        state: &RequestState,
        asked: &Asked<'_>,
    ) -> Option<Rehearsed> {
        let tunnel = asked.tunnel.filter(|tunnel| tunnel.tls)?;
        let authority = Authority::parse(tunnel.authority.as_bytes(), Some(default_port(true))).ok()?;
        let rehearsed = self.tunnel(flows, state, authority);
        matches!(rehearsed.answer, Responder::Error(_)).then_some(rehearsed)
    }

    /// Routes the request in `state`, whose head is the one that the client has sent.
    fn route(&self, state: &mut RequestState, asked: &Asked<'_>) -> Result<Route, Failure> {
        let inside = asked.tunnel.map(|tunnel| {
            let authority = Authority::parse(tunnel.authority.as_bytes(), Some(default_port(tunnel.tls)));
            authority.map(|authority| Inside::new(authority, tunnel.tls))
        });
        let inside = inside.transpose().map_err(bad_authority)?;
        route(&RehearsedConnection { rehearsal: self, asked, inside }, state, &self.view)
    }

    /// Rehearses a call of `target`.
    fn exchange(&self, config: &[FlowConfig], state: &mut RequestState, target: &CallTarget) -> Rehearsed {
        let RequestState { input, request, .. } = &mut *state;
        target.upstream.plan.upgrades.settle(request, input.filled());
        let mut run = FlowRun::default();
        run.start(Some(target.clone()), target.target, state);
        let flows = self.explain(config, &mut run, state);
        let remedies = self.steps(&flows, &mut run, state);
        let roll = self.roll(&flows, &mut run, state);
        run.start(Some(target.clone()), target.target, state);
        self.find(&mut run, state, roll);
        let mut called = None;
        let ended = self.play(&mut run, state, target, &mut called);
        let view = exchange_view(state, self.now(), Outcome::None);
        run.with_exchange(&self.view.plan.flows, view, |chain, exchange| {
            chain.end(&self.view.plan.flows, exchange);
        });
        let received = state.input.filled();
        let destination = resolved(target, target.target.of(received));
        let path = run.draft.target.as_deref().unwrap_or_else(|| target.target.of(received));
        let elsewhere = called.as_ref().filter(|call| !Rc::ptr_eq(&call.upstream, &target.upstream));
        Rehearsed {
            elsewhere: elsewhere.map(|call| resolved(call, path)),
            destination: Some(destination),
            egress: called.map(|call| egress(&call.upstream.plan)),
            flows,
            remedies,
            answer: match ended {
                Ended::Call => Responder::Provider,
                Ended::Response(_, status) => Responder::Remedy(status),
                Ended::Refused(failure) | Ended::Failed(failure) => self.error(&failure),
            },
        }
    }

    /// Rehearses a CONNECT. The flows are those whose diagnoses record the tunnel.
    fn tunnel(&self, config: &[FlowConfig], state: &RequestState, authority: Authority) -> Rehearsed {
        let plan = &self.view.plan;
        let provider = plan.table.by_authority(&authority).map(|number| &plan.providers[number]);
        let is_intercepted = self.intercepts(&authority);
        let upstream = tunnel::upstream(&self.view, authority, provider, 0);
        let judged = upstream.plan.policy.check_host(&upstream.plan.target());
        let target = CallTarget::whole(Rc::clone(&upstream), Span::default());
        let mut run = FlowRun::default();
        run.start(Some(target.clone()), Span::default(), state);
        let flows = if is_intercepted { Vec::new() } else { self.explain(config, &mut run, state) };
        Rehearsed {
            destination: Some(resolved(&target, b"")),
            elsewhere: None,
            egress: Some(egress(&upstream.plan)),
            flows,
            remedies: Vec::new(),
            answer: match judged {
                Verdict::Deny(reason) => self.error(&denied(&upstream.plan.target(), reason)),
                _ if is_intercepted => Responder::Intercepted,
                _ => Responder::Relay,
            },
        }
    }

    /// Evaluates each flow against the request.
    fn explain(&self, config: &[FlowConfig], run: &mut FlowRun, state: &RequestState) -> Vec<ExplainedFlow> {
        self.find(run, state, 0);
        let (flows, now) = (&self.view.plan.flows, self.now());
        run.with_exchange(flows, exchange_view(state, now, Outcome::None), |_, exchange| {
            let request = &exchange.request();
            flows.explain(config, MatchInput { request, roll: 0, now, has_body: true })
        })
    }

    /// Finds the flows that match the request, whose body is gathered as far as they need it.
    fn find(&self, run: &mut FlowRun, state: &RequestState, roll: u64) {
        let (flows, now) = (&self.view.plan.flows, self.now());
        let mut found = run.find(flows, state, now, roll);
        if found.is_none() {
            gather(run, state, EXPRESSION_BODY_BYTES_MAX);
            found = run.find(flows, state, now, roll);
        }
        if found == Some(true) {
            let max = run.request_body_max(state);
            gather(run, state, max);
        }
    }

    /// Returns a roll with which all matching flows apply that sample exchanges, if one is found.
    fn roll(&self, flows: &[ExplainedFlow], run: &mut FlowRun, state: &RequestState) -> u64 {
        let matching = flows.iter().filter(|flow| flow.matches);
        if matching.clone().all(|flow| flow.sample.is_none()) {
            return 0;
        }
        let wanted = matching.count();
        let mut finds_all = |roll: &u64| {
            self.find(run, state, *roll);
            run.matches.iter().count() == wanted
        };
        (0..ROLLS_MAX).find(&mut finds_all).unwrap_or_default()
    }

    /// Describes the remedies of the matching flows. Scripts run on the request.
    fn steps(&self, verdicts: &[ExplainedFlow], run: &mut FlowRun, state: &RequestState) -> Vec<RemedyStep> {
        let flows = &self.view.plan.flows;
        let roll = self.roll(verdicts, run, state);
        self.find(run, state, roll);
        let mut steps = Vec::new();
        for (number, verdict) in verdicts.iter().enumerate().filter(|(_, verdict)| verdict.matches) {
            let found = run.matches.iter().find(|found| found.flow() == number);
            let view = exchange_view(state, self.now(), Outcome::None);
            let mut now = run
                .with_exchange(flows, view, |_, exchange| {
                    exchange.params.found = found;
                    flows.rehearse(number, exchange)
                })
                .into_iter();
            for (remedy, does) in flows.describe(number) {
                // Diagnoses follow the remedies.
                let now = now.next().unwrap_or_default();
                steps.push(RemedyStep { flow: verdict.flow.clone(), remedy: remedy.to_owned(), does, now });
            }
        }
        steps
    }

    /// Passes the request through its remedies, and again for each repetition that they request. Sets
    /// `called` to the last call.
    fn play(
        &self,
        run: &mut FlowRun,
        state: &RequestState,
        target: &CallTarget,
        called: &mut Option<CallTarget>,
    ) -> Ended {
        let mut now = self.now();
        for _ in 0..CALLS_MAX {
            let mut ended = self.pass(run, state, target, now, called);
            loop {
                if matches!(ended, Ended::Call) {
                    return ended;
                }
                match self.pass_back(run, state, target, &ended, now) {
                    ResponseStep::Pass => return ended,
                    ResponseStep::LocalResponse(response) => ended = local(*response, now),
                    ResponseStep::Repeat(at) => {
                        now = now.max(at);
                        break;
                    }
                }
            }
        }
        Ended::Call
    }

    /// Passes the request inwards. A remedy that waits is passed: what it waits for is there sooner or later.
    fn pass(
        &self,
        run: &mut FlowRun,
        state: &RequestState,
        target: &CallTarget,
        now: Timestamp,
        called: &mut Option<CallTarget>,
    ) -> Ended {
        let flows = &self.view.plan.flows;
        let mut cx = Context::from_waker(Waker::noop());
        let view = exchange_view(state, now, Outcome::None);
        let step =
            run.with_exchange(flows, view, |chain, exchange| chain.poll_request(flows, exchange, &mut cx));
        if let Poll::Ready(RequestStep::LocalResponse(response)) = step {
            *called = None;
            return local(*response, now);
        }
        run.draft.calls += 1;
        match drafted(&self.view, run, target, state.input.filled()) {
            Ok(call) => {
                let plan = &call.upstream.plan;
                let verdict = plan.policy.check_host(&plan.target());
                let ended = match verdict {
                    Verdict::Deny(reason) => Ended::Failed(denied(&plan.target(), reason)),
                    Verdict::Allow | Verdict::Report(_) => Ended::Call,
                };
                *called = Some(call.into_owned());
                ended
            }
            Err(failure) => {
                *called = None;
                Ended::Failed(failure)
            }
        }
    }

    /// Passes a response or a failure outwards.
    fn pass_back(
        &self,
        run: &mut FlowRun,
        state: &RequestState,
        target: &CallTarget,
        ended: &Ended,
        now: Timestamp,
    ) -> ResponseStep {
        let flows = &self.view.plan.flows;
        let mut head = ResponseHead::new();
        let refusal;
        let message = match ended {
            Ended::Call => return ResponseStep::Pass,
            Ended::Response(message, _) => message,
            Ended::Refused(failure) => {
                let (errors, request) = (&self.view.plan.errors, &state.request);
                let fields = Fields::received(&request.fields, state.input.filled());
                let format = target.upstream.plan.error_format;
                let shape = errors.shape(format, fields, request.method != Method::Head);
                refusal = failure.message(errors, shape, &RequestId::default());
                &refusal
            }
            Ended::Failed(failure) => {
                let outcome = Outcome::Failure(failure.of_call(false));
                let view = exchange_view(state, now, outcome);
                return run.with_exchange(flows, view, |chain, exchange| chain.response(flows, exchange));
            }
        };
        if head.parse(message, &HeadLimits::default(), state.request.method) != Ok(Progress::Complete) {
            return ResponseStep::Pass;
        }
        let received = ReceivedMessage { head: &head, bytes: message, body: message.get(head.len..) };
        let view = exchange_view(state, now, Outcome::Response(&received));
        run.with_exchange(flows, view, |chain, exchange| chain.response(flows, exchange))
    }

    fn error(&self, failure: &Failure) -> Responder {
        Responder::Error(GeneratedError {
            error: failure.kind.slug(),
            status: failure.status(&self.view.plan.errors),
            detail: failure.detail.clone().into_owned(),
        })
    }
}

fn is_redirected(listener: &ListenerPlan) -> bool {
    matches!(listener.routing, ListenerRouting::Redirected)
}

/// Returns `true` if requests arrive on the connections of a listener, and not tunnels alone.
fn takes_requests(listener: &ListenerPlan) -> bool {
    matches!(listener.routing, ListenerRouting::Usual | ListenerRouting::WithQuery)
}

/// Returns the parts of an exchange that a flow run does not own.
fn exchange_view<'s>(state: &'s RequestState, now: Timestamp, outcome: Outcome<'s>) -> ExchangeView<'s> {
    let grpc = GrpcOutcome::NotGrpc;
    ExchangeView { now, worker: 0, state, repeatable: true, outcome, usage: None, grpc }
}

/// Converts a remedy's response.
fn local(response: LocalResponse, now: Timestamp) -> Ended {
    let fixed = |fixed: &Fixed| Ended::Response(failure::fixed(fixed, true), fixed.status);
    match response {
        LocalResponse::Fixed(response) => fixed(&response),
        LocalResponse::Refused(refused) | LocalResponse::Aborted(refused) => {
            Ended::Refused(Failure::refused(refused, now))
        }
        LocalResponse::Reset => Ended::Refused(Failure::new(ErrorKind::FaultReset, RESET)),
        // Caches are empty.
        LocalResponse::Stored(served) => {
            fixed(&Fixed { status: served.status(), fields: Vec::new(), body: Vec::new() })
        }
    }
}

/// Receives the whole body, unless it has more than `max` bytes.
fn gather(run: &mut FlowRun, state: &RequestState, max: usize) {
    let (start, end) = (state.request.len, state.input.filled().len());
    if !run.body.is_whole && end - start <= max {
        run.body.note_whole(Span::new(start, end));
    }
}

fn resolved(call: &CallTarget, target: &[u8]) -> Resolved {
    let plan = &call.upstream.plan;
    let target = String::from_utf8_lossy(target);
    Resolved {
        provider: plan.provider().to_owned(),
        scheme: if plan.origin.tls { "https" } else { "http" },
        host: plan.host_text().to_owned(),
        port: plan.origin.authority.port,
        target: match target.chars().next() {
            Some('/' | '*') => target.into_owned(),
            _ => format!("/{target}"),
        },
    }
}

fn egress(plan: &UpstreamPlan) -> Egress {
    let target = plan.target();
    let Grounds { is_off, rule, later } = plan.policy.grounds(&target);
    let (verdict, reason) = match plan.policy.check_host(&target) {
        _ if is_off => (EgressVerdict::Off, None),
        Verdict::Allow => (EgressVerdict::Allowed, None),
        Verdict::Report(reason) => (EgressVerdict::Reported, Some(reason)),
        Verdict::Deny(reason) => (EgressVerdict::Denied, Some(reason)),
    };
    let looks_up = match &plan.proxy {
        Some(proxy) => proxy.is_looked_up_here(&target, &plan.policy),
        None => target.authority.host.name().is_some(),
    };
    Egress {
        authority: target.authority.to_string(),
        verdict,
        reason: reason.map(egret_net::policy::Reason::slug),
        detail: reason.map(|reason| reason.to_string()),
        rule: rule.map(|rule| rule.to_string()),
        addresses_follow: !is_off && looks_up,
        later: later.into_iter().map(|rule| rule.to_string()).collect(),
        configured: target.configured,
        proxy: plan.proxy.as_ref().map(ToString::to_string),
    }
}
