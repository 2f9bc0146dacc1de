//! The `Remedy` trait. A remedy is one file under `remedies/` and one line in [`registry`](crate::remedies).

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_accounts::{Account, Accounts};
use egret_clock::Timestamp;
use egret_config::Problem;
use egret_config::reload::StateKeeper;
use egret_har::Key;
use egret_http1::Method;
use egret_items::words;
use egret_match::expression::{Expression, ExpressionValue, Scope, Stage};
use egret_match::matching::MatchConfig;
use egret_match::template::{Escape, Template};
use egret_message::{Fault, Refused};
use egret_prices::Prices;
use egret_quota::{Grant, Quotas};
use egret_store::SharedState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conventions::ProviderConventions;
use crate::exchange::{AlternateCall, Exchange};
use crate::local_response::LocalResponse;

/// An action on an exchange: on the request before it is sent, and on the response on its way back.
///
/// All methods run on the thread of the exchange and must not block. For one exchange the calls are
/// sequential, but many exchanges run at once on several threads.
pub trait Remedy: Debug + Send + Sync + Sized + 'static {
    /// Its config.
    type Config: Any;

    /// `true` if it chooses the account of a call.
    const CHOOSES_ACCOUNT: bool = false;

    /// State for one exchange, created on the request side. Dropping it releases everything it holds.
    type Run: Debug + Default;

    /// Returns the reason why the remedy cannot depend on the response (`when_response` of its flow), with
    /// the key concerned, which is empty for the remedy as a whole. Returns `None` if it can.
    fn conflict_with_condition(_config: &Self::Config) -> Option<(&'static str, &'static str)> {
        Some(("", "it acts before the response is known"))
    }

    /// Returns the reason why the remedy cannot work on gRPC calls (`match.grpc` of its flow), with the key
    /// concerned, which is empty for the remedy as a whole. Returns `None` if it can.
    fn conflict_with_grpc(_config: &Self::Config) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Returns the name of the provider that it sends all calls to, instead of the request's.
    fn switched_provider(_config: &Self::Config) -> Option<&str> {
        None
    }

    /// Returns the quotas, accounts and providers that it names.
    fn names(_config: &Self::Config) -> Vec<NamedPart<'_>> {
        Vec::new()
    }

    /// Returns `true` if it needs the key of the pseudonyms.
    fn needs_key(_config: &Self::Config) -> bool {
        false
    }

    /// Creates the remedy from its config. Pushes at least one problem when it returns `None`.
    fn compile(config: &Self::Config, context: &mut CompileContext<'_>) -> Option<Self>;

    /// Describes the remedy for people: `at most 100 requests per second (quota stripe-live)`.
    fn describe(&self) -> String;

    /// Tells people what the remedy would do with the request of `exchange` beyond its description, and does
    /// it as far as nothing outside the exchange changes. Empty if there is nothing to tell.
    fn rehearse(&self, _exchange: &mut Exchange<'_>) -> String {
        String::new()
    }

    /// Returns the parts of messages that the remedy must see or keep.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Processes the request. A remedy that has to wait stores the waker of `cx`, or sets a time with
    /// [`Exchange::poll_at`], and is then called again.
    fn request(
        &self,
        _exchange: &mut Exchange<'_>,
        _held: &mut Self::Run,
        _cx: &mut Context<'_>,
    ) -> Poll<Step> {
        Poll::Ready(Step::Next)
    }

    /// Processes the response or the failure of the call.
    fn response(&self, _exchange: &mut Exchange<'_>, _held: &mut Self::Run) -> Reaction {
        Reaction::Pass
    }

    /// The grant of units that it holds for the call, if it takes any.
    fn grant(_held: &mut Self::Run) -> Option<&mut Option<Grant>> {
        None
    }

    /// Ends the exchange: the response's body is complete, or the exchange ended without one. The held state
    /// is dropped afterwards.
    fn end(&self, _exchange: &mut Exchange<'_>, _held: &mut Self::Run) -> Result<(), Fault> {
        Ok(())
    }
}

/// A part of the config that a remedy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedPart<'a> {
    /// A quota that it draws from.
    Quota(&'a str),
    /// An account that it makes calls with.
    Account(&'a str),
    /// A provider that it calls instead of the request's.
    Provider(&'a str),
}

/// The decision of a remedy on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Pass the request on.
    Next,
    /// Send this response to the client instead of calling the provider.
    LocalResponse(Box<LocalResponse>),
    /// The remedy cannot decide. Its `on_error` setting applies.
    Fail(Fault),
}

impl From<Refused> for Step {
    fn from(refused: Refused) -> Self {
        Self::LocalResponse(Box::new(LocalResponse::Refused(refused)))
    }
}

/// The decision of a remedy on a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaction {
    /// Pass the response on.
    Pass,
    /// Discard the response and repeat the call at this time, through the inner remedies. Their changes are
    /// undone first.
    Repeat(Timestamp),
    /// Like `Repeat`, at once and with another call.
    CallInstead(Box<AlternateCall>),
    /// Like `Repeat`, at once and without the changes that this remedy made to the previous call.
    RepeatClean,
    /// Like `Repeat`, at once and starting with the request side of this remedy, which keeps its held state.
    RepeatSelf,
    /// Discard the response and use this one instead.
    LocalResponse(Box<LocalResponse>),
    /// The remedy cannot decide. Its `on_error` setting applies.
    Fail(Fault),
}

