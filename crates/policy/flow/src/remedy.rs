//! What a remedy is: one file under `remedies/`, and one line in [`registry`](crate::remedies).

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::Problem;
use egret_http1::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounts::{Account, Accounts};
use crate::answer::{Answer, Refused};
use crate::exchange::Exchange;
use crate::expression::{Expression, Outcome, Scope};
use crate::matching::MatchConfig;
use crate::quota::Quotas;
use crate::remedies::RemedyConfig;
use crate::template::{Escape, Template};

/// What is to be done with an exchange, as a remedy sees it: on the way of the request, and on the way back of the response.
///
/// All of it is called on the thread of the exchange and must not block. Nothing is called twice at the same time for one exchange,
/// but many exchanges are under way at once, on several threads.
pub trait Remedy: Debug + Send + Sync + Sized + 'static {
    /// Its keys in the config.
    type Config;

    /// What it keeps for one exchange from its request side on. Dropping it gives back everything that is held.
    type Held: Debug + Default;

    /// Makes it from its config. Pushes at least one problem where it returns none.
    fn compile(config: &Self::Config, site: &mut Site<'_>) -> Option<Self>;

    /// What it does, for people: `at most 100 requests per second (quota stripe-live)`.
    fn describe(&self) -> String;

    /// Itself, if it stores answers.
    fn cache(&self) -> Option<&crate::remedies::cache::Cache> {
        None
    }

    /// What of the messages it has to see or keep.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The request is on its way. A remedy that has to wait keeps `cx`'s waker where it will be woken, or asks for a time with
    /// [`Exchange::wake_at`], and is asked again then.
    fn request(
        &self,
        _exchange: &mut Exchange<'_>,
        _held: &mut Self::Held,
        _cx: &mut Context<'_>,
    ) -> Poll<Step> {
        Poll::Ready(Step::Next)
    }

    /// A response, or the failure of the call, is on its way back.
    fn response(&self, _exchange: &mut Exchange<'_>, _held: &mut Self::Held) -> Reaction {
        Reaction::Pass
    }

    /// The response's body is through, or the exchange is over without one. What is held is dropped after this.
    fn end(&self, _exchange: &mut Exchange<'_>, _held: &mut Self::Held) -> Result<(), Fault> {
        Ok(())
    }
}

/// Where a request goes from a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// On.
    Next,
    /// No further: this is the answer.
    Answer(Box<Answer>),
    /// Wherever the config has it for remedies that fail: this one cannot decide.
    Fail(Fault),
}

impl From<Refused> for Step {
    fn from(refused: Refused) -> Self {
        Self::Answer(Box::new(Answer::Refused(refused)))
    }
}

/// Why a remedy cannot decide, for the log. Holds nothing that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub Cow<'static, str>);

/// Where a response goes from a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaction {
    /// On.
    Pass,
    /// Nowhere: the call is made again at this time, through the remedies further in. What they have drafted is taken back.
    Repeat(Timestamp),
    /// Nowhere: another call is made at once, likewise.
    Instead(Box<AlternateCall>),
    /// Nowhere: another call is made at once, likewise, and without what this remedy itself has drafted for the one before.
    Afresh,
    /// Nowhere: another call is made at once, and passes the request side of this remedy itself again, which finds what it has kept.
    Again,
    /// Nowhere: this is the answer.
    Answer(Box<Answer>),
    /// Wherever the config has it for remedies that fail: this one cannot decide.
    Fail(Fault),
}

/// A call that is made instead of the one that was wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlternateCall {
    /// The provider, by its number in the config, where it is another one.
    pub provider: Option<usize>,
    /// The path, relative to the provider's URL, where it is another one. The query stays.
    pub path: Option<Vec<u8>>,
    /// Whether credentials in the request, which are meant for the provider called first, are left out.
    pub without_credentials: bool,
}

