//! `accounts`: chooses one of several accounts for each call, and skips an account for a while after the
//! provider refuses it.
//!
//! The remedy only chooses the account; the gateway adds its credential when the request is sent. The state
//! of an account belongs to the account (`accounts/state.rs`), so all remedies share it. When the provider
//! refuses a call, the call is repeated with another account. The repeated call starts at this remedy, so the
//! inner remedies count it for the new account.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_accounts::token::TokenWaiter;
use egret_accounts::{Account, AccountUse, CoolDown, Ending, RefusedCall};
use egret_clock::{Timestamp, mixed};
use egret_config::{Duration, Size, text_value};
use egret_match::expression::{EXPRESSION_BODY_BYTES_MAX, Expression};
use egret_message::grpc::GrpcStatus;
use egret_message::{Condition, ErrorKind, FLOW_BODY_BYTES_MAX, Fault, Refused};
use egret_quota::{GroupBy, GroupByError};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tracing::{debug, warn};

use crate::account_use;
use crate::exchange::Exchange;
use crate::grouping::group;
use crate::prompt_key::prompt_key;
use crate::remedy::{CompileContext, Mode, NamedPart, Needs, Reaction, Remedy, Step};

/// Maximum number of accounts of one remedy. Each exchange examines all of them.
const POOL_MAX: usize = 256;
/// Maximum weight.
const WEIGHT_MAX: u32 = 1_000;
/// Default maximum of repeated calls per exchange.
const REPEAT_DEFAULT_MAX: usize = 8;
/// Maximum of repeated calls per exchange.
const REPEAT_MAX: u32 = 20;
/// The value of `sticky` for prompts.
const PROMPT: &str = "prompt";

egret_config::keys! {
    /// Selection and cool-down of accounts. A call to a provider that none of the accounts is for is made
    /// without an account.
    #[derive(Eq)]
    pub struct AccountsConfig {
        /// Accounts, each a name under `accounts`, or `{ account: NAME, weight: 2 }`.
        #[serde(rename = "use")]
        pub pool: Vec<PoolEntry>,
        /// Selection of the next account. Default: `weighted` if weights are given, otherwise `round-robin`.
        pub by: Option<By>,
        /// Gives all calls of a group the same account while it is available: `header:NAME`, `consumer`,
        /// `param:NAME`, `provider` or `cel:EXPRESSION`; or `prompt`, for language models: calls whose
        /// prompts begin alike, so that a provider has them in its cache. Calls without that value are
        /// distributed by `by`.
        pub sticky: Option<StickyBy>,
        /// Conditions and duration of the cool-down.
        pub cool_down: CoolDownConfig,
        /// Maximum number of calls repeated with other accounts after the provider refuses an exchange.
        /// Default: the number of other accounts, at most 8.
        #[schemars(range(max = 20))]
        pub repeat: Option<u32>,
        /// Methods whose calls may be repeated in addition to the idempotent ones (RFC 9110 §9.2.2). After
        /// 401, 403 and 429 the method does not matter, because these statuses mean that the provider has not
        /// acted.
        pub methods: BTreeSet<String>,
        /// Maximum length of a request body that is kept for repeating the call. Requests with longer bodies
        /// are not repeated.
        pub body: Size = Size::from_kib(64),
        /// Masks the secrets of the used account in responses, as `authenticate` does.
        pub mask_echoes: bool,
        /// Maximum time that an exchange waits for an account while all of them cool down. An exchange that
        /// would have to wait longer is refused at once.
        pub wait_max: Duration,
    }
}

/// An account of the pool. A text alone is its `account`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "PoolEntry", transform = egret_config::or_text)]
pub struct PoolEntry {
    /// Name of the account.
    pub account: String,
    /// Number of calls that it gets for each call of an account with weight 1. Default: 1.
    #[schemars(range(min = 1, max = 1_000))]
    pub weight: Option<u32>,
}

egret_config::or_text_alone! {
    PoolEntry,
    "an account's name, or `{ account: NAME, weight: 2 }`",
    |name: &str| Ok::<_, Infallible>(PoolEntry { account: name.to_owned(), weight: None })
}

impl Serialize for PoolEntry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.weight {
            None => serializer.serialize_str(&self.account),
            Some(_) => Self::serialize(self, serializer),
        }
    }
}

