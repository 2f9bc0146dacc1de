//! Loading a config: rejected texts, the position that the report gives, and values that it never shows.

use std::collections::BTreeMap;

use egret_config::{Document, Duration, Hint, Problem, Secret, Size, load};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    listen: Vec<Listen>,
    workers: u16,
    verbose: bool,
    mode: Mode,
    control: Control,
    providers: BTreeMap<String, Provider>,
}

#[derive(Debug, Deserialize)]
struct Outputs {
    outputs: Vec<Output>,
}

/// The name `type` selects the variant by the key `type`.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename = "type", rename_all = "lowercase")]
enum Output {
    File(FileOutput),
    Socket(SocketOutput),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOutput {
    path: String,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SocketOutput {
    port: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Listen {
    address: String,
    provider: Option<String>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Enforce,
    Report,
    Off,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Control {
    token: Option<Secret>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    url: String,
    #[serde(default)]
    timeouts: Timeouts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Timeouts {
    connect: Option<Duration>,
    first_byte: Option<Duration>,
    body: Option<Size>,
}

fn report(text: &str) -> String {
    load::<Config>("egret.yaml", text, |_| Vec::new())
        .err()
        .map(|report| report.to_string())
        .unwrap_or_default()
}

#[test]
fn a_good_config_is_read_with_its_defaults() {
    let text = "\u{feff}# a comment\nmode: off\nlisten: [{ address: a }, { address: b, provider: stripe }]\nworkers: 2\nverbose: true\n\
                providers: { stripe: { url: https://x, timeouts: { connect: 5s, body: 1KiB } }, \"8000\": { url: y } }\n";
    let config: Config = load("egret.yaml", text, |_| Vec::new()).unwrap();
    assert_eq!((config.mode, config.workers, config.verbose, config.listen.len()), (Mode::Off, 2, true, 2));
    assert_eq!(config.listen[1].provider.as_deref(), Some("stripe"));
    assert_eq!(config.listen[0].address, "a");
    let stripe = &config.providers["stripe"];
    assert_eq!((stripe.url.as_str(), stripe.timeouts.connect), ("https://x", Some(Duration::from_secs(5))));
    assert_eq!((stripe.timeouts.first_byte, stripe.timeouts.body), (None, Some(Size::from_kib(1))));
    assert!(config.providers.contains_key("8000") && config.control.token.is_none());
}

#[test]
fn an_empty_config_is_all_defaults() {
    for text in ["", "\n", "# nothing\n", "---\n", "{}"] {
        assert!(load::<Config>("egret.yaml", text, |_| Vec::new()).is_ok(), "{text:?}");
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lists {
    words: Vec<String>,
    numbers: Option<Vec<u16>>,
    modes: Vec<Mode>,
}

#[test]
fn one_item_stands_for_a_list_of_it() {
    let read = |text: &str| load::<Lists>("egret.yaml", text, |_| Vec::new());
    let lists = read("words: 127.0.0.1:8000\nnumbers: 5\nmodes: off\n").unwrap();
    let expected =
        Lists { words: vec!["127.0.0.1:8000".to_owned()], numbers: Some(vec![5]), modes: vec![Mode::Off] };
    assert_eq!(lists, expected);
    for (text, expected) in [
        ("words: a, b", "words: expected a list, found `a, b`; did you mean `[a, b]`?"),
        ("words: 'a b'", "words: expected a list, found `a b`\n"),
        ("words: ''", "words: expected a list, found ``\n"),
        ("words:", "words: expected a list, found nothing\n"),
        ("words: { a: b }", "words: expected a list, found a mapping: put `- ` before each entry\n"),
        ("words: 5", "words: expected a text, found the number `5`\n"),
        ("modes: on", "modes: expected one of `enforce`, `report`, `off`, found `on`"),
    ] {
        let report = read(text).unwrap_err().to_string();
        assert!(report.contains(expected), "{text}: {report}");
    }
    // Each value is reported for itself.
    assert_eq!(read("numbers: many\nmodes: on\n").unwrap_err().findings.len(), 2);
}

#[test]
fn aliases_and_merge_keys_are_read() {
    let text =
        "providers:\n  a: &a { url: x, timeouts: { connect: 1s } }\n  b: { <<: *a, url: y }\n  c: *a\n";
    let config: Config = load("egret.yaml", text, |_| Vec::new()).unwrap();
    assert_eq!(config.providers["b"].url, "y");
    assert_eq!(config.providers["b"].timeouts.connect, Some(Duration::from_secs(1)));
    assert_eq!(config.providers["c"].url, "x");
}

/// Config texts, each with its complete report.
const BAD: [(&str, &str); 21] = [
    (
        "providers:\n  stripe: { url: x, timeouts: { conect: 5s } }",
        "egret.yaml:2:33: providers.stripe.timeouts.conect: unknown key `conect`, expected one of `connect`, `first_byte`, `body`; \
         did you mean `connect`?\n\
         2 |   stripe: { url: x, timeouts: { conect: …\n  \
           |                                 ^^^^^^",
    ),
    (
        "flows: []",
        "egret.yaml:1:1: flows: unknown key `flows`, expected one of `listen`, `workers`, `verbose`, `mode`, `control`, `providers`\n1 | flows: …\n  | ^^^^^",
    ),
    (
        "workers: many",
        "egret.yaml:1:10: workers: expected a whole number from 0 to 65535, found `many`\n1 | workers: many\n  |          ^^^^",
    ),
    (
        "workers: 70000",
        "egret.yaml:1:10: workers: expected a whole number from 0 to 65535, found the number `70000`\n1 | workers: 70000\n  |          ^^^^^",
    ),
    (
        "workers: -1 # none",
        "egret.yaml:1:10: workers: expected a whole number from 0 to 65535, found the number `-1`\n1 | workers: -1 # none\n  |          ^^",
    ),
    (
        "verbose: yes",
        "egret.yaml:1:10: verbose: expected `true` or `false`, found `yes`\n1 | verbose: yes\n  |          ^^^",
    ),
    (
        "mode: \"enforced\"",
        "egret.yaml:1:7: mode: expected one of `enforce`, `report`, `off`, found `enforced`; did you mean `enforce`?\n\
         1 | mode: \"enforced\"\n  |       ^^^^^^^^^^",
    ),
    (
        "mode: [off]",
        "egret.yaml:1:7: mode: expected one of `enforce`, `report`, `off`, found a list\n1 | mode: [off]\n  |       ^",
    ),
    (
        "listen: 127.0.0.1:8000",
        "egret.yaml:1:9: listen: expected a mapping, found `127.0.0.1:8000`\n1 | listen: 127.0.0.1:8000\n  |         ^^^^^^^^^^^^^^",
    ),
    (
        "providers:\n  stripe:\n    timeouts: { connect: 5 }\n    url: x\n",
        "egret.yaml:3:26: providers.stripe.timeouts.connect: expected a duration like `250ms` or `5s`, found the number `5`; did you mean `5s`?\n\
         3 |     timeouts: { connect: 5 }\n  |                          ^",
    ),
    (
        "providers:\n  stripe: { url: x, timeouts: { connect: 5sec } }\n",
        "egret.yaml:2:42: providers.stripe.timeouts.connect: `5sec` is not a duration: write a whole number and ms, s, m, h or d, like `250ms`; \
         did you mean `5s`?\n2 |   stripe: { url: x, timeouts: { connect: 5sec } }\n  |                                          ^^^^",
    ),
    (
        "providers:\n  stripe:\n    timeouts: {}\n",
        "egret.yaml:2:3: providers.stripe: the key `url` is missing\n2 |   stripe:\n  |   ^^^^^^",
    ),
    (
        "providers:\n",
        "egret.yaml:1:1: providers: expected a mapping, found nothing\n1 | providers:\n  | ^^^^^^^^^",
    ),
    (
        "- a\n",
        "egret.yaml:1:1: expected a mapping, found a list: write `name: ...` in place of `- ...`\n1 | - a\n  | ^",
    ),
    (
        "workers: \"5\"",
        "egret.yaml:1:10: workers: expected a whole number from 0 to 65535, found the text `5`: remove the quotes\n\
         1 | workers: \"5\"\n  |          ^^^",
    ),
    (
        "verbose: 'true'",
        "egret.yaml:1:10: verbose: expected `true` or `false`, found the text `true`: remove the quotes\n\
         1 | verbose: 'true'\n  |          ^^^^^^",
    ),
    (
        "workers: 1\nworkers: 2\n",
        "egret.yaml:2:1: the key `workers` is given twice, first in line 1\n2 | workers: 2\n  | ^",
    ),
    (
        "listen:\n  - address: é\n    provder: x\n",
        "egret.yaml:3:5: listen[0].provder: unknown key `provder`, expected one of `address`, `provider`; did you mean `provider`?\n\
         3 |     provder: …\n  |     ^^^^^^^",
    ),
    (
        "listen:\n  - address: a\n    provider: b\n  - address: c\n    provider: d\n    address: e\n",
        "egret.yaml:6:5: the key `address` is given twice, first in line 4\n6 |     address: e\n  |     ^",
    ),
    (
        "workers: 1\n---\nworkers: 2\n",
        "egret.yaml:3:1: a second YAML document starts here; a config is a single document: remove the `---` before it\n3 | workers: 2\n  | ^",
    ),
    (
        "mode: *nowhere\n",
        "egret.yaml:1:7: invalid YAML: reference to unknown value\n1 | mode: *nowhere\n  |       ^",
    ),
];

#[test]
fn a_bad_config_is_refused_with_the_place_and_what_was_expected() {
    for (text, expected) in BAD {
        assert_eq!(report(text), expected, "\n--- for\n{text}\n---");
    }
}

#[test]
fn every_problem_is_reported_at_once_in_the_order_of_the_file() {
    let text = "\
workrs: 2
listen:
  - { address: [1] }
  - 7
mode: loud
providers:
  a: { ulr: x }
  b: { url: y, timeouts: { connect: now } }
  c: {}
";
    let report = load::<Config>("egret.yaml", text, |_| Vec::new()).unwrap_err();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|finding| (finding.at.unwrap().line, finding.problem.path.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (1, "workrs"),
            (3, "listen[0].address"),
            (4, "listen[1]"),
            (5, "mode"),
            (7, "providers.a.ulr"),
            (8, "providers.b.timeouts.connect"),
            (9, "providers.c"),
        ]
    );
}

#[test]
fn a_misspelt_key_is_not_also_reported_missing() {
    let report = load::<Config>("egret.yaml", "providers: { a: { ulr: x } }", |_| Vec::new()).unwrap_err();
    assert_eq!(report.findings.len(), 1, "{report}");
    assert_eq!(report.findings[0].problem.suggestion.as_deref(), Some("url"));
}

#[test]
fn problems_of_meaning_are_located_at_the_value_or_the_nearest_parent() {
    let text = "\
listen:
  - address: a
    provider: strip
providers:
  api.v1: { url: ftp://x }
";
    let problems = |_: &Config| {
        vec![
            Problem::new("providers.api.v1.url", "neither http nor https"),
            Problem::new("listen[0].provider", "no provider `strip` is configured")
                .suggest("strip", ["github", "stripe"]),
            Problem::new("listen[0].tls.key", "needs a certificate"),
            Problem::new("control.listen", "not on loopback"),
        ]
    };
    assert_eq!(
        load("egret.yaml", text, problems).unwrap_err().to_string(),
        "egret.yaml:1:1: control.listen: not on loopback\n1 | listen:\n  | ^\n\n\
         egret.yaml:2:5: listen[0].tls.key: needs a certificate\n2 |   - address: a\n  |     ^\n\n\
         egret.yaml:3:15: listen[0].provider: no provider `strip` is configured; did you mean `stripe`?\n\
         3 |     provider: strip\n  |               ^^^^^\n\n\
         egret.yaml:5:18: providers.api.v1.url: neither http nor https\n5 |   api.v1: { url: ftp://x }\n  |                  ^^^^^^^"
    );
}

#[test]
fn no_report_shows_what_may_be_a_secret() {
    for text in [
        "control: { token: hunter2 }",
        "control:\n  token: hunter2\n",
        "control:\n  token: 'hunter2'\n",
        "control:\n  token: |\n    hunter2\n",
        "control:\n  token: >-\n    hunter2\n    hunter2\n",
        "control: { tokn: hunter2 }",
        "control:\n  tokn: hunter2\n",
        "control: { token: [hunter2] }",
        "control: { token: { hunter2: 1 } }",
        "control: { token: '${hunter2:NAME}' }",
        "hunter: hunter2",
        "token: \"hunter2",
        "token: hunter2: x",
        "secret: { a: hunter2 }}",
        "mode: http://user:hunter2@host/x",
        "control: { token: hunter2, tokn: 1 }",
        "workers: { api_key: hunter2 ] }",
    ] {
        let report = report(text);
        assert!(!report.contains("hunter2"), "{text}\n{report}");
    }
    let number = report("control: { token: 735182 }");
    assert!(!number.contains("735182"), "{number}");
}

#[test]
fn credentials_in_a_message_are_left_out() {
    let problems = |_: &Config| {
        vec![Problem::new(
            "mode",
            "`user:hunter2@host` and user:hunter2@host and http://hunter2@host/x; a:b c@d and `x@y` stay",
        )]
    };
    let report = load("egret.yaml", "mode: off", problems).unwrap_err().to_string();
    assert!(report.contains("`…@host` and …@host and http://…@host/x; a:b c@d and `x@y` stay"), "{report}");
}

#[test]
fn a_quoted_key_is_marked_with_its_quotes() {
    let report = report("\"mo de\": 1");
    assert!(report.ends_with("1 | \"mo de\": …\n  | ^^^^^^^"), "{report}");
}

#[test]
fn a_long_line_is_cut_around_the_problem() {
    let text = format!(
        "listen: [{}{{ adress: x }}{}]",
        "{ address: a }, ".repeat(50),
        ", { address: a }".repeat(50)
    );
    let report = report(&text);
    let lines: Vec<&str> = report.lines().collect();
    let caret = lines[2].find('^').unwrap();
    assert!(lines[1].chars().count() < 170, "{report}");
    assert_eq!(lines[1].chars().skip(caret).take(6).collect::<String>(), "adress", "{report}");
}

#[test]
fn control_characters_of_the_text_are_not_repeated() {
    let report = report("\"work\\e[31mers\": 1\nmode: \"\\e]0;x\\a\"\n");
    assert!(!report.contains('\u{1b}') && !report.contains('\u{7}'), "{report:?}");
}

#[test]
fn a_config_beyond_the_limits_of_size_is_refused() {
    let bomb = (1..9).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        text + &format!("a{level}: &a{level} [{inner}]\n")
    });
    for (text, message) in [
        ("#".repeat(2 << 20), "longer than 1048576 bytes"),
        ("[".repeat(500_000), "has no closing"),
        (
            "a:\n".to_owned() + &(1..400).map(|depth| " ".repeat(depth) + "a:\n").collect::<String>(),
            "nested too deep",
        ),
        (bomb, "repeats too much"),
        ("[x,".repeat(30) + &"]".repeat(30), "expected a mapping, found a list"),
    ] {
        let report = report(&text);
        assert!(report.contains(message), "{report}");
    }
}

#[test]
fn a_report_ends_somewhere() {
    let text = (0..1_000).fold(String::new(), |text, number| text + &format!("key{number}: 1\n"));
    assert_eq!(load::<Config>("egret.yaml", &text, |_| Vec::new()).unwrap_err().findings.len(), 20);
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in ".*") {
        let _ = load::<Config>("egret.yaml", &text, |_| Vec::new()).map_err(|report| report.to_string());
    }

    #[test]
    fn text_that_looks_like_a_config_never_panics(
        words in proptest::collection::vec(
            prop_oneof![
                Just("listen"), Just("providers"), Just("url"), Just("token"), Just("mode"), Just(": "), Just(":\n  "), Just("- "),
                Just("["), Just("]"), Just("{ "), Just(" }"), Just("\n"), Just("\n  "), Just(", "), Just("\""), Just("'"), Just("|\n"),
                Just("&a "), Just("*a"), Just("<<"), Just("5s"), Just("1"), Just("~"), Just("é\t"), Just("# "), Just("!x "), Just("${env:X}"),
            ],
            0..40,
        )
    ) {
        let text = words.concat();
        let paths = |_: &Config| vec![Problem::new("listen[0].url", "x"), Problem::new("providers.a[", "x"), Problem::new("", "x")];
        let _ = load::<Config>("egret.yaml", &text, paths).map_err(|report| report.to_string());
    }
}

#[test]
fn a_mapping_says_by_its_type_which_keys_it_has() {
    let text = "outputs:\n- { type: file, path: x }\n- { port: 7, type: socket }\n";
    let config: Outputs = load("egret.yaml", text, |_| Vec::new()).unwrap();
    let file = Output::File(FileOutput { path: "x".to_owned() });
    assert_eq!(config.outputs, [file, Output::Socket(SocketOutput { port: 7 })]);
    for (entry, expected) in [
        ("{ path: x }", "2:3: outputs[0]: the key `type` is missing"),
        (
            "{ type: flie, path: x }",
            "2:11: outputs[0].type: expected one of `file`, `socket`, found `flie`; did you mean `file`?",
        ),
        ("{ type: [], path: x }", "2:11: outputs[0].type: expected a word, found a list"),
        (
            "{ type: file, paht: x }",
            "2:17: outputs[0].paht: unknown key `paht`, expected `path`; did you mean `path`?",
        ),
        (
            "{ type: socket, port: x }",
            "2:25: outputs[0].port: expected a whole number from 0 to 65535, found `x`",
        ),
        ("{ type: socket }", "2:3: outputs[0]: the key `port` is missing"),
        ("file", "2:3: outputs[0]: expected a mapping, found `file`"),
    ] {
        let text = format!("outputs:\n- {entry}\n");
        let report = load::<Outputs>("egret.yaml", &text, |_| Vec::new()).unwrap_err().to_string();
        assert!(report.starts_with(&format!("egret.yaml:{expected}")), "{report}");
    }
}

#[test]
fn a_value_in_the_wrong_form_is_proposed_in_the_right_one() {
    for (text, meant) in [
        ("providers: { a: { url: x, timeouts: { connect: 60 } } }", Some("60s")),
        ("providers: { a: { url: x, timeouts: { body: 0 } } }", Some("0B")),
        ("providers: { a: { url: x, timeouts: { body: 512 } } }", None),
        ("listen: 'a, b'", Some("[a, b]")),
        ("listen: 5", None),
        ("listen: 'a: b'", None),
        ("workers: many", None),
    ] {
        let report = load::<Config>("egret.yaml", text, |_| Vec::new()).unwrap_err();
        assert_eq!(report.findings[0].problem.suggestion.as_deref(), meant, "{text}");
    }
}

#[test]
fn a_word_of_another_product_gets_advice() {
    let hints = [
        Hint { word: "endpoints", advice: "is Lunar's: use `flows`" },
        Hint { word: "none", advice: "is Lunar's: use `off`" },
    ];
    let text = "endpoints: []\nmode: none\nlisten: []\n";
    let report = Document::parse("egret.yaml", text).unwrap().with_hints(&hints);
    let report = report.load::<Config>(|_| Vec::new(), |_| Vec::new()).unwrap_err();
    let found: Vec<_> = report.findings.iter().map(|finding| finding.problem.message.as_str()).collect();
    assert_eq!(found, ["`endpoints` is Lunar's: use `flows`", "`none` is Lunar's: use `off`"]);
}

#[test]
fn problems_of_meaning_are_reported_beside_those_of_form() {
    let text = "\
workrs: 2
providers:
  a: { url: ftp://x }
  b: { url: ftp://y, timeouts: { connect: now } }
  c: {}
listen:
  - { address: a, provider: c }
  - { address: b, provider: d }
";
    let problems = |config: &Config| {
        let bad_url = |(name, provider): (&String, &Provider)| {
            provider.url.starts_with("ftp").then(|| Problem::new(format!("providers.{name}.url"), "not http"))
        };
        let unknown = |(number, listen): (usize, &Listen)| {
            let name = listen.provider.as_ref().filter(|name| !config.providers.contains_key(*name))?;
            Some(Problem::new(
                format!("listen[{number}].provider"),
                format!("no provider is called `{name}`"),
            ))
        };
        let urls = config.providers.iter().filter_map(bad_url);
        urls.chain(config.listen.iter().enumerate().filter_map(unknown)).collect()
    };
    let report = load::<Config>("egret.yaml", text, problems).unwrap_err();
    let found: Vec<_> = report.findings.iter().map(|finding| finding.problem.path.as_str()).collect();
    // Nothing is said about `b`, whose timeout is wrong, nor about the use of `c`, which was left out.
    assert_eq!(
        found,
        ["workrs", "providers.a.url", "providers.b.timeouts.connect", "providers.c", "listen[1].provider"]
    );
}
