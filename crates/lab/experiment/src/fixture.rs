//! Experiments and synthetic runs with known figures, for tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::Experiment;
use crate::counters::{ProviderCounters, RateLimitCounters};
use crate::figures::{EventDelays, Figures};
use crate::machine::Machine;
use crate::results::{Metadata, ProcessFigures, Results, Turn};

/// Parses an experiment.
pub(crate) fn experiment(text: &str) -> Experiment {
    Experiment::parse("e.yaml", text, Path::new(".")).unwrap_or_else(|report| panic!("{report}"))
}

/// The provider's counters for a scenario: it rejects 100 calls of every scenario except the first, and
/// allows 250 per second.
fn counted(scenario: usize) -> ProviderCounters {
    let refused = if scenario == 0 { 0 } else { 100 };
    ProviderCounters {
        calls: 1_000 + refused,
        rate_limit: Some(RateLimitCounters {
            admitted: 490,
            refused,
            allowed_per_second: 250.0,
            busiest_window: Some(if scenario == 0 { 1.0 } else { 1.2 }),
        }),
    }
}

/// Builds a run whose turns respond in `time(case, scenario, round, percentile)` ms. A proxy uses `cpu_us`
/// per request, times the index of its scenario.
pub(crate) fn results(text: &str, cpu_us: f64, time: impl Fn(usize, usize, u32, usize) -> f64) -> Results {
    let experiment = experiment(text);
    let mut turns = Vec::new();
    for round in 1..=experiment.rounds {
        for (case_index, case) in experiment.cases.iter().enumerate() {
            for (index, scenario) in experiment.scenarios.iter().enumerate() {
                let cpu_us_per_request = cpu_us * f64::from(u32::try_from(index).unwrap());
                let proxy = ProcessFigures {
                    cpu_s: 1.0,
                    cpu_us_per_request,
                    memory_bytes_max: 8 << 20,
                    memory_bytes_end: 8 << 20,
                };
                let percentiles_ms =
                    (0..=100).map(|percent| time(case_index, index, round, percent)).collect();
                let rate = experiment.client(case, scenario).requests_per_second.map_or(500.0, f64::from);
                let figures = Figures {
                    requests: 1000,
                    requests_per_second: rate,
                    duration_s: 2.0,
                    percentiles_ms,
                    bytes_body: Some(2_000_000),
                    served_p99_ms: Some(time(case_index, index, round, 99) + 1.0),
                    event_delays: Some(EventDelays {
                        events: 10,
                        p50_us: 20,
                        p99_us: 100 + 10 * index as u64,
                    }),
                    ..Figures::default()
                };
                let mut processes = BTreeMap::new();
                if index > 0 {
                    processes.insert("proxy".to_owned(), proxy);
                }
                for service in &scenario.services {
                    processes.insert(service.clone(), ProcessFigures { cpu_us_per_request: 3.0, ..proxy });
                }
                turns.push(Turn {
                    round,
                    case: case.name.clone(),
                    scenario: scenario.name.clone(),
                    started: format!("2026-11-22T00:00:{round:02}Z"),
                    figures,
                    processes,
                    counted: Some(counted(index)),
                    control_slowest_ms: (index > 0).then_some(20.0),
                    store_calls: (!scenario.services.is_empty()).then_some(40),
                    load_average: 0.0,
                });
            }
        }
    }
    let metadata = Metadata {
        version: Metadata::VERSION,
        name: "e".into(),
        quick: false,
        started: vec!["2026-11-22T00:00:00Z".into()],
        ended: None,
        command: "egret lab run e.yaml".into(),
        here: PathBuf::new(),
        commit: None,
        versions: BTreeMap::new(),
        egret: String::new(),
        left_out: BTreeMap::new(),
        machines: BTreeMap::new(),
        machine: Machine { cores: 2, ..Machine::default() },
        pinned: BTreeMap::from([("proxy".to_owned(), 1)]),
        load_average_before: 0.0,
        experiment,
    };
    Results { directory: PathBuf::new(), metadata, turns }
}