/// The selection of the next account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Each account in turn.
    #[default]
    RoundRobin,
    /// Each account in turn, in proportion to its weight and evenly spread.
    Weighted,
    /// The account with the fewest exchanges in flight; among equals, the one with the fewest calls so far.
    LeastUsed,
    /// The account with the most calls left according to the provider (`RateLimit`, `X-RateLimit-Remaining`).
    /// Accounts without such a report come first.
    MostRemaining,
}

/// The property that calls with the same account have in common.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum StickyBy {
    /// `prompt`: the beginning of the prompt, or the name that the client has for it.
    Prompt,
    /// The group.
    Group(GroupBy),
}

text_value!(StickyBy, "a string");

impl FromStr for StickyBy {
    type Err = StickyByError;

    fn from_str(text: &str) -> Result<Self, StickyByError> {
        if text == PROMPT { Ok(Self::Prompt) } else { Ok(Self::Group(text.parse()?)) }
    }
}

impl fmt::Display for StickyBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt => f.write_str(PROMPT),
            Self::Group(group) => group.fmt(f),
        }
    }
}

/// A text that is neither `prompt` nor a grouping of calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; for language models also `prompt`")]
pub struct StickyByError(#[from] GroupByError);

egret_config::keys! {
    /// Conditions and duration of an account's cool-down.
    #[derive(Eq)]
    pub struct CoolDownConfig {
        /// Status codes that start a cool-down: `429`, `5xx`, `502-504` or `grpc-resource-exhausted`.
        pub on: Vec<Condition> = [401, 403, 429].map(|status| Condition::Status(status, status)).into(),
        /// Duration, unless the provider says when it accepts calls again. After 401 and 403 it doubles with
        /// each further refusal, until a call succeeds.
        #[serde(rename = "for")]
        pub first: Duration = Duration::from_secs(30),
        /// Maximum duration, whatever the provider says.
        pub max: Duration = Duration::from_secs(600),
    }
}

/// Chooses one of several accounts for each call.
#[derive(Debug)]
pub struct Accounts {
    pool: Box<[Member]>,
    by: By,
    sticky: Option<Sticky>,
    cool_down: CoolDownConfig,
    repeat: u32,
    methods: BTreeSet<String>,
    /// Bytes of a request's body that are kept for repeating the call.
    replay: usize,
    /// Length of the longest body that any of the accounts must see.
    request_body_max: usize,
    /// Bytes of a refusal that presets need to know what it means.
    refusal_bytes: usize,
    masks_echoes: bool,
    wait_max: std::time::Duration,
    mode: Mode,
    round_robin: Arc<RoundRobinState>,
}

/// The compiled key `sticky`.
#[derive(Debug)]
enum Sticky {
    Prompt,
    Group(GroupBy, Option<Expression<String>>),
}

/// An account of the pool.
#[derive(Debug)]
struct Member {
    /// Number of the account in the config.
    number: usize,
    name: String,
    weight: u32,
    /// Hash of the name, for assigning groups to accounts.
    seed: u64,
}

/// State of the round robin.
#[derive(Debug)]
struct RoundRobinState {
    /// The pool that the state belongs to.
    of: Vec<PoolEntry>,
    /// Deficit of each account, by its index in the pool.
    deficits: Mutex<Vec<i64>>,
}

/// State of an available account at one moment.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// Index in the pool.
    index: usize,
    number: usize,
    weight: u32,
    in_flight: u32,
    calls: u64,
    /// Number of calls left, as reported by the provider.
    left: Option<u64>,
}

type Candidates = SmallVec<[Candidate; 8]>;

/// State of one exchange.
#[derive(Debug, Default)]
pub struct AccountsRun {
    /// The account in use for the call.
    used: Option<AccountUse>,
    /// Number of the account that was just refused.
    refused: Option<usize>,
    /// Number of repeated calls so far.
    repeats: u32,
    /// End of the wait, set when the exchange first has to wait.
    deadline: Option<Timestamp>,
    /// The account's token, if it is fetched from an authorization server.
    token: TokenWaiter,
}

impl Remedy for Accounts {
    type Config = AccountsConfig;
    type Run = AccountsRun;

    const CHOOSES_ACCOUNT: bool = true;

