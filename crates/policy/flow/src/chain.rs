//! The chain of remedies for one exchange: inwards with the request, outwards with the response.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::vec::Drain;

use egret_clock::Timestamp;
use egret_match::router::{Match, Matches};
use egret_message::{ErrorKind, Fault, Outcome, Refused};
use egret_quota::{Grant, Permit, Redraw};
use egret_remedy::{
    AnyRun, Checkpoint, Decision, Exchange, LocalKind, LocalResponse, Mode, Needs, OnError, PendingChanges,
    Reaction, Step, record_account_outcome,
};
use egret_store::coalescer::Background;
use tracing::{debug, error, warn};

use crate::plan::{Flows, RemedySlot};

/// Maximum length of an exchange's trace in bytes.
const TRACE_BYTES_MAX: usize = 1024;

/// The next step for a request that has passed its remedies.
#[derive(Debug)]
pub enum RequestStep {
    /// Call the provider, with the pending changes applied.
    Call,
    /// Send a remedy's response. It passes outwards through [`RemedyChain::response`].
    LocalResponse(Box<LocalResponse>),
}

/// The next step for a response that has passed its remedies.
#[derive(Debug)]
pub enum ResponseStep {
    /// Send the response to the client.
    Pass,
    /// Hold the request until this time, then pass it through [`RemedyChain::poll_request`] again.
    Repeat(Timestamp),
    /// Discard the response and use this one instead. It passes outwards through [`RemedyChain::response`].
    LocalResponse(Box<LocalResponse>),
}

/// The remedies of one exchange and its position among them. Reused between exchanges to avoid allocation.
#[derive(Debug, Default)]
pub struct RemedyChain {
    /// The remedies by their number in the plan, each with the match of its flow, outermost first.
    chain: Vec<(usize, Match)>,
    /// State of the remedies entered so far, in the same order.
    held: Vec<AnyRun>,
    /// The pending changes after each of them has seen the request.
    checkpoints: Vec<Checkpoint>,
    /// The pending changes before the first of them.
    base: Checkpoint,
    /// Position of the exchange. On the request side, the index of the next remedy; on the response side, one
    /// more than the index of the next remedy.
    depth: usize,
    /// Time at which the next remedy began to wait.
    waiting_since: Option<Timestamp>,
    needs: Needs,
    /// Kind of the local response that is passing outwards, if any.
    local_kind: Option<LocalKind>,
    /// Decisions so far, if the client or a diagnosis wants them.
    trace: String,
    readers: TraceReaders,
}

/// The point at which a request resumes when a remedy repeats its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resume {
    /// The inner remedies. The changes made by the remedy itself are kept.
    Inner,
    /// The inner remedies. The changes made by the remedy itself are undone.
    InnerClean,
    /// The remedy itself. The changes that it made are undone.
    Remedy,
}

/// The readers of the decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceReaders {
    /// The client asked for the trace.
    pub client: bool,
    /// A diagnosis of a matching flow records them, or readers of live traffic see them.
    pub diagnoses: bool,
}

impl RemedyChain {
    /// Starts the chain for the flows that matched. Returns `true` if it has any remedy.
    pub fn start(&mut self, flows: &Flows, matches: &Matches, readers: TraceReaders) -> bool {
        self.chain.clear();
        self.held.clear();
        self.checkpoints.clear();
        self.base = Checkpoint::default();
        self.depth = 0;
        self.waiting_since = None;
        self.local_kind = None;
        flows.count_match_failures(matches);
        self.needs = Needs::default();
        for found in matches.iter() {
            let (slots, needs) = flows.remedies_of(found.flow());
            self.needs = self.needs.and(needs);
            self.chain.extend(slots.map(|slot| (slot, found)));
        }
        self.trace.clear();
        self.readers = readers;
        !self.chain.is_empty()
    }

    /// Combined needs of the chain's remedies.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Returns the decisions so far for the field `x-egret-trace`, if the client asked for it.
    pub fn trace(&self) -> Option<&str> {
        self.readers.client.then_some(&self.trace)
    }

    /// Returns the decisions so far, if the client or a diagnosis wants them.
    pub fn decisions(&self) -> &str {
        &self.trace
    }