/// The parts of messages that a remedy must see or keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each need is independent of the others")]
pub struct Needs {
    /// Bytes of the request's body that it must see before it decides.
    pub request_body: usize,
    /// Like `request_body`, but only for JSON without a content coding.
    pub request_json: usize,
    /// Bytes of a response's body that it must see before the response is forwarded, for JSON without a
    /// content coding.
    pub response_json: usize,
    /// Like `response_json`, but only for responses with a status of 400 or more.
    pub refusal_json: usize,
    /// Bytes of the request's body to keep for repeating the call.
    pub replay: usize,
    /// Bytes of the response's body that it must see at the end.
    pub response_tail: usize,
    /// `true` if it must know the usage that the response has reported, at the end.
    pub usage: bool,
    /// `true` if the response is read to its end for it, even if the client has left.
    pub whole_response: bool,
    /// `true` if it must know the status of a gRPC call before the response is forwarded, as long as no
    /// message precedes it.
    pub grpc_status: bool,
    /// `true` if its grant may end before the call is sent.
    pub permit: bool,
}

impl Needs {
    /// Returns the combined needs of two remedies.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            request_body: self.request_body.max(other.request_body),
            request_json: self.request_json.max(other.request_json),
            response_json: self.response_json.max(other.response_json),
            refusal_json: self.refusal_json.max(other.refusal_json),
            replay: self.replay.max(other.replay),
            response_tail: self.response_tail.max(other.response_tail),
            usage: self.usage || other.usage,
            whole_response: self.whole_response || other.whole_response,
            grpc_status: self.grpc_status || other.grpc_status,
            permit: self.permit || other.permit,
        }
    }
}

words! {
    /// The mode of a remedy.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Mode: word {
        /// The remedy acts.
        #[default]
        Enforce => "enforce",
        /// The remedy decides and is counted, but the exchange goes on as if it were not there.
        Report => "report",
    }
}

/// Behaviour when a remedy itself fails: an expression without a value, an unavailable store, a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The exchange goes on as if the remedy were not there.
    #[default]
    Open,
    /// The exchange is refused.
    Closed,
}

/// A remedy that is closer to the provider than the one being compiled.
#[derive(Debug, Clone, Copy)]
pub struct InnerRemedy<'a> {
    /// Its number in the flow.
    pub number: usize,
    /// Its key in the config.
    pub key: &'static str,
    /// Its mode.
    pub mode: Mode,
    /// `true` if it chooses the account of a call.
    pub chooses_account: bool,
    /// Its config, of the type [`Remedy::Config`].
    pub config: &'a dyn Any,
}

/// The context in which a remedy is compiled.
#[derive(Debug)]
pub struct CompileContext<'a> {
    /// Names of the providers, in the order of their numbers.
    pub providers: &'a [&'a str],
    /// Name of the provider that an outer remedy of the flow sends the calls to, instead of the request's.
    pub switched_provider: Option<&'a str>,
    /// Key of the pseudonyms; `None` while a config is only checked.
    pub key: Option<&'a Arc<Key>>,
    /// The match of the flow.
    pub matching: &'a MatchConfig,
    /// Parameters captured by the paths of the flow's match. A parameter is empty for an exchange whose path
    /// does not capture it.
    pub parameters: &'a [&'a str],
    /// The inner remedies in order, each with its number in the flow.
    pub inner: &'a [InnerRemedy<'a>],
    /// The facts about the providers.
    pub conventions: &'a ProviderConventions,
    /// The prices of language models.
    pub prices: &'a Arc<Prices>,
    /// The valid quotas.
    pub quotas: &'a Quotas,
    /// The valid accounts.
    pub accounts: &'a Accounts,
    /// State that the gateway shares with the others of its cluster.
    pub shared: SharedState<'a>,
    /// The mode of the remedy. A remedy that only reports must not change state that it shares with others.
    pub mode: Mode,
    /// Number of workers of the gateway.
    pub workers: usize,
    /// Directory for data that outlives the process; `None` while a config is only checked.
    pub data_dir: Option<&'a Path>,
    /// Path in the config: `flows[0].remedies[1].limit`.
    pub path: String,
    /// Problems found so far.
    pub problems: &'a mut Vec<Problem>,
    /// Identity of the remedy across reloads, and the state that it keeps.
    pub states: StateKeeper<'a>,
}

