//! The exchange that a remedy receives: read-only messages, and a draft for changes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egret_accounts::token::Fetch;
use egret_accounts::{Account, Accounts};
use egret_cache::{Stored, is_credential_field, is_credential_parameter};
use egret_clock::{Random, Timestamp};
use egret_http1::{Method, RequestHead};
use egret_json::edit::{Action, JsonEdits};
use egret_match::Parameters;
use egret_match::expression::{self, Expression, Inputs};
use egret_match::form::decode_form;
use egret_match::router::{Match, Matches, Router};
use egret_match::template::{Identifiers, Template};
use egret_message::grpc::GrpcOutcome;
use egret_message::request_target::split_target;
use egret_message::{
    Changes, ClientAddress, Condition, Destination, Fault, Fields, Outcome, ReceivedMessage, Request,
    Response,
};
use egret_presets::{Preset, Refusal, RefusalDocument, RetryAdvice};
use egret_store::coalescer::{Background, Followers};
use egret_store::entries::BodyWriter;
use egret_usage::UsageRecord;

use crate::body_fault::BodyFault;
use crate::conventions::{Conventions, ProviderConventions};
use crate::local_response::LocalKind;
use crate::usage_ask::UsageAsk;

/// The remedies' changes to an exchange so far. Reused between exchanges to avoid allocation.
#[derive(Debug, Default)]
pub struct PendingChanges {
    /// Changes to the header fields of the request.
    pub request: Changes,
    /// Changes to the header fields of the response.
    pub response: Changes,
    /// Replacement for the received path and query: in origin-form, relative to the provider's URL.
    pub target: Option<Rc<[u8]>>,
    /// Replacement for the received request body, without transfer framing.
    pub request_body: Option<Rc<[u8]>>,
    /// Replacement for the received response body, without transfer framing.
    pub response_body: Option<Rc<[u8]>>,
    /// Cache entry that stores the response's body as it is forwarded.
    pub body_writer: Option<BodyWriter<Stored>>,
    /// A fault that the response's body gets on its way to the client.
    pub body_fault: Option<Arc<BodyFault>>,
    /// A background call to make; in such a call, the reason for it.
    pub background: Option<Background>,
    /// The requests that wait for the response, if this one is sent for all of them.
    pub followers: Option<Followers>,
    /// A token to fetch. If it is dropped, another exchange fetches the token.
    pub fetch: Option<Fetch>,
    /// Options of the next call.
    pub call: CallOptions,
    /// Number of calls made so far.
    pub calls: u32,
    /// `true` if a provider may have seen any of the request. Set by the chain.
    pub seen: bool,
    /// `true` if the last call went to a dead connection, so that the next one needs a new connection.
    pub needs_new_connection: bool,
    /// The client's address, if calls show it to the provider.
    pub client: Option<ClientAddress>,
    /// The second call that was made beside the last one.
    pub second_call: SecondCall,
    /// Seed of the exchange's span ids; 0 until a remedy draws one.
    pub trace_seed: u64,
    /// Random numbers for this exchange, seeded by the creator of the draft.
    pub random: Random,
    /// Time at which a waiting remedy wants to be polled again.
    poll_at: Option<Timestamp>,
}

/// A second call beside a slow one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecondCall {
    /// None was made.
    #[default]
    None,
    /// It was made, and the first call ended the exchange.
    Made,
    /// Its response was used.
    Used,
}

/// Options of a call that remedies set and that override the provider's config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallOptions {
    /// Number (in the config) of the provider to call instead.
    pub provider: Option<usize>,
    /// Number (in the config) of the account that the call uses.
    pub account: Option<usize>,
    /// `true` if the account's secrets are masked in the response.
    pub masks_echoes: bool,
    /// `true` if this call replaces another one that failed.
    pub is_alternate: bool,
    /// `true` if a remedy has inserted a secret into the path or the query.
    pub has_secret_target: bool,
    /// Time limit for the head of the response.
    pub first_byte: Option<Duration>,
    /// Time limit for the first event with content, in a stream of events.
    pub first_event: Option<Duration>,
    /// Time limit from one such event to the next.
    pub stall: Option<Duration>,
    /// Time limit for the whole exchange, all calls included.
    pub total: Option<Duration>,
    /// Time without a response after which a hedging call is made.
    pub hedge: Option<Duration>,
    /// The request for a report of usage.
    pub usage: UsageAsk,
}

