//! The findings of a gateway, in all places that show it.
//!
//! `make findings` also judges how long a finding takes to begin and to end. A busy machine may take
//! longer, so `make test` does not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::browser::browse;
use crate::egret::{Egret, egret};
use crate::process::run;
use crate::provider::{Provider, ok};
use crate::timeline::pass;
use crate::wait::{self, SetAtEnd};

/// Set by `make findings`.
const IS_TIMED: &str = "EGRET_FINDINGS_TIMED";
/// Maximum time from the first failed call until the finding is shown everywhere.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// Maximum time from the end of the trouble until the finding is gone.
const END_MAX: Duration = Duration::from_secs(30);
/// Time between two calls of a fault: several calls between two looks of the gateway at its counters.
const PACE: Duration = Duration::from_millis(300);

/// Prints the time that a finding took to begin or to end, and judges it under `make findings`.
fn note_time(name: &str, what: &str, elapsed: Duration, max: Duration) {
    eprintln!("`{name}` {what} after {:.1} s", elapsed.as_secs_f64());
    let is_timed = std::env::var_os(IS_TIMED).is_some();
    assert!(!is_timed || elapsed <= max, "`{name}` {what} after {elapsed:?}, and not within {max:?}");
}

/// Returns the findings of the API, the worst first.
pub fn findings(egret: &Egret) -> Vec<Value> {
    let list = egret.control_get("/api/v1/findings").json();
    list["findings"].as_array().unwrap().clone()
}

/// Returns the findings as `kind: subject`.
pub fn names(egret: &Egret) -> Vec<String> {
    findings(egret).iter().map(name_of).collect()
}

fn name_of(finding: &Value) -> String {
    let text = |key: &str| finding[key].as_str().unwrap();
    format!("{}: {}", text("kind"), text("subject"))
}

/// Calls `act` until the gateway has the finding `kind: subject`, and the metric and the commands have it
/// too. Returns the finding.
pub fn until_found(egret: &Egret, name: &str, act: impl FnMut()) -> Value {
    let mut watch = Watch::of(egret, None);
    watch.until(&[name], true, act);
    watch.last[name].clone()
}

/// Calls `act` until the gateway no longer has the finding, nor do the metric and the commands.
pub fn until_over(egret: &Egret, name: &str, act: impl FnMut()) {
    Watch::of(egret, None).until(&[name], false, act);
}

/// Calls that are repeated, each in a thread of its own.
pub type Calls<'a> = &'a [&'a (dyn Fn() + Sync)];

/// Lets faults begin and end together. Each is a finding, as `kind: subject`, and a part of it. From `fall`
/// on, the first calls are repeated until the API, the metric, the commands and the page's strip have all of
/// them. From `fix` on, the other calls are repeated until no place has any.
pub fn play(
    egret: &Egret,
    faults: &[(&str, &str)],
    [night, day]: [Calls<'_>; 2],
    fall: impl FnOnce(),
    fix: impl FnOnce(),
) {
    let names: Vec<&str> = faults.iter().map(|(name, _)| *name).collect();
    Strip::beside(egret, |strip| {
        let mut watch = Watch::of(egret, Some(strip));
        fall();
        while_calling(night, || watch.until(&names, true, || {}));
        for (name, part) in faults {
            let found = watch.last[*name].to_string();
            assert!(found.contains(part), "{part}: {found}");
        }
        fix();
        while_calling(day, || watch.until(&names, false, || {}));
    });
}

/// Repeats each call in a thread of its own while `act` runs.
pub fn while_calling(calls: Calls<'_>, act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = SetAtEnd(&is_over);
        for call in calls {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    call();
                    pass(PACE);
                }
            });
        }
        act();
    });
}

/// The places that show findings, the cheapest to look at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Api,
    Metric,
    Page,
    Status,
    Doctor,
}

/// All places that show the findings of a gateway, looked at again and again.
#[derive(Debug)]
struct Watch<'a> {
    egret: &'a Egret,
    strip: Option<&'a Strip>,
    /// The last finding of each name.
    last: BTreeMap<String, Value>,
    /// All summaries of each name so far, without figures.
    summaries: BTreeMap<String, BTreeSet<String>>,
}