    /// Passes the request inwards as far as possible.
    pub fn poll_request(
        &mut self,
        flows: &Flows,
        exchange: &mut Exchange<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<RequestStep> {
        while let Some((number, found)) = self.chain.get(self.depth) {
            let (number, found) = (*number, *found);
            let slot = &flows.slots[number];
            exchange.params.found = Some(found);
            if self.held.len() == self.depth {
                self.held.push(slot.remedy.held());
            }
            let held = &mut self.held[self.depth];
            let checkpoint = (slot.mode == Mode::Report).then(|| exchange.draft.checkpoint());
            let decided = guarded(slot, || slot.remedy.request(exchange, held, cx));
            let step = match (decided, slot.mode) {
                (Ok(Poll::Pending), Mode::Enforce) => {
                    self.waiting_since.get_or_insert(exchange.now);
                    return Poll::Pending;
                }
                (Ok(Poll::Pending), Mode::Report) => {
                    // Releases the remedy's wait.
                    *held = slot.remedy.held();
                    self.note(slot, exchange, Decision::Wait);
                    Step::Next
                }
                (Ok(Poll::Ready(step)), _) => step,
                (Err(fault), _) => Step::Fail(fault),
            };
            if let Some(checkpoint) = checkpoint {
                exchange.draft.restore(&checkpoint);
            }
            if let Some(since) = self.waiting_since.take() {
                slot.counts.waited(exchange.worker, exchange.now.since(since));
                self.note(slot, exchange, Decision::Wait);
            }
            let (decision, local_response) = match step {
                Step::Next => (Decision::Next, None),
                Step::LocalResponse(local_response) => (Decision::LocalResponse, Some(local_response)),
                Step::Fail(fault) => (Decision::Fail, slot.refusal(&fault)),
            };
            self.note(slot, exchange, decision);
            if let (Some(local_response), Mode::Enforce) = (local_response, slot.mode) {
                if let Some(background) = &mut exchange.draft.background {
                    background.slot = number;
                }
                self.held.truncate(self.depth);
                self.local_kind = Some(local_response.kind());
                return Poll::Ready(RequestStep::LocalResponse(local_response));
            }
            if slot.mode == Mode::Report {
                // Discards the calls that the remedy would have made.
                exchange.draft.background = None;
                exchange.draft.fetch = None;
            }
            self.checkpoints.push(exchange.draft.checkpoint());
            self.depth += 1;
        }
        self.local_kind = None;
        exchange.ask_for_usage();
        Poll::Ready(RequestStep::Call)
    }

    /// Passes a response or a failure outwards as far as possible.
    pub fn response(&mut self, flows: &Flows, exchange: &mut Exchange<'_>) -> ResponseStep {
        exchange.local_kind = self.local_kind;
        exchange.leave_usage_out();
        exchange.draft.seen |= self.local_kind.is_none()
            && match exchange.outcome {
                Outcome::None => false,
                Outcome::Response(_) => true,
                Outcome::Failure(failure) => failure.sent,
            };
        if self.local_kind.is_none()
            && let Some(account) = exchange.called_account()
        {
            record_account_outcome(account, exchange);
        }
        while let Some(outer) = self.depth.checked_sub(1) {
            self.depth = outer;
            let (number, found) = self.chain[outer];
            let slot = &flows.slots[number];
            exchange.params.found = Some(found);
            let held = &mut self.held[outer];
            let checkpoint = (slot.mode == Mode::Report).then(|| exchange.draft.checkpoint());
            let decided = guarded(slot, || {
                if slot.is_for_response(exchange) {
                    slot.remedy.response(exchange, held)
                } else {
                    Reaction::Pass
                }
            });
            if let Some(checkpoint) = checkpoint {
                exchange.draft.restore(&checkpoint);
            }
            let reaction = decided.unwrap_or_else(Reaction::Fail);
            let from = match reaction {
                Reaction::RepeatClean => Resume::InnerClean,
                Reaction::RepeatSelf => Resume::Remedy,
                _ => Resume::Inner,
            };
            let mut alternate_call = None;
            let (decision, response_step) = match reaction {
                Reaction::Pass => continue,
                Reaction::Repeat(at) => (Decision::Repeat, Some(ResponseStep::Repeat(at))),
                Reaction::RepeatClean | Reaction::RepeatSelf => {
                    (Decision::Repeat, Some(ResponseStep::Repeat(exchange.now)))
                }
                Reaction::CallInstead(call) => {
                    alternate_call = Some(call);
                    (Decision::Repeat, Some(ResponseStep::Repeat(exchange.now)))
                }
                Reaction::LocalResponse(local_response) => {
                    (Decision::LocalResponse, Some(ResponseStep::LocalResponse(local_response)))
                }
                Reaction::Fail(fault) => {
                    (Decision::Fail, slot.refusal(&fault).map(ResponseStep::LocalResponse))
                }
            };
            self.note(slot, exchange, decision);
            if let (Some(response_step), Mode::Enforce) = (response_step, slot.mode) {
                self.end_from(outer + 1, flows, exchange);
                match &response_step {
                    ResponseStep::LocalResponse(local_response) => {
                        self.local_kind = Some(local_response.kind());
                        exchange.draft.forget_response();
                    }
                    ResponseStep::Repeat(_) => self.go_back(outer, from, exchange),
                    ResponseStep::Pass => {}
                }
                if let Some(alternate_call) = alternate_call {
                    exchange.draft_alternate_call(*alternate_call);
                }
                return response_step;
            }
        }
        ResponseStep::Pass
    }

    /// Adds the permits that the call needs when it is sent.
    pub fn add_permits(&mut self, flows: &Flows, permits: &mut impl Extend<Permit>) {
        if !self.needs.permit {
            return;
        }
        for (held, (number, _)) in self.held.iter_mut().zip(&self.chain) {
            if let Some(Some(grant)) = flows.slots[*number].enforced_grant(held) {
                permits.extend(grant.permits());
            }
        }
    }

    /// Returns the units that a second call beside a slow one needs: those of the grants inside of the remedy
    /// that has ordered it.
    pub fn redraws(&mut self, flows: &Flows) -> Vec<Redraw> {
        let inside = self.checkpoints.iter().position(Checkpoint::is_hedged).map_or(usize::MAX, |at| at + 1);
        let held = self.held.iter_mut().zip(&self.chain).skip(inside);
        held.filter_map(|(held, (number, _))| {
            Some(flows.slots[*number].enforced_grant(held)?.as_ref()?.redraw())
        })
        .collect()
    }

    /// Goes back to the outermost remedy whose grant has ended before the call was sent. It has to decide
    /// again, and so do the inner ones; what they have taken is returned.
    pub fn take_again(&mut self, flows: &Flows, exchange: &mut Exchange<'_>) {
        let has_ended = |(held, (number, _)): (&mut AnyRun, &(usize, Match))| {
            let grant = flows.slots[*number].enforced_grant(held);
            grant.is_some_and(|grant| grant.as_ref().is_some_and(|grant| !grant.is_usable()))
        };
        if let Some(ended) = self.held.iter_mut().zip(&self.chain).position(has_ended) {
            self.decide_again(ended, flows, exchange, Grant::cancel);
        }
    }

    /// Goes back to the outermost remedy with a grant, after a call that has to be sent again: each call uses
    /// units of its own, and the provider may have counted the one before. Stays where it is if no remedy has
    /// a grant.
    pub fn draw_again(&mut self, flows: &Flows, exchange: &mut Exchange<'_>) {
        exchange.draft.seen = true;
        let has_drawn = |(held, (number, _)): (&mut AnyRun, &(usize, Match))| {
            flows.slots[*number].remedy.grant(held).is_some_and(|grant| grant.is_some())
        };
        if let Some(drawn) = self.held.iter_mut().zip(&self.chain).position(has_drawn) {
            self.decide_again(drawn, flows, exchange, |grant, _| drop(grant));
        }
    }

    /// Goes back to the remedy at `depth`, which has to decide again, as do the inner ones. Their grants end
    /// by `end`.
    fn decide_again(
        &mut self,
        depth: usize,
        flows: &Flows,
        exchange: &mut Exchange<'_>,
        end: impl Fn(Grant, Timestamp),
    ) {
        for (held, (number, _)) in self.held.iter_mut().zip(&self.chain).skip(depth) {
            if let Some(grant) = flows.slots[*number].remedy.grant(held).and_then(Option::take) {
                end(grant, exchange.now);
            }
        }
        self.end_from(depth + 1, flows, exchange);
        self.go_back(depth, Resume::Remedy, exchange);
    }

    /// Prepares another call for the remedy at `depth`. Undoes the changes made by the inner remedies, which
    /// see the request again, and the remedy's own changes unless `from` keeps them.
    fn go_back(&mut self, depth: usize, from: Resume, exchange: &mut Exchange<'_>) {
        if from == Resume::Inner {
            self.checkpoints.truncate(depth + 1);
        } else {
            let before = depth.checked_sub(1).map_or(&self.base, |outer| &self.checkpoints[outer]).clone();
            self.checkpoints.truncate(depth);
            self.checkpoints.push(before);
        }
        if let Some(checkpoint) = self.checkpoints.last() {
            exchange.draft.restore(checkpoint);
        }
        self.depth = depth + 1;
        if from == Resume::Remedy {
            self.checkpoints.truncate(depth);
            self.depth = depth;
        }
    }

    /// Drops the remedies before the one that `background` was made for; their changes to the request are in
    /// `draft`. Returns `true` if the chain contains that remedy.
    pub fn begin_at(&mut self, background: &Background, draft: &PendingChanges) -> bool {
        self.base = draft.checkpoint();
        let at = self.chain.iter().position(|(slot, _)| *slot == background.slot);
        self.chain.drain(..at.unwrap_or_default());
        at.is_some()
    }

    /// Returns `true` if a local response goes to the client as it is, because no outer remedy is left to see
    /// it.
    pub fn is_outermost(&self) -> bool {
        self.depth == 0
    }

    /// Ends the exchange. Returns what its remedies hold until they are dropped, like permits.
    pub fn end(&mut self, flows: &Flows, exchange: &mut Exchange<'_>) -> Drain<'_, AnyRun> {
        self.end_each(0, flows, exchange);
        self.chain.clear();
        // Checkpoints hold bodies.
        self.checkpoints.clear();
        self.base = Checkpoint::default();
        self.held.drain(..)
    }

    /// Ends the exchange for the remedies from `depth` inwards, and releases what they hold.
    fn end_from(&mut self, depth: usize, flows: &Flows, exchange: &mut Exchange<'_>) {
        self.end_each(depth, flows, exchange);
        self.held.truncate(depth);
    }

    /// Ends the exchange for the remedies from `depth` inwards. They still hold what they held.
    fn end_each(&mut self, depth: usize, flows: &Flows, exchange: &mut Exchange<'_>) {
        for at in (depth..self.held.len()).rev() {
            let (number, found) = self.chain[at];
            let slot = &flows.slots[number];
            exchange.params.found = Some(found);
            let held = &mut self.held[at];
            if let Err(fault) | Ok(Err(fault)) = guarded(slot, || slot.remedy.end(exchange, held)) {
                // The response has already been decided, so the fault cannot refuse the exchange.
                slot.warn_open(&fault);
                self.note(slot, exchange, Decision::Fail);
            }
        }
    }

    fn note(&mut self, slot: &RemedySlot, exchange: &Exchange<'_>, decision: Decision) {
        slot.counts.count(exchange.worker, decision);
        let Self { trace, readers, .. } = self;
        if (readers.client || readers.diagnoses) && trace.len() < TRACE_BYTES_MAX {
            let separator = if trace.is_empty() { "" } else { ", " };
            let report = if slot.mode == Mode::Report { ";report" } else { "" };
            for piece in [separator, &*slot.label, "=", decision.word(), report] {
                trace.push_str(piece);
            }
        }
    }
}

/// Runs a remedy's code and catches panics. A panic is a bug, and it must not end the exchange.
fn guarded<T>(slot: &RemedySlot, act: impl FnOnce() -> T) -> Result<T, Fault> {
    let act = || {
        #[cfg(test)]
        assert!(!slot.panics, "a test asked for this panic");
        act()
    };
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| {
        error!(remedy = slot.label, "a remedy has panicked: this is a bug in Egret");
        Fault("it panicked".into())
    })
}

impl RemedySlot {
    /// The grant that the call needs.
    fn enforced_grant<'h>(&self, held: &'h mut AnyRun) -> Option<&'h mut Option<Grant>> {
        if self.mode == Mode::Enforce { self.remedy.grant(held) } else { None }
    }

    /// Returns the refusal for a fault, or `None` if the exchange may go on.
    fn refusal(&self, fault: &Fault) -> Option<Box<LocalResponse>> {
        if self.on_error == OnError::Open || self.mode == Mode::Report {
            self.warn_open(fault);
            return None;
        }
        debug!(remedy = self.label, fault = %fault.0, "a remedy cannot decide");
        let detail = format!(
            "the remedy {} cannot decide and refuses the request (`on_error: closed`): {}",
            self.label, fault.0
        );
        Some(Box::new(LocalResponse::Refused(Refused::new(ErrorKind::RemedyFailed, detail))))
    }

    /// Logs once for each cause that exchanges go on although this remedy cannot decide.
    fn warn_open(&self, fault: &Fault) {
        let (flow, remedy) = (self.flow(), self.remedy_name());
        if self.causes.is_new(&fault.0) {
            warn!(
                flow,
                remedy,
                cause = %fault.0,
                "the remedy {remedy} of flow {flow} was skipped (`on_error: open`): {}; logged once for each cause, \
                 see the decision `fail` in the metrics",
                fault.0
            );
        } else {
            debug!(flow, remedy, cause = %fault.0, "a remedy cannot decide");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use tracing::field::Field;
    use tracing::{Event, Level, Metadata, Subscriber, span};

    use super::*;
    use crate::fixture::{TestFlows, TestStep};
    use egret_accounts::token::TokenResponse;

    const GET: &str = "GET https://one.example/";

    /// Number of errors logged.
    #[derive(Debug, Default)]
    struct Errors(Mutex<u32>);

    impl Subscriber for &'static Errors {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::ERROR
        }

        fn event(&self, _: &Event<'_>) {
            *self.0.lock().unwrap() += 1;
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    /// Returns the result of `act` and the number of errors it logged.
    fn with_errors<T>(act: impl FnOnce() -> T) -> (T, u32) {
        let errors: &'static Errors = Box::leak(Box::default());
        let result = tracing::subscriber::with_default(errors, act);
        (result, *errors.0.lock().unwrap())
    }

    /// The logged warnings, as their fields.
    #[derive(Debug, Default)]
    struct Warnings(Mutex<Vec<String>>);

    impl Subscriber for &'static Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }

        fn event(&self, event: &Event<'_>) {
            let mut fields = String::new();
            let mut exchange = |field: &Field, value: &dyn std::fmt::Debug| {
                if field.name() != "message" {
                    fields.extend([field.name(), "=", &format!("{value:?}"), " "]);
                }
            };
            event.record(&mut exchange);
            self.0.lock().unwrap().push(fields);
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a_remedy_that_fails_open_is_logged_once_for_each_cause() {
        let warnings: &'static Warnings = Box::leak(Box::default());
        let cost = json!({ "request": "1 / int(request.headers['x-cost'])", "response": "int(response.headers['x-used'])" });
        let limit = |on_error: &str| json!({ "limit": { "quota": "q" }, "on_error": on_error });
        let harness = |on_error: &str| {
            TestFlows::new(json!({
                "quotas": { "q": { "limit": 1_000, "window": "1h", "cost": cost } },
                "flows": [{ "name": "spend", "remedies": [{ "timeout": { "total": "1s" } }, limit(on_error)] }],
            }))
        };
        let requests = ["hunter2", "0", "1"].map(|cost| format!("{GET}\nX-Cost: {cost}"));
        tracing::subscriber::with_default(warnings, || {
            let open = harness("open");
            for request in requests.iter().cycle().take(12) {
                assert_eq!(open.exchange(request, "200\nX-Used: hunter2"), TestStep::Response(200));
            }
            let closed = harness("closed");
            assert_eq!(closed.exchange(GET, "200").refusal(&closed).0, ErrorKind::RemedyFailed);
        });
        let logged = warnings.0.lock().unwrap();
        let about = |key: &str| {
            logged.iter().filter(|line| line.contains(&format!("`cost.{key}` of the quota `q`"))).count()
        };
        assert_eq!((about("request"), about("response"), logged.len()), (2, 1, 3), "{logged:#?}");
        for line in &*logged {
            assert!(line.contains("flow=\"spend\" remedy=\"limit\" cause="), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }

    #[test]
    fn a_repeated_call_reverts_the_drafts_of_inner_remedies() {
        let account = json!({ "provider": "one", "bearer": { "token": "${env:CARGO_PKG_NAME}" } });
        let remedies = json!([
            { "transform": { "request": { "headers": { "add": { "x-outer": "1" } } } } },
            { "accounts": { "use": ["a", "b"] } },
            { "transform": { "request": { "headers": { "add": { "x-inner": "1" } } } } },
        ]);
        let harness = TestFlows::new(json!({
            "accounts": { "a": account, "b": account },
            "flows": [{ "name": "f", "remedies": remedies }],
        }));
        let mut exchange = harness.send(&format!("{GET}\nX-Egret-Trace: 1"));
        for (number, response) in [(0, "401"), (1, "200")] {
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(exchange.draft.call.account, Some(number));
            let (_, fields, _) = exchange.sent(&harness);
            for name in ["x-outer: 1", "x-inner: 1"] {
                assert_eq!(fields.iter().filter(|field| *field == name).count(), 1, "{fields:?}");
            }
            exchange.response(&harness, response);
        }
        assert_eq!(
            exchange.trace(),
            "f/transform=next, f/accounts=next, f/transform-2=next, f/accounts=repeat, f/accounts=next, f/transform-2=next"
        );
        exchange.end(&harness);
    }

    /// A retry around a remedy that panics, and a timeout within it.
    fn harness(on_error: &str) -> TestFlows {
        let mut harness = TestFlows::with(&json!([
            { "retry": {} },
            { "concurrency": { "max": 1 }, "on_error": on_error },
            { "timeout": { "total": "1s" } },
        ]));
        harness.flows.slots[1].panics = true;
        harness
    }

    #[test]
    fn a_panicking_remedy_that_fails_open_passes_the_exchange() {
        let harness = harness("open");
        let ((step, trace), errors) = with_errors(|| {
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            let step = exchange.response(&harness, "200");
            let trace = exchange.trace().to_owned();
            exchange.end(&harness);
            (step, trace)
        });
        assert_eq!(step, TestStep::Response(200));
        assert_eq!(trace, "f/retry=next, f/concurrency=fail, f/timeout=next, f/concurrency=fail");
        // It fails with the request, with the response and at the end; each failure is logged.
        assert_eq!((harness.decided(1, Decision::Fail), errors), (3, 3));
        assert_eq!(harness.decided(2, Decision::Next), 1);
    }

    #[test]
    fn a_remedy_that_panics_refuses_the_exchange_where_it_fails_closed() {
        let mut harness = harness("closed");
        let (step, errors) = with_errors(|| harness.exchange(GET, "200"));
        assert_eq!(step.refusal(&harness), (ErrorKind::RemedyFailed, None));
        assert_eq!(
            (harness.decided(1, Decision::Fail), harness.decided(2, Decision::Next), errors),
            (1, 0, 1)
        );

        // A response is already present. It must not get past a remedy that cannot decide.
        harness.flows.slots[1].panics = false;
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        harness.flows.slots[1].panics = true;
        assert_eq!(exchange.response(&harness, "200").refusal(&harness).0, ErrorKind::RemedyFailed);
        exchange.end(&harness);
        // The remedy's permit has been released.
        harness.flows.slots[1].panics = false;
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
    }

    #[test]
    fn a_call_with_a_refused_token_is_repeated_once() {
        let mut harness = TestFlows::new(json!({
            "accounts": { "a": {
                "provider": "one",
                "oauth2": { "token_url": "https://id.example/", "client_id": "me" },
            } },
            "flows": [{ "name": "f", "remedies": [
                { "transform": { "request": { "headers": { "add": { "x-outer": "1" } } } } },
                { "authenticate": { "account": "a" } },
                { "transform": { "request": { "headers": { "add": { "x-inner": "1" } } } } },
            ] }],
        }));
        let mut exchange = harness.send(GET);
        for _ in 0..2 {
            // In the first round there is no token yet; in the second it has just been refused.
            assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))));
            assert_eq!(exchange.draft.call.account, Some(0));
            exchange.draft.fetch.take().unwrap().end(
                harness.now,
                Ok(TokenResponse {
                    status: 200,
                    retry_after: None,
                    body: br#"{"access_token":"t","token_type":"bearer"}"#,
                }),
            );
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            let fields = exchange.sent(&harness).1;
            assert_eq!(fields, ["Host: one.example", "x-outer: 1", "x-inner: 1"]);
            harness.pass_ms(1);
            if exchange.response(&harness, "401") == TestStep::Response(401) {
                break;
            }
            assert_eq!(exchange.draft.call.account, None);
        }
        exchange.end(&harness);
        let waits = harness.decided(1, Decision::Wait);
        assert_eq!(
            (harness.decided(1, Decision::Repeat), harness.decided(1, Decision::Next), waits),
            (1, 2, 2)
        );
        assert_eq!((harness.decided(0, Decision::Next), harness.decided(2, Decision::Next)), (1, 2));
    }

    #[test]
    fn a_call_with_an_ended_permit_returns_to_its_remedy() {
        let config = |policy: &str, limit: u64| {
            json!({
                "quotas": {
                    "own": { "limit": 1, "window": "1s" },
                    "inner": { "limit": 1, "window": "1s" },
                    "shared": { "limit": limit, "window": "1s", "store": "redis", "on_store_error": policy },
                },
                "flows": [{ "name": "f", "remedies": [
                    { "limit": { "quota": "own" } },
                    { "transform": { "request": { "headers": { "add": { "x-outer": "1" } } } } },
                    { "limit": { "quota": "shared" } },
                    { "limit": { "quota": "inner" } },
                    { "transform": { "request": { "headers": { "add": { "x-inner": "1" } } } } },
                ] }],
            })
        };
        // The store is away: the policy alone decides what may be used.
        let mut harness = TestFlows::new(config("open", 1));
        let mut exchange = harness.send(&format!("{GET}\nX-Egret-Trace: 1"));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        let permits = exchange.permits(&harness);
        assert!(permits.len() == 1 && permits[0].is_valid());

        harness.reload(config("closed", 1));
        assert!(!permits[0].is_valid());
        harness.reload(config("open", 2));
        assert!(permits[0].is_valid());
        harness.reload(config("closed", 2));
        exchange.take_again(&harness);
        harness.reload(config("open", 2));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert!(exchange.permits(&harness)[0].is_valid());
        assert_eq!(
            exchange.sent(&harness).1,
            ["Host: one.example", "X-Egret-Trace: 1", "x-outer: 1", "x-inner: 1"]
        );
        assert_eq!(
            exchange.trace(),
            "f/limit=next, f/transform=next, f/limit-2=next, f/limit-3=next, f/transform-2=next, \
             f/limit-2=next, f/limit-3=next, f/transform-2=next"
        );

        harness.reload(config("closed", 2));
        exchange.take_again(&harness);
        assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))), "the store is asked");
        exchange.end(&harness);
    }

    #[test]
    fn report_mode_fetches_no_token_and_repeats_no_call() {
        let harness = TestFlows::new(json!({
            "accounts": { "a": {
                "provider": "one",
                "oauth2": { "token_url": "https://id.example/", "client_id": "me" },
            } },
            "flows": [{ "name": "f", "remedies": [{ "authenticate": { "account": "a" }, "mode": "report" }] }],
        }));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert!(exchange.draft.fetch.is_none() && exchange.draft.call.account.is_none());
        assert_eq!(exchange.response(&harness, "401"), TestStep::Response(401));
        exchange.end(&harness);
    }
}