    fn names(config: &AccountsConfig) -> Vec<NamedPart<'_>> {
        config.pool.iter().map(|entry| NamedPart::Account(&entry.account)).collect()
    }

    fn compile(config: &AccountsConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        check(config, context);
        let pool = pool(config, context);
        let sticky = config.sticky.as_ref().map(|by| sticky(by, context));
        if context.problems.len() > before {
            return None;
        }
        let accounts = context.accounts;
        let accounts = || pool.iter().filter_map(|member| accounts.get(member.number));
        if config.mask_echoes && !accounts().all(|account| context.can_mask_echoes(account)) {
            return None;
        }
        let request_body_max = accounts().map(Account::request_body_max).max().unwrap_or_default();
        let weighted = if config.pool.iter().any(|entry| entry.weight.is_some()) {
            By::Weighted
        } else {
            By::RoundRobin
        };
        let others = u32::try_from(pool.len().saturating_sub(1).min(REPEAT_DEFAULT_MAX)).unwrap_or_default();
        let repeat = config.repeat.unwrap_or(others);
        let token = |member: &Member| context.accounts.get(member.number)?.token();
        // After a refused token the call is repeated with a new one, whatever `repeat` says.
        let is_kept = repeat > 0 || pool.iter().any(|member| token(member).is_some());
        let body = usize::try_from(config.body.bytes()).unwrap_or(usize::MAX);
        let round_robin =
            || RoundRobinState { of: config.pool.clone(), deficits: Mutex::new(vec![0; config.pool.len()]) };
        Some(Self {
            pool: pool.into(),
            by: config.by.unwrap_or(weighted),
            sticky: sticky.flatten(),
            cool_down: config.cool_down.clone(),
            repeat,
            methods: config.methods.clone(),
            replay: if is_kept { body } else { 0 },
            request_body_max,
            refusal_bytes: context.conventions.refusal_bytes(),
            masks_echoes: config.mask_echoes,
            wait_max: config.wait_max.get(),
            mode: context.mode,
            round_robin: context
                .states
                .keep(|round_robin: &RoundRobinState| round_robin.of == config.pool, round_robin),
        })
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.pool.iter().map(|member| member.name.as_str()).collect();
        let on: Vec<String> = self.cool_down.on.iter().map(ToString::to_string).collect();
        let how = match self.by {
            By::RoundRobin => "in turn",
            By::Weighted => "in turn by weight",
            By::LeastUsed => "least used first",
            By::MostRemaining => "most calls left first",
        };
        format!(
            "calls with the accounts {}, {how}; an account cools down after {}",
            names.join(", "),
            on.join(", ")
        )
    }

    fn needs(&self) -> Needs {
        let sees_body = match &self.sticky {
            Some(Sticky::Prompt) => true,
            Some(Sticky::Group(_, expression)) => {
                expression.as_ref().is_some_and(Expression::needs_request_body)
            }
            None => false,
        };
        Needs {
            request_body: self.request_body_max.max(if sees_body { EXPRESSION_BODY_BYTES_MAX } else { 0 }),
            replay: self.replay,
            grpc_status: self.cool_down.on.iter().any(|on| on.is_of_grpc()),
            refusal_json: self.refusal_bytes,
            ..Needs::default()
        }
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut AccountsRun,
        cx: &mut Context<'_>,
    ) -> Poll<Step> {
        let group = match self.group(exchange) {
            Ok(group) => group,
            Err(fault) => return Poll::Ready(Step::Fail(fault)),
        };
        if !held.token.is_under_way() {
            held.used = None;
        }
        let mut refused = None;
        // An account whose token cannot be fetched is skipped, so each account is tried at most once.
        for _ in &self.pool {
            // An account that was chosen and waits for its token is not chosen again.
            let chosen = held.used.as_ref().map(|used| used.account);
            let Some(number) = chosen.or_else(|| self.choose(exchange, group, held)) else { break };
            match self.use_account(number, exchange, held, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => return Poll::Ready(Step::Next),
                Poll::Ready(Err(why)) => refused = Some(why),
            }
            *held = held.after(number);
        }
        self.wait_or_refuse(refused, exchange, held)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut AccountsRun) -> Reaction {
        let Some(used) = &held.used else { return Reaction::Pass };
        let called = exchange.called_account().filter(|_| exchange.draft.call.account == Some(used.account));
        let (Some(account), None) = (called, exchange.local_kind) else { return Reaction::Pass };
        // The provider may accept the call with another token.
        if account_use::react(account, &mut held.token, exchange) == Reaction::RepeatSelf {
            return Reaction::RepeatSelf;
        }
        let is_lasting = exchange.is_lasting_refusal();
        if !is_lasting && !self.is_accounts_fault(exchange) {
            if account_use::is_accepted(exchange) {
                used.accepted(exchange.now);
            }
            return Reaction::Pass;
        }
        let Some(status) = refusal_status(exchange) else { return Reaction::Pass };
        self.cool_down(account, status, used, exchange, is_lasting);
        let repeats = held.repeats < self.repeat
            && (self.may_repeat(status, exchange) || is_lasting && exchange.repeatable)
            && self.has_other(used.account, held.deadline, exchange);
        if !repeats {
            return Reaction::Pass;
        }
        *held = AccountsRun { repeats: held.repeats + 1, ..held.after(used.account) };
        Reaction::RepeatSelf
    }
}

