//! `quotas/*.yaml`: quotas, and limits within them.

use crate::draft::{Flow, SectionKind};
use crate::emit;
use crate::report::{ItemOutcome, Untranslatable};
use crate::source::{Mapping, YamlFile, cut};

use super::filter::flow_filter;
use super::json_path::{CallPath, MessagePart, MessageSide};
use super::remedies::{commented, group_by, verdict};
use super::shared::{Import, OriginalQuota, Strategy};

/// Largest number of units of a quota.
const UNITS_MAX: u64 = 1_000_000_000_000;

/// The field in which Lunar puts its estimate of a model's tokens.
const ESTIMATE_FIELD: &str = "x-lunar-estimated-tokens";

/// The quota that a `Limiter` or `Queue` finds under an id.
#[derive(Debug)]
pub(super) enum QuotaStrategy {
    Counted { name: String, is_concurrency: bool },
    ByHeaders(Box<emit::Throttle>),
}

impl<'a> Import<'a> {
    pub(super) fn quota_files(&mut self, files: &'a [YamlFile]) {
        let mut inner: Vec<Mapping<'a>> = Vec::new();
        for file in files {
            let root = Mapping::of(&file.name, &file.root, self.findings);
            for quota in root.each("quotas") {
                self.quota(quota, None);
            }
            inner.extend(root.each("internal_limits"));
            root.unread();
        }
        // A limit may stand before its parent.
        loop {
            let before = inner.len();
            let (ready, later): (Vec<_>, Vec<_>) = inner.into_iter().partition(|limit| {
                limit.text("parent_id").is_some_and(|parent| self.quotas.known.contains_key(&parent))
            });
            for limit in ready {
                let parent = limit.text("parent_id");
                self.quota(limit, parent);
            }
            inner = later;
            if inner.is_empty() || inner.len() == before {
                break;
            }
        }
        for limit in inner {
            let parent = limit.required_text("parent_id");
            limit.bad(limit.at, format!("no quota is called `{}`", cut(&parent)));
        }
    }

    fn quota(&mut self, fields: Mapping<'a>, parent: Option<String>) {
        let id = fields.required_text("id");
        let what = format!("quota `{}`", cut(&id));
        if self.quotas.known.contains_key(&id) {
            return fields.bad(fields.at, format!("the id `{}` is used twice", cut(&id)));
        }
        let filter = fields.fields("filter").map(|filter| flow_filter(&filter));
        let above = parent.as_ref().and_then(|parent| self.quotas.known.get(parent)).cloned();
        let matches = match filter {
            Some(Ok(filter)) => {
                for target in filter.targets.iter().filter_map(super::url::HostAndPath::authority) {
                    let _ = self.draft.provider(&target);
                }
                filter.matches()
            }
            Some(Err(_)) | None => above.as_ref().map(|above| above.matches.clone()).unwrap_or_default(),
        };
        let Some(strategy) = fields.fields("strategy") else { return fields.missing("strategy") };
        let mut notes = Vec::new();
        let result = strategy_of(&strategy, above.as_ref(), &mut notes);
        strategy.unread();
        match result {
            Err(reason) => fields.done(what, ItemOutcome::Lost(reason.into())),
            Ok(mut strategy) => {
                let name = self.draft.name(SectionKind::Quota, &id);
                if let Strategy::Counted(quota) = &mut strategy {
                    quota.parent = above
                        .as_ref()
                        .filter(|above| matches!(above.strategy, Strategy::Counted(_)))
                        .map(|above| above.name.clone());
                    self.draft.quotas.push((name.clone(), commented(quota.node(), &notes)));
                }
                self.quotas
                    .known
                    .insert(id, OriginalQuota { name, strategy, parent, matches, is_used: false });
                fields.done(what, verdict(&notes));
            }
        }
    }

    /// Finds a quota for a remedy that draws from it.
    pub(super) fn draw(&mut self, id: &str) -> Option<QuotaStrategy> {
        let mut next = id.to_owned();
        while let Some(known) = self.quotas.known.get_mut(&next).filter(|known| !known.is_used) {
            known.is_used = true;
            next = known.parent.clone().unwrap_or_default();
        }
        let known = self.quotas.known.get(id)?;
        Some(match &known.strategy {
            Strategy::Counted(quota) => QuotaStrategy::Counted {
                name: known.name.clone(),
                is_concurrency: quota.kind == "concurrency",
            },
            Strategy::ByHeaders(throttle) => QuotaStrategy::ByHeaders(throttle.clone()),
        })
    }

    /// Counts quotas that no remedy draws from, as Lunar does, and refuses nothing.
    pub(super) fn unused_quotas(&mut self) {
        let unused: Vec<OriginalQuota> =
            self.quotas.known.values().filter(|known| !known.is_used).cloned().collect();
        let parents: Vec<String> = unused.iter().filter_map(|known| known.parent.clone()).collect();
        let parents: Vec<String> = parents
            .iter()
            .filter_map(|id| self.quotas.known.get(id))
            .map(|known| known.name.clone())
            .collect();
        for known in unused {
            if !matches!(known.strategy, Strategy::Counted(_)) || parents.contains(&known.name) {
                continue;
            }
            for matching in known.matches {
                let name = self.draft.name(SectionKind::Flow, &format!("{}-count", known.name));
                let comments =
                    vec!["No flow draws from this quota: it is counted, and nothing is refused.".to_owned()];
                let remedies = vec![emit::counted(&known.name)];
                self.draft.flows.push(Flow { name, comments, matching, remedies, diagnoses: Vec::new() });
            }
        }
    }
}