/// What of the messages a remedy has to see or keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Bytes of the request's body that it wants to see before it decides.
    pub request_body: usize,
    /// The same where that body is JSON and can be read as it stands.
    pub request_json: usize,
    /// Bytes of a response's body that it wants to see before the response goes on, where that body is JSON and can be read.
    pub response_json: usize,
    /// Bytes of the request's body to keep, so that the call can be made again.
    pub replay: usize,
    /// Bytes of the response's body that it wants to see at the end.
    pub response_tail: usize,
}

impl Needs {
    /// What two remedies need together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            request_body: self.request_body.max(other.request_body),
            request_json: self.request_json.max(other.request_json),
            response_json: self.response_json.max(other.response_json),
            replay: self.replay.max(other.replay),
            response_tail: self.response_tail.max(other.response_tail),
        }
    }
}

/// Whether a remedy acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It acts.
    #[default]
    Enforce,
    /// It decides and is counted, and the exchange goes on as if it were not there.
    Report,
}

impl Mode {
    /// As the config has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Report => "report",
        }
    }
}

/// What becomes of an exchange when a remedy itself fails: an expression without a value, a store that is gone, a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// It goes on as if the remedy were not there.
    #[default]
    Open,
    /// It is refused.
    Closed,
}

/// Where a remedy is compiled: what it may refer to, and where problems are noted.
#[derive(Debug)]
pub struct Site<'a> {
    /// The names of the providers, in the order of their numbers.
    pub providers: &'a [&'a str],
    /// Which exchanges the flow is for.
    pub matching: &'a MatchConfig,
    /// The parameters that paths of the flow's match capture; empty for an exchange whose path has not got them.
    pub parameters: &'a [&'a str],
    /// The remedies further in, in their order, each with its number in the flow.
    pub further_in: &'a [(usize, &'a RemedyConfig)],
    /// The quotas that have nothing wrong with them.
    pub quotas: &'a Quotas,
    /// The accounts that have nothing wrong with them.
    pub accounts: &'a Accounts,
    /// Whether the remedy will act. What it then shares with others must not change.
    pub mode: Mode,
    /// How many workers the gateway has.
    pub workers: usize,
    /// Where what outlives the process is kept; none while a config is only checked.
    pub data_dir: Option<&'a Path>,
    /// Where in the config: `flows[0].remedies[1].limit`.
    pub path: String,
    /// What is wrong so far.
    pub problems: &'a mut Vec<Problem>,
    /// Which remedy of the config this is, whatever stands around it.
    pub(crate) identity: Identity,
    pub(crate) before: Option<&'a KeptStates>,
    pub(crate) kept: &'a mut KeptStates,
}

/// Names a remedy across reloads: its flow, its kind, and the how manieth of that kind it is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub flow: String,
    pub remedy: &'static str,
    pub ordinal: usize,
}

/// What remedies keep from one config to the next.
pub(crate) type KeptStates = HashMap<Identity, Arc<dyn Any + Send + Sync>>;

