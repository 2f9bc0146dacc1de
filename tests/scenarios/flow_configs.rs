//! Invalid flows and quotas are rejected before anything is started, with line and column.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};

/// Asserts that `egret check` reports for each text exactly the problems in its row, each with its position.
fn assert_refused(rows: &[(String, &[&str])]) {
    let directory = Directory::default();
    for (text, problems) in rows {
        let file = directory.write("bad.yaml", text);
        let output = run(egret(["check"]).arg(&file));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{text}\n{stderr}");
        for problem in *problems {
            let line = format!("{}:{problem}", file.display());
            assert!(stderr.contains(&line), "no {line:?} for\n{text}\nin\n{stderr}");
        }
        assert_eq!(stderr.matches("bad.yaml:").count(), problems.len(), "{text}\n{stderr}");
    }
}

#[test]
fn quotas_that_contradict_themselves_are_refused_where_they_do() {
    let quotas = |lines: &str| format!("quotas:\n{lines}");
    assert_refused(&[
        // Keys that exclude each other.
        (quotas("  a: { limit: 5 }\n"), &["2:3: quotas.a: the key `window` is missing"]),
        (quotas("  a: { limit: 5, window: 1s, burst: 9 }\n"), &["2:37: quotas.a.burst: only a token-bucket"]),
        (
            quotas("  a: { limit: 5, kind: concurrency, window: 1s }\n"),
            &["2:45: quotas.a.window: a concurrency quota has no"],
        ),
        (
            quotas("  a: { limit: 5, window: 1h, store: file }\n"),
            &["2:37: quotas.a.store: a file requires windows that begin by the clock"],
        ),
        (
            quotas("  a: { limit: 5, kind: calendar, period: month, renews: { time_zone: Europe/Berln } }\n"),
            &["2:70: quotas.a.renews.time_zone: "],
        ),
        // Circular or missing parents.
        (
            quotas("  a: { limit: 5, window: 1s, parent: b }\n  b: { limit: 5, window: 1s, parent: a }\n"),
            &["2:38: quotas.a.parent: forms a cycle: a → b → a"],
        ),
        (
            quotas("  a: { limit: 5, window: 1s, parent: a }\n"),
            &["2:38: quotas.a.parent: a quota cannot be its own parent"],
        ),
        (
            quotas("  abc: { limit: 5, window: 1s, parent: abd }\n  abe: { limit: 5, window: 1s }\n"),
            &["2:40: quotas.abc.parent: there is no quota `abd`"],
        ),
        // Shares above the whole, and below one unit.
        (
            quotas(
                "  a:\n    limit: 100\n    window: 1s\n    group_by: consumer\n    shares:\n      groups: { x: 60%, y: 40.01% }\n",
            ),
            &["7:7: quotas.a.shares.groups: the shares exceed 100% in total"],
        ),
        (
            quotas("  a: { limit: 10, window: 1s, group_by: consumer, shares: { groups: { x: 1% } } }\n"),
            &["2:74: quotas.a.shares.groups.x: 1% of 10 units is less than one unit"],
        ),
        // Excessive numbers.
        (
            quotas("  a: { limit: 0, window: 1s }\n"),
            &["2:15: quotas.a.limit: expected a whole number from 1"],
        ),
        (
            quotas("  a: { limit: 18446744073709551615, window: 1s }\n"),
            &["2:15: quotas.a.limit: expected a whole number from 1"],
        ),
        (quotas("  a: { limit: -1, window: 1s }\n"), &["2:15: quotas.a.limit: "]),
        (quotas("  a: { limit: 1, window: 9000d }\n"), &["2:26: quotas.a.window: expected 1ms to 366d"]),
        // Expressions with wrong syntax, wrong type or unknown names.
        (
            quotas("  a: { limit: 1, window: 1s, cost: { request: '1 +' } }\n"),
            &["2:51: quotas.a.cost.request: this is not valid CEL"],
        ),
        (
            quotas("  a: { limit: 1, window: 1s, cost: { request: \"'x'\" } }\n"),
            &["2:47: quotas.a.cost.request: this evaluates to text, but a non-negative number"],
        ),
        (
            quotas("  a: { limit: 1, window: 1s, group_by: 'param:id' }\n"),
            &["2:40: quotas.a.group_by: no path or host of a match here has a parameter `{id}`"],
        ),
    ]);
}

#[test]
fn remedies_that_contradict_themselves_or_their_flow_are_refused_where_they_do() {
    let flow = |remedies: &str| {
        format!(
            "providers:\n  one: {{ url: \"http://one.example\" }}\n  two: {{ url: \"http://two.example\" }}\n\
             quotas: {{ q: {{ limit: 1, window: 1s }} }}\n\
             flows:\n  - name: f\n    match: {{ provider: one, path: \"/users/{{id}}\" }}\n    remedies:\n{remedies}"
        )
    };
    assert_refused(&[
        (
            flow("      - retry: { attempts: 1000 }\n"),
            &["9:28: flows[0].remedies[0].retry.attempts: must be from 2"],
        ),
        (flow("      - retry: { on: [900] }\n"), &["9:23: flows[0].remedies[0].retry.on[0]: "]),
        (
            "flows:\n  - name: f\n    match: { when: 'request.headers.x' }\n".to_owned(),
            &["3:20: flows[0].match.when: this evaluates to text, but true or false is expected"],
        ),
        (
            flow("      - queue: { quota: q, priority: { by: 'cel:request.params.idd', classes: [a] } }\n"),
            &[
                "9:44: flows[0].remedies[0].queue.priority.by: no path or host of a match here has a parameter `{idd}`",
            ],
        ),
        // Remedies that contradict themselves, each other or their flow.
        (
            flow(
                "      - fallback: { provider: two }\n      - fallback: { provider: one }\n      - fallback: { provider: two }\n",
            ),
            &[
                "9:31: flows[0].remedies[0].fallback.provider: repeats the call",
                "10:31: flows[0].remedies[1].fallback.provider: the flow matches only `one`",
            ],
        ),
        (
            flow("      - fixed-response: { body: '${params.idd}', headers: { x: '${nothing}' } }\n"),
            &[
                "9:33: flows[0].remedies[0].fixed-response.body: no path",
                "9:64: flows[0].remedies[0].fixed-response.headers.x: unknown value",
            ],
        ),
        (
            flow("      - limit: { quota: qq }\n      - retry: {}\n        limit: { quota: q }\n"),
            &[
                "9:25: flows[0].remedies[0].limit.quota: no quota is called `qq`",
                "10:9: flows[0].remedies[1]: `limit` and `retry` must be separate list entries",
            ],
        ),
    ]);
}