impl CompileContext<'_> {
    /// Adds a problem for `key` of this remedy.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        let problem = Problem::new(self.path_of(key), message);
        self.problems.push(problem);
    }

    /// Returns the path of `key` in the config, or of the remedy itself if `key` is empty.
    pub fn path_of(&self, key: &str) -> String {
        if key.is_empty() { self.path.clone() } else { format!("{}.{key}", self.path) }
    }

    /// Adds a problem: `key` names a `kind` of thing that does not exist. Suggests a similar name.
    pub fn unknown_name(&mut self, key: &str, name: &str, kind: &str) {
        let path = self.path_of(key);
        let problem = match kind {
            "quota" => Problem::unknown_name(path, kind, name, self.quotas.iter().map(|quota| quota.name())),
            "account" => Problem::unknown_name(path, kind, name, self.accounts.iter().map(Account::name)),
            _ => Problem::unknown_name(path, kind, name, self.providers.iter().copied()),
        };
        self.problems.push(problem);
    }

    /// Returns the names that expressions and templates of this remedy may use.
    pub(crate) fn scope(&self, has_response: bool) -> Scope<'_> {
        Scope { stage: Stage::after_response(has_response), parameters: self.parameters }
    }

    /// Compiles the expression `source` of `key`. Adds a problem if it is invalid. `has_response` is `true`
    /// if it is evaluated after a response or a failure.
    pub fn expression<T: ExpressionValue>(
        &mut self,
        key: &str,
        source: &str,
        has_response: bool,
    ) -> Option<Expression<T>> {
        let compiled = Expression::compile(source, self.scope(has_response));
        compiled.map_err(|error| self.problems.push(error.at(self.path_of(key)))).ok()
    }

    /// Compiles the template `text` of `key`, whose values are escaped by `escape`. Adds a problem if it is
    /// invalid. `has_response` is as for [`expression`](Self::expression). Fields, bodies and paths have
    /// their own templates (`template/parts.rs`), which check the content.
    pub fn template(
        &mut self,
        key: &str,
        text: &str,
        escape: Escape,
        has_response: bool,
    ) -> Option<Template> {
        let compiled = Template::compile(text, escape, self.scope(has_response), &self.path_of(key));
        compiled.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Returns the number of the account that `key` of this remedy names. Adds a problem if there is none, or
    /// if the flow's match names providers and the account is for none of them.
    pub fn account(&mut self, key: &str, name: &str) -> Option<usize> {
        let Some(number) = self.accounts.find(name) else {
            if !self.accounts.is_invalid(name) {
                self.unknown_name(key, name, "account");
            }
            return None;
        };
        let account = self.accounts.get(number)?;
        let providers = &self.matching.provider;
        let (is_used, why) = match self.switched_provider {
            Some(provider) => (account.is_for(provider), "but the flow sends its calls to another provider"),
            None => (
                providers.is_empty() || providers.iter().any(|provider| account.is_for(provider)),
                "which the flow does not match",
            ),
        };
        if !is_used {
            let own = account.providers().join("`, `");
            let message = format!("the account `{name}` is for `{own}`, {why}: it would never be used");
            self.problem(key, message);
            return None;
        }
        Some(number)
    }

    /// Returns `true` if the account's secrets can be masked in responses. Adds a problem at the key
    /// `mask_echoes` otherwise.
    pub fn can_mask_echoes(&mut self, account: &Account) -> bool {
        let message = match account.secret_patterns() {
            Ok(Some(_)) => return true,
            Ok(None) => {
                format!("the account `{}` sends no secret that a response could contain", account.name())
            }
            Err(message) => format!("account `{}`: {message}", account.name()),
        };
        self.problem("mask_echoes", message);
        false
    }

    /// Adds a problem if `status` is not a valid status code of a refusal.
    pub fn check_refusal_status(&mut self, status: Option<u16>) {
        if status.is_some_and(|status| !(400..=599).contains(&status)) {
            self.problem("status", "the status of a refusal must be from 400 to 599");
        }
    }

    /// Adds a problem if `methods` contains a name that is not a method in its canonical spelling.
    pub fn check_methods(&mut self, methods: &BTreeSet<String>) {
        if methods.iter().any(|method| Method::of(method.as_bytes()).name() != method) {
            self.problem("methods", "must be standard methods in capitals, like `POST`");
        }
    }

    /// Name of the flow.
    pub fn flow(&self) -> &str {
        &self.states.identity().flow
    }
}
