//! The config keys of a quota.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use egret_config::{Duration, text_value};
use egret_http1::is_token;
use egret_usage::UsageKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Quotas by name, as written in the config.
pub type QuotaConfigs = BTreeMap<String, QuotaConfig>;

/// A named allowance that remedies draw from.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    /// Number of units in a window; number of concurrent calls if `kind` is `concurrency`. A call costs one
    /// unit, unless `cost` is set. With `unit: usd`, US dollars.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    #[schemars(extend("x-tier" = "everyday"))]
    pub limit: u64,
    /// Lets the number of concurrent calls follow the provider's latency, up to `limit`. For `kind:
    /// concurrency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveConfig>,
    /// Meaning of `limit`, `burst` and `spillover.max`. Money is counted in whole nano-dollars.
    #[serde(default, skip_serializing_if = "QuotaUnit::is_default")]
    pub unit: QuotaUnit,
    /// Amount that is held for a call of `unit: usd` until its cost is known.
    #[serde(default, skip_serializing_if = "Overshoot::is_default")]
    pub overshoot: Overshoot,
    /// The way in which units come back. The default, `sliding`, never exceeds the provider's limit, wherever
    /// its windows begin.
    #[serde(default)]
    #[schemars(extend("x-tier" = "everyday"))]
    pub kind: QuotaKind,
    /// Length of a window; for `token-bucket`, the time in which `limit` units come back. `calendar` uses
    /// `period` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-tier" = "everyday"))]
    pub window: Option<Duration>,
    /// Beginning of the windows of a `fixed` quota.
    #[serde(default)]
    pub starts: WindowStart,
    /// Capacity of a `token-bucket`: the maximum number of units at once. Default: `limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub burst: Option<u64>,
    /// The window of a `calendar` quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// Beginning of a `calendar` window.
    #[serde(default)]
    pub renews: RenewalConfig,
    /// Counts each group separately, with the whole `limit` for each (or its share, see `shares`):
    /// `header:NAME`, `consumer`, `account`, `param:NAME` for a path parameter of the flow that draws,
    /// `provider`, or `cel:EXPRESSION`. Calls without a value form one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-tier" = "everyday"))]
    pub group_by: Option<GroupBy>,
    /// Maximum number of groups that are counted separately. With more, the least recently used groups with a
    /// full allowance are forgotten, which has no effect on calls. If there is no such group, new groups
    /// share one allowance: the overflow group.
    #[serde(default = "groups_max_default")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub groups_max: u32,
    /// Divides `limit` among groups. Needs `group_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<SharesConfig>,
    /// A quota that is charged together with this one: a call is granted by both, or charged to neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Cost of a call. Default: one unit.
    #[serde(default, skip_serializing_if = "CostConfig::is_one")]
    #[schemars(extend("x-tier" = "everyday"))]
    pub cost: CostConfig,
    /// Carries unused units over to the next window. For `calendar`, and for `fixed` with `starts: clock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spillover: Option<SpilloverConfig>,
    /// Corrects the count by the rate-limit fields of the provider's responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn: Option<LearnConfig>,
    /// Percentages of `limit`, like `[80%, 100%]`. When a group has used as much in a window, an alert is
    /// raised, once: in the log, in `egret_quota_alerts_total`, and to `alerts.export`. Units that are only
    /// held count later. For `calendar`, and for `fixed` with a `window` of at least a minute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub alerts: Vec<Percent>,
    /// Storage of the count.
    #[serde(default)]
    pub store: StoreKind,
    /// Treatment of calls while the store fails. Default: `keep` for `store: redis`, otherwise `closed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_store_error: Option<OnStoreError>,
}

fn groups_max_default() -> u32 {
    10_000
}

impl Default for QuotaConfig {
    /// One unit in a sliding second, to be overridden.
    fn default() -> Self {
        Self {
            limit: 1,
            adaptive: None,
            unit: QuotaUnit::default(),
            overshoot: Overshoot::default(),
            kind: QuotaKind::default(),
            window: Some(Duration::from_secs(1)),
            starts: WindowStart::default(),
            burst: None,
            period: None,
            renews: RenewalConfig::default(),
            group_by: None,
            groups_max: groups_max_default(),
            shares: None,
            parent: None,
            cost: CostConfig::default(),
            spillover: None,
            learn: None,
            alerts: Vec::new(),
            store: StoreKind::default(),
            on_store_error: None,
        }
    }
}