/// A call that replaces the original one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlternateCall {
    /// Number (in the config) of the provider, if it is another one.
    pub provider: Option<usize>,
    /// Path, relative to the provider's URL, if it is another one. The query is kept.
    pub path: Option<Vec<u8>>,
    /// `true` if there is a secret in the path.
    pub has_secret_path: bool,
    /// `true` if the credentials of the request, which are meant for the original provider, are removed.
    pub without_credentials: bool,
    /// The model that the JSON body asks for instead, as JSON.
    pub model: Option<Arc<[u8]>>,
}

/// State of a draft at one moment.
#[derive(Debug, Clone, Default)]
pub struct Checkpoint {
    request: usize,
    response: usize,
    call: CallOptions,
    target: Option<Rc<[u8]>>,
    request_body: Option<Rc<[u8]>>,
    response_body: Option<Rc<[u8]>>,
    body_fault: Option<Arc<BodyFault>>,
}

impl Checkpoint {
    /// Number of the account that the call used.
    pub fn account(&self) -> Option<usize> {
        self.call.account
    }

    /// Returns `true` if a remedy has ordered a second call beside a slow one.
    pub fn is_hedged(&self) -> bool {
        self.call.hedge.is_some()
    }

    /// Number of changes to the request's header fields.
    pub fn request_changes(&self) -> usize {
        self.request
    }
}

impl PendingChanges {
    /// Returns a checkpoint for [`restore`](Self::restore).
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            request: self.request.len(),
            response: self.response.len(),
            call: self.call,
            target: self.target.clone(),
            request_body: self.request_body.clone(),
            response_body: self.response_body.clone(),
            body_fault: self.body_fault.clone(),
        }
    }

    /// Undoes all changes since `checkpoint`.
    pub fn restore(&mut self, checkpoint: &Checkpoint) {
        self.request.truncate(checkpoint.request);
        self.call = checkpoint.call;
        self.target.clone_from(&checkpoint.target);
        self.request_body.clone_from(&checkpoint.request_body);
        self.response.truncate(checkpoint.response);
        self.body_writer = None;
        self.response_body.clone_from(&checkpoint.response_body);
        self.body_fault.clone_from(&checkpoint.body_fault);
    }

    /// Copies the request changes of `outer` into this draft, for a background call that skips the remedies
    /// that made them.
    pub fn inherit(&mut self, outer: &Self) {
        self.request.clone_from(&outer.request);
        self.target.clone_from(&outer.target);
        self.request_body.clone_from(&outer.request_body);
        self.call = outer.call;
        self.client = outer.client;
    }

    /// Replaces the body of the request, and removes the digests of the other one.
    pub(crate) fn replace_request_body(&mut self, body: Vec<u8>) {
        self.request.remove_digests();
        self.request_body = Some(body.into());
    }

    /// Replaces the body of the response, and removes or weakens the fields that describe the other one.
    /// `etag` is its tag.
    pub(crate) fn replace_response_body(&mut self, body: Vec<u8>, etag: Option<&[u8]>) {
        self.forget_response_form(etag);
        self.response_body = Some(body.into());
    }

    /// Prepares the fields of a response for a part of its body being left out: does as
    /// [`replace_response_body`](Self::replace_response_body), and removes the length.
    pub(crate) fn forget_response_length(&mut self, etag: Option<&[u8]>) {
        self.forget_response_form(etag);
        self.response.remove(b"content-length");
    }

    /// Removes or weakens the fields that describe the response's body byte for byte. `etag` is its tag.
    fn forget_response_form(&mut self, etag: Option<&[u8]>) {
        self.response.remove_digests();
        // Byte ranges of the provider's body do not apply to the new one.
        self.response.remove(b"accept-ranges");
        // A weak tag instead of none: the client can still revalidate, but cannot combine byte ranges of this
        // body with the original's.
        if let Some(etag) = etag.filter(|etag| etag.starts_with(b"\"")) {
            self.response.set(b"etag", &[b"W/", etag].concat());
        }
    }

    /// Discards the changes to a response that is not forwarded.
    pub fn forget_response(&mut self) {
        self.response.clear();
        self.response_body = None;
        self.body_writer = None;
        self.body_fault = None;
    }

    /// Resets the draft for another exchange.
    pub fn clear(&mut self) {
        self.request.clear();
        self.response.clear();
        self.target = None;
        self.request_body = None;
        self.response_body = None;
        self.body_writer = None;
        self.body_fault = None;
        self.background = None;
        self.followers = None;
        self.fetch = None;
        self.call = CallOptions::default();
        self.calls = 0;
        self.seen = false;
        self.needs_new_connection = false;
        self.client = None;
        self.second_call = SecondCall::None;
        self.trace_seed = 0;
        self.poll_at = None;
    }

    /// Takes the latest time at which the request must be polled again.
    pub fn take_poll_at(&mut self) -> Option<Timestamp> {
        self.poll_at.take()
    }
}

