//! Tests of the reports: the figures of known runs, line by line as ab prints them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::style::Attributes;
use super::*;
use crate::compile::Compiled;
use crate::engine::RunOutcome;
use crate::fixture::{compiled, outcome};
use crate::options::Options;
use crate::tally::{ExchangeTimes, Fault, Series, Tally};

/// A run of ten requests by two connections, and its outcome: 1 to 10 ms.
fn ten() -> (Compiled, RunOutcome) {
    let run = compiled(|it| (it.requests, it.concurrency) = (Some(10), 2));
    run.plan.requests[0].length.agrees(1_000);
    (run, outcome((1..=10).map(|ms| ms * 1_000)))
}

fn rendered(run: &Compiled, outcome: &RunOutcome, style: &Style) -> String {
    RunReport { run, outcome, style }.render()
}

#[test]
fn the_report_is_abs_line_by_line_and_more_below() {
    let (run, outcome) = ten();
    let text = rendered(&run, &outcome, &Style::default());
    let expected = "\n\n\
        Server Software:        test/1\n\
        Server Hostname:        127.0.0.1\n\
        Server Port:            9\n\n\
        Document Path:          /x\n\
        Document Length:        1000 bytes\n\n\
        Concurrency Level:      2\n\
        Time taken for tests:   1.000 seconds\n\
        Complete requests:      10\n\
        Failed requests:        0\n\
        Total transferred:      10240 bytes\n\
        HTML transferred:       10000 bytes\n\
        Requests per second:    10.00 [#/sec] (mean)\n\
        Time per request:       200.000 [ms] (mean)\n\
        Time per request:       100.000 [ms] (mean, across all concurrent requests)\n\
        Transfer rate:          10.00 [Kbytes/sec] received\n\n\
        Connection Times (ms)\n              min  mean[+/-sd] median   max\n\
        Connect:        0    1   0.8      1       3\n\
        Processing:     1    4   2.3      4       8\n\
        Waiting:        1    3   1.5      3       5\n\
        Total:          1    6   3.0      6      10\n\n\
        Percentage of the requests served within a certain time (ms)\n";
    assert!(text.starts_with(expected), "{text}");
    let rows = "  50%      5\n  66%      7\n  75%      8\n  80%      8\n  90%      9\n  95%     10\n  98%     10\n  99%     10\n 100%     10 (longest request)\n";
    assert!(text[expected.len()..].starts_with(rows), "{text}");
    assert!(text.ends_with("\nStatus codes:  200 x 10\n"), "{text}");
}

#[test]
fn with_abs_compatibility_the_report_ends_where_abs_does() {
    let (run, outcome) = ten();
    let text = rendered(&run, &outcome, &Style { ab_compat: true, ..Style::default() });
    assert!(text.ends_with(" 100%     10 (longest request)\n"), "{text}");
    // ab takes the value at 50 % of the index, one above the nearest rank.
    assert!(
        text.contains("  50%      6\n  66%      7\n  75%      8\n  80%      9\n  90%     10\n"),
        "{text}"
    );
}

#[test]
fn abs_switches_leave_out_their_parts() {
    let (run, outcome) = ten();
    let plain =
        rendered(&run, &outcome, &Style { no_percentiles: true, no_confidence: true, ..Style::default() });
    assert!(!plain.contains("Percentage of the requests"), "{plain}");
    assert!(plain.contains("              min   avg   max\nConnect:        0     1    3\n"), "{plain}");
    assert!(!plain.contains("median"), "{plain}");
}

#[test]
fn failures_and_other_statuses_appear_in_abs_classes() {
    let (run, mut outcome) = ten();
    let tally = &mut outcome.tally;
    for (fault, count) in [
        (Fault::Connect, 1),
        (Fault::Receive, 2),
        (Fault::Closed, 3),
        (Fault::Length, 4),
        (Fault::Timeout, 5),
        (Fault::Check, 6),
        (Fault::Protocol, 7),
        (Fault::Send, 8),
    ] {
        (0..count).for_each(|_| tally.fault(fault, "why".to_owned()));
    }
    (tally.failed, tally.retried, tally.unsent, tally.unfinished) = (36, 9, 10, 11);
    tally.status(503);
    let text = rendered(&run, &outcome, &Style::default());
    for line in [
        "Failed requests:        36\n   (Connect: 1, Receive: 5, Length: 4, Exceptions: 18)\nWrite errors:           8\n",
        "Non-2xx responses:      1\n",
        "\nStatus codes:  200 x 10  503 x 1\nFailures:  connect x 1  send x 8  receive x 2  closed x 3  timeout x 5  protocol x 7  length x 4  check x 6\n",
        "9 requests were sent again because their kept connection had been closed\n",
        "11 requests were in progress when the time was over and are not counted\n",
        "10 requests were due but never sent because no connection was free",
    ] {
        assert!(text.contains(line), "{text}\n--- lacks\n{line}");
    }
}

