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
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// The paths of the API that are part of a report, by the member that holds their content.
pub const PATHS: [(&str, &str); 6] = [
    ("flows", "/api/v1/flows"),
    ("quotas", "/api/v1/quotas"),
    ("cluster", "/api/v1/cluster"),
    ("accounts", "/api/v1/accounts"),
    ("exporters", "/api/v1/exporters"),
    ("config", "/api/v1/config"),
];

/// Prints the report. Fails if something is wrong.
pub fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    let (report, count) = report(arguments);
    if arguments.json {
        print_json(&format!("{report:#}\n"))?;
    } else {
        print(&text::render(&report))?;
    }
    match count {
        0 => Ok(()),
        1 => Err(Failure::Failed("1 problem was found: see `wrong` in the report".to_owned())),
        count => Err(Failure::Failed(format!("{count} problems were found: see `wrong` in the report"))),
    }
}

/// Returns the report, and the number of things that are wrong.
fn report(arguments: &DoctorArguments) -> (Value, usize) {
    let mut examined = Examined::default();
    let (mut config, asked) = (None, &arguments.asked);
    match asked.gateway.file() {
        Ok(file) => {
            config = file.and_then(|file| examined.file(&file));
            match asked.client() {
                Ok(client) => examined.gateway(&client),
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

/// The findings so far.
#[derive(Default)]
struct Examined {
    wrong: Vec<String>,
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
        if let Some(history) = self.read(client, "/api/v1/history") {
            self.wrong.extend(failing(&history));
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
            self.wrong.extend(troubles(name, &value));
            if name == "cluster" {
                self.wrong.extend(cluster_troubles(&value));
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
    fn finish(self) -> (Value, usize) {
        let count = self.wrong.len();
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let mut report = json!({
            "wrong": self.wrong,
            "egret": { "version": env!("CARGO_PKG_VERSION"), "commit": version::COMMIT, "build": build },
            "machine": machine::facts(),
        });
        if let Some(report) = report.as_object_mut() {
            report.extend(self.sections);
        }
        self.redactor.redact(&mut report);
        (report, count)
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
        Ok(provider) => probe::probe(&provider.url, &provider.tls),
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

/// Steps of the history that are the last minute.
const LAST_STEPS: usize = 6;

/// Fewer calls in the last minute say nothing about a provider.
const CALLS_MIN: u64 = 5;

/// Returns the providers that responded to half of the calls of the last minute with a status 5xx, and Egret
/// if it responded to half of all calls with an error.
pub fn failing(history: &Value) -> Vec<String> {
    let last = |column: &Value| -> u64 {
        let steps = column.as_array().into_iter().flatten().rev();
        steps.take(LAST_STEPS).filter_map(Value::as_u64).sum()
    };
    let is_most = |failed: u64, calls: u64| calls >= CALLS_MIN && 2 * failed >= calls;
    let (mut failing, mut all) = (Vec::new(), 0);
    for provider in history["providers"].as_array().into_iter().flatten() {
        let calls: u64 =
            provider["statuses"].as_object().into_iter().flatten().map(|(_, one)| last(one)).sum();
        let failed = last(&provider["statuses"]["5xx"]);
        all += calls + last(&provider["generated"]) + last(&provider["stored"]);
        if is_most(failed, calls) {
            let name = provider["host"].as_str().or(provider["provider"].as_str()).unwrap_or_default();
            failing.push(format!(
                "provider {name}: {failed} of {calls} responses in the last minute have a status 5xx"
            ));
        }
    }
    let errors = last(&history["generated"]);
    if is_most(errors, all) {
        failing.push(format!(
            "gateway: {errors} of {all} calls in the last minute got an error of Egret: `egret tail --answered-by egret` shows why"
        ));
    }
    failing
}

/// Returns the open circuits and the full queues of a flow.
fn flow_troubles(flow: &Value) -> Vec<String> {
    let name = flow["name"].as_str().unwrap_or_default();
    let mut troubles = Vec::new();
    for remedy in flow["remedies"].as_array().into_iter().flatten() {
        let open = remedy["circuits"]["open"].as_u64().unwrap_or_default();
        if open > 0 {
            troubles.push(format!("flow {name}: calls are refused, open circuits: {open}"));
        }
        let queue = &remedy["queue"];
        if queue["size"].as_u64().is_some_and(|size| queue["waiting"].as_u64() >= Some(size)) {
            troubles.push(format!("flow {name}: calls are refused, the queue is full"));
        }
    }
    troubles
}

/// Returns what is wrong in a list of the API.
pub fn troubles(section: &str, list: &Value) -> Vec<String> {
    let mut troubles = Vec::new();
    for entry in list.as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        match section {
            "exporters" if entry["up"] == false => {
                let error = entry["last_error"].as_str().unwrap_or("no error was recorded");
                troubles.push(format!("exporter {name}: down: {error}"));
            }
            "flows" => troubles.extend(flow_troubles(entry)),
            "accounts" if entry["state"] == "cooling" => {
                let reason = entry["reason"].as_str().unwrap_or_default();
                troubles.push(format!("account {name}: cooling because of {reason}"));
            }
            "quotas" => {
                let groups = entry["groups"].as_array().into_iter().flatten();
                let failed = groups.filter(|group| group["store_failed"] == true).count();
                if failed > 0 {
                    troubles.push(format!("quota {name}: its store failed for {failed} groups"));
                }
            }
            _ => {}
        }
    }
    troubles
}

/// Returns what is wrong with the membership in a cluster.
pub fn cluster_troubles(cluster: &Value) -> Vec<String> {
    let mut troubles = Vec::new();
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    for segment in list(cluster, "segments").iter().filter(|segment| segment["up"] == false) {
        let error = segment["error"].as_str().unwrap_or("it has not responded yet");
        troubles.push(format!("cluster: the store of segment {} fails: {error}", segment["number"]));
    }
    for quota in list(cluster, "quotas") {
        let name = quota["name"].as_str().unwrap_or_default();
        if list(&quota, "groups").iter().any(|group| group["config_differs"] == true) {
            troubles
                .push(format!("quota {name}: another gateway has a different limit; the lowest one holds"));
        }
    }
    troubles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_reports_failed_segments_and_differing_limits() {
        let cluster = json!({
            "segments": [{ "number": 0, "up": true }, { "number": 1, "up": false, "error": "h:1: refused" }],
            "quotas": [
                { "name": "a", "groups": [{ "config_differs": false }] },
                { "name": "b", "groups": [{ "config_differs": true }] },
            ],
        });
        assert_eq!(
            cluster_troubles(&cluster),
            [
                "cluster: the store of segment 1 fails: h:1: refused",
                "quota b: another gateway has a different limit; the lowest one holds"
            ]
        );
        assert_eq!(cluster_troubles(&Value::Null), Vec::<String>::new());
    }

    #[test]
    fn doctor_reports_troubles_of_each_part() {
        let exporters =
            json!([{ "name": "a", "up": false, "last_error": "disk full" }, { "name": "b", "up": true }]);
        assert_eq!(troubles("exporters", &exporters), ["exporter a: down: disk full"]);
        let accounts =
            json!([{ "name": "a", "state": "cooling", "reason": "429" }, { "name": "b", "state": "usable" }]);
        assert_eq!(troubles("accounts", &accounts), ["account a: cooling because of 429"]);
        let quotas =
            json!([{ "name": "q", "groups": [{ "store_failed": true }, { "store_failed": false }] }]);
        assert_eq!(troubles("quotas", &quotas), ["quota q: its store failed for 1 groups"]);
    }

    #[test]
    fn open_circuits_full_queues_and_failing_providers_are_wrong() {
        let flows = json!([{ "name": "f", "remedies": [
            { "circuits": { "open": 1 } },
            { "circuits": { "open": 0 }, "queue": { "waiting": 3, "size": 3 } },
            { "queue": { "waiting": 2, "size": 3 } },
        ] }]);
        assert_eq!(
            troubles("flows", &flows),
            ["flow f: calls are refused, open circuits: 1", "flow f: calls are refused, the queue is full"]
        );
        let column = |last: u64| json!([99, 0, 0, 0, 0, 0, last]);
        let minute = |ok: u64, failed: u64, errors: u64| {
            let statuses = json!({ "2xx": column(ok), "5xx": column(failed) });
            let generated = column(errors);
            let provider =
                json!({ "provider": "shop", "host": null, "statuses": statuses, "generated": generated });
            failing(&json!({ "generated": generated, "providers": [provider] }))
        };
        assert_eq!(minute(3, 4, 0), ["provider shop: 4 of 7 responses in the last minute have a status 5xx"]);
        assert_eq!(
            minute(3, 1, 5),
            [
                "gateway: 5 of 9 calls in the last minute got an error of Egret: `egret tail --answered-by egret` shows why"
            ]
        );
        assert!(minute(9, 3, 2).is_empty(), "most succeed");
        assert!(minute(0, 4, 0).is_empty(), "too few to tell");
    }

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