/// The flows' knowledge of an exchange.
#[derive(Debug, Clone, Copy)]
struct FlowContext<'a> {
    router: &'a Router,
    accounts: &'a Accounts,
    conventions: &'a ProviderConventions,
    matches: &'a Matches,
}

/// Parameters captured from the request's path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Params<'a> {
    all: Option<FlowContext<'a>>,
    /// The match of the flow whose remedy is running.
    pub found: Option<Match>,
}

impl<'a> Params<'a> {
    /// Creates a view of the parameters captured by the matching flows.
    pub fn new(
        router: &'a Router,
        accounts: &'a Accounts,
        conventions: &'a ProviderConventions,
        matches: &'a Matches,
    ) -> Self {
        Self { all: Some(FlowContext { router, accounts, conventions, matches }), found: None }
    }

    /// Returns the parameters of the flow whose remedy is running.
    fn captured(self) -> Parameters<'a> {
        let found = self.all.zip(self.found);
        found.map_or_else(Parameters::default, |(FlowContext { router, matches, .. }, found)| {
            router.parameters(found, matches)
        })
    }
}

/// An exchange at one moment, as passed to a remedy.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The current time.
    pub now: Timestamp,
    /// Number of the worker that runs the exchange.
    pub worker: usize,
    /// The target of the request.
    pub destination: Destination<'a>,
    /// The id of the request. Empty if requests have none, and for the gateway's own calls.
    pub request_id: &'a [u8],
    /// The request as received.
    pub received: ReceivedMessage<'a, RequestHead>,
    /// Path and query as received, relative to the provider's URL.
    pub target: &'a [u8],
    /// Parameters captured by the path of the remedy's flow.
    pub params: Params<'a>,
    /// `true` if the whole request is still available, so it can be sent again.
    pub repeatable: bool,
    /// The outcome of the last call.
    pub outcome: Outcome<'a>,
    /// The usage that the response has reported. `None` before the end, and if no remedy asks for it.
    pub usage: Option<&'a UsageRecord>,
    /// The status of the exchange's gRPC call, as far as it is known. At the response it is known if no
    /// message precedes it, at the end of the exchange otherwise.
    pub grpc: GrpcOutcome,
    /// `true` if the exchange has ended without the whole response.
    pub is_cut: bool,
    /// Kind of the local response, if `outcome` is one. Set by the chain.
    pub local_kind: Option<LocalKind>,
    /// The remedies' changes so far.
    pub draft: &'a mut PendingChanges,
    /// The body of the refusal in `outcome`.
    refusal_document: RefusalDocument,
}