impl AccountsRun {
    /// Returns the state after the account with that number could not be used.
    fn after(&self, number: usize) -> Self {
        Self { refused: Some(number), repeats: self.repeats, deadline: self.deadline, ..Self::default() }
    }
}

impl Accounts {
    /// Continues the exchange with the account of that number, after its token is available. Returns the
    /// refusal if no token can be fetched.
    fn use_account(
        &self,
        number: usize,
        exchange: &mut Exchange<'_>,
        held: &mut AccountsRun,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refused>> {
        exchange.draft.call.account = Some(number);
        exchange.draft.call.masks_echoes = self.masks_echoes;
        let account = exchange.called_account().filter(|_| self.mode == Mode::Enforce);
        account.map_or(Poll::Ready(Ok(())), |account| {
            account_use::poll_ready(account, &mut held.token, exchange, cx)
        })
    }

    /// Decides about an exchange for which no account is available now. `refused` is the refusal of a token,
    /// if that was the cause.
    fn wait_or_refuse(
        &self,
        refused: Option<Refused>,
        exchange: &mut Exchange<'_>,
        held: &mut AccountsRun,
    ) -> Poll<Step> {
        let (_, Some(earliest)) = self.candidates(exchange) else {
            // No account is for this provider, or the wait for a token failed.
            return Poll::Ready(refused.map_or(Step::Next, Step::from));
        };
        let deadline = *held.deadline.get_or_insert(exchange.now + self.wait_max);
        if earliest <= deadline {
            exchange.poll_at(earliest);
            return Poll::Pending;
        }
        let detail = "every account for this call is cooling down, because the provider refused it or its \
            token cannot be fetched: try again after the time in `Retry-After`";
        let refused = refused.unwrap_or_else(|| Refused::new(ErrorKind::AccountUnavailable, detail));
        Poll::Ready(Refused { retry_at: Some(earliest), ..refused }.into())
    }

    /// Returns the hash of the exchange's group, if it belongs to one.
    fn group(&self, exchange: &Exchange<'_>) -> Result<Option<u64>, Fault> {
        let Some(sticky) = &self.sticky else { return Ok(None) };
        let request = exchange.request();
        let name: Cow<'_, [u8]> = match sticky {
            Sticky::Prompt => request.body.and_then(prompt_key).unwrap_or_default().into(),
            Sticky::Group(by, expression) => group(by, expression.as_ref(), exchange, &request)?,
        };
        Ok((!name.is_empty()).then(|| hash(&name)))
    }

    /// Returns the accounts that are available for the call, and the time at which the first of the others is
    /// available again.
    fn candidates(&self, exchange: &Exchange<'_>) -> (Candidates, Option<Timestamp>) {
        let mut candidates = Candidates::new();
        let mut earliest = None;
        for (index, member) in self.pool.iter().enumerate() {
            let account = exchange.account_numbered(Some(member.number));
            let Some(account) = account.filter(|account| exchange.is_for(account)) else { continue };
            let state = account.state();
            let failing_until = || account.token()?.failing_until(exchange.now);
            match state.cools_until(exchange.now, account.version()).or_else(failing_until) {
                Some(until) => earliest = Some(earliest.map_or(until, |other: Timestamp| other.min(until))),
                None => candidates.push(Candidate {
                    index,
                    number: member.number,
                    weight: member.weight,
                    in_flight: state.in_flight(),
                    calls: state.calls(),
                    left: state.left(exchange.now),
                }),
            }
        }
        (candidates, earliest)
    }