fn strategy_of(
    strategy: &Mapping<'_>,
    above: Option<&OriginalQuota>,
    notes: &mut Vec<String>,
) -> Result<Strategy, Untranslatable> {
    if let Some(window) = strategy.fields("fixed_window") {
        let quota = fixed_window(&window, notes);
        window.unread();
        return Ok(Strategy::Counted(Box::new(quota)));
    }
    if let Some(window) = strategy.fields("fixed_window_custom_counter") {
        let mut quota = fixed_window(&window, notes);
        quota.cost = Some(cost(&window.required_text("counter_value_path"), notes)?);
        window.unread();
        return Ok(Strategy::Counted(Box::new(quota)));
    }
    if let Some(concurrent) = strategy.fields("concurrent") {
        // A call counts until its response has ended, so that nothing expires and nothing is collected.
        concurrent.ignore(&["request_expiration_sec", "gc_interval_sec"]);
        let max = concurrent.required_whole("max_request_count").min(UNITS_MAX);
        concurrent.unread();
        return Ok(Strategy::Counted(Box::new(emit::Quota::new(max, "concurrency"))));
    }
    if let Some(headers) = strategy.fields("header_based") {
        notes.push("it works: Lunar reads these fields and never refuses a call".to_owned());
        let remaining = headers.text("quota_header").zip(headers.text("reset_header"));
        let header = headers.text("retry_after_header");
        headers.unread();
        let on = if remaining.is_some() && header.is_none() { Vec::new() } else { vec![429, 503] };
        return Ok(Strategy::ByHeaders(Box::new(emit::Throttle {
            on,
            header,
            remaining,
            ..emit::Throttle::default()
        })));
    }
    if let Some(percent) = strategy.number("allocation_percentage") {
        return share_of(percent, above, notes);
    }
    Err(Untranslatable::from("the strategy is none that the importer knows"))
}

/// A share of the parent's limit, as a limit of its own.
fn share_of(
    percent: f64,
    above: Option<&OriginalQuota>,
    notes: &mut Vec<String>,
) -> Result<Strategy, Untranslatable> {
    let Some(Strategy::Counted(parent)) = above.map(|above| &above.strategy) else {
        return Err(Untranslatable::from("a percentage needs a parent that counts"));
    };
    #[expect(clippy::cast_precision_loss, reason = "a limit is far below 2^53")]
    let units = parent.limit as f64 * percent / 100.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let limit = (units.round() as u64).clamp(1, UNITS_MAX);
    notes.push(format!("{percent} % of the parent's {}", parent.limit));
    Ok(Strategy::Counted(Box::new(emit::Quota { limit, spillover: None, ..(**parent).clone() })))
}

fn fixed_window(window: &Mapping<'_>, notes: &mut Vec<String>) -> emit::Quota {
    let max = window.required_whole("max").min(UNITS_MAX);
    let interval = window.required_whole("interval");
    let unit = window.text("interval_unit").unwrap_or_else(|| "second".to_owned());
    let unit_s = match unit.as_str() {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "month" => 30 * 86_400,
        _ => {
            window.bad(window.at, "`interval_unit`: expected `second`, `minute`, `hour`, `day` or `month`");
            1
        }
    };
    let window_s = interval.saturating_mul(unit_s).min(366 * 86_400);
    let mut quota =
        emit::Quota { window_s: Some(window_s), starts_first: true, ..emit::Quota::new(max, "fixed") };
    quota.group_by = window.text("group_by_header").map(|header| group_by(&header));
    if let Some(spillover) = window.fields("spillover") {
        quota.spillover = Some(spillover.required_whole("max").min(UNITS_MAX));
        quota.starts_first = false;
        notes.push("unused units are carried over, which Lunar announces and does not do; windows begin by the clock".to_owned());
        spillover.unread();
    }
    if let Some(renewal) = window.fields("monthly_renewal") {
        quota.renews = Some(monthly(&renewal, notes));
        (quota.kind, quota.window_s, quota.starts_first) = ("calendar", None, false);
        notes.push("it renews on a day of the month, which Lunar announces and does not do".to_owned());
        renewal.unread();
    }
    quota
}

fn monthly(renewal: &Mapping<'_>, notes: &mut Vec<String>) -> emit::Renewal {
    let day = renewal.whole("day").unwrap_or(1).clamp(1, 31);
    let (hour, minute) =
        (renewal.whole("hour").unwrap_or(0).min(23), renewal.whole("minute").unwrap_or(0).min(59));
    let time_zone = match renewal.text("timezone").as_deref() {
        None | Some("UTC") => "UTC".to_owned(),
        Some("Local") => {
            notes.push("the local time zone is not known here: set `time_zone`".to_owned());
            "UTC".to_owned()
        }
        Some(zone) => zone.to_owned(),
    };
    emit::Renewal { day, time: format!("{hour:02}:{minute:02}"), time_zone }
}

/// The cost of a call by a path into it.
fn cost(path: &str, notes: &mut Vec<String>) -> Result<emit::Cost, Untranslatable> {
    let parsed = CallPath::parse(path)
        .ok_or_else(|| format!("`{}` selects several places: write the cost as CEL (`cost`)", cut(path)))?;
    if parsed.part == MessagePart::Header(ESTIMATE_FIELD.to_owned()) {
        notes.push(
            "Egret does not estimate tokens: it counts what the response reports, as `usage.total_tokens`"
                .to_owned(),
        );
        let response = Some("int(response.body.usage.total_tokens)".to_owned());
        return Ok(emit::Cost { request: "0".to_owned(), response });
    }
    let expression = format!("int({})", parsed.cel());
    Ok(match parsed.side {
        MessageSide::Request => emit::Cost { request: expression, response: None },
        MessageSide::Response => emit::Cost { request: "0".to_owned(), response: Some(expression) },
    })
}
