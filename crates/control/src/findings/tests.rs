//! The findings of made-up counters, with a clock of the test.

use egret_export::ExporterSnapshot;
use egret_flow::{FlowStats, RemedyStats};
use egret_observe::stats::{EndpointSnapshot, ErrorCount, ExchangeCount, ProviderSnapshot, StatsSnapshot};
use egret_remedy::{Decision, DecisionSums, Mode, RemedyState};

use super::*;
use crate::source::{ConfigRefusal, FetchFailure, FetchStatus};

const START: Timestamp = Timestamp::from_secs(1_000);

/// Counters that grow, and the findings of their samples.
#[derive(Default)]
struct Bench {
    findings: Findings,
    observed: Observed,
    samples: u32,
    usual: Option<UsualWait>,
}

impl Bench {
    fn new() -> Self {
        let shop = ProviderSnapshot { name: "shop".to_owned(), ..ProviderSnapshot::default() };
        let stats = StatsSnapshot { providers: vec![shop], uptime_s: 60, ..StatsSnapshot::default() };
        let bench = Self { observed: Observed { stats, ..Observed::default() }, ..Self::default() };
        bench.findings.add(START, &bench.observed, &|_| None);
        bench
    }

    /// Counts calls that were answered after 10 ms each.
    fn succeed(&mut self, count: u64) {
        self.answer(count, 10_000);
    }

    fn answer(&mut self, count: u64, wait_us: u64) {
        let shop = &mut self.observed.stats.providers[0];
        shop.answered_calls += count;
        shop.waited_us += count * wait_us;
        shop.exchanges.push(ExchangeCount { method: "GET", status: "2xx", count });
    }

    /// Counts calls that failed so.
    fn fail(&mut self, name: &'static str, count: u64) {
        if name.as_bytes()[0].is_ascii_digit() {
            self.succeed(count);
        }
        add(&mut self.observed.stats.providers[0].call_errors, name, count);
    }

    /// Counts calls that Egret refused.
    fn refuse(&mut self, name: &'static str, count: u64) {
        let shop = &mut self.observed.stats.providers[0];
        shop.exchanges.push(ExchangeCount { method: "GET", status: "4xx", count });
        add(&mut shop.errors, name, count);
    }

    /// Takes a sample, and returns the kinds and subjects of the findings.
    fn sample(&mut self) -> Vec<(FindingKind, String)> {
        self.samples += 1;
        let now = START + self.samples * SAMPLE_INTERVAL;
        let usual = self.usual;
        self.findings.add(now, &self.observed, &|_| usual);
        let findings = self.findings.view().findings;
        findings.into_iter().map(|finding| (finding.kind, finding.subject)).collect()
    }

    fn the_only(&self) -> Finding {
        let findings = self.findings.view().findings;
        let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
        finding.clone()
    }
}

fn add(errors: &mut Vec<ErrorCount>, name: &'static str, count: u64) {
    match errors.iter_mut().find(|error| error.name == name) {
        Some(error) => error.count += count,
        None => errors.push(ErrorCount { name, count, cause: format!("the last {name}") }),
    }
}

fn failing() -> Vec<(FindingKind, String)> {
    vec![(FindingKind::ProviderFailing, "shop".to_owned())]
}

#[test]
fn healthy_traffic_has_no_finding() {
    let mut bench = Bench::new();
    for _ in 0..1_800 {
        bench.succeed(200);
        bench.fail("5xx", 1);
        bench.fail("401", 1);
        bench.fail("429", 1);
        assert_eq!(bench.sample(), []);
    }
}

#[test]
fn a_failing_provider_is_named_with_its_cause_until_calls_succeed() {
    let mut bench = Bench::new();
    bench.succeed(10);
    assert_eq!(bench.sample(), []);
    bench.fail("connect-failed", 4);
    bench.fail("5xx", 1);
    assert_eq!(bench.sample(), failing());
    let finding = bench.the_only();
    assert_eq!(finding.since_us, (START + 2 * SAMPLE_INTERVAL).as_micros());
    assert_eq!(finding.severity, Severity::Warning, "most calls of the window succeed");
    assert_eq!(finding.summary, "calls to shop fail: it refuses connections or cannot be reached");
    assert_eq!(
        finding.evidence,
        "5 of 15 calls in the last 10 s: 4 × connect-failed, 1 × 5xx; the last one: the last connect-failed"
    );
    for _ in 0..WINDOW_SAMPLES - 1 {
        bench.succeed(5);
        assert_eq!(bench.sample(), failing(), "the window still has the failures");
    }
    bench.succeed(5);
    assert_eq!(bench.sample(), []);
    let events: Vec<EventKind> = bench.findings.view().events.iter().map(|event| event.what).collect();
    assert_eq!(events, [EventKind::Ended, EventKind::Began, EventKind::Started]);
}