impl QuotaConfig {
    /// Treatment of calls while the store fails.
    pub fn store_policy(&self) -> OnStoreError {
        let default = if self.store == StoreKind::Redis { OnStoreError::Keep } else { OnStoreError::Closed };
        self.on_store_error.unwrap_or(default)
    }

    /// Returns `true` if a call is charged an estimate, and later what its provider has reported.
    pub(super) fn is_estimated(&self) -> bool {
        self.cost.usage.is_some() && (self.unit == QuotaUnit::Usd || self.cost.request.is_some())
    }
}

/// A limit of concurrent calls that follows the provider's latency. A number alone is its `min`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[serde(rename = "short form: min")]
#[schemars(rename = "AdaptiveConfig", transform = egret_config::or_number)]
pub struct AdaptiveConfig {
    /// The lowest limit.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub min: u64,
    /// Latency up to which the limit rises, as a multiple of the latency while few calls are in flight.
    /// Above it, the limit falls in proportion.
    #[schemars(range(min = 1.1, max = 10.0))]
    pub tolerance: f64,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { min: 1, tolerance: 1.5 }
    }
}

/// The unit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QuotaUnit {
    /// Calls, or what `cost` says.
    #[default]
    Units,
    /// US dollars, with `cost: { usage: usd }`.
    Usd,
}

/// The amount that is held for a call until its cost is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overshoot {
    /// An estimate: a quarter of the bytes as input, and the output that nearly all recent calls have kept
    /// within. Calls under way can exceed the limit by what they cost beyond that.
    #[default]
    Bounded,
    /// The most that the call can cost, by its size, its declared maximum of output and the prices of its
    /// model. The limit is never exceeded, and a call without such a bound is rejected.
    Never,
}

impl Overshoot {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl QuotaUnit {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a number of counted units as people read it: US dollars in whole hundredths of a cent.
    pub fn amount(self, units: u64) -> String {
        match self {
            Self::Units => units.to_string(),
            Self::Usd => format!("${}.{:04}", units / 1_000_000_000, units / 100_000 % 10_000),
        }
    }

    /// Returns the same with the name of the unit.
    pub fn words(self, units: u64) -> String {
        match self {
            Self::Units => format!("{units} units"),
            Self::Usd => self.amount(units),
        }
    }

    /// Number of counted units in one of the config: a dollar has 10⁹ nano-dollars.
    pub const fn scale(self) -> u64 {
        match self {
            Self::Units => 1,
            Self::Usd => 1_000_000_000,
        }
    }
}

/// The way in which units come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QuotaKind {
    /// A call's units come back one window after its response arrived. Whatever the network does, the
    /// provider never counts more than `limit` in any window of that length, wherever its windows begin, and
    /// a token bucket of that size never runs empty there. With windows of length W and responses after R, W
    /// / (W + R) of the allowance can be used.
    #[default]
    Sliding,
    /// All units come back at once when the next window begins. Exact for a provider whose windows begin at
    /// the same moments; with any other, up to twice the `limit` can fall into one of its windows. The whole
    /// allowance can be used if responses arrive within a window: a call in flight when a window ends counts
    /// in both.
    Fixed,
    /// Units come back one by one, evenly, and up to `burst` accumulate. Exact for providers with a token
    /// bucket. Units of calls in flight do not come back: with responses after R, `burst` / (rate × R + 1) of
    /// the allowance can be used, or all of it if that is more than 1.
    TokenBucket,
    /// A call's units come back when its response is complete. This limits the number of concurrent calls.
    Concurrency,
    /// Like `fixed`, with windows of a day or a month in the calendar of a time zone.
    Calendar,
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sliding => "sliding",
            Self::Fixed => "fixed",
            Self::TokenBucket => "token-bucket",
            Self::Concurrency => "concurrency",
            Self::Calendar => "calendar",
        })
    }
}

/// Beginning of fixed windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowStart {
    /// At multiples of the window since 1970-01-01 00:00 UTC: on the full second, minute, hour.
    #[default]
    Clock,
    /// At the first call after the end of the last window. Exact for a provider that does the same, if all
    /// calls take the same time to reach it; if that time varies, use `sliding`.
    First,
}

/// The window of a calendar quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// From a time of day to the same time on the next day.
    Day,
    /// From a day of the month to the same day of the next month.
    Month,
}