#[test]
fn a_steady_run_is_not_doubted_because_its_median_is_rounded() {
    // The deviation is 6 us, and a percentile of this size is rounded to 64 us.
    let run = compiled(|_| {});
    let text = rendered(&run, &outcome([vec![100_000; 99], vec![100_060]].concat()), &Style::default());
    assert!(!text.contains("ERROR") && !text.contains("WARNING"), "{text}");
}

#[test]
fn the_median_is_the_middle_or_what_ab_takes_for_it() {
    let median = |times: &[u64], ab_compat: bool| {
        let mut series = Series::default();
        for us in times {
            series.record(*us);
        }
        let (run, outcome) = ten();
        let style = Style { ab_compat, ..Style::default() };
        RunReport { run: &run, outcome: &outcome, style: &style }.median(&series)
    };
    for (times, defined, as_ab) in
        [(&[1_u64, 2, 3][..], 2.0, 2.5), (&[1, 2, 3, 4], 2.5, 3.0), (&[7], 7.0, 7.0), (&[], 0.0, 0.0)]
    {
        assert!((median(times, false) - defined).abs() < 1e-9, "{times:?}");
        assert!((median(times, true) - as_ab).abs() < 1e-9, "{times:?} as ab");
    }
}

#[test]
fn the_html_table_has_abs_rows_and_attributes() {
    let (mut run, outcome) = ten();
    run.has_body = true;
    let attributes = Attributes { table: "border".into(), row: "r".into(), cell: "c".into() };
    let html = rendered(&run, &outcome, &Style { html: Some(attributes), ..Style::default() });
    for line in [
        "\n\n<table border>\n",
        "<tr r><th colspan=2 c>Server Software:</th><td colspan=2 c>test/1</td></tr>\n",
        "<tr r><th colspan=2 c>Complete requests:</th><td colspan=2 c>10</td></tr>\n",
        "<tr r><th colspan=2 c>Transfer rate:</th><td colspan=2 c>10.00 kb/s received</td></tr>\n",
        "<tr r><td colspan=2 c>&nbsp;</td><td colspan=2 c>0.98 kb/s sent</td></tr>\n",
        "<tr r><td colspan=2 c>&nbsp;</td><td colspan=2 c>10.98 kb/s total</td></tr>\n",
        "<tr r><th c>Total:</th><td c>    1</td><td c>    6</td><td c>   10</td></tr>\n</table>\n",
    ] {
        assert!(html.contains(line), "{html}\n--- lacks\n{line}");
    }
}

#[test]
fn the_json_has_every_figure_in_its_unit() {
    let (run, mut outcome) = ten();
    outcome.tally.fault(Fault::Timeout, "why".to_owned());
    let style = Style::default();
    let report = RunReport { run: &run, outcome: &outcome, style: &style };
    let json: serde_json::Value =
        serde_json::from_str(&report.json(UNIX_EPOCH + Duration::from_millis(1_500))).unwrap();
    let at = |pointer: &str| json.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {json}"));
    assert_eq!((at("/version"), at("/url")), (&1.into(), &"http://127.0.0.1:9/x".into()));
    assert_eq!((at("/started"), at("/duration_s")), (&1.5.into(), &1.0.into()));
    assert_eq!((at("/requests"), at("/failed"), at("/concurrency")), (&10.into(), &0.into(), &2.into()));
    assert_eq!((at("/latency_us/min"), at("/latency_us/max")), (&1_000.into(), &10_000.into()));
    assert_eq!(at("/latency_us/mean").as_f64(), Some(5_500.0));
    assert_eq!(
        (at("/phases_us/connect/max"), at("/phases_us/first_byte/max")),
        (&2_500.into(), &5_000.into())
    );
    assert_eq!(
        (at("/statuses/200"), at("/errors/timeout"), at("/errors/connect")),
        (&10.into(), &1.into(), &0.into())
    );
    assert_eq!((at("/client/cpu_share"), at("/client/saturated")), (&0.25.into(), &false.into()));
    assert_eq!(at("/targets").as_array().map(Vec::len), Some(0), "one target has no figures of its own");
    let schema: serde_json::Value = serde_json::from_str(&summary::schema()).unwrap();
    let known = schema["properties"].as_object().unwrap();
    assert!(json.as_object().unwrap().keys().all(|key| known.contains_key(key)), "{schema}");
    assert!(schema["$defs"].get("Times").is_some(), "{schema}");
}