impl Site<'_> {
    /// Notes that `key` of this remedy is wrong.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        let problem = Problem::new(self.path_of(key), message);
        self.problems.push(problem);
    }

    /// The path of `key` in the config; that of the remedy itself where the key is empty.
    pub fn path_of(&self, key: &str) -> String {
        if key.is_empty() { self.path.clone() } else { format!("{}.{key}", self.path) }
    }

    /// Notes that `key` names a `kind` of thing that is not there, and what was probably meant.
    pub fn dangling(&mut self, key: &str, name: &str, kind: &str) {
        let problem = Problem::new(self.path_of(key), format!("no {kind} is called `{name}`"));
        let problem = match kind {
            "quota" => problem.suggest(name, self.quotas.iter().map(|quota| quota.name())),
            "account" => problem.suggest(name, self.accounts.iter().map(Account::name)),
            _ => problem.suggest(name, self.providers.iter().copied()),
        };
        self.problems.push(problem);
    }

    /// What expressions and templates of this remedy may name.
    pub(crate) fn scope(&self, has_response: bool) -> Scope<'_> {
        Scope { has_response, parameters: self.parameters }
    }

    /// The expression `source`, which `key` of this remedy holds; a problem where it is wrong. `has_response` is whether there is a
    /// response, or a failure, when it is evaluated.
    pub fn expression<T: Outcome>(
        &mut self,
        key: &str,
        source: &str,
        has_response: bool,
    ) -> Option<Expression<T>> {
        let compiled = Expression::compile(source, self.scope(has_response));
        compiled.map_err(|error| self.problems.push(error.at(self.path_of(key)))).ok()
    }

    /// The template `text`, which `key` of this remedy holds and whose result goes to `place`; a problem where it is wrong.
    /// `has_response` is as for [`expression`](Self::expression). Fields, bodies and paths have templates of
    /// their own (`template/parts.rs`), which check what may stand in them.
    pub fn template(&mut self, key: &str, text: &str, place: Escape, has_response: bool) -> Option<Template> {
        let compiled = Template::compile(text, place, self.scope(has_response), &self.path_of(key));
        compiled.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Whether there is a quota of that name, with something wrong that has been noted already.
    pub fn is_wrong_quota(&self, name: &str) -> bool {
        self.problems.iter().any(|problem| problem.path.starts_with(&format!("quotas.{name}")))
    }

    /// The number of the account `name`, which `key` of this remedy names; a problem where there is none, or where the flow's match
    /// names providers and the account is for none of them.
    pub fn account(&mut self, key: &str, name: &str) -> Option<usize> {
        let Some(number) = self.accounts.find(name) else {
            // One that is there and wrong has been told already.
            let at = format!("accounts.{name}");
            if !self.problems.iter().any(|problem| problem.path.starts_with(&at)) {
                self.dangling(key, name, "account");
            }
            return None;
        };
        let account = self.accounts.get(number)?;
        let providers = &self.matching.provider;
        if !providers.is_empty() && !providers.iter().any(|provider| account.is_for(provider)) {
            let own = account.providers().join("`, `");
            let message = format!(
                "the account `{name}` is for `{own}`, which the flow's match leaves out: it would never be used"
            );
            self.problem(key, message);
            return None;
        }
        Some(number)
    }

    /// Whether the secrets of that account could be masked in responses; a problem at the key `mask_echoes` where not.
    pub fn can_mask_echoes(&mut self, account: &Account) -> bool {
        let message = match account.echoes() {
            Ok(Some(_)) => return true,
            Ok(None) => format!("the account `{}` sends no secret that could come back", account.name()),
            Err(message) => format!("of the account `{}`: {message}", account.name()),
        };
        self.problem("mask_echoes", message);
        false
    }

    /// Notes a problem if `status` is none that a refusal can have.
    pub fn check_refusal_status(&mut self, status: Option<u16>) {
        if status.is_some_and(|status| !(400..=599).contains(&status)) {
            self.problem("status", "a refusal has a status from 400 to 599");
        }
    }

    /// Notes a problem if `methods` has what is no method as it is written.
    pub fn check_methods(&mut self, methods: &BTreeSet<String>) {
        if methods.iter().any(|method| Method::of(method.as_bytes()).name() != method) {
            self.problem("methods", "methods are written in capitals, like `POST`");
        }
    }

    /// The name of the flow.
    pub fn flow(&self) -> &str {
        &self.identity.flow
    }

    /// State that outlives a reload: what the same remedy had under the config before, if that `fits`, or else a new one. A remedy
    /// keeps one state.
    pub fn keep<State: Any + Send + Sync>(
        &mut self,
        fits: impl FnOnce(&State) -> bool,
        make: impl FnOnce() -> State,
    ) -> Arc<State> {
        let state = self.kept().filter(|state| fits(state)).unwrap_or_else(|| Arc::new(make()));
        self.keep_new(Arc::clone(&state));
        state
    }

    /// What the same remedy has kept under the config before.
    pub fn kept<State: Any + Send + Sync>(&self) -> Option<Arc<State>> {
        Arc::clone(self.before?.get(&self.identity)?).downcast().ok()
    }

    /// Keeps `state` for the config after this one.
    pub fn keep_new<State: Any + Send + Sync>(&mut self, state: Arc<State>) {
        self.kept.insert(self.identity.clone(), state);
    }
}