egret_config::keys! {
    /// Beginning of a calendar window.
    #[derive(Eq)]
    pub struct RenewalConfig {
        /// Day of the month, for `period: month`. A shorter month uses its last day.
        #[schemars(range(min = 1, max = 31))]
        pub day: u8 = 1,
        /// Time of day, `HH:MM`. A time that a clock change skips moves later by the length of the change; of
        /// one that occurs twice, the first counts.
        pub time: String = "00:00".to_owned(),
        /// Time zone of the IANA database, such as `Europe/Berlin`.
        pub time_zone: String = "UTC".to_owned(),
    }
}

/// The property that groups calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String")]
pub enum GroupBy {
    /// `header:NAME`: the value of a request header field.
    Header(String),
    /// `consumer`: the calling application.
    Consumer,
    /// `account`: the credential that the call uses.
    Account,
    /// `param:NAME`: a path parameter of the flow.
    Param(String),
    /// `provider`: the provider called.
    Provider,
    /// `cel:EXPRESSION`: the result of an expression over the request.
    Cel(String),
}

/// A text that is not a grouping of calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `header:NAME`, `consumer`, `account`, `param:NAME`, `provider` or `cel:EXPRESSION`, found \
             `{}`{}", .0, meant(.0))]
pub struct GroupByError(String);

/// The name of a header field has hyphens, and no other property has.
fn meant(text: &str) -> String {
    let is_field = text.contains('-') && is_token(text.as_bytes());
    if is_field { format!("; did you mean `header:{text}`?") } else { String::new() }
}

impl FromStr for GroupBy {
    type Err = GroupByError;

    fn from_str(text: &str) -> Result<Self, GroupByError> {
        let named = |name: &str| if name.is_empty() { None } else { Some(name.to_owned()) };
        let group_by = match text.split_once(':') {
            Some(("header", name)) => named(name)
                .filter(|name| is_token(name.as_bytes()))
                .map(|name| Self::Header(name.to_ascii_lowercase())),
            Some(("param", name)) => named(name).map(Self::Param),
            Some(("cel", expression)) => named(expression.trim()).map(Self::Cel),
            None if text == "consumer" => Some(Self::Consumer),
            None if text == "account" => Some(Self::Account),
            None if text == "provider" => Some(Self::Provider),
            _ => None,
        };
        group_by.ok_or_else(|| GroupByError(text.to_owned()))
    }
}

text_value!(GroupBy, "a string");

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Consumer => f.write_str("consumer"),
            Self::Account => f.write_str("account"),
            Self::Param(name) => write!(f, "param:{name}"),
            Self::Provider => f.write_str("provider"),
            Self::Cel(expression) => write!(f, "cel:{expression}"),
        }
    }
}

impl GroupBy {
    /// Returns `true` if the group names are probably credentials, which must not be shown.
    pub fn is_secret(&self) -> bool {
        const SECRETS: [&str; 8] =
            ["authorization", "cookie", "key", "token", "secret", "password", "credential", "signature"];
        match self {
            Self::Header(name) => SECRETS.iter().any(|secret| name.contains(secret)),
            Self::Cel(_) => true,
            Self::Consumer | Self::Account | Self::Param(_) | Self::Provider => false,
        }
    }
}

/// A part of a limit in percent, with up to two decimals: `75%`, `12.5%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, JsonSchema)]
#[schemars(with = "String")]
pub struct Percent(u32);

impl Percent {
    /// The whole limit.
    pub const WHOLE: Self = Self(10_000);

    /// Returns this part of `limit`, rounded down.
    pub fn of(self, limit: u64) -> u64 {
        let part = u128::from(limit) * u128::from(self.0) / u128::from(Self::WHOLE.0);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// Returns `true` if `used` is at least this part of `limit`.
    pub(super) fn is_reached(self, used: u64, limit: u64) -> bool {
        u128::from(used) * u128::from(Self::WHOLE.0) >= u128::from(limit) * u128::from(self.0)
    }
}

/// A text that is not a share of a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a share: expected 0% to 100% with at most two decimals, like `75%` or `12.5%`")]
pub struct PercentError(String);

impl FromStr for Percent {
    type Err = PercentError;