impl<'a> Exchange<'a> {
    /// Creates an exchange for a received request, before flows are matched.
    pub fn new(
        now: Timestamp,
        destination: Destination<'a>,
        received: ReceivedMessage<'a, RequestHead>,
        target: &'a [u8],
        draft: &'a mut PendingChanges,
    ) -> Self {
        let params = Params::default();
        Self {
            now,
            worker: 0,
            destination,
            request_id: &[],
            received,
            target,
            params,
            repeatable: false,
            outcome: Outcome::None,
            usage: None,
            grpc: GrpcOutcome::NotGrpc,
            is_cut: false,
            local_kind: None,
            draft,
            refusal_document: RefusalDocument::default(),
        }
    }

    /// Returns the request with the remedies' changes so far.
    pub fn request(&self) -> Request<'_> {
        let PendingChanges { request, target, request_body, .. } = &*self.draft;
        self.request_with(request, target.as_deref(), request_body.as_deref())
    }

    /// Returns the request as it was at `checkpoint`, with the `changes` to its fields until then.
    pub(crate) fn request_at<'s>(&'s self, checkpoint: &'s Checkpoint, changes: &'s Changes) -> Request<'s> {
        self.request_with(changes, checkpoint.target.as_deref(), checkpoint.request_body.as_deref())
    }

    fn request_with<'s>(
        &'s self,
        changes: &'s Changes,
        target: Option<&'s [u8]>,
        drafted_body: Option<&'s [u8]>,
    ) -> Request<'s> {
        let ReceivedMessage { head, bytes, body } = &self.received;
        let (path, query) = split_target(target.unwrap_or(self.target));
        let fields = Fields::new(&head.fields, bytes, changes);
        Request {
            provider: self.destination.provider,
            tls: self.destination.tls,
            host: self.destination.host,
            port: self.destination.port,
            method: head.method_text.of(bytes),
            path,
            query,
            fields,
            upgrade: head.upgrade,
            body: drafted_body.or(*body),
        }
    }

    /// Returns the parameters captured by the flow's path.
    pub fn params(&self) -> Parameters<'a> {
        self.params.captured()
    }

    /// Returns `true` if the request can safely be sent again. The whole request must be available, and one
    /// of these must hold: no provider has seen any of it, its method is idempotent (RFC 9110 §9.2.2), or its
    /// method is in `methods`.
    pub fn may_repeat(&self, methods: &BTreeSet<String>) -> bool {
        let method = self.method();
        let is_harmless = !self.draft.seen || method.is_idempotent() || methods.contains(method.name());
        self.repeatable && is_harmless
    }

    /// Returns the account that the call uses.
    pub fn account(&self) -> Option<&'a Account> {
        self.account_numbered(self.draft.call.account)
    }

    /// Returns the account that the call used at `checkpoint`.
    pub(crate) fn account_at(&self, checkpoint: &Checkpoint) -> Option<&'a Account> {
        self.account_numbered(checkpoint.account())
    }

    pub(crate) fn account_numbered(&self, number: Option<usize>) -> Option<&'a Account> {
        self.params.all?.accounts.get(number?)
    }

    /// Returns the account that the last call used, if its provider is one of the account's.
    pub fn called_account(&self) -> Option<&'a Account> {
        self.account().filter(|account| self.is_for(account))
    }

    /// Returns `true` if the called provider is one of the account's.
    pub(crate) fn is_for(&self, account: &Account) -> bool {
        match self.draft.call.provider {
            Some(number) => account.is_for_numbered(number),
            None => self.destination.takes_credentials && account.is_for(self.destination.provider),
        }
    }

    /// Method of the request.
    pub fn method(&self) -> Method {
        self.received.head.method
    }

    /// Returns `true` if a remedy of the flows has responded, and not in order to fail as a provider would.
    pub fn is_local(&self) -> bool {
        !matches!(self.local_kind, None | Some(LocalKind::Injected))
    }

    /// Returns `true` if the outcome of the last call meets any of `conditions`.
    pub fn meets_any(&self, conditions: &[Condition]) -> bool {
        egret_message::any_meets(conditions, &self.outcome, self.grpc.status())
    }

    /// Returns the response with the remedies' changes so far, if there is one.
    pub fn response(&self) -> Option<Response<'_>> {
        let Outcome::Response(received) = self.outcome else { return None };
        let fields = Fields::new(&received.head.fields, received.bytes, &self.draft.response);
        let body = self.draft.response_body.as_deref().or(received.body);
        Some(Response { status: received.head.status, fields, body })
    }

    /// Returns what is known of the called provider.
    pub fn conventions(&self) -> Option<&'a Conventions> {
        self.params.all?.conventions.called(self.draft.call.provider, self.destination.provider)
    }

    /// Returns the refusal by a well-known provider, and what is known of the provider.
    fn refusal(&self) -> Option<(&'a Preset, Refusal<'_>)> {
        let Outcome::Response(received) = self.outcome else { return None };
        let status = received.head.status;
        if status < 400 || self.local_kind.is_some() {
            return None;
        }
        let preset = self.conventions()?.preset;
        let fields = Fields::new(&received.head.fields, received.bytes, &self.draft.response);
        // The body as the provider has sent it, whatever an inner remedy has made of it.
        Some((preset, Refusal { status, fields, body: received.body, document: &self.refusal_document }))
    }

    /// Returns the time before which the provider wants no further call: in its own form if it is a
    /// well-known one, else by `Retry-After` (RFC 9110 §10.2.3).
    pub fn retry_after(&self) -> Option<Timestamp> {
        let told = self.refusal().and_then(|(preset, refusal)| preset.requested_wait(&refusal, self.now));
        let by_field =
            || egret_clock::retry_after::read(self.response()?.fields.get(b"retry-after")?, self.now);
        told.or_else(by_field)
    }

    /// Returns `true` if the provider is known not to have acted on the request that it has refused.
    pub fn has_not_acted(&self) -> bool {
        self.refusal().is_some_and(|(preset, refusal)| preset.has_not_acted(&refusal))
    }

    /// Returns `true` if the provider refuses the call, and time does not change that.
    pub fn is_lasting_refusal(&self) -> bool {
        self.refusal().is_some_and(|(preset, refusal)| preset.is_lasting(&refusal))
    }

    /// Returns `true` if the provider refuses the call, and time ends that, as is known of the provider.
    pub fn is_passing_refusal(&self) -> bool {
        self.refusal().is_some_and(|(preset, refusal)| {
            preset.retry.contains(&refusal.status) || preset.is_passing(&refusal)
        })
    }

    /// Returns `true` if the provider refuses the call and all other customers alike.
    pub fn is_refusal_for_everybody(&self) -> bool {
        self.refusal().is_some_and(|(preset, refusal)| preset.for_everybody.contains(&refusal.status))
    }

    /// Returns the provider's own advice about repeating a call that it has refused.
    pub fn retry_advice(&self) -> RetryAdvice {
        self.refusal()
            .map_or(RetryAdvice::Unspecified, |(preset, refusal)| preset.retry_advice(refusal.fields))
    }

    /// Evaluates `expression` for this exchange.
    pub fn evaluate<T: expression::ExpressionValue>(&self, expression: &Expression<T>) -> Result<T, Fault> {
        self.with_inputs(|inputs| expression.evaluate(inputs))
            .map_err(|error| Fault(error.to_string().into()))
    }

    /// Renders `template` for this exchange. A template without placeholders is returned without a copy.
    pub fn render<'t>(&self, template: &'t Template) -> Result<Cow<'t, [u8]>, Fault> {
        if let Some(literal) = template.as_literal() {
            return Ok(Cow::Borrowed(literal.as_bytes()));
        }
        let mut rendered = Vec::new();
        let identifiers = Identifiers { request_id: self.request_id, new_uuid };
        let result = self.with_inputs(|inputs| template.render(inputs, &identifiers, &mut rendered));
        result.map_err(|error| Fault(format!("a template cannot be rendered: {error}").into()))?;
        Ok(Cow::Owned(rendered))
    }

    /// Number of the attempt, from 1: of the call that is prepared, or of the one that has ended.
    fn attempt(&self) -> u32 {
        match self.outcome {
            Outcome::None => self.draft.calls.saturating_add(1),
            Outcome::Response(_) | Outcome::Failure(_) => self.draft.calls.max(1),
        }
    }

    fn with_inputs<T>(&self, act: impl FnOnce(&Inputs<'_>) -> T) -> T {
        let (request, response) = (self.request(), self.response());
        act(&Inputs {
            request: &request,
            response: response.as_ref(),
            parameters: self.params(),
            attempt: self.attempt(),
            now: self.now,
            usage: self.usage,
            ended: None,
        })
    }

    /// Drafts another call. The caller undoes the inner remedies' changes first.
    pub fn draft_alternate_call(&mut self, alternate_call: AlternateCall) {
        if alternate_call.without_credentials {
            self.drop_credentials();
        }
        if let Some(mut path) = alternate_call.path {
            if let Some(query) = self.request().query {
                path.push(b'?');
                path.extend_from_slice(query);
            }
            self.draft.target = Some(path.into());
        }
        if let Some(body) = alternate_call.model.and_then(|model| self.body_with_model(&model)) {
            self.draft.replace_request_body(body);
        }
        let call = &mut self.draft.call;
        call.is_alternate = true;
        call.has_secret_target |= alternate_call.has_secret_path;
        call.provider = alternate_call.provider.or(call.provider);
    }

    /// Returns the request's JSON body with this model, which is JSON. `None` if there is no such body.
    pub fn body_with_model(&self, model: &[u8]) -> Option<Vec<u8>> {
        let body = self.request().body?;
        let mut edits = JsonEdits::default();
        edits.insert("/model", Action::Set(0)).ok()?;
        Some(edits.apply(body, &[model]).ok()?.unwrap_or_else(|| body.to_vec()))
    }

    /// Removes credentials from the next call's request: header fields and query parameters.
    pub fn drop_credentials(&mut self) {
        let request = self.request();
        let mut fields = Changes::default();
        for (name, _) in request.fields.iter().filter(|(name, _)| is_credential_field(name)) {
            if !fields.removes(name) {
                fields.remove(name);
            }
        }
        let is_kept = |pair: &&[u8]| {
            let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
            !is_credential_parameter(&decode_form(name))
        };
        let is_one =
            request.query.is_some_and(|query| !query.split(|byte| *byte == b'&').all(|pair| is_kept(&pair)));
        let target = request.query.filter(|_| is_one).map(|query| {
            let kept: Vec<&[u8]> = query.split(|byte| *byte == b'&').filter(is_kept).collect();
            let separator: &[u8] = if kept.is_empty() { b"" } else { b"?" };
            [request.path, separator, &kept.join(&b'&')].concat()
        });
        for change in fields.iter() {
            self.draft.request.remove(change.name);
        }
        if let Some(target) = target {
            self.draft.target = Some(target.into());
        }
    }

    /// Requests another poll at `at`, or earlier if another remedy has requested that.
    pub fn poll_at(&mut self, at: Timestamp) {
        self.draft.poll_at = Some(self.draft.poll_at.map_or(at, |other| other.min(at)));
    }
}
/// Returns a UUID of version 4 (RFC 9562 §5.4), which nobody else has. `None` if the system has no random
/// numbers.
pub(crate) fn new_uuid() -> Option<String> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
}
