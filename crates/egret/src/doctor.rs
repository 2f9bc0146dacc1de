//! `egret doctor`: one report about a gateway and its machine, for a support ticket. It contains no secrets.

mod machine;
mod probe;
mod redact;
mod text;
mod unset;

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use egret_config::without_secrets;
use egret_plan::config::ProviderConfig;
use egret_service::control_client::ControlClient;
use egret_settings::config::Config;
use egret_settings::config_file;
use egret_settings::failure::Failure;
use egret_settings::output::{print, print_json};
use serde_json::{Map, Value, json};

use crate::asked_gateway::AskedGateway;
use crate::findings::{self, Finding};
use crate::version;
use redact::Redactor;

/// `egret doctor`
#[derive(Debug, Args)]
pub struct DoctorArguments {
    #[command(flatten)]
    asked: AskedGateway,
    /// Also resolve, connect to and shake hands with every provider. No request is sent.
    #[arg(long)]
    probe: bool,
    /// Print the whole report, for a support ticket. Without it, only what is wrong is printed.
    #[arg(long)]
    full: bool,
    /// Print the whole report as JSON.
    #[arg(long)]
    json: bool,
}

/// The paths of the API that are part of a report, by the member that holds their content.
const PATHS: [(&str, &str); 6] = [
    ("flows", "/api/v1/flows"),
    ("quotas", "/api/v1/quotas"),
    ("cluster", "/api/v1/cluster"),
    ("accounts", "/api/v1/accounts"),
    ("exporters", "/api/v1/exporters"),
    ("config", "/api/v1/config"),
];

/// Prints the report. Fails if something is wrong.
pub fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    let report = report(arguments);
    if arguments.json {
        print_json(&format!("{report:#}\n"))?;
    } else if arguments.full {
        print(&text::render(&report))?;
    } else {
        print(&text::summary(&report, findings::now()))?;
    }
    match report["wrong"].as_array().map_or(0, Vec::len) {
        0 => Ok(()),
        1 => Err(Failure::Failed("1 problem was found".to_owned())),
        count => Err(Failure::Failed(format!("{count} problems were found"))),
    }
}

/// Returns the report.
fn report(arguments: &DoctorArguments) -> Value {
    let mut examined = Examined::default();
    let (mut config, asked) = (None, &arguments.asked);
    match asked.gateway.file() {
        Ok(file) => {
            config = file.and_then(|file| examined.file(&file));
            match asked.client() {
                Ok(client) => examined.gateway(&client),
                // The config that leads to it may be what is wrong.
                Err(failure) if examined.has(&failure.to_string()) => {}
                Err(failure) => examined.wrong.push(format!("gateway: not asked: {failure}")),
            }
        }
        Err(failure) => examined.wrong.push(format!("config: {failure}")),
    }
    if arguments.probe {
        examined.probe(config.as_ref());
    }
    examined.finish()
}

/// The results so far.
#[derive(Default)]
struct Examined {
    wrong: Vec<String>,
    findings: Vec<Finding>,
    sections: Map<String, Value>,
    redactor: Redactor,
}

impl Examined {
    /// Checks the config file. Returns the config if it is valid. Variables that are not set here are not
    /// wrong: the gateway runs in another environment.
    fn file(&mut self, file: &Path) -> Option<Config> {
        let name = file.display().to_string();
        let (config, problems, warnings) = without_secrets(|| check_file(file, &name));
        let (unset, problems): (Vec<_>, Vec<_>) =
            problems.into_iter().partition(|problem| unset::variable_of(problem).is_some());
        let mut not_set: BTreeSet<String> =
            unset.iter().filter_map(|problem| unset::variable_of(problem)).map(str::to_owned).collect();
        for problem in &problems {
            self.wrong.push(format!("config: {problem}"));
        }
        if let Some(config) = &config {
            let written = serde_json::to_value(config).unwrap_or_default();
            self.redactor.add_references(&written);
            unset::add(&written, &mut not_set);
        }
        // Without these variables, nobody can tell.
        let valid = if unset.is_empty() || !problems.is_empty() { Some(config.is_some()) } else { None };
        let section = json!({
            "file": name,
            "valid": valid,
            "problems": problems,
            "warnings": warnings,
            "not_set_here": not_set,
        });
        self.sections.insert("config_file".to_owned(), section);
        config
    }

    /// Returns `true` if a line says this already.
    fn has(&self, message: &str) -> bool {
        self.wrong.iter().any(|line| line.contains(message))
    }

    /// Reads the state of the running gateway.
    fn gateway(&mut self, client: &ControlClient) {
        let ready = client.get("/readyz").map_err(|error| error.to_string());
        if let Err(error) = &ready {
            self.wrong.push(format!("gateway: not ready at {}: {error}", client.address));
        }
        let control =
            json!({ "address": client.address.to_string(), "ready": ready.is_ok(), "error": ready.err() });
        self.sections.insert("control".to_owned(), control);
        let Some(mut stats) = self.read(client, "/api/v1/stats") else { return };
        if stats["version"] != env!("CARGO_PKG_VERSION") {
            let (other, own) = (&stats["version"], env!("CARGO_PKG_VERSION"));
            self.wrong.push(format!("gateway: its version is {other}, this program's is {own}"));
        }
        without_histograms(&mut stats);
        match findings::read(client) {
            Ok(found) => self.findings = found,
            Err(error) => self.wrong.push(format!("gateway: it does not say what is wrong: {error}")),
        }
        if let Some(history) = self.read(client, "/api/v1/history") {
            let history_of_page = json!({ "bytes": history["bytes"], "bytes_max": history["bytes_max"] });
            let page = json!({ "history": history_of_page, "traffic_list": history["traffic_list"] });
            self.sections.insert("memory_of_page".to_owned(), page);
        }
        self.sections.insert("stats".to_owned(), stats);
        for (name, path) in PATHS {
            let Some(mut value) = self.read(client, path) else { continue };
            if name == "flows" {
                self.sections.insert("remedies".to_owned(), remedies(&value));
            }
            if name == "config" {
                self.redactor.add_references(&value);
            } else if let Some(list) = value.get_mut(name) {
                value = list.take();
            }
            self.sections.insert(name.to_owned(), value);
        }
    }