    fn from_str(text: &str) -> Result<Self, PercentError> {
        let hundredths = || {
            let (whole, fraction) = {
                let number = text.strip_suffix('%')?.trim_end();
                number.split_once('.').unwrap_or((number, "0"))
            };
            let digits = |text: &str, max: usize| {
                let plain = (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
                plain.then(|| text.parse::<u32>().ok())?
            };
            let fraction = digits(fraction, 2)? * if fraction.len() == 1 { 10 } else { 1 };
            Some(digits(whole, 3)? * 100 + fraction).filter(|hundredths| *hundredths <= Self::WHOLE.0)
        };
        hundredths().map(Self).ok_or_else(|| PercentError(text.to_owned()))
    }
}

text_value!(Percent, "a string");

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, tenths) if tenths % 10 == 0 => write!(f, "{whole}.{}%", tenths / 10),
            (whole, hundredths) => write!(f, "{whole}.{hundredths:02}%"),
        }
    }
}

/// The division of a limit among groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SharesConfig {
    /// Share of the limit by group; no other group can use it. The sum is at most `100%`.
    pub groups: BTreeMap<String, Percent>,
    /// Allowance of groups that are not listed: `block` rejects their calls, `allow` lets them share the
    /// rest, and a percentage of the limit caps each of them, within the rest for all of them together.
    pub default: ShareDefault,
}

/// Allowance of groups without their own share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
#[schemars(with = "String")]
pub enum ShareDefault {
    /// `allow`: they share the units that the listed groups leave.
    #[default]
    Allow,
    /// `block`: none.
    Block,
    /// A percentage of the limit for each, within the rest for all of them together.
    Share(Percent),
}

/// A text that is not an allowance of groups without their own share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `allow`, `block` or a percentage like `10%`, found `{0}`")]
pub struct ShareDefaultError(String);

impl FromStr for ShareDefault {
    type Err = ShareDefaultError;

    fn from_str(text: &str) -> Result<Self, ShareDefaultError> {
        match text {
            "allow" => Ok(Self::Allow),
            "block" => Ok(Self::Block),
            share => share.parse().map(Self::Share).map_err(|_| ShareDefaultError(text.to_owned())),
        }
    }
}

text_value!(ShareDefault, "a string");

impl fmt::Display for ShareDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Block => f.write_str("block"),
            Self::Share(percent) => percent.fmt(f),
        }
    }
}

impl SharesConfig {
    /// Returns the percentage that the listed groups leave.
    pub(super) fn rest(&self) -> Option<Percent> {
        let listed = self.groups.values().try_fold(0_u32, |sum, percent| sum.checked_add(percent.0))?;
        Percent::WHOLE.0.checked_sub(listed).map(Percent)
    }

    /// Returns the units of `limit` that no listed group has. Shares are rounded down, so this is at least
    /// the rest in percent.
    pub(super) fn rest_of(&self, limit: u64) -> u64 {
        let listed = self.groups.values().fold(0, |sum: u64, percent| sum.saturating_add(percent.of(limit)));
        limit.saturating_sub(listed)
    }
}

egret_config::keys! {
    /// Cost of a call: CEL expressions with an integer result, or the usage that the response reports.
    #[derive(Eq)]
    pub struct CostConfig {
        /// Units charged before the call, computed from the request. Default: one unit.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub request: Option<String>,
        /// Actual cost of the call, computed from the response. The difference is charged or given back.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub response: Option<String>,
        /// Actual cost of the call in tokens or in money, as the provider of a language model reports its
        /// usage in the response, streamed or not; instead of `response`. A call that is refused costs
        /// nothing. A call whose provider reports no usage costs what was charged before.
        #[schemars(extend("x-tier" = "everyday"))]
        pub usage: Option<UsageCost>,
        /// The one who asks for a report of usage, which a stream of OpenAI's chat API has only on request;
        /// for `usage` and `response`. Default: `client`.
        #[serde(skip_serializing_if = "UsageReport::is_client")]
        pub report: UsageReport,
        /// Treatment of a response whose client leaves before its end, for `usage` and `response`. Default:
        /// `stop`.
        #[serde(skip_serializing_if = "OnLeave::is_stop")]
        pub on_leave: OnLeave,
    }
}

/// Treatment of a response whose client leaves before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnLeave {
    /// The call is closed, so that the provider can stop working for it. It costs what the response has
    /// reported so far, but at least what was charged before.
    #[default]
    Stop,
    /// The rest of the response is read, so that the call costs what its provider reports at the end: for at
    /// most 10 minutes, and for at most 256 such responses a worker.
    Drain,
}

