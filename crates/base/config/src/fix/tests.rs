//! Fixed texts: what is changed, and that nothing else is.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::{Document, Duration, Problem};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    providers: BTreeMap<String, Provider>,
    #[serde(default)]
    flows: Vec<Flow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    #[expect(dead_code, reason = "only whether it is there matters")]
    url: String,
    #[expect(dead_code, reason = "only whether it is there matters")]
    #[serde(default)]
    limit: u32,
    #[expect(dead_code, reason = "only whether it is there matters")]
    #[serde(default)]
    time: Option<Duration>,
    #[expect(dead_code, reason = "only whether it is there matters")]
    #[serde(default)]
    flag: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    provider: String,
}

/// Names that are not there are mistakes.
fn problems(config: &Config) -> Vec<Problem> {
    let flows = config.flows.iter().enumerate();
    let unknown = flows.filter(|(_, flow)| !config.providers.contains_key(&flow.provider));
    let problem = |(number, flow): (usize, &Flow)| {
        let message = format!("no provider is called `{}`", flow.provider);
        let names = config.providers.keys().map(String::as_str);
        Problem::new(format!("flows[{number}].provider"), message).suggest(&flow.provider, names)
    };
    unknown.map(problem).collect()
}

fn check(text: &str) -> Report {
    let loaded = Document::parse("a.yaml", text).and_then(|document| document.load(problems, |_| Vec::new()));
    loaded.map_or_else(|report| report, |_| Report::unplaced("a.yaml", Vec::new()))
}

fn fixed(text: &str) -> String {
    fix_text(text, check)
}

#[test]
fn obvious_mistakes_are_mended_and_comments_stay() {
    for (text, expected) in [
        ("provider: { a: { ulr: x } } # a", "providers: { a: { url: x } } # a"),
        ("providers: { a: { url: x, 'limt': \"5\" } }", "providers: { a: { url: x, 'limit': 5 } }"),
        ("providers: { a: { url: x, flag: 'true' } }", "providers: { a: { url: x, flag: true } }"),
        ("providers:\n\ta:\n\t\turl: x # b\n", "providers:\n  a:\n    url: x # b\n"),
        ("providers:\n  a:\n    url:http://x:1/ # b\n", "providers:\n  a:\n    url: http://x:1/ # b\n"),
        ("providers:\n  a:\n    limit: 5\n    url:x\n", "providers:\n  a:\n    limit: 5\n    url: x\n"),
        ("providers: { a: {url:x} }", "providers: { a: {url: x} }"),
        (
            "providers: { bank: { url: x } }\nflows: [provider: bnak]",
            "providers: { bank: { url: x } }\nflows: [provider: bank]",
        ),
        ("\u{feff}provider: { a: { url: x } }\r\n", "\u{feff}providers: { a: { url: x } }\r\n"),
    ] {
        assert_eq!(fixed(text), expected, "{}", check(text));
        assert_eq!(check(expected).findings, [], "{expected}");
    }
}

#[test]
fn a_problem_without_an_obvious_fix_stays() {
    for text in [
        "providers: { a: { url: x, time: 60 } }",
        "providers: { a: { url: x, limit: five } }",
        "whatever: 1",
        "providers: { a: { url: x }",
        "providers: { bank-live: { url: x } }\nflows: [provider: bank-test]",
        "# nothing\n",
        "",
    ] {
        assert_eq!(fixed(text), text);
    }
}

#[test]
fn tabs_within_texts_of_several_lines_stay() {
    let text = "\ta: |\n\t\tif x:\n  \ty\n\tb: c\n";
    assert_eq!(without_tabs(text, 2), "  a: |\n    if x:\n  b: c\n".replace("  b", "  \ty\n  b"));
}

#[test]
fn elements_move_with_their_comments_or_not_at_all() {
    let text = "# top\nflows:\n# one\n- provider: a # first\n  # inside\n# two\n- provider: b\n\n- c\n# end\nproviders: {}\n";
    let expected = "# top\nflows:\n# two\n- provider: b\n\n- c\n# one\n- provider: a # first\n  # inside\n# end\nproviders: {}\n";
    assert_eq!(move_behind(text, "flows", 0, 2).as_deref(), Some(expected));
    assert_eq!(
        move_behind("a: [ 1, {b: ']'}, \"c, ]\" ] # d", "a", 0, 1).unwrap(),
        "a: [ {b: ']'}, 1, \"c, ]\" ] # d"
    );
    assert_eq!(move_behind("a:\n- 1\n- 2", "a", 0, 1).unwrap(), "a:\n- 2\n- 1\n");
    for (text, from, to) in [
        ("a: [1, 2]", 1, 0),
        ("a: [1, 2]", 0, 2),
        ("a: 1", 0, 1),
        ("a: [1", 0, 1),
        ("a: &x [1, 2]\nb: *x", 0, 1),
    ] {
        assert_eq!(move_behind(text, "a", from, to), None, "{text}");
    }
}

proptest! {
    #[test]
    fn a_mended_text_has_no_new_mistakes_and_stays_as_it_is(
        text in r#"(providers|provider|flows|flow|url|ulr|limit|limt|flag|a|b|'5'|"5"|5|true|: |:|\{ | \}|\[|\]|, |\n|\n  |\n\t|\n    |- |# c|\|){0,24}"#,
    ) {
        let before = check(&text);
        let fixed = fix_text(&text, check);
        let after = check(&fixed);
        // Mistakes of a step hide those of the next.
        prop_assert!(step(&after).is_none() || step(&after) >= step(&before), "{text:?} -> {fixed:?}: {after}");
        if step(&before) == Some(ReadingStep::Rules) {
            for finding in &after.findings {
                let is_old = before.findings.iter().any(|old| old.problem.message == finding.problem.message);
                prop_assert!(is_old, "{text:?} -> {fixed:?}: {after}");
            }
        }
        prop_assert!(before.findings.is_empty() || after.findings.len() <= before.findings.len()
            || step(&after) > step(&before) || fixed != text);
        if before.findings.is_empty() {
            prop_assert_eq!(&fixed, &text);
        }
        prop_assert_eq!(fix_text(&fixed, check), fixed);
    }

    #[test]
    fn moving_an_element_changes_nothing_else(
        items in prop::collection::vec(r#"(a|'b, c'|\{ d: 1 \}|\[x, y\]|"e # f")( # note)?"#, 2..6), from in 0_usize..6, to in 0_usize..6,
    ) {
        let block =
            items.iter().fold(String::new(), |block, item| block + &format!("  # before\n  - {item}\n"));
        let text = format!("list:\n{block}next: 1 # kept\n");
        let moved = move_behind(&text, "list", from, to);
        prop_assert_eq!(moved.is_some(), from < to && to < items.len());
        if let Some(moved) = moved {
            let sorted = |text: &str| { let mut lines: Vec<_> = text.lines().map(str::to_owned).collect(); lines.sort(); lines };
            prop_assert_eq!(sorted(&moved), sorted(&text));
        }
    }
}
