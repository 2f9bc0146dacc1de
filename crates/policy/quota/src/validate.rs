//! Validation of quotas: contradictions, unknown names, numbers out of range.

use egret_config::{Duration, Problem};
use egret_http1::is_token;
use egret_match::expression::{Scope, Stage};

use super::calendar::Calendar;
use super::config::{
    AdaptiveConfig, GroupBy, OnLeave, OnStoreError, Overshoot, Percent, QuotaConfig, QuotaConfigs, QuotaKind,
    QuotaUnit, RenewalConfig, ShareDefault, StoreKind, UsageCost, UsageReport, WindowStart,
};
use super::expressions::QuotaExpressions;

/// Maximum number of units of a quota: far more than providers sell, and low enough that sums never overflow.
const UNITS_MAX: u64 = 1_000_000_000_000;
/// Maximum number of US dollars: exact in JSON as nano-dollars.
const DOLLARS_MAX: u64 = 9_000_000;
/// Maximum number of US dollars that gateways share, whose store counts to 10¹⁵.
const SHARED_DOLLARS_MAX: u64 = 1_000_000;
/// Minimum length of a window; shorter ones disappear in network jitter.
const WINDOW_MIN: Duration = Duration::from_millis(1);
/// Maximum length of a window; more than a year is a mistake.
pub(super) const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Maximum number of custom header pairs: each response is searched for all of them.
const LEARN_HEADERS_MAX: usize = 16;
/// Minimum length of a window with alerts: nobody could act on more of them.
const ALERT_WINDOW_MIN: Duration = Duration::from_secs(60);
/// Maximum number of percentages with an alert.
const ALERTS_MAX: usize = 10;
/// Tolerances of an adaptive limit: noise exceeds lower ones, and higher ones let calls wait for long.
const TOLERANCES: std::ops::RangeInclusive<f64> = 1.1..=10.0;
/// Maximum number of ancestors. A call briefly holds one lock for each.
const ANCESTORS_MAX: usize = 7;

/// Returns the mistakes in the quotas of a config: contradictions, unknown names, numbers out of range.
/// `parameters` are the path parameters of the flows.
pub fn validate(quotas: &QuotaConfigs, parameters: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, quota) in quotas {
        let mut checks = Checks { path: format!("quotas.{name}"), problems: &mut problems };
        checks.name(name);
        checks.window(quota);
        checks.adaptive(quota);
        checks.cost(quota);
        checks.groups(quota);
        checks.parameter(quota, parameters);
        checks.parent(name, quota, quotas);
        checks.learn(quota);
        checks.alerts(quota);
        checks.store(quota);
        QuotaExpressions::compile(quota, parameters, &format!("quotas.{name}"), &mut problems);
    }
    problems
}

struct Checks<'a> {
    path: String,
    problems: &'a mut Vec<Problem>,
}