    /// Chooses an account for the call and holds it. Returns its number.
    fn choose(&self, exchange: &Exchange<'_>, group: Option<u64>, held: &mut AccountsRun) -> Option<usize> {
        let (mut candidates, _) = self.candidates(exchange);
        prefer(&mut candidates, |candidate| Some(candidate.number) != held.refused);
        // The lock is kept until the account is held, so no other worker chooses the same least used account.
        let mut deficits = self.round_robin.deficits.lock();
        let chosen = if let Some(group) = group {
            sticky_one(&candidates, group, |index| self.pool[index].seed)?
        } else {
            prefer(&mut candidates, |candidate| candidate.left != Some(0));
            self.by.one(&candidates, &mut deficits)?
        };
        if self.mode == Mode::Enforce {
            let account = exchange.account_numbered(Some(chosen.number))?;
            held.used = Some(account.start_use(chosen.number, exchange.now));
        }
        Some(chosen.number)
    }

    /// Returns `true` if the outcome starts a cool-down. A refusal that all customers see alike is not the
    /// account's fault.
    fn is_accounts_fault(&self, exchange: &Exchange<'_>) -> bool {
        exchange.meets_any(&self.cool_down.on) && !exchange.is_refusal_for_everybody()
    }

    /// Starts a cool-down of `account`: the longest one after a refusal that time does not end.
    fn cool_down(
        &self,
        account: &Account,
        status: u16,
        used: &AccountUse,
        exchange: &Exchange<'_>,
        is_lasting: bool,
    ) {
        let CoolDownConfig { first, max, .. } = &self.cool_down;
        let rule = CoolDown { first: if is_lasting { max.get() } else { first.get() }, max: max.get() };
        let call = RefusedCall {
            started: used.started,
            status,
            version: account.version(),
            requested_pause: account_use::requested_pause(exchange),
        };
        let Some(until) = account.cool(call, exchange.now, rule) else { return };
        let seconds = until.since(exchange.now).as_secs();
        if status == 429 {
            debug!(account = account.name(), status, seconds, "an account cools down");
        } else {
            warn!(
                account = account.name(),
                status, seconds, "an account cools down because the provider refuses it"
            );
        }
    }

    /// Returns `true` if the request can safely be sent again.
    fn may_repeat(&self, status: u16, exchange: &Exchange<'_>) -> bool {
        exchange.repeatable && (Ending::of(status).is_refusal() || exchange.may_repeat(&self.methods))
    }

    /// Returns `true` if an account other than `refused` is available, now or before the maximum wait ends.
    fn has_other(&self, refused: usize, deadline: Option<Timestamp>, exchange: &Exchange<'_>) -> bool {
        let (candidates, earliest) = self.candidates(exchange);
        let deadline = deadline.unwrap_or(exchange.now + self.wait_max);
        candidates.iter().any(|candidate| candidate.number != refused)
            || earliest.is_some_and(|earliest| earliest <= deadline)
    }
}

impl By {
    /// Returns the next of `candidates`.
    fn one(self, candidates: &[Candidate], deficits: &mut [i64]) -> Option<Candidate> {
        match self {
            Self::RoundRobin | Self::Weighted => turn(candidates, deficits),
            Self::LeastUsed => candidates.iter().min_by_key(|one| (one.in_flight, one.calls)).copied(),
            Self::MostRemaining => {
                let rank =
                    |one: &&Candidate| (Reverse(one.left.unwrap_or(u64::MAX)), one.in_flight, one.calls);
                candidates.iter().min_by_key(rank).copied()
            }
        }
    }
}

/// Smooth weighted round robin, as in nginx: each account's deficit grows by its weight, and the account with
/// the largest deficit is chosen and pays the sum of all weights.
fn turn(candidates: &[Candidate], deficits: &mut [i64]) -> Option<Candidate> {
    let mut chosen: Option<Candidate> = None;
    let mut all = 0;
    for candidate in candidates {
        let weight = i64::from(candidate.weight);
        all += weight;
        deficits[candidate.index] += weight;
        if chosen.is_none_or(|chosen| deficits[candidate.index] > deficits[chosen.index]) {
            chosen = Some(*candidate);
        }
    }
    let chosen = chosen?;
    deficits[chosen.index] -= all;
    Some(chosen)
}

/// Chooses the account of a group by weighted rendezvous hashing. Each account draws a fixed number for the
/// group and the highest wins. If an account becomes unavailable, only its own groups move, and they return
/// with it.
fn sticky_one(candidates: &[Candidate], group: u64, seed: impl Fn(usize) -> u64) -> Option<Candidate> {
    let score = |candidate: &Candidate| {
        let drawn = mixed(group ^ seed(candidate.index)) >> 32;
        let drawn = f64::from(u32::try_from(drawn).unwrap_or_default()) + 0.5;
        f64::from(candidate.weight) / -(drawn / (f64::from(u32::MAX) + 1.0)).ln()
    };
    candidates.iter().max_by(|one, other| score(one).total_cmp(&score(other))).copied()
}

