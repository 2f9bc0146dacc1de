//! An exchange as a remedy is given it: the messages to look at, and a draft to write changes into.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_http1::{Method, RequestHead, ResponseHead};
use egret_store::entries::Filling;

use crate::accounts::Account;
use crate::accounts::token::Fetch;
use crate::answer::Local;
use crate::cache::{Background, Stored, is_credential_field, is_credential_parameter};
use crate::expression::{self, Expression, Inputs};
use crate::matching::decode_form;
use crate::message::{Changes, Fields, Request, Response};
use crate::plan::Flows;
use crate::remedy::{AlternateCall, Fault};
use crate::router::{Match, Matches, Parameters};
use crate::template::Template;
use egret_clock::Random;

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The provider's name in the config; `-` where the request goes to a host that the config does not name.
    pub provider: &'a str,
    /// Whether it goes over TLS.
    pub tls: bool,
    /// The host, in lower case, without a port.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The path of the provider's URL, which comes before the request's own: empty, or with a slash at its beginning and none at its end.
    pub base: &'a [u8],
    /// Whether an empty path of the request is sent as `base` alone, without a slash at its end.
    pub has_bare_base: bool,
    /// The host, in lower case, and the port that the provider is told, where the client has chosen others than its own.
    pub kept_host: Option<(&'a str, u16)>,
    /// Whether credentials may be sent: not under a host that a client has chosen and the config does not know.
    pub takes_credentials: bool,
}

impl Destination<'_> {
    /// Of a request that goes to nobody.
    pub const NOWHERE: Self = Self {
        provider: "-",
        tls: false,
        host: "",
        port: 0,
        base: b"",
        has_bare_base: false,
        kept_host: None,
        takes_credentials: true,
    };
}

/// A message as it was received: its head and the bytes that the head's offsets lead into.
#[derive(Debug)]
pub struct Received<'a, Head> {
    /// The head.
    pub head: &'a Head,
    /// The bytes it was parsed from.
    pub bytes: &'a [u8],
    /// The whole body without framing, where it is here and a flow asks for it.
    pub body: Option<&'a [u8]>,
}

/// How the last call to a provider ended.
#[derive(Debug, Clone, Copy, Default)]
pub enum Outcome<'a> {
    /// No call has been made yet.
    #[default]
    None,
    /// With the head of a final response; or a remedy further in has answered in the provider's place.
    Response(&'a Received<'a, ResponseHead>),
    /// Without a response.
    Failure(CallFailure),
}

/// Why a call brought no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFailure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// The name of the error as `x-egret-error` would have it.
    pub slug: &'static str,
    /// Whether the provider may have seen any of the request.
    pub sent: bool,
}

/// Kinds of failures, as remedies tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection: the name does not resolve, nobody listens, TLS fails.
    Connect,
    /// Something took longer than its limit.
    Timeout,
    /// The connection ended before a response was there.
    Reset,
    /// What came back is no response that could be passed on.
    BadResponse,
    /// The gateway itself refuses: egress policy, a full pool. Trying again changes nothing.
    Refused,
}

/// What remedies have made of an exchange so far. Kept and cleared between exchanges, so that nothing is allocated.
#[derive(Debug, Default)]
pub struct PendingChanges {
    /// Changes to the fields of the request.
    pub request: Changes,
    /// Changes to the fields of the response.
    pub response: Changes,
    /// The path and query that are called instead of those received; relative to the provider's URL, in origin-form.
    pub target: Option<Rc<[u8]>>,
    /// The body that is sent instead of the one received, without framing.
    pub request_body: Option<Rc<[u8]>>,
    /// The same for the response.
    pub response_body: Option<Rc<[u8]>>,
    /// Where the response's body is stored while it goes on.
    pub filling: Option<Filling<Stored>>,
    /// A call that is to be made in the background; in such a call, what it is made for.
    pub background: Option<Background>,
    /// A token that is to be fetched. Dropped, another exchange has it fetched.
    pub fetch: Option<Fetch>,
    /// How the next call is made.
    pub call: Call,
    /// Calls made so far.
    pub calls: u32,
    /// A provider may have seen some of the request. Set by the chain.
    pub seen: bool,
    /// Whether a second call has been made beside the last one.
    pub hedged: bool,
    /// What the ids of its spans follow from, once a remedy has drawn it; 0 before.
    pub trace_seed: u64,
    /// Random numbers for this exchange; seeded by whoever makes the draft.
    pub random: Random,
    /// When whoever waits wants to be asked again.
    wake_at: Option<Timestamp>,
}

/// How a call is made, where remedies want it other than the provider's config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    /// The provider that is called instead, by its number in the config.
    pub provider: Option<usize>,
    /// The account that the call is made with, by its number in the config.
    pub account: Option<usize>,
    /// Whether that account's secrets are masked in the response.
    pub masks_echoes: bool,
    /// Whether this call is made instead of another one that has failed.
    pub is_detour: bool,
    /// How long to wait for the head of the response.
    pub first_byte: Option<Duration>,
    /// How long the exchange may take as a whole, every call counted.
    pub total: Option<Duration>,
    /// After how long without a response a second call is made beside the first.
    pub hedge: Option<Duration>,
}