impl Checks<'_> {
    fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(format!("{}{key}", self.path), message));
    }

    fn units(&mut self, key: &str, units: u64) {
        if !(1..=UNITS_MAX).contains(&units) {
            self.problem(key, format!("expected a whole number from 1 to {UNITS_MAX}, found `{units}`"));
        }
    }

    /// Checks a name, which appears in metrics and header fields.
    fn name(&mut self, name: &str) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_plain) {
            self.problem("", "a quota's name must consist of 1 to 64 letters, digits, `-` and `_`");
        }
    }

    fn window(&mut self, quota: &QuotaConfig) {
        self.units(".limit", quota.limit);
        self.money(quota);
        let kind = quota.kind;
        let timed = matches!(kind, QuotaKind::Sliding | QuotaKind::Fixed | QuotaKind::TokenBucket);
        match quota.window {
            None if timed => {
                self.problem("", format!("the key `window` is missing: a {kind} quota requires it"));
            }
            Some(_) if !timed => self.problem(".window", format!("a {kind} quota has no `window`")),
            Some(window) if !(WINDOW_MIN..=WINDOW_MAX).contains(&window) => {
                self.problem(".window", format!("expected {WINDOW_MIN} to {WINDOW_MAX}, found `{window}`"));
            }
            _ => {}
        }
        if quota.starts != WindowStart::Clock && kind != QuotaKind::Fixed {
            self.problem(
                ".starts",
                format!("only fixed windows start with the first call; this quota is {kind}"),
            );
        }
        if let Some(burst) = quota.burst {
            self.units(".burst", burst);
            if kind != QuotaKind::TokenBucket {
                self.problem(".burst", format!("only a token-bucket has a `burst`; this quota is {kind}"));
            }
        }
        self.calendar(quota);
        if let Some(spillover) = quota.spillover {
            self.units(".spillover.max", spillover.max);
            if !has_steady_windows(quota) {
                let message =
                    "requires consecutive windows: `kind: calendar`, or `kind: fixed` with `starts: clock`";
                self.problem(".spillover", message);
            }
        }
    }

    fn adaptive(&mut self, quota: &QuotaConfig) {
        let Some(AdaptiveConfig { min, tolerance }) = quota.adaptive else { return };
        if quota.kind != QuotaKind::Concurrency {
            let message = format!("only a concurrency quota adapts to latency; this quota is {}", quota.kind);
            return self.problem(".adaptive", message);
        }
        if !(1..=quota.limit).contains(&min) {
            let message = format!("expected 1 to the `limit`, {}, found `{min}`", quota.limit);
            self.problem(".adaptive.min", message);
        }
        if !TOLERANCES.contains(&tolerance) {
            let message = format!("expected 1.1 to 10, found `{tolerance}`");
            self.problem(".adaptive.tolerance", message);
        }
        if quota.store != StoreKind::Memory {
            self.problem(".store", "each gateway adapts to its own calls: remove `store` or `adaptive`");
        }
        if quota.shares.is_some() {
            self.problem(".shares", "shares are parts of a fixed limit: remove `shares` or `adaptive`");
        }
        if !quota.cost.is_one() {
            self.problem(".cost", "an adaptive limit counts calls: remove `cost` or `adaptive`");
        }
    }

    /// Checks a quota of money, and that other quotas have no keys of one.
    fn money(&mut self, quota: &QuotaConfig) {
        let is_money = quota.unit == QuotaUnit::Usd;
        if is_money != (quota.cost.usage == Some(UsageCost::Usd)) {
            let message = "`unit: usd` and `cost: { usage: usd }` require each other";
            self.problem(if is_money { ".unit" } else { ".cost.usage" }, message);
        }
        if !is_money {
            if quota.overshoot != Overshoot::default() {
                self.problem(".overshoot", "only a quota with `unit: usd` has it");
            }
            return;
        }
        let max = if quota.store == StoreKind::Redis { SHARED_DOLLARS_MAX } else { DOLLARS_MAX };
        let spillover = quota.spillover.map_or(0, |spillover| spillover.max);
        for (key, dollars) in [
            (".limit", quota.limit),
            (".burst", quota.burst.unwrap_or_default()),
            (".spillover.max", spillover),
        ] {
            if dollars > max {
                self.problem(key, format!("a quota of money has at most {max} US dollars here"));
            }
        }
        if quota.cost.request.is_some() {
            self.problem(".cost.request", "Egret computes what it holds before a call, see `overshoot`");
        }
        if quota.learn.is_some() {
            self.problem(".learn", "providers do not report how much money is left: remove `learn`");
        }
    }

    fn cost(&mut self, quota: &QuotaConfig) {
        if quota.cost.usage.is_none() && quota.cost.response.is_none() {
            let message = "nothing is read from the response: add `usage` or `response`";
            if quota.cost.on_leave == OnLeave::Drain {
                self.problem(".cost.on_leave", message);
            }
            if quota.cost.report != UsageReport::Client {
                self.problem(".cost.report", message);
            }
        }
        if quota.cost.usage.is_none() {
            return;
        }
        if quota.cost.response.is_some() {
            self.problem(".cost.usage", "the cost is either `usage` or `response`: remove one of them");
        }
        if quota.kind == QuotaKind::Concurrency {
            self.problem(".cost.usage", "a concurrency quota counts calls: use another `kind` for tokens");
        }
    }

    fn calendar(&mut self, quota: &QuotaConfig) {
        match (quota.kind == QuotaKind::Calendar, quota.period) {
            (true, None) => {
                self.problem("", "the key `period` is missing: a calendar quota requires `day` or `month`");
            }
            (true, Some(period)) => {
                if let Err(error) = Calendar::new(period, &quota.renews) {
                    self.problem(&format!(".renews.{}", error.key()), error.to_string());
                }
            }
            (false, Some(_)) => {
                self.problem(
                    ".period",
                    format!("only a calendar quota has a `period`; this quota is {}", quota.kind),
                );
            }
            (false, None) if quota.renews != RenewalConfig::default() => {
                self.problem(
                    ".renews",
                    format!("only a calendar quota has `renews`; this quota is {}", quota.kind),
                );
            }
            (false, None) => {}
        }
    }

    fn groups(&mut self, quota: &QuotaConfig) {
        if !(1..=1_000_000).contains(&quota.groups_max) {
            self.problem(".groups_max", format!("expected 1 to 1000000, found `{}`", quota.groups_max));
        }
        let Some(shares) = &quota.shares else { return };
        if quota.group_by.is_none() {
            self.problem(".shares", "requires `group_by`, which defines the groups");
        }
        let limit = quota.limit.saturating_mul(quota.unit.scale());
        let whole = quota.unit.words(limit);
        for (group, percent) in &shares.groups {
            if percent.of(limit) == 0 {
                let message = format!("{percent} of {whole} is less than one unit");
                self.problem(&format!(".shares.groups.{group}"), message);
            }
        }
        let Some(rest) = shares.rest() else {
            return self.problem(".shares.groups", "the shares exceed 100% in total");
        };
        match shares.default {
            ShareDefault::Block => {}
            ShareDefault::Share(share) if share > rest => {
                self.problem(
                    ".shares.default",
                    format!("`{share}` exceeds the {rest} that the listed groups leave"),
                );
            }
            ShareDefault::Share(share) if share.of(limit) == 0 => {
                self.problem(".shares.default", format!("{share} of {whole} is less than one unit"));
            }
            _ if shares.rest_of(limit) == 0 => {
                self.problem(
                    ".shares.default",
                    "the listed groups leave nothing for others: set `default: block`",
                );
            }
            _ => {}
        }
    }

    fn parameter(&mut self, quota: &QuotaConfig, parameters: &[&str]) {
        let Some(GroupBy::Param(name)) = &quota.group_by else { return };
        let missing = Scope { stage: Stage::Request, parameters }.missing_parameter(name);
        self.problems.extend(missing.map(|missing| missing.at(format!("{}.group_by", self.path))));
    }

    fn parent(&mut self, name: &str, quota: &QuotaConfig, quotas: &QuotaConfigs) {
        let Some(parent) = &quota.parent else { return };
        if parent == name {
            return self.problem(".parent", "a quota cannot be its own parent");
        }
        let Some(mut ancestor) = quotas.get(parent) else {
            let others = quotas.keys().map(String::as_str).filter(|other| *other != name);
            let problem =
                Problem::new(format!("{}.parent", self.path), format!("there is no quota `{parent}`"));
            return self.problems.push(problem.suggest(parent, others));
        };
        if ancestor.unit != quota.unit {
            let message = "a call charges both quotas alike, so both must have the same `unit`";
            self.problem(".parent", message);
        }
        let mut line = vec![name, parent.as_str()];
        while let Some(next) = ancestor.parent.as_ref().filter(|_| line.len() <= ANCESTORS_MAX + 1) {
            if line.contains(&next.as_str()) {
                // Every quota in the cycle would report it; only the first one by name does.
                if next == name && line.iter().min() == Some(&name) {
                    self.problem(".parent", format!("forms a cycle: {} → {name}", line.join(" → ")));
                }
                return;
            }
            let Some(found) = quotas.get(next) else { return };
            line.push(next);
            ancestor = found;
        }
        if line.len() > ANCESTORS_MAX + 1 {
            self.problem(".parent", format!("at most {ANCESTORS_MAX} ancestors are allowed"));
        }
    }

    fn learn(&mut self, quota: &QuotaConfig) {
        let Some(learn) = &quota.learn else { return };
        if quota.kind == QuotaKind::Concurrency {
            self.problem(
                ".learn",
                "not possible for a concurrency quota: providers do not report their calls in flight",
            );
        }
        if learn.from.is_empty() && learn.headers.is_empty() {
            self.problem(".learn", "names no fields: set `from` or `headers`");
        }
        if learn.headers.len() > LEARN_HEADERS_MAX {
            self.problem(".learn.headers", format!("at most {LEARN_HEADERS_MAX} entries are allowed"));
        }
        if learn.wait_max.is_zero() || learn.wait_max > WINDOW_MAX {
            self.problem(
                ".learn.wait_max",
                format!("expected 1ms to {WINDOW_MAX}, found `{}`", learn.wait_max),
            );
        }
        for (index, headers) in learn.headers.iter().enumerate() {
            let path = format!(".learn.headers[{index}]");
            if headers.remaining.is_none() && headers.reset.is_none() {
                self.problem(&path, "set at least one of `remaining` and `reset`");
            }
            for (key, name) in [("remaining", &headers.remaining), ("reset", &headers.reset)] {
                if name.as_ref().is_some_and(|name| !is_token(name.as_bytes())) {
                    self.problem(&format!("{path}.{key}"), "is not a valid header field name");
                }
            }
        }
    }

    fn alerts(&mut self, quota: &QuotaConfig) {
        if quota.alerts.is_empty() {
            return;
        }
        let is_short = quota.window.is_some_and(|window| window < ALERT_WINDOW_MIN);
        if !matches!(quota.kind, QuotaKind::Calendar | QuotaKind::Fixed) {
            let message = format!(
                "an alert is raised once per window: use `kind: calendar`, or `kind: fixed`; this quota is {}",
                quota.kind
            );
            self.problem(".alerts", message);
        } else if is_short {
            let message = format!("an alert needs a `window` of at least {ALERT_WINDOW_MIN}");
            self.problem(".alerts", message);
        }
        if quota.alerts.len() > ALERTS_MAX {
            self.problem(".alerts", format!("at most {ALERTS_MAX} percentages are allowed"));
        }
        let mut sorted = quota.alerts.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            self.problem(".alerts", "each percentage is allowed once");
        }
        if sorted.contains(&Percent::default()) {
            self.problem(".alerts", "an alert at `0%` would tell nothing");
        }
    }

    fn store(&mut self, quota: &QuotaConfig) {
        if quota.store == StoreKind::File && !has_steady_windows(quota) {
            let message = "a file requires windows that begin by the clock: `kind: calendar`, or `kind: fixed` \
                           with `starts: clock`";
            self.problem(".store", message);
        }
        let is_shared = quota.store == StoreKind::Redis;
        if let Some(policy @ (OnStoreError::Keep | OnStoreError::Share)) = quota.on_store_error
            && !is_shared
        {
            let policy = if policy == OnStoreError::Keep { "keep" } else { "share" };
            let message = format!("`{policy}` is for `store: redis`, whose units several gateways hold");
            self.problem(".on_store_error", message);
        }
        if is_shared && quota.starts == WindowStart::First {
            let message = "gateways that share a quota cannot know which call is the first: use `kind: \
                           sliding` with the same window, which never exceeds it";
            self.problem(".starts", message);
        }
        if is_shared && quota.spillover.is_some() {
            self.problem(".spillover", "gateways that share a quota carry no units over: remove `spillover`");
        }
    }
}

/// Returns `true` for windows whose beginning does not depend on the calls.
fn has_steady_windows(quota: &QuotaConfig) -> bool {
    match quota.kind {
        QuotaKind::Calendar => true,
        QuotaKind::Fixed => quota.starts == WindowStart::Clock,
        QuotaKind::Sliding | QuotaKind::TokenBucket | QuotaKind::Concurrency => false,
    }
}