#[test]
fn a_provider_without_further_calls_stays_failing_for_five_minutes() {
    let mut bench = Bench::new();
    bench.fail("dns-failed", 3);
    assert_eq!(bench.sample(), failing());
    let silence = u32::try_from(SILENCE_MAX.as_secs() / SAMPLE_INTERVAL.as_secs()).unwrap();
    // While the window has the failures, the rules tell it.
    let samples = silence + u32::try_from(WINDOW_SAMPLES).unwrap() - 2;
    for sample in 0..samples {
        assert_eq!(bench.sample(), failing(), "sample {sample} of {samples}");
    }
    assert_eq!(bench.sample(), []);
}

#[test]
fn two_failures_of_few_calls_are_a_finding() {
    let mut bench = Bench::new();
    bench.fail("first-byte-timeout", 1);
    assert_eq!(bench.sample(), []);
    (0..10).for_each(|_| assert_eq!(bench.sample(), []));
    bench.fail("first-byte-timeout", 1);
    assert_eq!(bench.sample(), failing());
    assert!(bench.the_only().evidence.starts_with("2 of 2 calls in the last minute"));
    bench.succeed(1);
    for _ in 0..WINDOW_SAMPLES {
        bench.sample();
    }
    bench.succeed(3);
    assert_eq!(bench.sample(), [], "the last calls succeed");
}

#[test]
fn throttling_and_rejected_credentials_are_not_failures() {
    let mut bench = Bench::new();
    bench.fail("429", 5);
    assert_eq!(bench.sample(), [(FindingKind::ProviderThrottling, "shop".to_owned())]);
    let mut bench = Bench::new();
    bench.fail("401", 5);
    assert_eq!(bench.sample(), [(FindingKind::CredentialsRejected, "shop".to_owned())]);
}

#[test]
fn a_provider_is_slow_against_its_own_last_hour() {
    let usual = UsualWait { hour_us: 40_000, yesterday_us: None };
    let mut bench = Bench { usual: Some(usual), ..Bench::new() };
    bench.answer(20, 100_000);
    assert_eq!(bench.sample(), [], "two and a half times");
    for _ in 0..WINDOW_SAMPLES {
        bench.answer(4, 400_000);
        bench.sample();
    }
    let finding = bench.the_only();
    assert_eq!(finding.kind, FindingKind::ProviderSlow);
    assert_eq!(
        finding.evidence,
        "its responses begin after 400 ms on average in the last 10 s, after 40 ms in the hour before"
    );
    bench.usual = Some(UsualWait { yesterday_us: Some(45_000), ..usual });
    bench.sample();
    let evidence = bench.the_only().evidence;
    assert!(evidence.ends_with("after 40 ms in the hour before, and after 45 ms at this time yesterday"));
}

#[test]
fn refused_calls_are_named_by_their_error() {
    let mut bench = Bench::new();
    bench.succeed(90);
    bench.refuse("quota-exceeded", 5);
    bench.refuse("connect-failed", 5);
    assert_eq!(bench.sample(), [(FindingKind::CallsRefused, "shop: quota-exceeded".to_owned())]);
    let finding = bench.the_only();
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.summary, "Egret refuses calls to shop: a quota is used up");
}

/// The counters of a flow whose only remedy could not decide so many times.
fn undecided(flow: &str, count: u64) -> FlowStats {
    let mut decisions = DecisionSums::default();
    decisions.counts[Decision::Fail as usize] = count;
    let remedy = RemedyStats {
        remedy: "script".to_owned(),
        description: String::new(),
        mode: Mode::Enforce,
        decisions,
        cache: None,
        script: None,
        state: RemedyState::default(),
    };
    FlowStats { name: flow.to_owned(), match_failures: 0, remedies: vec![remedy], diagnoses: Vec::new() }
}

#[test]
fn newer_remedies_and_exporters_are_found_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.sample(), [], "neither is there yet");
    bench.observed.flows.flows = vec![undecided("added", 3)];
    let dropped = BTreeMap::from([("full", 2)]);
    bench.observed.exporters =
        vec![ExporterSnapshot { name: "logs".to_owned(), up: true, dropped, ..ExporterSnapshot::default() }];
    let found = [(FindingKind::ExporterFailing, "logs"), (FindingKind::RemedyFailing, "added / script")];
    assert_eq!(bench.sample(), found.map(|(kind, subject)| (kind, subject.to_owned())));
    let findings = bench.findings.view().findings;
    assert_eq!(findings[0].evidence, "entries lost in the last 10 s: 2");
    assert!(findings[1].evidence.starts_with("3 times in the last 10 s"), "{findings:?}");
    for _ in 0..WINDOW_SAMPLES {
        bench.sample();
    }
    assert_eq!(bench.findings.view().findings, [], "nothing more has failed since");
}

