use std::collections::BTreeSet;
use std::fmt;

use proptest::prelude::*;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny};
use serde_json::{Map, Value, json};

use super::*;
use crate::pointer::PARTS_MAX;

/// Applies edits written as `set /a 1`, `add /b 2` and `remove /c` to `text`.
fn edited(text: &str, edits: &[&str]) -> Result<String, JsonError> {
    let (mut all, mut values) = (JsonEdits::default(), Vec::new());
    for edit in edits {
        let mut words = edit.splitn(3, ' ');
        let (verb, pointer) = (words.next().unwrap(), words.next().unwrap());
        let action = match verb {
            "set" => Action::Set(values.len()),
            "add" => Action::Add(values.len()),
            _ => Action::Remove,
        };
        values.extend(words.next().map(|value| value.as_bytes().to_vec()));
        all.insert(pointer, action).unwrap();
    }
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let new = all.apply(text.as_bytes(), &values)?;
    Ok(new.map_or_else(|| text.to_owned(), |new| String::from_utf8(new).unwrap()))
}

#[track_caller]
fn assert_edited(text: &str, edits: &[&str], expected: &str) {
    assert_eq!(edited(text, edits).as_deref(), Ok(expected), "{text} {edits:?}");
}

#[test]
fn members_without_an_edit_keep_their_bytes() {
    let text = " { \"b\" : 1.50e+01 ,\n\t\"a\\u0062\":[ ] , \"a\": \"\\/\" } ";
    assert_edited(text, &["remove /c", "remove /b/x", "add /a 7"], text);
    assert_edited(text, &["set /b 2"], " { \"b\" : 2 ,\n\t\"a\\u0062\":[ ] , \"a\": \"\\/\" } ");
}

