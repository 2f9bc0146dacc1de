//! The order of the turns, and an estimate of their duration.

use std::time::Duration;

use crate::client_settings::{Amount, ClientSettings};
use crate::config::Experiment;

/// One case through one scenario in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedTurn {
    /// Number of the round, from 1.
    pub round: u32,
    /// Index of the case.
    pub case: usize,
    /// Index of the scenario.
    pub scenario: usize,
}

/// Time that a turn takes besides the requests: starting, stopping, warming up.
const OVERHEAD: Duration = Duration::from_millis(500);

/// Returns all turns in order.
///
/// Each round starts with another case and scenario, and every second round is reversed, so no scenario
/// always follows the same one. The scenarios of a case are adjacent, because they are compared with each
/// other.
pub(crate) fn planned_turns(experiment: &Experiment) -> Vec<PlannedTurn> {
    let mut planned_turns = Vec::new();
    for round in 1..=experiment.rounds {
        for case in rotated(experiment.cases.len(), round) {
            for scenario in rotated(experiment.scenarios.len(), round) {
                if experiment.cases[case].includes(&experiment.scenarios[scenario]) {
                    planned_turns.push(PlannedTurn { round, case, scenario });
                }
            }
        }
    }
    planned_turns
}

fn rotated(count: usize, round: u32) -> Vec<usize> {
    let turn = usize::try_from(round.saturating_sub(1)).unwrap_or(0);
    let mut order: Vec<usize> = (0..count).map(|index| (index + turn / 2) % count).collect();
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}

/// Estimates the duration of these turns from the durations and delays in the file. `None` if they are not
/// known beforehand.
pub(crate) fn estimate(experiment: &Experiment, planned_turns: &[PlannedTurn]) -> Option<Duration> {
    planned_turns.iter().map(|turn| turn_estimate(experiment, *turn)).sum()
}

fn turn_estimate(experiment: &Experiment, turn: PlannedTurn) -> Option<Duration> {
    let case = &experiment.cases[turn.case];
    let scenario = &experiment.scenarios[turn.scenario];
    let client = experiment.client(case, scenario);
    let delay = case.delay.map(egret_config::Duration::get);
    let delay = delay.or_else(|| delay_in(experiment.path_of(case, scenario)));
    let warm_up = if client.warm_up_requests == 0 {
        Some(Duration::ZERO)
    } else {
        of_requests(&client, client.warm_up_requests, delay)
    };
    let measured = match client.amount {
        Amount::For(duration) => Some(duration),
        Amount::Requests(requests) => of_requests(&client, requests, delay),
    };
    Some(warm_up.unwrap_or(OVERHEAD) + measured? + OVERHEAD)
}

/// Estimates the duration of a number of requests. In the closed model each connection sends its share in
/// sequence; in the open model the rate determines the time.
fn of_requests(client: &ClientSettings, requests: u64, delay: Option<Duration>) -> Option<Duration> {
    let each = |count: u64, time: Duration| time.checked_mul(u32::try_from(count).ok()?);
    match client.requests_per_second {
        Some(rate) => each(requests, Duration::from_secs(1)).map(|time| time / rate.max(1)),
        None => each(requests.div_ceil(u64::from(client.concurrency)), delay?),
    }
}

/// Extracts the delay from a path like `/delay/0.15`.
fn delay_in(path: &str) -> Option<Duration> {
    let seconds: f64 = path.strip_prefix("/delay/")?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn experiment(text: &str) -> Experiment {
        let text = format!("title: t\nprovider: {{ path: /delay/0.2 }}\n{text}");
        Experiment::parse("e.yaml", &text, std::path::Path::new(".")).unwrap()
    }

    #[test]
    fn every_scenario_has_a_turn_in_every_round() {
        let experiment = experiment("scenarios: [{ name: a }, { name: b }, { name: c }]\nrounds: 6\n");
        let planned_turns = planned_turns(&experiment);
        let rounds: Vec<Vec<usize>> = (1..=6)
            .map(|round| {
                planned_turns.iter().filter(|turn| turn.round == round).map(|turn| turn.scenario).collect()
            })
            .collect();
        assert_eq!(rounds[..3], [vec![0, 1, 2], vec![2, 1, 0], vec![1, 2, 0]]);
        for scenario in 0..3 {
            assert!(rounds.iter().any(|round| round[0] == scenario), "{scenario} is never first");
            assert!(rounds.iter().all(|round| round.contains(&scenario)));
        }
    }

    #[test]
    fn the_time_is_told_where_the_file_names_it() {
        let closed = experiment(
            "scenarios: [{ name: a }]\nrounds: 2\nclient: { requests: 1000, warm_up_requests: 0 }\n",
        );
        assert_eq!(estimate(&closed, &planned_turns(&closed)), Some(Duration::from_secs(5)));
        let timed = experiment(
            "scenarios: [{ name: a }]\nrounds: 1\nclient: { duration: 3s, warm_up_requests: 100 }\n",
        );
        assert_eq!(estimate(&timed, &planned_turns(&timed)), Some(Duration::from_millis(3_700)));
        let open = experiment(
            "scenarios: [{ name: a }]\nrounds: 1\ncases: [{ name: c, path: / }]\n\
             client: { requests: 1000, warm_up_requests: 0, requests_per_second: 500 }\n",
        );
        assert_eq!(estimate(&open, &planned_turns(&open)), Some(Duration::from_millis(2_500)));
        let unknown = experiment("scenarios: [{ name: a }]\ncases: [{ name: c, path: / }]\n");
        assert_eq!(estimate(&unknown, &planned_turns(&unknown)), None);
    }

    proptest! {
        #[test]
        fn each_position_is_taken_by_every_scenario_equally_often(count in 1_usize..8) {
            // Over as many pairs of rounds as there are scenarios: no position favours any of them.
            let rounds = u32::try_from(2 * count).unwrap();
            for position in 0..count {
                let mut taken = vec![0; count];
                (1..=rounds).for_each(|round| taken[rotated(count, round)[position]] += 1);
                prop_assert!(taken.iter().all(|times| *times == 2), "{position}: {taken:?}");
            }
            for round in 1..=rounds {
                let mut order = rotated(count, round);
                order.sort_unstable();
                prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_scenarios_of_a_case_follow_each_other() {
        let experiment = experiment(
            "scenarios: [{ name: a }, { name: b }]\ncases: [{ name: c }, { name: d }]\nrounds: 4\n",
        );
        let turns = planned_turns(&experiment);
        assert_eq!(turns.len(), 16);
        assert!(turns.chunks(2).all(|pair| pair[0].case == pair[1].case && pair[0].round == pair[1].round));
    }
}
