//! Remedies of `policies.yaml`.

use std::collections::BTreeMap;

use crate::draft::{Match, SectionKind};
use crate::emit;
use crate::report::{ItemOutcome, Untranslatable};
use crate::source::{Mapping, cut};
use crate::yaml::{Node, map, plain};

use super::json_path::quoted;
use super::shared::Import;
use super::url::HostAndPath;

/// Seconds in 31 days: the longest time for which unused units pile up before they are reset.
const MONTH_S: u64 = 31 * 86_400;

/// Largest number of units of a quota.
const UNITS_MAX: u64 = 1_000_000_000_000;

/// Largest number of calls that a retry makes.
const ATTEMPTS_MAX: u64 = 20;

/// The calls that a remedy applies to.
#[derive(Debug)]
pub(super) struct Scope {
    pub name: String,
    /// The URL of the endpoint; `None` for all calls.
    pub target: Option<HostAndPath>,
    pub matching: Match,
}

/// A remedy of Egret.
#[derive(Debug)]
pub(super) struct Placed {
    /// Remedies with a lower rank are further outside.
    pub rank: u8,
    pub node: Node,
    /// Header fields that the flow must also match.
    pub header: BTreeMap<String, String>,
}

impl Placed {
    fn inner(node: Node) -> Self {
        Self { rank: 3, node, header: BTreeMap::new() }
    }
}

/// Remedies, and what became of the original.
type PlacedOutcome = (Vec<Placed>, ItemOutcome);

/// The verdict for these notes: no difference if there is none.
pub(super) fn verdict(notes: &[String]) -> ItemOutcome {
    if notes.is_empty() { ItemOutcome::Translated } else { ItemOutcome::Different(notes.join("; ")) }
}

impl<'a> Import<'a> {
    pub(super) fn remedy_of_kind(
        &mut self,
        name: &str,
        kind: &str,
        config: &Mapping<'a>,
        scope: &Scope,
    ) -> PlacedOutcome {
        match kind {
            "caching" => caching(config, scope),
            "response_based_throttling" => response_based_throttling(config, scope),
            "strategy_based_throttling" => self.strategy_based_throttling(name, config),
            "concurrency_based_throttling" => concurrency(config, scope),
            "strategy_based_queue" => self.strategy_based_queue(name, config),
            "account_orchestration" => {
                let names = config.texts("round_robin");
                self.credentials(&names, config, scope)
            }
            "authentication" => {
                let name = config.required_text("account");
                self.credentials(&[name], config, scope)
            }
            "fixed_response" => fixed_response(config),
            "retry" => retry(config, scope),
            other => {
                let reason = format!("Lunar has no remedy `{}` that the importer knows", cut(other));
                (Vec::new(), ItemOutcome::Lost(reason))
            }
        }
    }

    fn strategy_based_throttling(&mut self, name: &str, config: &Mapping<'_>) -> PlacedOutcome {
        let mut notes = Vec::new();
        let limit = config.required_whole("allowed_request_count").min(UNITS_MAX);
        let window = config.required_whole("window_size_in_seconds");
        let mut quota = emit::Quota { window_s: Some(window), ..emit::Quota::new(limit, "fixed") };
        if let Some(spillover) = config.fields("spillover_config") {
            spillover.ignore(&["renew_on_day"]);
            if spillover.flag("enabled").unwrap_or(false) {
                let max = limit.saturating_mul(MONTH_S.div_ceil(window)).clamp(1, UNITS_MAX);
                quota.spillover = Some(max);
                notes.push(format!(
                    "Lunar carries unused units over without a bound until a day of the month; Egret has a bound and no \
                     such day: `max: {max}` is what 31 days can save, and `{limit}` that of one window"
                ));
            }
            spillover.unread();
        }
        if let Some(groups) = config.fields("group_quota_allocation") {
            match shares(&groups, limit, &mut notes) {
                Ok((by, shares)) => (quota.group_by, quota.shares) = (Some(by), Some(shares)),
                Err(reason) => return (Vec::new(), ItemOutcome::Lost(reason.into())),
            }
            groups.unread();
        }
        let status = config.whole("response_status_code");
        let node = commented(quota.node(), &notes);
        let quota = self.draft.name(SectionKind::Quota, name);
        self.draft.quotas.push((quota.clone(), node));
        (refusing(emit::limit, &quota, status, "Too many requests", &["quota-exceeded"]), verdict(&notes))
    }

