//! A report as text: what is wrong, or all of it, one line for each value, indented like YAML.

use std::fmt::Write;

use egret_clock::Timestamp;
use serde_json::Value;

use crate::findings::{self, Finding, printable};

/// Returns what is wrong, on one screen.
pub fn summary(report: &Value, now: Timestamp) -> String {
    let found: Vec<Finding> = serde_json::from_value(report["findings"].clone()).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(printable).unwrap_or_default();
    let (version, commit) = (text(&report["egret"]["version"]), text(&report["egret"]["commit"]));
    let mut summary = format!("egret {version} ({commit})");
    if report["control"]["ready"] == true {
        let _ = write!(summary, ", the gateway at {} is ready", text(&report["control"]["address"]));
    }
    summary += "\n";
    let wrong: Vec<&Value> = report["wrong"].as_array().into_iter().flatten().collect();
    summary += if wrong.is_empty() { "\nnothing is wrong\n" } else { "\nwrong:\n" };
    // The findings are the last ones.
    for line in &wrong[..wrong.len().saturating_sub(found.len())] {
        let _ = writeln!(summary, "  error: {}", text(line));
    }
    summary += &findings::render(&found, now);
    let warnings = report["config_file"]["warnings"].as_array().map_or(0, Vec::len);
    if warnings > 0 {
        let _ = writeln!(summary, "\nwarnings about the config, see `egret check`: {warnings}");
    }
    summary + "\n`egret doctor --full` prints the whole report, without secrets, for a support ticket\n"
}

/// Returns the report as text.
pub fn render(report: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, report, 0);
    text
}

/// Writes a mapping or list at this indentation.
fn write_value(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| write_entry(text, key, value, indent)),
        Value::Array(list) => list.iter().for_each(|value| write_element(text, value, indent)),
        scalar => {
            let _ = writeln!(text, "{:indent$}{}", "", shown(scalar));
        }
    }
}

fn write_entry(text: &mut String, key: &str, value: &Value, indent: usize) {
    let key = printable(key);
    if is_nested(value) {
        let _ = writeln!(text, "{:indent$}{key}:", "");
        write_value(text, value, indent + 2);
    } else {
        let _ = writeln!(text, "{:indent$}{key}: {}", "", shown(value));
    }
}

/// Writes an element of a list. The first key of a mapping stands behind the hyphen.
fn write_element(text: &mut String, value: &Value, indent: usize) {
    if !is_nested(value) {
        let _ = writeln!(text, "{:indent$}- {}", "", shown(value));
        return;
    }
    let start = text.len() + indent;
    write_value(text, value, indent + 2);
    text.replace_range(start..=start, "-");
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => printable(text),
        Value::Array(_) | Value::Object(_) => "none".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_lines_and_mappings_are_indented() {
        let report = json!({
            "a": 1,
            "b": { "c": "x\u{1b}[2Jy", "d": null, "e": [], "f": {} },
            "g": ["x", { "h": true, "i": [1, 2] }, [3]],
        });
        let expected = "a: 1\nb:\n  c: x [2Jy\n  d: -\n  e: none\n  f: none\ng:\n  - x\n  - h: true\n    i:\n      - 1\n      - 2\n  - - 3\n";
        assert_eq!(render(&report), expected);
    }
}