/// How a draft stood at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checkpoint {
    request: usize,
    response: usize,
    call: Call,
    target: Option<Rc<[u8]>>,
    request_body: Option<Rc<[u8]>>,
    response_body: Option<Rc<[u8]>>,
}

impl Checkpoint {
    /// The number of the account that the call was to be made with.
    pub fn account(&self) -> Option<usize> {
        self.call.account
    }

    /// How many changes there were to the fields of the request.
    pub fn request_changes(&self) -> usize {
        self.request
    }
}

impl PendingChanges {
    /// How it stands, for [`back_to`](Self::back_to).
    pub(crate) fn mark(&self) -> Checkpoint {
        Checkpoint {
            request: self.request.len(),
            response: self.response.len(),
            call: self.call,
            target: self.target.clone(),
            request_body: self.request_body.clone(),
            response_body: self.response_body.clone(),
        }
    }

    /// Takes back all that was drafted since `mark`.
    pub(crate) fn back_to(&mut self, mark: &Checkpoint) {
        self.request.truncate(mark.request);
        self.call = mark.call;
        self.target.clone_from(&mark.target);
        self.request_body.clone_from(&mark.request_body);
        self.response.truncate(mark.response);
        self.filling = None;
        self.response_body.clone_from(&mark.response_body);
    }

    /// Has a call in the background begin as `outer` stands: with what the remedies that it does not pass again have made of the request.
    pub fn inherit(&mut self, outer: &Self) {
        self.request.clone_from(&outer.request);
        self.target.clone_from(&outer.target);
        self.request_body.clone_from(&outer.request_body);
        self.call = outer.call;
    }

    /// Forgets what was drafted for a response that does not go on.
    pub(crate) fn forget_response(&mut self) {
        self.response.clear();
        self.response_body = None;
        self.filling = None;
    }

    /// Makes ready for another exchange.
    pub fn clear(&mut self) {
        self.request.clear();
        self.response.clear();
        self.target = None;
        self.request_body = None;
        self.response_body = None;
        self.filling = None;
        self.background = None;
        self.fetch = None;
        self.call = Call::default();
        self.calls = 0;
        self.seen = false;
        self.hedged = false;
        self.trace_seed = 0;
        self.wake_at = None;
    }

    /// When to ask again at the latest, whatever else happens. Forgotten by asking.
    pub fn take_wake_at(&mut self) -> Option<Timestamp> {
        self.wake_at.take()
    }
}

/// What the path of a flow has captured of the path of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Params<'a> {
    all: Option<(&'a Flows, &'a Matches)>,
    /// The match of the flow whose remedy is asked.
    pub(crate) found: Option<Match>,
}

impl<'a> Params<'a> {
    /// What is captured by any of the flows that have been found.
    pub fn new(flows: &'a Flows, matches: &'a Matches) -> Self {
        Self { all: Some((flows, matches)), found: None }
    }

    /// What the path of the flow whose remedy is asked has captured.
    fn captured(self) -> Parameters<'a> {
        let found = self.all.zip(self.found);
        found.map_or_else(Parameters::default, |((flows, matches), found)| {
            flows.router.parameters(found, matches)
        })
    }
}

/// What a remedy is given: an exchange at one moment of its way.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// What time it is.
    pub now: Timestamp,
    /// The number of the worker whose exchange it is.
    pub worker: usize,
    /// Where the request goes.
    pub destination: Destination<'a>,
    /// The request as received.
    pub received: Received<'a, RequestHead>,
    /// The path and query as received, relative to the provider's URL.
    pub target: &'a [u8],
    /// What the path of the flow in question has captured.
    pub params: Params<'a>,
    /// Whether all of the request is still here, so that it can be sent again.
    pub repeatable: bool,
    /// How the last call ended.
    pub outcome: Outcome<'a>,
    /// Who has answered in the provider's place, where `outcome` is such an answer. Set by the chain.
    pub answered: Option<Local>,
    /// What remedies have made of it so far.
    pub draft: &'a mut PendingChanges,
}

impl<'a> Exchange<'a> {
    /// A request that has been received, before anything is known of flows.
    pub fn new(
        now: Timestamp,
        destination: Destination<'a>,
        received: Received<'a, RequestHead>,
        target: &'a [u8],
        draft: &'a mut PendingChanges,
    ) -> Self {
        let params = Params::default();
        Self {
            now,
            worker: 0,
            destination,
            received,
            target,
            params,
            repeatable: false,
            outcome: Outcome::None,
            answered: None,
            draft,
        }
    }

