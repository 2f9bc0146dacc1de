//! References in texts: what they are replaced by, and that nothing but a value changes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::{Document, Duration, Problem, Secret};

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    text: String,
    number: Option<u16>,
    signed: i32,
    ratio: f64,
    flag: bool,
    time: Option<Duration>,
    word: Option<Word>,
    list: Vec<String>,
    map: BTreeMap<String, String>,
    #[serde(deserialize_with = "verbatim")]
    expression: Option<String>,
    group: String,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    On,
    Off,
}

fn set(name: &str, value: &str) {
    VARIABLES.with_borrow_mut(|variables| variables.insert(name.to_owned(), value.to_owned()));
}

fn load(text: &str) -> Result<Config, String> {
    let none = |_: &Config| Vec::<Problem>::new();
    let document = Document::parse("egret.yaml", text).map_err(|report| report.to_string())?.with_variables();
    document.load(none, none).map(|loaded| loaded.config).map_err(|report| report.to_string())
}

#[test]
fn a_reference_becomes_what_its_key_expects() {
    for (name, value) in [("N", "80"), ("R", "0.5"), ("T", "5s"), ("W", "off"), ("F", "true"), ("S", "-3")] {
        set(name, value);
    }
    let config = load(
        "text: a${env:N}b${env:NONE:-c}\nnumber: ${env:N}80\nsigned: ${env:S}\nratio: ${env:R}\nflag: ${env:F}\n\
         time: ${env:T}\nword: ${env:W}\nlist: ${env:N}\nmap: { a: '${env:NONE:-}' }\n\
         expression: x == '${env:N}'\ngroup: cel:${env:N}\n",
    );
    let expected = Config {
        text: "a80bc".to_owned(),
        number: Some(8080),
        signed: -3,
        ratio: 0.5,
        flag: true,
        time: Some(Duration::from_secs(5)),
        word: Some(Word::Off),
        list: vec!["80".to_owned()],
        map: BTreeMap::from([("a".to_owned(), String::new())]),
        expression: Some("x == '${env:N}'".to_owned()),
        group: "cel:${env:N}".to_owned(),
    };
    assert_eq!(config, Ok(expected));
}

#[test]
fn an_error_has_its_place_and_never_the_value() {
    set("SECRET", "hunter2");
    set("LONG", &"hunter2".repeat(40));
    set("EMPTY", "");
    for (text, expected) in [
        ("text: a\nnumber: ${env:NONE}", "egret.yaml:2:9: number: the environment variable NONE is not set"),
        ("text: ${env:EMPTY}", "the environment variable EMPTY is empty"),
        ("text: ${env:A-B}", "`A-B` is not the name"),
        ("text: ${env:1}", "`1` is not the name"),
        ("text: ${env:A", "without `}`"),
        ("number: ${env:SECRET}", "found the value of `${env:SECRET}`"),
        ("number: ${env:LONG}", "found the value of `${env:LONG}`"),
        ("number: ${env:NONE:-70000}", "number"),
        ("time: ${env:SECRET}", "the value of `${env:SECRET}` is not a duration"),
        ("word: ${env:SECRET}", "expected one of `on`, `off`, found the value of `${env:SECRET}`"),
        ("map: ${env:SECRET}", "expected a mapping, found the value of `${env:SECRET}`"),
        ("flag: ${env:SECRET}", "found the value of `${env:SECRET}`"),
    ] {
        let report = load(text).unwrap_err();
        assert!(report.contains(expected) && !report.contains("hunter2"), "{text}: {report}");
    }
}

#[test]
fn a_literal_reference_is_written_with_two_dollars() {
    assert_eq!(load("text: a$${env:N} ${x} $${y}").unwrap().text, "a${env:N} ${x} $${y}");
}

#[test]
fn a_text_has_a_bound() {
    set("LONG", &"a".repeat(TEXT_BYTES_MAX));
    assert_eq!(load("text: ${env:LONG}").unwrap().text.len(), TEXT_BYTES_MAX);
    assert!(load("text: ${env:LONG}b").unwrap_err().contains("longer than 65536 bytes"));
}

#[test]
fn a_secret_has_no_default() {
    #[derive(Debug, Deserialize)]
    struct Config {
        #[expect(dead_code, reason = "it is refused")]
        token: Secret,
    }
    let none = |_: &Config| Vec::new();
    for token in ["${env:TOKEN:-hunter2}", "'${env:TOKEN:-hunter2}'"] {
        let text = format!("token: {token}\n");
        let document = Document::parse("egret.yaml", &text).unwrap().with_variables();
        let report = document.load(none, none).unwrap_err().to_string();
        assert!(report.contains("a secret has no default") && !report.contains("hunter2"), "{report}");
    }
}

proptest! {
    #[test]
    fn no_value_changes_the_structure(value in r#"([a-z0-9 ,:#'"\[\]{}&*!|>%@`\n\t-]|: |- |\$\{env:V\}){1,40}"#) {
        set("V", &value);
        let config = load("text: ${env:V}\nlist: ['${env:V}', b]\nmap: { a: '${env:V}', b: c }\n").unwrap();
        let map = [("a", value.as_str()), ("b", "c")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let expected = Config {
            text: value.clone(),
            list: vec![value.clone(), "b".to_owned()],
            map: BTreeMap::from(map),
            ..Config::default()
        };
        prop_assert_eq!(config, expected);
    }

    #[test]
    fn any_text_with_any_references_is_read_or_refused(text in r"(\$|\{|env:|[A-Z]|:-|\}|é){0,20}") {
        set("A", "x");
        let _on = Replacing::On.enter();
        match replaced(&text) {
            Ok(None) => prop_assert!(!text.contains(PREFIX)),
            Ok(Some(value)) => prop_assert!(value.len() <= text.len()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