#[test]
fn a_refused_config_is_a_finding_since_its_refusal() {
    let mut bench = Bench::new();
    let at = Timestamp::from_secs(900);
    let refusal = ConfigRefusal { at, origin: "egret.yaml".to_owned(), message: "line 3".to_owned() };
    bench.observed.refusal = Some(refusal);
    bench.fail("5xx", 9);
    let config = (FindingKind::ConfigRefused, "egret.yaml".to_owned());
    assert_eq!(bench.sample(), [failing(), vec![config]].concat(), "the worst first");
    assert_eq!(bench.findings.view().findings[1].since_us, at.as_micros());
    bench.observed.refusal = None;
    bench.observed.stats.reloads += 1;
    assert_eq!(bench.sample(), failing());
    let applied =
        bench.findings.view().events.into_iter().any(|event| event.what == EventKind::ConfigApplied);
    assert!(applied);
}

fn failed_fetch(name: &str, has_last: bool) -> FetchStatus {
    let failure = FetchFailure { since: Timestamp::from_secs(900), error: "no route".to_owned() };
    FetchStatus { name: name.to_owned(), has_last, failure: Some(failure) }
}

#[test]
fn failed_fetches_are_findings_since_the_first_failure() {
    let mut bench = Bench::new();
    bench.observed.secret_commands = vec![failed_fetch("manager", true)];
    bench.observed.managed_secrets = vec![failed_fetch("vault:a/b", true)];
    bench.observed.issuers = vec![failed_fetch("https://b", true), failed_fetch("https://a", false)];
    let found = [
        (FindingKind::IssuerFailing, "https://a"),
        (FindingKind::IssuerFailing, "https://b"),
        (FindingKind::SecretStale, "manager"),
        (FindingKind::SecretStale, "vault:a/b"),
    ];
    assert_eq!(bench.sample(), found.map(|(kind, subject)| (kind, subject.to_owned())));
    let findings = bench.findings.view().findings;
    assert!(findings.iter().all(|found| found.since_us == 900_000_000 && found.evidence == "no route"));
    let severities: Vec<Severity> = findings.iter().map(|found| found.severity).collect();
    assert_eq!(severities, [Severity::Error, Severity::Warning, Severity::Warning, Severity::Warning]);
    bench.observed.secret_commands[0].failure = None;
    bench.observed.managed_secrets[0].failure = None;
    bench.observed.issuers.clear();
    assert_eq!(bench.sample(), []);
}

#[test]
fn an_endpoint_is_found_once_three_samples_see_it_left_out() {
    let mut bench = Bench::new();
    let url = "https://eu.shop.example".to_owned();
    let endpoint = EndpointSnapshot { url, calls: 0, failures: 0, excluded: 0 };
    bench.observed.stats.providers[0].endpoints = vec![endpoint];
    let mut sample = |excluded| {
        let endpoint = &mut bench.observed.stats.providers[0].endpoints[0];
        endpoint.excluded = excluded;
        endpoint.calls += 3;
        endpoint.failures += excluded;
        bench.sample()
    };
    for excluded in [1, 0, 2, 0] {
        assert_eq!(sample(excluded), [], "short pauses");
    }
    let found = [(FindingKind::EndpointExcluded, "shop: https://eu.shop.example".to_owned())];
    assert_eq!(sample(2), found);
    // The first of the three samples is the oldest of twelve, and then no longer looked at.
    for _ in 0..7 {
        assert_eq!(sample(0), found);
    }
    let finding = bench.the_only();
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(
        finding.evidence,
        "workers that leave it out now: 0; calls to it in the last minute: 36, of which failed: 5"
    );
    bench.observed.stats.providers[0].endpoints[0].excluded = 0;
    assert_eq!(bench.sample(), []);
}

#[test]
fn findings_and_events_have_a_bound() {
    let mut bench = Bench::new();
    let provider = |number| ProviderSnapshot { name: format!("p{number}"), ..ProviderSnapshot::default() };
    bench.observed.stats.providers = (0..200).map(provider).collect();
    bench.sample();
    for provider in &mut bench.observed.stats.providers {
        add(&mut provider.call_errors, "dns-failed", 9);
    }
    assert_eq!(bench.sample().len(), FINDINGS_MAX);
    assert_eq!(bench.findings.view().events.len(), EVENTS_MAX);
}

#[test]
fn every_kind_is_explained_in_the_documentation() {
    let read = |page: &str| {
        let path = format!("{}/../../docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let (reference, how_to) = (read("reference/findings"), read("how-to/when-things-break"));
    for kind in FindingKind::ALL {
        let slug = kind.slug();
        assert!(reference.contains(&format!("| `{slug}` |")), "{slug}");
        assert!(how_to.contains(&format!("`{slug}`")), "{slug}");
        assert_eq!(serde_json::to_value(kind).unwrap(), slug);
    }
}