/// The places that agree about each name.
type Agreed<'a> = BTreeMap<&'a str, BTreeSet<Place>>;

/// Times after which the API has shown findings, or no longer did. A thread looks at it alone: on a busy
/// machine the commands and the page take longer than the gateway.
#[derive(Debug)]
struct Times<'a> {
    egret: &'a Egret,
    is_shown: bool,
    since: Instant,
    seen: Mutex<BTreeMap<String, Duration>>,
}

impl<'a> Times<'a> {
    fn new(egret: &'a Egret, is_shown: bool) -> Self {
        Self { egret, is_shown, since: Instant::now(), seen: Mutex::default() }
    }

    /// Looks at these names while `act` runs.
    fn beside(&self, names: &[&str], act: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ending = SetAtEnd(&is_over);
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    self.look(names);
                    pass(PACE);
                }
            });
            act();
        });
    }

    fn look(&self, names: &[&str]) {
        let elapsed = self.since.elapsed();
        let in_api: BTreeSet<String> = self::names(self.egret).into_iter().collect();
        let mut seen = self.seen.lock().unwrap();
        for name in names {
            if in_api.contains(*name) == self.is_shown {
                seen.entry((*name).to_owned()).or_insert(elapsed);
            } else if !self.is_shown {
                seen.remove(*name);
            }
        }
    }

    fn of(&self, name: &str) -> Duration {
        self.seen.lock().unwrap().get(name).copied().unwrap_or_else(|| self.since.elapsed())
    }
}

impl<'a> Watch<'a> {
    fn of(egret: &'a Egret, strip: Option<&'a Strip>) -> Self {
        Self { egret, strip, last: BTreeMap::new(), summaries: BTreeMap::new() }
    }

    /// Calls `act` until all places have shown each of these names, or until each was in none of them.
    fn until(&mut self, names: &[&str], is_shown: bool, mut act: impl FnMut()) {
        let (what, max) = if is_shown { ("began", BEGIN_MAX) } else { ("ended", END_MAX) };
        let places = [Place::Api, Place::Metric, Place::Page, Place::Status, Place::Doctor];
        let places: Vec<Place> =
            places.into_iter().filter(|place| *place != Place::Page || self.strip.is_some()).collect();
        let times = Times::new(self.egret, is_shown);
        let mut left: Agreed<'_> = names.iter().map(|name| (*name, BTreeSet::new())).collect();
        let look = || {
            act();
            if is_shown {
                self.look_for(&places, &mut left);
            } else {
                self.look_without(&places, &mut left);
            }
            left.retain(|name, agreed| {
                let is_done = agreed.len() == places.len();
                if is_done {
                    note_time(name, what, times.of(name), max);
                }
                !is_done
            });
            left.clone()
        };
        times.beside(names, || {
            wait::until_value(&format!("each has {what} in {places:?}"), look, BTreeMap::is_empty);
        });
    }

    /// Adds the places that show names. A finding may come and go, as that of an account which cools down now
    /// and then, so a place that has shown it once is not asked again, nor is one before the API has it.
    fn look_for(&mut self, places: &[Place], left: &mut Agreed<'_>) {
        let in_api = self.shown_by(Place::Api);
        for place in places {
            let is_due =
                |(name, agreed): (&&str, &BTreeSet<Place>)| in_api.contains(*name) && !agreed.contains(place);
            if left.iter().any(is_due) {
                let shown = if *place == Place::Api { in_api.clone() } else { self.shown_by(*place) };
                for (_, agreed) in left.iter_mut().filter(|(name, _)| shown.contains(**name)) {
                    agreed.insert(*place);
                }
            }
        }
    }

    /// Notes the places that show names no longer: all of them in the same look. A place is asked only about
    /// names that no cheaper one shows.
    fn look_without(&mut self, places: &[Place], left: &mut Agreed<'_>) {
        left.values_mut().for_each(BTreeSet::clear);
        for (asked, place) in places.iter().enumerate() {
            if left.values().all(|agreed| agreed.len() < asked) {
                return;
            }
            let shown = self.shown_by(*place);
            for (_, agreed) in left.iter_mut().filter(|(name, _)| !shown.contains(**name)) {
                agreed.insert(*place);
            }
        }
    }

