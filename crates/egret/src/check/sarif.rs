//! Problems of a config as SARIF 2.1.0 (OASIS), the format of code scanning.

use std::fmt::Write;

use egret_config::{LocatedProblem, Severity};
use serde_json::{Value, json};

/// The schema of the format.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Returns the log of one run that found these problems.
pub fn log(problems: &[LocatedProblem]) -> Value {
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "egret",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": [
                    rule("config-error", "The config is invalid"),
                    rule("config-warning", "The config is probably not what was meant"),
                ],
            } },
            "columnKind": "unicodeCodePoints",
            "results": problems.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn rule(id: &str, about: &str) -> Value {
    json!({ "id": id, "shortDescription": { "text": about } })
}

fn result(problem: &LocatedProblem) -> Value {
    let LocatedProblem { severity, file, line, column, path, message, suggestion } = problem;
    let (rule, index, level) = match severity {
        Severity::Error => ("config-error", 0, "error"),
        Severity::Warning => ("config-warning", 1, "warning"),
    };
    let mut text = if path.is_empty() { message.clone() } else { format!("{path}: {message}") };
    if let Some(word) = suggestion {
        let _ = write!(text, "; did you mean `{word}`?");
    }
    let mut place = json!({ "artifactLocation": { "uri": uri(file) } });
    if let Some(line) = line {
        place["region"] = json!({ "startLine": line, "startColumn": column.unwrap_or(1) });
    }
    json!({
        "ruleId": rule,
        "ruleIndex": index,
        "level": level,
        "message": { "text": text },
        "locations": [{ "physicalLocation": place }],
    })
}

/// Returns a path as a relative or absolute URI reference (RFC 3986).
fn uri(path: &str) -> String {
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use egret_settings::config_file::ConfigSources;

    use super::*;

    #[test]
    fn a_log_has_what_the_schema_requires() {
        let text = "providers: { a: { ulr: x } }\nlog: { level: lout }\n".to_owned();
        let report = ConfigSources::of(std::path::Path::new("a b.yaml"), text).load().unwrap_err();
        let log = log(&report.problems());
        // Required by the schema: `version` and `runs` of a log, `tool` of a run, `driver` of a tool, `name`
        // of a driver, `message` of a result, `text` or `id` of a message, `id` of a rule.
        assert_eq!((&log["version"], &log["$schema"]), (&json!("2.1.0"), &json!(SCHEMA)));
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["name"], "egret");
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        assert!(
            rules.iter().all(|rule| rule["id"].is_string() && rule["shortDescription"]["text"].is_string())
        );
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), report.findings.len());
        for result in results {
            assert!(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
            let level = result["level"].as_str().unwrap();
            assert!(["none", "note", "warning", "error"].contains(&level), "{result}");
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(rules[index]["id"], result["ruleId"]);
            let place = &result["locations"][0]["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], "a%20b.yaml");
            let region = &place["region"];
            assert!(region["startLine"].as_u64() >= Some(1) && region["startColumn"].as_u64() >= Some(1));
        }
    }

    #[test]
    fn a_path_is_a_uri() {
        assert_eq!(uri("conf/ä#.yaml"), "conf/%C3%A4%23.yaml");
        assert_eq!(uri("/etc/egret.yaml"), "file:///etc/egret.yaml");
    }
}
