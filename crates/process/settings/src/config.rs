//! The whole config: one key per crate.

use std::path::PathBuf;

use egret_accounts::AccountConfigs;
use egret_ca::InterceptionConfig;
use egret_cluster::ClusterConfig;
use egret_config::{Document, Problem, Report, SourceSet};
use egret_control::ControlConfig;
use egret_diagnosis::Exports;
use egret_export::ExporterConfigs;
use egret_flow::config::FlowConfig;
use egret_har::sink::Content;
use egret_plan::config::{GatewayConfig, InterceptionParts, Parts, Providers};
use egret_prices::PricesConfig;
use egret_quota::{QuotaConfigs, StoreKind, Stores};
use egret_store::SharedState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::foreign_keys::HINTS;
use crate::secrets_config::SecretsConfig;
use crate::{config_advice, fetched_secrets, unopened};

egret_config::keys! {
    /// Egret's config. Every key has a default: with an empty file Egret forwards and counts traffic.
    pub struct Config {
        /// Further files of this config, like `[providers.yaml, flows/*.yaml]`, relative to the directory of
        /// this file. `*` and `?` are possible in the name of a file. Sections are joined by the names in
        /// them, and flows are appended in this order, those of one pattern by the names of their files. Only
        /// this file can include others.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 64))]
        pub include: Vec<String>,
        /// Listeners and the handling of connections.
        #[schemars(extend("x-tier" = "everyday"))]
        pub gateway: GatewayConfig,
        /// The control port: health checks, metrics, the API and the page.
        #[schemars(extend("x-tier" = "everyday"))]
        pub control: ControlConfig,
        /// Secrets from secret managers and of commands, and the handling of files with secrets.
        pub secrets: SecretsConfig,
        /// Directory of all files that Egret keeps. Created when first needed.
        #[schemars(extend("x-tier" = "everyday"))]
        pub data_dir: PathBuf = "./egret-data".into(),
        /// Egret's own log, on standard error.
        #[schemars(extend("x-tier" = "everyday"))]
        pub log: LogConfig,
        /// The third-party APIs to call, by name. The base URL starts with the name: `/<name>/rest`.
        #[schemars(extend("x-tier" = "everyday"))]
        pub providers: Providers,
        /// The cluster that shares the quotas with `store: redis`.
        pub cluster: Option<ClusterConfig>,
        /// Allowances that remedies draw from, by name.
        #[schemars(extend("x-tier" = "everyday"))]
        pub quotas: QuotaConfigs,
        /// The receiver of alerts, which quotas raise at the percentages in `quotas.*.alerts`.
        #[serde(skip_serializing_if = "is_default")]
        pub alerts: AlertsConfig,
        /// Credentials for providers, by name.
        #[schemars(extend("x-tier" = "everyday"))]
        pub accounts: AccountConfigs,
        /// Prices of language models, for quotas of money (`unit: usd`) and for `usage.cost`.
        #[serde(skip_serializing_if = "is_default")]
        pub prices: PricesConfig,
        /// Interception of HTTPS, so that flows apply to calls made through `HTTPS_PROXY`. Without this key,
        /// all tunnels pass through unread.
        pub interception: Option<InterceptionConfig>,
        /// Destinations of the data that diagnoses produce, by name.
        #[schemars(extend("x-tier" = "everyday"))]
        pub exporters: ExporterConfigs,
        /// Rules for exchanges. Every flow that matches an exchange adds its remedies, in this order,
        /// outermost first.
        #[schemars(extend("x-tier" = "everyday"))]
        pub flows: Vec<FlowConfig>,
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

egret_config::keys! {
    /// The receiver of alerts. All alerts are logged, and counted in `egret_quota_alerts_total`, whether or
    /// not there is one.
    #[derive(Eq)]
    pub struct AlertsConfig {
        /// The exporter that sends alerts, of the type `webhook`.
        pub export: Option<String>,
    }
}

/// Egret's own log, on standard error. For a log of exchanges see `gateway.access_log`. A text alone is its
/// `level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[serde(rename = "short form: level")]
#[schemars(rename = "LogConfig", transform = egret_config::or_text)]
pub struct LogConfig {
    /// The lowest level that is logged.
    #[schemars(extend("x-tier" = "everyday"))]
    pub level: LogLevel,
    /// The format of a line.
    pub format: LogFormat,
}

/// Importance of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// A requested action failed.
    Error,
    /// Something unusual that should be looked at.
    Warn,
    /// Egret starts, reloads and stops.
    #[default]
    Info,
    /// The causes of responses that the gateway generated itself.
    Debug,
    /// Everything, including libraries.
    Trace,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Config {
    /// Parses a config text without the files that it includes; `name` is its name in error messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, Report> {
        let sources = SourceSet::single(name, text);
        let document = fetched_secrets::supply(&sources, || Self::document(&sources));
        let loaded = document.and_then(|document| document.load(Self::problems, |_| Vec::new()));
        loaded.map(|loaded| loaded.config).map_err(config_advice::complete)
    }

    /// Parses a config and the files that it includes. Nothing that they refer to is read.
    pub fn document(sources: &SourceSet) -> Result<Document<'_>, Report> {
        Ok(Document::parse_set(sources)?.with_hints(HINTS).with_variables())
    }

    /// Returns the parts for the gateway, with the exports for its diagnoses.
    pub fn gateway_parts<'a>(&'a self, exports: &'a Exports) -> Parts<'a> {
        let Self { gateway, control, providers, quotas, accounts, prices, flows, interception, .. } = self;
        Parts {
            gateway,
            providers,
            quotas,
            accounts,
            prices,
            flows,
            stores: Stores::default(),
            shared: SharedState::default(),
            data_dir: None,
            exports,
            interception: interception.as_ref().map(|config| InterceptionParts { config, configs: None }),
            inherited: &[],
            traffic: &control.traffic,
            isolated: false,
        }
    }

    /// Returns `true` if a quota is stored in a file.
    pub fn has_durable_quotas(&self) -> bool {
        self.quotas.values().any(|quota| quota.store == StoreKind::File)
    }

    /// Returns `true` if a quota raises alerts.
    pub fn has_alerts(&self) -> bool {
        self.quotas.values().any(|quota| !quota.alerts.is_empty())
    }

    /// Returns `true` if clients of a listener prove who they are by tokens of an issuer.
    pub fn has_issuers(&self) -> bool {
        let mut clients = self.gateway.listen.iter().filter_map(|listener| listener.clients.as_ref());
        clients.any(|clients| clients.jwt.is_some())
    }

    /// Returns a mistake for each quota that a cluster shares, if there is none.
    fn quotas_without_cluster(&self) -> impl Iterator<Item = Problem> {
        let shared = self.quotas.iter().filter(|(_, quota)| quota.store == StoreKind::Redis);
        shared.filter(|_| self.cluster.is_none()).map(|(name, _)| {
            let message = "`store: redis` requires the key `cluster`, which names the store";
            Problem::new(format!("quotas.{name}.store"), message)
        })
    }

    /// Returns the mistake in the receiver of alerts, if there is one.
    fn alerts_problem(&self) -> Option<Problem> {
        let name = self.alerts.export.as_ref()?;
        match self.exporters.get(name) {
            None => {
                let names = self.exporters.keys().map(String::as_str);
                Some(Problem::unknown_name("alerts.export".to_owned(), "exporter", name, names))
            }
            Some(exporter) if exporter.takes(Content::Alerts) => None,
            Some(_) => {
                let message =
                    format!("the exporter `{name}` does not accept alerts: use one of the type `webhook`");
                Some(Problem::new("alerts.export", message))
            }
        }
    }

    /// Checks everything that the types cannot express: dangling names, contradictions.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = egret_plan::validate(self.gateway_parts(&unopened::exports(&self.exporters)));
        problems.extend(egret_export::problems(&self.exporters));
        problems.extend(self.cluster.iter().flat_map(ClusterConfig::problems));
        problems.extend(self.quotas_without_cluster());
        problems.extend(self.alerts_problem());
        let written = serde_json::to_value(self).unwrap_or_default();
        self.secrets.problems(&written, &mut problems);
        problems.extend(self.control.validate());
        problems
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn report(text: &str) -> String {
        Config::parse("egret.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_config_is_the_default_and_the_default_is_good() {
        let config = Config::parse("egret.yaml", "").unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(config.problems(), Vec::new());
        assert_eq!(config.gateway.listen[0].address.to_string(), "127.0.0.1:8000");
        assert_eq!(config.control.listen.to_string(), "127.0.0.1:8001");
        assert_eq!(config.data_dir, Path::new("./egret-data"));
    }

    #[test]
    fn one_item_needs_no_list() {
        let text = |[listen, on]: [&str; 2]| {
            format!(
                "gateway: {{ listen: {listen} }}\nflows: [{{ name: a, remedies: [retry: {{ attempts: 2, on: {on} }}] }}]\n"
            )
        };
        let [one, list] = [["127.0.0.1:8000", "429"], ["[127.0.0.1:8000]", "[429]"]].map(text);
        assert_eq!(Config::parse("egret.yaml", &one).unwrap(), Config::parse("egret.yaml", &list).unwrap());
    }

    #[test]
    fn every_default_that_is_written_down_reads_back() {
        let config = Config::default();
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(Config::parse("egret.json", &written).unwrap(), config);
    }

    #[test]
    fn unknown_keys_are_refused_with_place_and_suggestion() {
        for (text, expected) in [
            (
                "providers:\n  stripe:\n    url: https://api.stripe.com\n    timeouts: { conect: 5s }\n",
                "egret.yaml:4:17: providers.stripe.timeouts.conect: unknown key `conect`, expected one of `connect`, `tls`, \
                 `first_byte`, `idle`, `total`; did you mean `connect`?\n\
                 4 |     timeouts: { conect: …\n  |                 ^^^^^^",
            ),
            (
                "gateway:\n  listen: [127.0.0.1]\n",
                "egret.yaml:2:12: gateway.listen[0]: `127.0.0.1` is not an address to listen on: write IP:port, like \
                 `127.0.0.1:8000` or `[::1]:8000`, or the path of a Unix socket, like `unix:/run/egret/egret.sock`\n\
                 2 |   listen: [127.0.0.1]\n  |            ^^^^^^^^^",
            ),
            (
                "gateway:\n  listen: [{ address: 127.0.0.1:0, provder: x }]\n",
                "egret.yaml:2:36: gateway.listen[0].provder: unknown key `provder`; did you mean `provider`?\n2 |   listen: [{ address: 127.0.0.1:0, provder: …\n  |                                    ^^^^^^^",
            ),
            (
                "gateway: { workers: 0 }",
                "egret.yaml:1:21: gateway.workers: expected `auto` or a number from 1 to 256, found the number `0`\n\
                 1 | gateway: { workers: 0 }\n  |                     ^",
            ),
            (
                "gateway:\n  egress: { mode: enforced }\n",
                "egret.yaml:2:19: gateway.egress.mode: expected one of `enforce`, `report`, `off`, found `enforced`; did you mean \
                 `enforce`?\n2 |   egress: { mode: enforced }\n  |                   ^^^^^^^^",
            ),
            (
                "gateway:\n  egress:\n    allow: [{ ports: [443, 70000] }]\n",
                "egret.yaml:3:28: gateway.egress.allow[0].ports[1]: expected a whole number from 0 to 65535, found the number \
                 `70000`\n3 |     allow: [{ ports: [443, 70000] }]\n  |                            ^^^^^",
            ),
            (
                "control: { listen: 8001 }",
                "egret.yaml:1:20: control.listen: expected an address like `127.0.0.1:8000`, found the number `8001`: write `127.0.0.1:8001`\n\
                 1 | control: { listen: 8001 }\n  |                    ^^^^",
            ),
            (
                "log: { level: verbose }",
                "egret.yaml:1:15: log.level: expected one of `error`, `warn`, `info`, `debug`, `trace`, found `verbose`\n\
                 1 | log: { level: verbose }\n  |               ^^^^^^^",
            ),
            (
                "providers:\n  stripe: { timeouts: { total: 5s } }\n",
                "egret.yaml:2:3: providers.stripe: the key `url` is missing: write `url: https://api.example.com`, \
                 or the `preset` of the provider\n\
                 2 |   stripe: { timeouts: { total: 5s } }\n  |   ^^^^^^",
            ),
            (
                "gateway:\n  limits: { head: 32KB }\n",
                "egret.yaml:2:19: gateway.limits.head: `32KB` is not a size: write a whole number and B, KiB, MiB or GiB, like \
                 `64KiB`; did you mean `32KiB`?\n2 |   limits: { head: 32KB }\n  |                   ^^^^",
            ),
            (
                "exporters:\n  archive: { directory: ./har, typ: har }\n",
                "egret.yaml:2:3: exporters.archive: the key `type` is missing\n\
                 2 |   archive: { directory: ./har, typ: har }\n  |   ^^^^^^^",
            ),
            (
                "exporters:\n  archive: { type: hra, directory: ./har }\n",
                "egret.yaml:2:20: exporters.archive.type: expected one of `har`, `ndjson`, `lines`, `stdout`, `otlp`, `alf`, `s3`, `webhook`, found `hra`; did you mean `har`?\n\
                 2 |   archive: { type: hra, directory: ./har }\n  |                    ^^^",
            ),
            (
                "exporters:\n  archive: { directory: ./har, rotat: 1MiB, type: har }\n",
                "egret.yaml:2:32: exporters.archive.rotat: unknown key `rotat`, expected one of `directory`, `rotate`, \
                 `rotate_after`, `keep`, `gzip`; did you mean `rotate`?\n\
                 2 |   archive: { directory: ./har, rotat: …\n  |                                ^^^^^",
            ),
            (
                "exporters:\n  archive: { type: ndjson, rotate: 1MiB }\n",
                "egret.yaml:2:3: exporters.archive: the key `directory` is missing\n\
                 2 |   archive: { type: ndjson, rotate: 1MiB }\n  |   ^^^^^^^",
            ),
            (
                "exporters:\n  collector: { type: alf, transport: { zeromq: 'tcp://a:0' } }\n",
                "egret.yaml:2:48: exporters.collector.transport.zeromq: not a socket address: expected `tcp://host:port`\n\
                 2 |   collector: { type: alf, transport: { zeromq: 'tcp://a:0' } }\n\
                 \x20 |                                                ^^^^^^^^^^^",
            ),
            (
                "exporters:\n  store: { type: s3, endpoint: 'https://u:hunter2@a', bucket: b }\n",
                "egret.yaml:2:32: exporters.store.endpoint: the URL must not contain a user or password: put secrets in their own keys\n\
                 2 |   store: { type: s3, endpoint: 'https://…@a', bucket: b }\n\
                 \x20 |                                ^^^^^^^^^^^^^^^^^^^^^",
            ),
            (
                "exporters: { archive: ./har }\n",
                "egret.yaml:1:23: exporters.archive: expected a mapping, found `./har`, as in `archive: { type: har, directory: ./har }`\n\
                 1 | exporters: { archive: ./har }\n  |                       ^^^^^",
            ),
            (
                "exporters:\n  archive: { type: har, directory: ./har, keep: 64MiB }\n",
                "egret.yaml:2:49: exporters.archive.keep: `64MiB` is less than twice `rotate`, `64MiB`: no closed file could be kept\n\
                 2 |   archive: { type: har, directory: ./har, keep: 64MiB }\n\
                 \x20 |                                                 ^^^^^",
            ),
        ] {
            assert_eq!(report(text), expected, "\n--- for\n{text}\n---");
        }
    }

    #[test]
    fn keys_of_parts_that_do_not_exist_are_unknown() {
        let report = report("account: []\n");
        assert!(report.starts_with("egret.yaml:1:1: account: unknown key `account`"), "{report}");
    }

    #[test]
    fn a_control_port_off_loopback_needs_a_token() {
        let report = report("control:\n  listen: 0.0.0.0:8001\n");
        assert!(
            report.starts_with("egret.yaml:2:11: control.listen: `0.0.0.0:8001` is not on loopback"),
            "{report}"
        );
        assert!(
            Config::parse("egret.yaml", "control: { listen: 0.0.0.0:8001, token: '${env:PATH}' }").is_ok()
        );
    }

    #[test]
    fn a_token_in_clear_is_refused_and_not_shown() {
        for text in [
            "control: { token: hunter2 }",
            "control:\n  token: hunter2\n",
            "control: { token: 112358132134 }",
        ] {
            let report = report(text);
            assert!(report.contains("control.token: "), "{report}");
            assert!(!report.contains("hunter2") && !report.contains("112358132134"), "{report}");
        }
    }

    #[test]
    fn short_forms_mean_the_long_ones() {
        let with = |log: &str, provider: &str, rest: &str| {
            let text = format!(
                "log: {log}\nproviders: {{ shop: {provider} }}\nquotas: {{ calls: {{ limit: 9, window: 1s }} }}\n{rest}"
            );
            Config::parse("egret.yaml", &text).map_err(|report| report.to_string()).unwrap()
        };
        let short = with(
            "debug",
            "https://shop.example",
            "gateway: { egress: { allow: [shop.example] } }\n\
             accounts: { a: { provider: shop, bearer: '${env:PATH}' } }\n\
             exporters: { files: { type: har, directory: ./har } }\n\
             flows:\n- name: f\n  match: { provider: shop }\n\
             \x20 remedies: [retry: 5, queue: calls, limit: calls, concurrency: 3, timeout: 5s, authenticate: a]\n\
             \x20 diagnoses: [metrics, har: files]\n\
             - name: g\n  remedies: [retry, trace:]\n",
        );
        let long = with(
            "{ level: debug }",
            "{ url: 'https://shop.example' }",
            "gateway: { egress: { allow: [{ host: shop.example }] } }\n\
             accounts: { a: { provider: shop, bearer: { token: '${env:PATH}' } } }\n\
             exporters: { files: { type: har, directory: ./har } }\n\
             flows:\n- name: f\n  match: { provider: shop }\n\
             \x20 remedies: [retry: { attempts: 5 }, queue: { quota: calls }, limit: { quota: calls }, concurrency: { max: 3 },\n\
             \x20\x20\x20 timeout: { total: 5s }, authenticate: { account: a }]\n\
             \x20 diagnoses: [metrics: {}, har: { export: files }]\n\
             - name: g\n  remedies: [retry: {}, trace: {}]\n",
        );
        assert_eq!(short, long);
    }
}
