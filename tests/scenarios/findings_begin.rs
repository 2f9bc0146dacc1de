//! Every error that Egret has is named by a finding, with its cause.

use std::collections::BTreeMap;

use egret_tests::failing::{CASES, Case, Failing};
use egret_tests::found::findings;
use egret_tests::wait;
use serde_json::Value;

/// Two failures of two calls are enough.
const CALLS: usize = 2;

/// The findings seen so far, by kind and subject. Each lasts for at least ten seconds.
#[derive(Default)]
struct Seen(BTreeMap<(String, String), Value>);

impl Seen {
    fn look(&mut self, failing: &Failing) {
        for finding in findings(failing.egret()) {
            let text = |key: &str| finding[key].as_str().unwrap().to_owned();
            self.0.insert((text("kind"), text("subject")), finding);
        }
    }

    fn of(&self, case: &Case) -> Option<&Value> {
        let of_kind = |kind: &str| self.0.get(&(kind.to_owned(), case.error.to_owned()));
        let refused = || {
            let is_meant =
                |subject: &str| subject == case.error || subject.ends_with(&format!(": {}", case.error));
            let mut all = self.0.iter();
            all.find(|((kind, subject), _)| kind == "calls-refused" && is_meant(subject))
                .map(|(_, found)| found)
        };
        let circuit = || self.0.get(&("circuit-open".to_owned(), "circuit".to_owned()));
        match case.error {
            "circuit-open" => circuit(),
            _ => of_kind("provider-failing").or_else(refused),
        }
    }
}

#[test]
fn every_error_is_found_with_its_cause() {
    let (mut failing, mut seen) = (Failing::start("problem"), Seen::default());
    for case in &CASES {
        for _ in 0..CALLS {
            if case.error == "too-many-connections" {
                seen.look(&failing);
            }
            failing.call(case);
        }
        seen.look(&failing);
    }
    // The last case takes all connections of the listener, but not those of the control port.
    let missing = |seen: &Seen| -> Vec<&str> {
        CASES.iter().filter(|case| seen.of(case).is_none()).map(|case| case.error).collect()
    };
    wait::until_value(
        "every error is found",
        || {
            seen.look(&failing);
            missing(&seen)
        },
        Vec::is_empty,
    );
    for case in &CASES {
        let finding = seen.of(case).unwrap();
        let evidence = finding["evidence"].as_str().unwrap();
        // The words of a script may contain anything of the request.
        let cause = if case.error == "script-refused" { "the script refused it" } else { case.cause };
        let is_state = case.error == "circuit-open";
        assert!(is_state || evidence.contains(cause), "{case:?}: {finding}");
        assert!(!finding["advice"].as_str().unwrap().is_empty(), "{finding}");
    }
}
