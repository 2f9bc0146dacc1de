//! A call has the same identity in every way of routing and every spelling.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot continue panics")]

mod checks;

use checks::{CALLS, Choices, Subject, Way};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const OWN: &str = "127.0.0.1:8000";

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\n{fields}\r\n")
}

#[test]
fn every_way_leads_to_the_same_call() {
    let mut subject = Subject::default();
    for call in CALLS {
        for way in Way::ALL {
            assert_eq!(subject.same(call, way, &mut Choices(&[])), Ok(()), "{call:?} {way:?}");
        }
    }
}

/// Runs `check` on ten thousand spellings, and requires that enough of them are accepted: a check that
/// rejects everything proves nothing.
fn spell(check: fn(&mut Subject, checks::Call, Way, &mut Choices<'_>) -> Result<(), &'static str>) {
    let subject = std::cell::RefCell::new(Subject::default());
    let passed = std::cell::Cell::new(0_u32);
    let mut runner = TestRunner::new(ProptestConfig { cases: 10_000, ..ProptestConfig::default() });
    let spelling = (0..CALLS.len(), 0..Way::ALL.len(), prop::collection::vec(any::<u8>(), 96));
    let outcome = runner.run(&spelling, |(call, way, choices)| {
        let checked = check(&mut subject.borrow_mut(), CALLS[call], Way::ALL[way], &mut Choices(&choices));
        match checked {
            Ok(()) => passed.set(passed.get() + 1),
            Err(slug) => prop_assert_eq!(slug, "bad-request"),
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(passed.get() > 3_000, "only {} of 10,000 spellings were accepted", passed.get());
}

#[test]
fn equivalent_spellings_are_refused_or_are_the_same_call() {
    spell(Subject::same);
}

#[test]
fn equivalent_spellings_are_refused_or_evade_no_rule() {
    spell(Subject::no_evasion);
}

#[test]
fn the_fuzz_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/identity");
    let mut subject = Subject::default();
    let files = std::fs::read_dir(corpus).unwrap();
    let passed = files.filter(|file| {
        checks::identity(&mut subject, &std::fs::read(file.as_ref().unwrap().path()).unwrap())
    });
    assert!(passed.count() > 5);
}

#[test]
fn similar_paths_match_one_flow_and_have_different_keys() {
    let mut subject = Subject::default();
    let mut identify = |path: &str| {
        subject.identify(OWN, &get(&format!("http://alone.example{path}"), "Host: h\r\n")).unwrap()
    };
    let identities = ["/a/b", "/a//b", "/a%2Fb"].map(&mut identify);
    for (at, identity) in identities.iter().enumerate() {
        assert!(identity.flows.contains(&5), "{identity:?}");
        assert!(identities[..at].iter().all(|other| other.key != identity.key), "{identity:?}");
    }
}

#[test]
fn a_path_leaving_the_base_path_is_refused() {
    let mut subject = Subject::default();
    for (path, fields) in [
        ("/api/../v2/charges/1", ""),
        ("/api/../admin", ""),
        ("/api/%2e%2e/admin", ""),
        ("/api/a/..;/..;/admin", ""),
        ("/based/..%2Fother", ""),
        ("/v2/../admin", "x-egret-host: api.example:8080\r\n"),
        ("//v2/charges/1", "x-egret-host: api.example:8080\r\n"),
        ("/v2;a/charges/1", "x-egret-host: api.example:8080\r\n"),
        ("/v2%2fcharges/1", "x-egret-host: api.example:8080\r\n"),
        ("/q/../v2/charges/1", "x-egret-host: api.example:8080\r\n"),
        ("/root/q/../v2/charges/1", ""),
        ("/root//v2/charges/1", ""),
    ] {
        let request = get(path, &format!("Host: {OWN}\r\n{fields}"));
        assert_eq!(subject.identify(OWN, &request).map(|found| found.provider), Err("bad-request"), "{path}");
    }
}

#[test]
fn a_target_outside_every_base_path_gets_no_credential() {
    let mut subject = Subject::default();
    for path in ["/", "", "/other", "/basement", "/Base/a"] {
        let request = get(&format!("http://based.example{path}"), "Host: h\r\n");
        let found = subject.identify(OWN, &request).unwrap();
        assert_eq!((found.provider.as_str(), found.accounts.len()), ("-", 0), "{path}");
    }
}

#[test]
fn a_chosen_host_changes_the_key_without_a_credential() {
    let mut subject = Subject::default();
    let mut of_team =
        |host: &str| subject.identify("127.0.0.1:8103", &get("/x", &format!("Host: {host}\r\n"))).unwrap();
    let own = of_team("api.example:8080");
    assert_eq!(own.accounts, ["of-team"]);
    let (evil, good) = (of_team("evil.example"), of_team("good.example"));
    assert!(evil.accounts.is_empty() && good.accounts.is_empty());
    assert!(evil.key != good.key && evil.key != own.key);
    assert_eq!(of_team("EVIL.example.:80"), evil);
    let known = of_team("known.example:81");
    assert_eq!(known.accounts, ["of-team"]);
    assert!(known.key != own.key && known.key != of_team("known.example").key);
}