#[test]
fn several_targets_have_figures_of_their_own() {
    let run = compiled(|it: &mut Options| {
        it.url = None;
        it.targets =
            ["1=http://127.0.0.1:9/a", "1=http://127.0.0.1:9/b"].map(|text| text.parse().unwrap()).into();
    });
    let mut outcome = outcome([]);
    outcome.tally = Tally::new(2, 0);
    for (target, total) in [(0, 10), (0, 20), (1, 70)] {
        outcome.tally.record(
            target,
            Duration::ZERO,
            ExchangeTimes { connect: None, wait: 1, total, is_2xx: true },
        );
    }
    outcome.tally.done = 3;
    let style = Style::default();
    let summary = RunReport { run: &run, outcome: &outcome, style: &style }.summary(SystemTime::now());
    let targets: Vec<_> =
        summary.targets.iter().map(|target| (&*target.url, target.requests, target.latency_us.max)).collect();
    assert_eq!(targets, [("http://127.0.0.1:9/a", 2, 20), ("http://127.0.0.1:9/b", 1, 70)]);
    let text = rendered(&run, &outcome, &style);
    assert!(text.contains("http://127.0.0.1:9/b\n"), "{text}");
}

#[test]
fn the_files_of_ab_have_its_rows() {
    let (run, outcome) = ten();
    let [own, compat] = [false, true].map(|ab_compat| Style { ab_compat, ..Style::default() });
    let report = |style| RunReport { run: &run, outcome: &outcome, style };
    let csv = report(&own).csv();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(
        (rows.len(), rows[0], rows[1], rows[101]),
        (102, "Percentage served,Time in ms", "0,1.000", "100,10.000")
    );
    // One above nearest rank, as ab has it; the last digit of a percentile is the histogram's.
    assert!(rows[51].starts_with("50,5.00") && report(&compat).csv().contains("\n50,6.00"), "{csv}");
    let tsv = report(&own).tsv(UNIX_EPOCH);
    let mut rows = tsv.lines();
    assert_eq!(rows.next(), Some("starttime\tseconds\tctime\tdtime\tttime\twait"));
    assert_eq!(rows.next(), Some("Thu Jan 01 00:00:00 1970\t0\t0\t1\t1\t1"));
    assert_eq!(rows.next_back(), Some("Thu Jan 01 00:00:00 1970\t0\t3\t7\t10\t5"));
    let hdr = report(&own).hdr(UNIX_EPOCH);
    assert!(["Tag=total,", "Tag=first_byte,", "Tag=connect,"].iter().all(|tag| hdr.contains(tag)), "{hdr}");
}

#[test]
fn the_opening_names_program_target_and_proxy() {
    let run = compiled(|it| it.proxy = Some("127.0.0.1:8".into()));
    let style = Style::default();
    assert_eq!(
        RunReport::opening(&run, &style, false),
        "Benchmarking 127.0.0.1 [through 127.0.0.1:8] (be patient)..."
    );
    assert!(RunReport::opening(&compiled(|_| {}), &style, true).ends_with("(be patient)\n"));
    assert!(RunReport::banner(&style).starts_with("This is egret bench, Version "));
    // Parsers of ab's output look for its name.
    let compat = Style { ab_compat: true, ..Style::default() };
    assert!(RunReport::banner(&compat).starts_with("This is ApacheBench, Version 2.3 <"));
}