impl OnLeave {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    fn is_stop(&self) -> bool {
        *self == Self::Stop
    }
}

/// The one who asks the provider of a language model to report the usage of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UsageReport {
    /// The client, if anybody. What the response reports is read.
    #[default]
    Client,
    /// Egret, by `stream_options: {"include_usage": true}` in the request's JSON body of at most `16MiB`. The
    /// client gets the additional chunk, which has no choices.
    Ask,
    /// Egret does the same, and leaves that chunk out, unless the client has asked for it too.
    AskAndHide,
}

impl UsageReport {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    fn is_client(&self) -> bool {
        *self == Self::Client
    }
}

/// Reported usage that a call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageCost {
    /// Input and output together.
    Tokens,
    /// Tokens of the request, with those that a cache had.
    Input,
    /// Tokens of the answer, with those of reasoning.
    Output,
    /// Money, by the `prices` of the config, else as the provider tells it. For `unit: usd`.
    Usd,
}

impl UsageCost {
    /// The unit that is counted.
    pub const fn kind(self) -> UsageKind {
        match self {
            Self::Tokens => UsageKind::Tokens,
            Self::Input => UsageKind::Input,
            Self::Output => UsageKind::Output,
            Self::Usd => UsageKind::Money,
        }
    }
}

impl CostConfig {
    /// Returns `true` if a call costs one unit.
    pub fn is_one(&self) -> bool {
        *self == Self::default()
    }
}

/// Carries unused units over to the next window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpilloverConfig {
    /// Maximum number of units that a window has beyond `limit`.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub max: u64,
}

egret_config::keys! {
    /// The provider's reports that are used.
    #[derive(Eq)]
    pub struct LearnConfig {
        /// Fields to read: `retry-after`, `ratelimit` (`RateLimit`, and the `RateLimit-Remaining` and
        /// `-Reset` of earlier drafts) and `x-ratelimit` (`X-RateLimit-*` and `X-Rate-Limit-*`).
        pub from: Vec<LearnFrom> = vec![LearnFrom::RetryAfter, LearnFrom::RateLimit, LearnFrom::XRateLimit],
        /// Custom header fields of the provider with the same information.
        pub headers: Vec<LearnHeaders>,
        /// Maximum time for which a response may block calls. A longer time is reduced to this.
        pub wait_max: Duration = Duration::from_secs(3_600),
    }
}

/// Header fields with the provider's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum LearnFrom {
    /// `Retry-After` of a 429 or 503 (RFC 9110 §10.2.3).
    #[serde(rename = "retry-after")]
    RetryAfter,
    /// `RateLimit` and the related fields of the IETF drafts.
    #[serde(rename = "ratelimit")]
    RateLimit,
    /// `X-RateLimit-*` and `X-Rate-Limit-*`.
    #[serde(rename = "x-ratelimit")]
    XRateLimit,
}

egret_config::keys! {
    /// Names of custom header fields with the provider's count. At least one of `remaining` and `reset` is
    /// required.
    #[derive(Eq)]
    pub struct LearnHeaders {
        /// Field with the number of units left.
        pub remaining: Option<String>,
        /// Field with the time at which they come back: seconds from now, a date, seconds or milliseconds
        /// since 1970, or `6m0s`.
        pub reset: Option<String>,
    }
}

/// Storage of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// In memory: it restarts from zero with the process.
    #[default]
    Memory,
    /// In a file in `data_dir`, which survives a restart and a crash. For `calendar`, and for `fixed` with
    /// `starts: clock`.
    File,
    /// In Redis or Valkey, shared by all gateways of a cluster.
    Redis,
}

/// Treatment of calls while the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnStoreError {
    /// The gateway uses the units that it holds, at most the limit divided by the number of gateways, for
    /// `cluster.keep_for`. The provider never gets more calls than the limit. For `store: redis`.
    Keep,
    /// Each gateway uses the limit divided by the number of gateways, even if it holds less. The limit holds
    /// if the store fails for all gateways alike. For `store: redis`.
    Share,
    /// They are rejected, so the provider never gets more calls than the limit.
    Closed,
    /// They are counted in memory until the store works again. With `store: redis`, each gateway uses the
    /// whole limit.
    Open,
}