#[test]
fn a_value_is_rewritten_wherever_its_name_occurs() {
    let rewritten = |text: &str, pointers: &[&str]| {
        let mut edits = JsonEdits::default();
        for pointer in pointers {
            edits.insert(pointer, Action::Rewrite).unwrap();
        }
        let new = edits.apply_with(text.as_bytes(), &[], &mut |value, new| {
            new.extend_from_slice(&[b"<", value, b">"].concat());
            Ok(())
        });
        new.map(|new| new.map_or_else(|| text.to_owned(), |new| String::from_utf8(new).unwrap()))
    };
    for (text, pointers, expected) in [
        (r#"{"a": 1 , "b": [2, "c"]}"#, &["/a", "/b/1"][..], r#"{"a": <1> , "b": [2, <"c">]}"#),
        (r#"{"a":{"b": null },"\u0061":2}"#, &["/a"], r#"{"a":<{"b": null }>,"\u0061":<2>}"#),
        (r#"{"a":1}"#, &["/b", "/a/b", "/c/0"], r#"{"a":1}"#),
        ("7", &[""], "<7>"),
    ] {
        assert_eq!(rewritten(text, pointers).as_deref(), Ok(expected), "{text} {pointers:?}");
    }
    assert_eq!(rewritten(r#"{"a":1"#, &["/a"]), Err(JsonError::Malformed(6)));
    let mut edits = JsonEdits::default();
    edits.insert("/a", Action::Rewrite).unwrap();
    let refused = edits.apply_with(br#"{"a":1}"#, &[], &mut |_, _| Err(JsonError::TooLong));
    assert_eq!(refused, Err(JsonError::TooLong));
    // Without a function, the value stays.
    assert_eq!(edits.apply(br#"{"a":1}"#, &[]), Ok(None));
}

#[test]
fn a_member_is_put_where_one_was_or_last() {
    assert_edited(r#"{"a":1,"b":2}"#, &["set /a [3]"], r#"{"a":[3],"b":2}"#);
    assert_edited(r#"{"a":1 }"#, &["set /c 3"], r#"{"a":1,"c":3 }"#);
    assert_edited("{ }", &["set /c 3", "set /d 4"], r#"{"c":3,"d":4 }"#);
    assert_edited("{}", &["set /a/b/c 1", "set /a/d 2", "remove /x/y"], r#"{"a":{"b":{"c":1},"d":2}}"#);
    assert_edited(r#"{"a":null}"#, &["set /a/b 1"], r#"{"a":{"b":1}}"#);
    assert_edited(r#"{"a":{"x":[]}}"#, &["set /a/b 1"], r#"{"a":{"x":[],"b":1}}"#);
    assert_edited("[1]", &["set  {}"], "{}");
    assert_edited("{}", &[r#"set /a"\~0~1é 1"#], r#"{"a\"\\~/é":1}"#);
}

#[test]
fn members_are_taken_out_with_one_comma() {
    for (edits, expected) in [
        (&["remove /a"][..], r#"{ "b": 2 , "c": 3 }"#),
        (&["remove /b"], r#"{ "a": 1 , "c": 3 }"#),
        (&["remove /c"], r#"{ "a": 1 , "b": 2 }"#),
        (&["remove /a", "remove /b"], r#"{ "c": 3 }"#),
        (&["remove /b", "remove /c"], r#"{ "a": 1 }"#),
        (&["remove /a", "remove /c"], r#"{ "b": 2 }"#),
        (&["remove /a", "remove /b", "remove /c"], "{  }"),
        (&["remove /a", "remove /b", "remove /c", "set /d 4"], r#"{ "d":4 }"#),
        (&["remove /c", "set /d 4"], r#"{ "a": 1 , "b": 2,"d":4 }"#),
        (&["remove /a", "set /b 4"], r#"{ "b": 4 , "c": 3 }"#),
    ] {
        assert_edited(r#"{ "a": 1 , "b": 2 , "c": 3 }"#, edits, expected);
    }
}

#[test]
fn lists_are_edited_by_index_and_at_their_end() {
    assert_edited("[1,2,3]", &["set /1 9", "remove /0"], "[9,3]");
    assert_edited("[1,2,3]", &["set /3 4", "set /4 5", "add /- 6"], "[1,2,3,4,5,6]");
    assert_edited("[ ]", &["set /- 6"], "[6 ]");
    assert_edited("[1]", &["remove /0", "set /- 6"], "[6]");
    assert_edited("[1]", &["remove /1", "remove /-", "remove /x", "add /7 1", "add /y 1"], "[1]");
    assert_edited(r#"[{"a":1}]"#, &["remove /0/a", "set /-/b 2"], r#"[{},{"b":2}]"#);
    assert_edited("{}", &["set /a/- 1"], r#"{"a":[1]}"#);
    assert_edited("{}", &["set /a/0 1"], r#"{"a":{"0":1}}"#);
    assert_edited(r#"{"-":1,"0":1}"#, &["set /- 2", "set /0 3"], r#"{"-":2,"0":3}"#);
    for edit in ["set /2 1", "set /x 1", "set /01 1", "set /0/a 1", "set /+0 1"] {
        assert_eq!(edited("[1]", &[edit]), Err(JsonError::NoPlace), "{edit}");
    }
    assert_eq!(edited(r#"{"a":"text"}"#, &["set /a/b 1"]), Err(JsonError::NoPlace));
    assert_edited(r#"{"a":"text"}"#, &["add /a/b 1"], r#"{"a":"text"}"#);
}

#[test]
fn adding_appends_to_a_list_or_sets_what_is_not_there() {
    assert_edited(
        r#"{"a":["x"],"b":[],"c":"x","d":null}"#,
        &["add /a 1", "add /b 1", "add /c 1", "add /d 1", "add /e 1"],
        r#"{"a":["x",1],"b":[1],"c":"x","d":null,"e":1}"#,
    );
    assert_edited("[[1],2]", &["add /0 3", "add /1 4", "add /2 5"], "[[1,3],2,5]");
    assert_edited("[ 1 ]", &["add  2"], "[ 1,2 ]");
}

#[test]
fn names_that_stand_several_times_are_edited_all() {
    assert_edited(r#"{"a":1,"b":2,"a":3,"\u0061":4}"#, &["set /a 9"], r#"{"a":9,"b":2}"#);
    assert_edited(r#"{"a":1,"\u0061":{},"b":2,"a":3}"#, &["remove /a"], r#"{"b":2}"#);
    assert_edited(r#"{"a":{},"a":{"b":1,"b":2}}"#, &["set /a/b 7"], r#"{"a":{"b":7},"a":{"b":7}}"#);
    assert_edited(r#"{"a":[],"a":[1]}"#, &["add /a 7"], r#"{"a":[7],"a":[1,7]}"#);
    assert_eq!(edited(r#"{"a":{},"a":1}"#, &["set /a/b 7"]), Err(JsonError::NoPlace));
    let pair = r#"{"\ud83d\ude00":1,"\ud83d":2,"\ud83dx":3,"\ud83d\u0041":4}"#;
    assert_edited(pair, &["remove /😀"], r#"{"\ud83d":2,"\ud83dx":3,"\ud83d\u0041":4}"#);
    assert_edited(r#"{"\"\\\/\b\f\n\r\t":1}"#, &["remove /\"\\~1\u{8}\u{c}\n\r\t"], "{}");
}

#[test]
fn malformed_json_is_refused_at_its_first_wrong_byte() {
    for (text, at) in [
        ("", 0),
        ("{", 1),
        ("[1,]", 3),
        ("{\"a\":1,}", 7),
        ("{a:1}", 1),
        ("[01]", 2),
        ("[1.]", 3),
        ("[.1]", 1),
        ("[+1]", 1),
        ("[-]", 2),
        ("[1e]", 3),
        ("\"\n\"", 1),
        ("\"\\x\"", 2),
        ("\"\\u12g4\"", 2),
        ("nul", 0),
        ("[1] 2", 4),
        ("\u{feff}{}", 0),
        ("[1}", 2),
        ("{\"a\" 1}", 5),
        ("\"", 1),
        ("[NaN]", 1),
        ("{}\0", 2),
        ("/**/{}", 0),
        ("'a'", 0),
    ] {
        assert_eq!(edited(text, &["remove /a"]), Err(JsonError::Malformed(at)), "{text:?}");
    }
    let edits = JsonEdits::default();
    assert_eq!(edits.apply(b"\"\xff\"", &[]), Err(JsonError::Malformed(1)));
}

#[test]
fn nesting_and_growth_are_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_edited(&nested(127), &["remove /x"], &nested(127));
    assert_eq!(edited(&nested(128), &["remove /x"]), Err(JsonError::TooDeep));
    assert_eq!(edited(&nested(128), &["set /0/0/0/0 1"]), Err(JsonError::TooDeep));
    assert_eq!(edited(&"[".repeat(1 << 20), &["remove /0/0"]), Err(JsonError::TooDeep));
    assert_eq!(edited(&"{\"a\":".repeat(1 << 18), &["remove /a/a"]), Err(JsonError::TooDeep));
    let many = format!("{{{}}}", vec!["\"a\":{}"; 10_000].join(","));
    let long = format!("set /a/b \"{}\"", "x".repeat(1000));
    assert_eq!(edited(&many, &[&long]), Err(JsonError::TooLong));
}

#[test]
fn pointers_are_checked() {
    let mut edits = JsonEdits::default();
    assert_eq!(edits.insert("/a/b", Action::Remove), Ok(()));
    let deep = "/x".repeat(PARTS_MAX + 1);
    for wrong in ["a", "/a~", "/a~2b", "/a", "/a/b", "/a/b/c", "", deep.as_str(), &"/".repeat(2000)] {
        assert!(edits.insert(wrong, Action::Set(0)).is_err(), "{wrong}");
    }
    assert!(JsonEdits::default().insert("", Action::Remove).is_err());
    assert!(JsonEdits::default().is_empty() && !edits.is_empty());
}

const NAMES: [&str; 6] = ["\"a\"", "\"b\"", "\"c\\n\"", "\"0\"", "\"-\"", "\"\\u0061\""];

/// Generates a value in any valid JSON notation; `names` generates the names of an object.
fn any_text<Names: Strategy<Value = Vec<&'static str>> + Clone + 'static>(
    names: Names,
) -> impl Strategy<Value = String> {
    let space = prop::sample::select(vec!["", "", " ", "\n\t"]);
    let scalars = ["null", "true", "0", "-1.50E+3", "\"\"", "\"\\ud83d\\ude00,]}\"", "{}", "[]"];
    let scalar = prop::sample::select(scalars.to_vec()).prop_map(str::to_owned);
    scalar.prop_recursive(4, 40, 5, move |inner| {
        let padded = (space.clone(), inner, space.clone())
            .prop_map(|(before, text, after)| format!("{before}{text}{after}"));
        let values = prop::collection::vec(padded, 0..5);
        let object = (names.clone(), values.clone(), space.clone()).prop_map(|(names, values, space)| {
            let members =
                names.iter().zip(values).map(|(name, value)| format!("{space}{name}{space}:{value}"));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        });
        prop_oneof![object, values.prop_map(|elements| format!("[{}]", elements.join(",")))]
    })
}

/// Generates a value without repeated names in an object.
fn unique_text() -> impl Strategy<Value = String> {
    any_text(prop::sample::subsequence(NAMES[..5].to_vec(), 0..=4))
}

/// Generates a value with repeated names.
fn repeated_text() -> impl Strategy<Value = String> {
    any_text(prop::collection::vec(prop::sample::select(NAMES.to_vec()), 0..=4))
}

fn any_pointer(parts: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    prop::collection::vec(prop::sample::select(parts.to_vec()), 1..4).prop_map(|parts| parts.concat())
}

/// JSON as it was written, including repeated names.
#[derive(Debug, Clone, PartialEq)]
enum Written {
    Object(Vec<(String, Self)>),
    List(Vec<Self>),
    Other(Value),
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Written;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Written, E> {
                Ok(Written::Other(Value::Null))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Written, E> {
                Ok(Written::Other(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Written, E> {
                Ok(Written::Other(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Written, E> {
                Ok(Written::Other(value.into()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Written, E> {
                Ok(Written::Other(value.into()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Written, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    elements.push(element);
                }
                Ok(Written::List(elements))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Written::Object(members))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Written {
    fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap()
    }

    /// Returns `true` if no object in it repeats a name.
    fn is_unique(&self) -> bool {
        match self {
            Self::Object(members) => {
                let names: BTreeSet<&String> = members.iter().map(|(name, _)| name).collect();
                names.len() == members.len() && members.iter().all(|(_, value)| value.is_unique())
            }
            Self::List(elements) => elements.iter().all(Self::is_unique),
            Self::Other(_) => true,
        }
    }

    /// Returns the value at `parts`, all of them names, as seen by a parser that takes the first, or the
    /// last, of repeated names.
    fn at(&self, parts: &[String], takes_last: bool) -> Option<&Self> {
        let [part, rest @ ..] = parts else { return Some(self) };
        let Self::Object(members) = self else { return None };
        let mut found = members.iter().filter(|(name, _)| name == part);
        let (_, value) = if takes_last { found.next_back() } else { found.next() }?;
        value.at(rest, takes_last)
    }
}

/// Applies the same edit to a value in the simplest way.
fn model(value: &mut Value, parts: &[String], action: &str, new: &Value) -> Result<(), JsonError> {
    let [part, rest @ ..] = parts else {
        match (action, &mut *value) {
            ("set", value) => *value = new.clone(),
            ("add", Value::Array(list)) => list.push(new.clone()),
            _ => {}
        }
        return Ok(());
    };
    let missing = |rest: &[String]| {
        rest.iter().rev().fold(new.clone(), |inner, part| match part.as_str() {
            "-" => json!([inner]),
            part => json!({ part: inner }),
        })
    };
    match value {
        Value::Object(map) if action == "remove" && rest.is_empty() => drop(map.remove(part)),
        Value::Object(map) => match map.get_mut(part) {
            Some(value) => model(value, rest, action, new)?,
            None if action == "remove" => {}
            None => drop(map.insert(part.clone(), missing(rest))),
        },
        Value::Array(list) => match index(part) {
            Some(at) if at < list.len() && action == "remove" && rest.is_empty() => drop(list.remove(at)),
            Some(at) if at < list.len() => model(&mut list[at], rest, action, new)?,
            _ if action == "remove" => {}
            Some(at) if at == list.len() => list.push(missing(rest)),
            _ if part == "-" => list.push(missing(rest)),
            _ if action == "set" => return Err(JsonError::NoPlace),
            _ => {}
        },
        Value::Null if action != "remove" => *value = missing(parts),
        _ if action == "set" => return Err(JsonError::NoPlace),
        _ => {}
    }
    Ok(())
}

proptest! {
    #[test]
    fn edits_do_what_they_do_to_values(
        text in unique_text(),
        pointer in any_pointer(&["/a", "/b", "/c\n", "/0", "/1", "/-", "/d"]),
        verb in prop::sample::select(vec!["set", "add", "remove"]),
    ) {
        let new = if verb == "remove" { "" } else { " [1]" };
        let found = edited(&text, &[&format!("{verb} {pointer}{new}")]);
        let mut expected: Value = serde_json::from_str(&text).unwrap();
        let parts = parts(&pointer).unwrap();
        match model(&mut expected, &parts, verb, &json!([1])) {
            Ok(()) => {
                let found = found.unwrap();
                prop_assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), expected);
                prop_assert!(Written::read(&found).is_unique());
            }
            Err(error) => prop_assert_eq!(found, Err(error)),
        }
    }

    #[test]
    fn whoever_reads_names_that_stand_twice_sees_the_same(
        text in repeated_text(),
        pointer in any_pointer(&["/a", "/b", "/c\n", "/d"]),
    ) {
        let parts = parts(&pointer).unwrap();
        let removed = Written::read(&edited(&text, &[&format!("remove {pointer}")]).unwrap());
        let set = edited(&text, &[&format!("set {pointer} true")]).map(|set| Written::read(&set));
        for takes_last in [false, true] {
            prop_assert_eq!(removed.at(&parts, takes_last), None);
            if let Ok(set) = &set {
                prop_assert_eq!(set.at(&parts, takes_last), Some(&Written::Other(true.into())));
            }
        }
    }

    #[test]
    fn several_edits_at_once_do_what_they_do_one_by_one(text in unique_text()) {
        let edits = ["remove /0", "remove /a/b", "add /b 1", "add /c\n/x 3", "set /d 2"];
        let at_once = edited(&text, &edits);
        let mut one_by_one = Ok(text);
        for edit in edits {
            one_by_one = one_by_one.and_then(|text| edited(&text, &[edit]));
        }
        let read = |text: Result<String, _>| text.map(|text| serde_json::from_str::<Value>(&text).unwrap());
        prop_assert_eq!(read(at_once), read(one_by_one));
    }

    #[test]
    fn an_edit_fails_exactly_where_serde_json_does(text in repeated_text(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let is_json = std::str::from_utf8(&bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        let edits = JsonEdits { root: EditNode { action: None, children: vec![("a".into(), EditNode { action: Some(Action::Remove), children: Vec::new() })] } };
        prop_assert_eq!(edits.apply(&bytes, &[]).is_ok(), is_json);
    }
}

#[test]
fn missing_parents_are_created_as_objects() {
    let map: Map<String, Value> =
        serde_json::from_str(&edited("{}", &["set /a/b 1", "add /a/c/- 2"]).unwrap()).unwrap();
    assert_eq!(Value::Object(map), json!({ "a": { "b": 1, "c": [2] } }));
}