/// Removes the candidates that are not `preferred`, unless none is.
fn prefer(candidates: &mut Candidates, preferred: impl Fn(&Candidate) -> bool) {
    if candidates.iter().any(&preferred) {
        candidates.retain(|candidate| preferred(candidate));
    }
}

/// Returns the status with which the provider has refused the account. That of a gRPC call is the one of HTTP
/// with the same meaning.
fn refusal_status(exchange: &Exchange<'_>) -> Option<u16> {
    match exchange.grpc.status() {
        Some(GrpcStatus::Unauthenticated) => Some(401),
        Some(GrpcStatus::PermissionDenied) => Some(403),
        Some(GrpcStatus::ResourceExhausted) => Some(429),
        _ => exchange.response().map(|response| response.status),
    }
}

/// FNV-1a: the same in every process, so all processes give a group the same account.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Adds the problems of `config`, except those of its accounts.
fn check(config: &AccountsConfig, context: &mut CompileContext<'_>) {
    let CoolDownConfig { on, first, max } = &config.cool_down;
    let is_weighted = config.pool.iter().any(|entry| entry.weight.is_some());
    let is_status = |on: &Condition| matches!(on, Condition::Status(..) | Condition::Grpc(_));
    let checks = [
        ("use", !config.pool.is_empty(), "must name at least one account"),
        (
            "use",
            config.pool.len() <= POOL_MAX,
            "at most 256 accounts are allowed, because each exchange examines all of them",
        ),
        (
            "by",
            !is_weighted || matches!(config.by, None | Some(By::Weighted)),
            "weights require `weighted`: set it, or leave out `by`",
        ),
        (
            "sticky",
            config.sticky != Some(StickyBy::Group(GroupBy::Account)),
            "the account is the result of this choice: group by something else",
        ),
        (
            "cool_down.on",
            !on.is_empty() && on.iter().all(is_status),
            "must list one or more statuses: a missing response is not the account's fault",
        ),
        ("cool_down.for", !first.is_zero(), "must be greater than 0"),
        (
            "cool_down.max",
            max >= first && max.get() <= CoolDown::LONGEST,
            "must be from `for` to a day (`24h`)",
        ),
        ("repeat", config.repeat.is_none_or(|repeat| repeat <= REPEAT_MAX), "must be at most 20"),
        (
            "body",
            config.body.bytes() <= FLOW_BODY_BYTES_MAX,
            "must be at most `16MiB`: it is kept in memory for each exchange",
        ),
    ];
    for (key, is_good, message) in checks {
        if !is_good {
            context.problem(key, message);
        }
    }
    context.check_methods(&config.methods);
}

/// Returns the accounts of `config`. Adds their problems.
fn pool(config: &AccountsConfig, context: &mut CompileContext<'_>) -> Vec<Member> {
    let mut pool: Vec<Member> = Vec::new();
    for (index, PoolEntry { account, weight }) in config.pool.iter().enumerate() {
        let key = format!("use[{index}]");
        if weight.is_some_and(|weight| !(1..=WEIGHT_MAX).contains(&weight)) {
            context.problem(&format!("{key}.weight"), "must be from 1 to 1000");
        }
        let name = if weight.is_some() { format!("{key}.account") } else { key };
        let Some(number) = context.account(&name, account) else { continue };
        if pool.iter().any(|member| member.number == number) {
            context.problem(&name, format!("`{account}` is named twice: give it a `weight` instead"));
        }
        let (seed, weight) = (mixed(hash(account.as_bytes())), weight.unwrap_or(1));
        pool.push(Member { number, name: account.clone(), weight, seed });
    }
    pool
}

/// Compiles the `sticky` key. Adds a problem if it is invalid.
fn sticky(by: &StickyBy, context: &mut CompileContext<'_>) -> Option<Sticky> {
    let StickyBy::Group(by) = by else { return Some(Sticky::Prompt) };
    let expression = match by {
        GroupBy::Cel(source) => Some(context.expression("sticky", source, false)?),
        GroupBy::Param(name) => {
            let missing = context.scope(false).missing_parameter(name);
            let at = context.path_of("sticky");
            context.problems.extend(missing.map(|missing| missing.at(at)));
            None
        }
        _ => None,
    };
    Some(Sticky::Group(by.clone(), expression))
}

#[cfg(test)]
mod tests;