    /// Returns the names that a place shows.
    fn shown_by(&mut self, place: Place) -> BTreeSet<String> {
        match place {
            Place::Api => self.read_api(),
            Place::Metric => self.egret.control_get("/metrics").text().lines().filter_map(measured).collect(),
            Place::Page => {
                self.strip.map_or_else(BTreeSet::new, |strip| self.with_summary(|summary| strip.has(summary)))
            }
            Place::Status => self.told_by("status"),
            Place::Doctor => self.told_by("doctor"),
        }
    }

    fn read_api(&mut self) -> BTreeSet<String> {
        let list = findings(self.egret);
        for finding in &list {
            let summary = without_figures(finding["summary"].as_str().unwrap());
            self.summaries.entry(name_of(finding)).or_default().insert(summary);
        }
        let names = list.iter().map(name_of).collect();
        self.last.extend(list.into_iter().map(|finding| (name_of(&finding), finding)));
        names
    }

    /// Returns the names with a summary that `is_shown`.
    fn with_summary(&self, is_shown: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let any = |summaries: &BTreeSet<String>| summaries.iter().any(|summary| is_shown(summary));
        self.summaries.iter().filter(|(_, all)| any(all)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names that a command tells. It then fails, as it must if something is wrong.
    fn told_by(&self, command: &str) -> BTreeSet<String> {
        let mut command = egret([command, "--control", &self.egret.control().to_string()]);
        let output = run(command.current_dir(self.egret.directory().path()));
        let text = without_figures(&String::from_utf8(output.stdout).unwrap());
        let told = self.with_summary(|summary| text.contains(&format!(": {summary}\n    since -")));
        assert!(told.is_empty() || output.status.code() == Some(1), "{text}");
        told
    }
}

/// Returns the name of the finding in a line of metrics.
fn measured(line: &str) -> Option<String> {
    let (kind, rest) = line.strip_prefix("egret_finding{kind=\"")?.split_once("\",severity=\"")?;
    let (_, subject) = rest.strip_suffix("\"} 1")?.split_once("\",subject=\"")?;
    Some(format!("{kind}: {subject}"))
}

/// Returns a text without its digits: figures change from one look to the next.
fn without_figures(text: &str) -> String {
    text.chars().filter(|character| !character.is_ascii_digit()).collect()
}

/// The strip of findings of a page that stays open.
#[derive(Debug, Default)]
struct Strip(Mutex<BTreeSet<String>>);

/// Tells what the strip shows to the server `told`, until that says that it is over.
const PAGE: &str = r#"
await open("overview", "Providers");
const summaries = `[...document.querySelectorAll(".finding summary b")].map((summary) => summary.innerText)`;
for (;;) {
  await page.evaluate(`document.querySelector(".findings button")?.click()`);
  const body = JSON.stringify(await page.evaluate(summaries));
  if ((await (await fetch(told, { method: "POST", body })).text()) === "over") return page.tooWide();
  await page.pass(200);
}
"#;

impl Strip {
    /// Keeps the page open while `act` runs.
    fn beside(egret: &Egret, act: impl FnOnce(&Self)) {
        let (strip, is_over) = (Arc::new(Self::default()), Arc::new(AtomicBool::new(false)));
        let (shown, over) = (Arc::clone(&strip), Arc::clone(&is_over));
        let listener = Provider::with_responses(move |request| {
            let summaries: Vec<String> = serde_json::from_slice(&request.body).unwrap();
            *shown.0.lock().unwrap() = summaries.iter().map(|summary| without_figures(summary)).collect();
            ok(if over.load(SeqCst) { "over" } else { "go on" })
        });
        let script = format!("const told = '{}';{PAGE}", listener.url());
        thread::scope(|scope| {
            let page = scope.spawn(|| browse(egret, &script));
            {
                let _ending = SetAtEnd(&is_over);
                act(&strip);
            }
            assert_eq!(page.join().unwrap(), json!([]), "the page is no wider than its window");
        });
    }

    fn has(&self, summary: &str) -> bool {
        self.0.lock().unwrap().contains(summary)
    }
}