    fn strategy_based_queue(&mut self, name: &str, config: &Mapping<'_>) -> PlacedOutcome {
        let mut notes = Vec::new();
        let limit = config.required_whole("allowed_request_count").min(UNITS_MAX);
        let window = config.required_whole("window_size_in_seconds");
        let quota = emit::Quota { window_s: Some(window), ..emit::Quota::new(limit, "fixed") };
        let name = self.draft.name(SectionKind::Quota, name);
        self.draft.quotas.push((name.clone(), quota.node()));
        let mut queue = emit::QueueRemedy {
            quota: name,
            size: config.whole("queue_size"),
            max_wait_s: config.number("ttl_seconds").unwrap_or(30.0),
            ..emit::QueueRemedy::default()
        };
        if let Some(priority) = config.fields("prioritization") {
            let header =
                priority.fields("group_by").map(|by| by.required_text("header_name")).unwrap_or_default();
            let mut groups = Vec::new();
            if let Some(listed) = priority.fields("groups") {
                for entry in listed.all() {
                    let fields = Mapping::of(listed.file, entry.node, self.findings);
                    groups.push((entry.key.to_owned(), fields.whole("priority").unwrap_or(0)));
                    fields.unread();
                }
            }
            queue.priority = classes(&header, groups, queue.max_wait_s, &mut notes);
            notes.push("callers without a listed group come last; in Lunar they come first".to_owned());
            priority.unread();
        }
        let status = config.whole("response_status_code");
        let build = |_: &str, status| emit::QueueRemedy { status, ..queue.clone() }.node();
        let reasons = ["queue-full", "queue-timeout", "quota-exceeded"];
        (refusing(build, &queue.quota, status, "Too many requests", &reasons), verdict(&notes))
    }

    fn credentials(&mut self, names: &[String], config: &Mapping<'_>, scope: &Scope) -> PlacedOutcome {
        let authority = scope.target.as_ref().and_then(HostAndPath::authority);
        let provider = authority.and_then(|host| self.draft.provider(&host));
        if scope.target.is_some() && provider.is_none() {
            let reason = "a credential belongs to a provider, and this URL names no single host: define the provider, \
                          and use `authenticate` in a flow for it";
            return (Vec::new(), ItemOutcome::Lost(reason.to_owned()));
        }
        let providers: Option<Vec<String>> = provider.map(|name| vec![name]);
        let (nodes, mut notes) = self.account_remedies(config, names, providers.as_deref());
        if names.len() > 1 {
            notes.push(
                "an account that the provider refuses with 401, 403 or 429 rests for a while, and the call is made with \
                 another one"
                    .to_owned(),
            );
        }
        notes.push("the credential is sent only to the provider, and only over TLS".to_owned());
        let placed = nodes.into_iter().map(|node| Placed { rank: 2, node, header: BTreeMap::new() });
        (placed.collect(), verdict(&notes))
    }
}

/// A remedy that refuses with this status; Egret's own refusals have 400 to 599.
pub(super) fn refusing(
    build: impl Fn(&str, Option<u64>) -> Node,
    quota: &str,
    status: Option<u64>,
    body: &str,
    reasons: &[&str],
) -> Vec<Placed> {
    match status {
        Some(status) if !(400..=599).contains(&status) => {
            let headers = BTreeMap::from([("content-type".to_owned(), "text/plain".to_owned())]);
            let response = emit::Response { status: status.clamp(200, 599), headers, body: body.to_owned() };
            vec![Placed::inner(emit::on_refused(reasons, &response)), Placed::inner(build(quota, None))]
        }
        status => vec![Placed::inner(build(quota, status))],
    }
}

/// The groups' shares of a limit, and what they are grouped by.
fn shares(
    groups: &Mapping<'_>,
    limit: u64,
    notes: &mut Vec<String>,
) -> Result<(String, Node), Untranslatable> {
    let header = groups.fields("group_by").map(|by| by.required_text("header_name")).unwrap_or_default();
    let mut listed = Vec::new();
    let mut sum = 0.0;
    for group in groups.each("groups") {
        let name = group.required_text("group_header_value");
        let percent = group.number("allocation_percentage").unwrap_or(0.0);
        sum += percent;
        #[expect(clippy::cast_precision_loss, reason = "a limit is far below 2^53")]
        let units = limit as f64 * percent / 100.0;
        if units < 1.0 {
            return Err(Untranslatable::from(format!(
                "{} gets {percent} % of {limit}, which is less than one unit",
                cut(&name)
            )));
        }
        if units.fract() > 1e-6 {
            notes.push(format!("{percent} % of {limit} is rounded down; Lunar rounds up"));
        }
        listed.push((name, plain(share(percent))));
        group.unread();
    }
    if sum > 100.0 {
        return Err(Untranslatable::from(format!(
            "the shares add up to {sum} %: reduce them to 100 % in all"
        )));
    }
    let mut entries = vec![("groups", map(listed))];
    let default = groups.text("default").unwrap_or_default();
    let percent = groups.number("default_allocation_percentage");
    match default.as_str() {
        "block" => entries.push(("default", plain("block"))),
        "use_default_allocation" => {
            entries.push(("default", plain(share(percent.unwrap_or(0.0)))));
            notes.push("the groups that are not listed share this percentage".to_owned());
        }
        _ => notes.push("the groups that are not listed share what the others leave".to_owned()),
    }
    Ok((group_by(&header), map(entries)))
}