    fn read(&mut self, client: &ControlClient, path: &str) -> Option<Value> {
        let content = client.get(path).map_err(|error| error.to_string());
        let parsed =
            content.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
        parsed.map_err(|error| self.wrong.push(format!("gateway: {path}: {error}"))).ok()
    }

    /// Probes the providers of the gateway, or else those of the file.
    fn probe(&mut self, config: Option<&Config>) {
        let file = config.and_then(|config| serde_json::to_value(config).ok());
        let providers =
            self.sections.get("config").or(file.as_ref()).map(|config| config["providers"].clone());
        let mut probes = Map::new();
        for (name, provider) in providers.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let probed = probe_provider(provider);
            if let Some(error) = &probed.error {
                self.wrong.push(format!("provider {name}: {error}"));
            }
            let mut facts = probed.facts;
            facts["error"] = json!(probed.error);
            probes.insert(name.clone(), facts);
        }
        self.sections.insert("probes".to_owned(), Value::Object(probes));
    }

    /// Completes the report, with what is wrong first.
    fn finish(mut self) -> Value {
        let found = self.findings.iter().map(|finding| format!("{}: {}", finding.summary, finding.evidence));
        self.wrong.extend(found);
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let mut report = json!({
            "wrong": self.wrong,
            "findings": self.findings,
            "egret": { "version": env!("CARGO_PKG_VERSION"), "commit": version::COMMIT, "build": build },
            "machine": machine::facts(),
        });
        if let Some(report) = report.as_object_mut() {
            report.extend(self.sections);
        }
        self.redactor.redact(&mut report);
        report
    }
}

/// Probes the provider of a config as the API shows it: without its client certificate, whose key is a
/// secret.
fn probe_provider(provider: &Value) -> probe::Probed {
    let mut provider = provider.clone();
    if let Some(tls) = provider.get_mut("tls").and_then(Value::as_object_mut) {
        tls.remove("certificate");
        tls.remove("key");
    }
    match serde_json::from_value::<ProviderConfig>(provider) {
        Ok(provider) => probe::probe(provider.base_url(), &provider.tls),
        Err(error) => {
            probe::Probed { facts: json!({}), error: Some(format!("its config cannot be read: {error}")) }
        }
    }
}

/// Returns the config of a file if it is valid, its problems and its warnings.
fn check_file(file: &Path, name: &str) -> (Option<Config>, Vec<String>, Vec<String>) {
    let mut sources = match config_file::read(file) {
        Ok(sources) => sources,
        Err(error) => return (None, vec![error.to_string()], Vec::new()),
    };
    name.clone_into(&mut sources.set.main.name);
    match sources.load() {
        Ok(loaded) => (Some(loaded.config), Vec::new(), loaded.warnings.summaries()),
        Err(report) => (None, report.summaries(), Vec::new()),
    }
}

/// Removes the buckets of histograms; their quantiles stay.
fn without_histograms(stats: &mut Value) {
    let Some(map) = stats.as_object_mut() else { return };
    map.remove("bounds_us");
    for provider in map.get_mut("providers").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(provider) = provider.as_object_mut() {
            provider.remove("latency");
            provider.remove("footprint");
        }
    }
}

/// Returns a line for each remedy: its flow, how many decisions it made, and the share of each.
fn remedies(flows: &Value) -> Value {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut lines = Vec::new();
    for flow in list(flows, "flows") {
        for remedy in list(&flow, "remedies") {
            let decided = remedy["decisions"].as_object().into_iter().flatten();
            let count: u64 = decided.filter_map(|(_, count)| count.as_u64()).sum();
            let shares = remedy["shares"].as_object().into_iter().flatten();
            let shares =
                shares.filter_map(|(name, share)| Some((name, share.as_f64().filter(|share| *share > 0.0)?)));
            let shares: Vec<String> =
                shares.map(|(name, share)| format!("{name} {:.1} %", 100.0 * share)).collect();
            let name = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
            let (flow, remedy) = (name(&flow, "name"), name(&remedy, "remedy"));
            lines.push(
                format!("{flow} / {remedy}: {count} decisions {}", shares.join(", ")).trim_end().to_owned(),
            );
        }
    }
    json!(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_shown_with_the_share_of_each_decision() {
        let remedy = json!({ "remedy": "limit", "decisions": { "next": 7, "answer": 1 }, "shares": { "next": 0.875, "answer": 0.125 } });
        let idle = json!({ "remedy": "retry", "decisions": { "next": 0 }, "shares": { "next": 0.0 } });
        let lines = remedies(&json!({ "flows": [{ "name": "charges", "remedies": [remedy, idle] }] }));
        let lines: Vec<&str> = lines.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("charges / limit: 8 decisions ") && lines[0].contains("next 87.5 %"));
        assert_eq!(lines[1], "charges / retry: 0 decisions");
    }
}