    /// The request as the remedies so far have left it.
    pub fn request(&self) -> Request<'_> {
        let PendingChanges { request, target, request_body, .. } = &*self.draft;
        self.request_with(request, target.as_deref(), request_body.as_deref())
    }

    /// The request as the remedies had left it at `mark`, with the `changes` to its fields until then.
    pub(crate) fn request_at<'s>(&'s self, mark: &'s Checkpoint, changes: &'s Changes) -> Request<'s> {
        self.request_with(changes, mark.target.as_deref(), mark.request_body.as_deref())
    }

    fn request_with<'s>(
        &'s self,
        changes: &'s Changes,
        target: Option<&'s [u8]>,
        drafted_body: Option<&'s [u8]>,
    ) -> Request<'s> {
        let Received { head, bytes, body } = &self.received;
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
            consumer: fields.get(b"x-egret-consumer").or_else(|| fields.get(b"x-lunar-consumer-tag")),
        }
    }

    /// What the flow's path has captured.
    pub fn params(&self) -> Parameters<'a> {
        self.params.captured()
    }

    /// Whether the request can be sent again, and does no harm if it is: all of it is here, and no provider has seen any of it, or its
    /// method is idempotent (RFC 9110 §9.2.2), or among `methods`.
    pub fn may_repeat(&self, methods: &BTreeSet<String>) -> bool {
        let method = self.method();
        let is_harmless = !self.draft.seen || method.is_idempotent() || methods.contains(method.name());
        self.repeatable && is_harmless
    }

    /// The account that the call is made with, as the remedies so far have it.
    pub fn account(&self) -> Option<&'a Account> {
        self.account_numbered(self.draft.call.account)
    }

    /// The same as it was at `mark`.
    pub(crate) fn account_at(&self, mark: &Checkpoint) -> Option<&'a Account> {
        self.account_numbered(mark.account())
    }

    pub(crate) fn account_numbered(&self, number: Option<usize>) -> Option<&'a Account> {
        let (flows, _) = self.params.all?;
        flows.accounts.get(number?)
    }

    /// The account that the last call was made with: the one that was chosen, if what was called is one of its providers.
    pub(crate) fn called_account(&self) -> Option<&'a Account> {
        self.account().filter(|account| self.is_for(account))
    }

    /// Whether what is called, as the remedies so far have it, is one of the providers of `account`.
    pub(crate) fn is_for(&self, account: &Account) -> bool {
        match self.draft.call.provider {
            Some(number) => account.is_for_numbered(number),
            None => self.destination.takes_credentials && account.is_for(self.destination.provider),
        }
    }

    /// The request's method.
    pub fn method(&self) -> Method {
        self.received.head.method
    }

    /// The response as the remedies so far have left it, if there is one.
    pub fn response(&self) -> Option<Response<'_>> {
        let Outcome::Response(received) = self.outcome else { return None };
        let fields = Fields::new(&received.head.fields, received.bytes, &self.draft.response);
        let body = self.draft.response_body.as_deref().or(received.body);
        Some(Response { status: received.head.status, fields, body })
    }

    /// The time before which the provider wants no further call (RFC 9110 §10.2.3).
    pub fn retry_after(&self) -> Option<Timestamp> {
        egret_clock::retry_after::read(self.response()?.fields.get(b"retry-after")?, self.now)
    }

    /// What `expression` comes to for this exchange.
    pub fn evaluate<T: expression::Outcome>(&self, expression: &Expression<T>) -> Result<T, Fault> {
        self.with_inputs(|inputs| expression.evaluate(inputs))
            .map_err(|error| Fault(error.to_string().into()))
    }

    /// What `template` comes to for this exchange. One without values is as it stands in the config, and costs nothing.
    pub fn render<'t>(&self, template: &'t Template) -> Result<Cow<'t, [u8]>, Fault> {
        if let Some(literal) = template.as_literal() {
            return Ok(Cow::Borrowed(literal.as_bytes()));
        }
        let mut rendered = Vec::new();
        let result = self.with_inputs(|inputs| template.render(inputs, &mut rendered));
        result.map_err(|error| Fault(format!("a template comes to nothing: {error}").into()))?;
        Ok(Cow::Owned(rendered))
    }

    fn with_inputs<T>(&self, act: impl FnOnce(&Inputs<'_>) -> T) -> T {
        let (request, response) = (self.request(), self.response());
        act(&Inputs {
            request: &request,
            response: response.as_ref(),
            parameters: self.params(),
            attempt: self.draft.calls.max(1),
            now: self.now,
        })
    }

    /// Drafts another call. What the query is made of further in is taken back before.
    pub(crate) fn alternate_call(&mut self, alternate_call: AlternateCall) {
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
        let call = &mut self.draft.call;
        call.is_detour = true;
        call.provider = alternate_call.provider.or(call.provider);
    }

    /// Has the next call made without what names a credential in the request: fields, and parameters of the
    /// query.
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

    /// Asks to be asked again at `at`, or earlier if somebody else wants that.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.draft.wake_at = Some(self.draft.wake_at.map_or(at, |other| other.min(at)));
    }
}

/// Path and query of a target, the path as it stands: empty where there is none.
pub fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// Path and query of a target in origin-form; an empty path is `/`.
pub fn split_target(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (path, query) = split_query(target);
    (if path.is_empty() { b"/" } else { path }, query)
}