/// A percentage with at most two decimals.
fn share(percent: f64) -> String {
    let text = format!("{percent:.2}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The grouping by a header field; Lunar's field for the consumer is Egret's notion of one.
pub(super) fn group_by(header: &str) -> String {
    if header.eq_ignore_ascii_case("x-lunar-consumer-tag") {
        "consumer".to_owned()
    } else {
        format!("header:{}", header.to_ascii_lowercase())
    }
}

/// The source of a priority class and the classes, from groups with a number: the lowest goes first.
pub(super) fn classes(
    header: &str,
    mut groups: Vec<(String, u64)>,
    max_wait_s: f64,
    notes: &mut Vec<String>,
) -> Option<(String, Vec<String>)> {
    groups.sort_by_key(|(_, priority)| *priority);
    if groups.is_empty() || header.is_empty() {
        return None;
    }
    if max_wait_s > 5.0 {
        notes.push("who waits for 5 s overtakes newcomers of the next higher class (`ageing`)".to_owned());
    }
    let value = match group_by(header).as_str() {
        "consumer" => "request.consumer".to_owned(),
        _ => format!("request.headers[{}]", quoted(&header.to_ascii_lowercase())),
    };
    // Groups of equal priority are one class, which is called as the first of them.
    let mut names: Vec<String> = Vec::new();
    let mut merged = Vec::new();
    for (number, (group, priority)) in groups.iter().enumerate() {
        match names.last().filter(|_| number > 0 && groups[number - 1].1 == *priority) {
            Some(class) => merged.push((group, class.clone())),
            None => names.push(group.clone()),
        }
    }
    let is_header = merged.is_empty() && value != "request.consumer";
    let by = if is_header {
        group_by(header)
    } else {
        let choice = merged.iter().rev().fold(value.clone(), |rest, (group, class)| {
            format!("{value} == {} ? {} : {rest}", quoted(group), quoted(class))
        });
        format!("cel:{choice}")
    };
    Some((by, names))
}

fn concurrency(config: &Mapping<'_>, scope: &Scope) -> PlacedOutcome {
    let max = config.required_whole("max_concurrent_requests");
    let status = config.whole("response_status_code");
    // Lunar counts each endpoint by itself.
    let by = scope.target.is_none().then_some("cel:request.method + ' ' + request.host + request.path");
    let build = |_: &str, status| emit::concurrency(max, status, by);
    (refusing(build, "", status, "Too many requests", &["too-many-in-flight"]), ItemOutcome::Translated)
}

fn caching(config: &Mapping<'_>, scope: &Scope) -> PlacedOutcome {
    let mut notes = vec![
        "the query belongs to the key, and each credential has its own entries (`key: { query: ignored }` and \
         `shared: true` are Lunar's way)"
            .to_owned(),
    ];
    for path in config.each("request_payload_paths") {
        let kind = path.text("payload_type").unwrap_or_default();
        path.ignore(&["path"]);
        if kind != "path_params" {
            notes.push(format!("`{}` is not part of the key", cut(&kind)));
        }
        path.unread();
    }
    let method = scope.matching.method.first().map_or("GET", String::as_str);
    if !matches!(method, "GET" | "HEAD" | "POST") {
        let reason = format!("responses to {} are not stored: they belong to a change", cut(method));
        return (Vec::new(), ItemOutcome::Lost(reason));
    }
    let cache = emit::CacheRemedy {
        statuses: vec!["200-599".to_owned()],
        ttl_s: config.number("ttl_seconds").unwrap_or(0.0),
        post: method == "POST",
        max_entry: config.whole("max_record_size_bytes"),
        memory: config.whole("max_cache_size_megabytes").map(|size| size.saturating_mul(1 << 20)),
        ..emit::CacheRemedy::default()
    };
    (vec![Placed::inner(commented(cache.node(), &notes))], verdict(&notes))
}

fn response_based_throttling(config: &Mapping<'_>, scope: &Scope) -> PlacedOutcome {
    config.ignore(&["quota_group", "retry_after_type"]);
    let on: Vec<u64> =
        config.texts("relevant_statuses").iter().filter_map(|text| text.parse().ok()).collect();
    let on: Vec<u64> = on.into_iter().filter(|status| (200..=599).contains(status)).collect();
    if on.is_empty() {
        return (
            Vec::new(),
            ItemOutcome::Lost("`relevant_statuses` lists no status from 200 to 599".to_owned()),
        );
    }
    let status = on.first().copied().filter(|status| on.len() == 1 && (400..=599).contains(status));
    let throttle = emit::Throttle {
        header: config.text("retry_after_header"),
        status,
        group_by: scope.target.is_none().then_some("cel:request.method + ' ' + request.host + request.path"),
        on,
        remaining: None,
    };
    let note = "until the time is over, calls are refused with Egret's own body, not with the provider's";
    (vec![Placed { rank: 1, node: throttle.node(), header: BTreeMap::new() }], verdict(&[note.to_owned()]))
}

fn fixed_response(config: &Mapping<'_>) -> PlacedOutcome {
    let status = config.required_whole("status_code");
    if !(200..=599).contains(&status) {
        let reason = format!("{status} is not the status of a final response, from 200 to 599");
        return (Vec::new(), ItemOutcome::Lost(reason));
    }
    let headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
    let response = emit::Response { status, headers, body: "{\"message\":\"GO Lunar\"}".to_owned() };
    let header = BTreeMap::from([("early-response".to_owned(), "true".to_owned())]);
    let note = "a quota outside of it gets its unit back, because no call was made";
    (vec![Placed { rank: 3, node: response.fixed(), header }], verdict(&[note.to_owned()]))
}

fn retry(config: &Mapping<'_>, scope: &Scope) -> PlacedOutcome {
    let mut notes = vec!["Egret repeats the call itself; Lunar only told the client when to".to_owned()];
    let attempts = config.required_whole("attempts") + 1;
    let base = config.number("initial_cooldown_seconds").unwrap_or(0.0);
    let factor = config.number("cooldown_multiplier").unwrap_or(1.0).clamp(1.0, 10.0);
    let conditions = config.fields("conditions");
    let mut on = Vec::new();
    for range in conditions.iter().flat_map(|conditions| conditions.each("status_code")) {
        let (from, to) = (range.whole("from").unwrap_or(200), range.whole("to").unwrap_or(599));
        if from.max(200) <= to.min(599) {
            on.push(emit::statuses(from.max(200), to.min(599)));
        }
        range.unread();
    }
    if on.is_empty() {
        return (Vec::new(), ItemOutcome::Lost("`conditions` lists no status from 200 to 599".to_owned()));
    }
    notes.extend(unsafe_method(&scope.matching.method));
    let node = repeated(attempts, on, base, factor, None, &mut notes);
    (vec![Placed { rank: 0, node, header: BTreeMap::new() }], verdict(&notes))
}

/// The note about methods whose calls are not repeated.
pub(super) fn unsafe_method(methods: &[String]) -> Option<String> {
    let unsafe_ones: Vec<&str> =
        methods.iter().map(String::as_str).filter(|method| matches!(*method, "POST" | "PATCH")).collect();
    (!unsafe_ones.is_empty() || methods.is_empty()).then(|| {
        let names = if unsafe_ones.is_empty() { "POST, PATCH".to_owned() } else { unsafe_ones.join(", ") };
        format!(
            "{names} is repeated only with an `Idempotency-Key`; `methods: [{names}]` repeats it always, if the provider \
             can take it twice"
        )
    })
}

/// A retry within Egret's bounds.
pub(super) fn repeated(
    attempts: u64,
    on: Vec<String>,
    base_s: f64,
    factor: f64,
    max_s: Option<f64>,
    notes: &mut Vec<String>,
) -> Node {
    if attempts > ATTEMPTS_MAX {
        notes.push(format!("at most {ATTEMPTS_MAX} calls are made"));
    }
    let attempts = attempts.clamp(2, ATTEMPTS_MAX);
    let exponent = i32::try_from(attempts.saturating_sub(2)).unwrap_or(i32::MAX);
    let grown = base_s * factor.powi(exponent);
    let max_s = max_s.unwrap_or(f64::INFINITY).min(grown).clamp(base_s, 86_400.0_f64.max(base_s));
    notes
        .push("at most one call in five is repeated, and three per second in any case (`budget`)".to_owned());
    emit::Retry { attempts, on, base_s, factor, max_s }.node()
}

/// Quoted text for a path of a record: `request.headers.NAME`.
pub(super) fn name_list(names: &[String], prefix: &str) -> Vec<String> {
    names.iter().map(|name| format!("{prefix}{name}")).collect()
}

/// Adds the notes of a verdict as comments, each a sentence.
pub(super) fn commented(mut node: Node, notes: &[String]) -> Node {
    node.comments.extend(notes.iter().map(|note| {
        let mut characters = note.trim_end_matches('.').chars();
        let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
        format!("{first}{}.", characters.as_str())
    }));
    node
}
