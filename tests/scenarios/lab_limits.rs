//! `egret lab run` counts at the provider, and holds figures to a limit.

use egret_tests::lab::{held, scenario};
use egret_tests::process::Directory;

#[test]
fn the_warm_up_is_not_counted() {
    let directory = Directory::default();
    let file = directory.write(
        "small.yaml",
        "title: A small run\nprovider: { arguments: [--rate-limit, 20/1h], path: /get }\n\
         client: { kind: ab, requests: 60, concurrency: 5, warm_up_requests: 10 }\nrounds: 2\nfailures_expected: true\n\
         scenarios: [{ name: direct }]\n\
         hold:\n  - { scenario: direct, figures: [provider_calls], at_least: 60 }\n\
         \x20 - { scenario: direct, figures: [provider_calls, provider_admitted], at_most: 60 }\n\
         \x20 - { scenario: direct, figures: [provider_refused], at_most: 39 }\n",
    );
    let (code, stderr, summary) = held(&file, &[]);
    assert_eq!(code, 1, "{stderr}");
    let counted = &scenario(&summary, "direct")["counted"];
    let of = |figure: &str| counted[figure]["value"].as_f64().unwrap();
    assert_eq!((of("calls"), of("admitted"), of("refused")), (60.0, 20.0, 40.0), "{stderr}");
    let broken: Vec<&str> = stderr.lines().filter(|line| line.starts_with("NOT HELD")).collect();
    assert!(broken.len() == 1 && broken[0].contains("refused by provider"), "{stderr}");
    assert!(stderr.contains("Not held: 1 of 4 figures"), "{stderr}");
}
