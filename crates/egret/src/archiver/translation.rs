//! Translates HARchiver's options into an Egret config. The same text is run and printed by `--print-config`.

use std::fmt::Write;
use std::path::PathBuf;

use egret_config::{Report, Secret};
use egret_export::ExporterConfig;
use egret_settings::config::Config;

use super::args::{ArchiverArgs, Obfuscate};

/// Name of the exporter to the collector.
const COLLECTOR: &str = "collector";

/// Fields in which HARchiver's clients send the token, of both of its generations; the newer one takes
/// precedence.
const TOKEN_FIELDS: [&str; 2] = ["mashape-service-token", "service-token"];

/// Further fields of HARchiver's clients. The first generation differs only in the name for the scheme.
const ENVIRONMENT_FIELD: &str = "mashape-environment";
const OTHER_FIELDS: [&str; 3] = ["mashape-host-override", "mashape-upstream-protocol", "x-upstream-protocol"];

/// Responses that equal HARchiver's because its clients may look for them, by error name.
const RESPONSES: [(&str, Option<u16>, Option<&str>); 5] = [
    ("too-many-in-flight", None, Some("The server is under heavy load, try again")),
    ("first-byte-timeout", None, Some("The server timed out trying to establish a connection")),
    ("connect-timeout", None, Some("The server timed out trying to establish a connection")),
    ("tls-timeout", None, Some("The server timed out trying to establish a connection")),
    ("dns-failed", Some(400), None),
];

/// Comments of the printed config, each above the lines that start so.
const COMMENTS: [(&str, &str); 15] = [
    ("  open_proxy:", "A forward proxy: clients may name any host."),
    ("  compat:", "Fields of HARchiver's clients that name host and scheme."),
    ("  scheme_fields:", "Further fields that name the scheme."),
    ("  request_ids:", "HARchiver adds no ids to responses."),
    ("  private_fields:", "Fields that are for the archiver alone."),
    ("  errors:", "HARchiver's own answers, which its clients may look for."),
    ("  limits:", "The option -c."),
    ("  timeouts:", "The option -t."),
    ("control:", "Health checks and metrics, which HARchiver does not have."),
    ("data_dir:", "Documents wait here while the collector is away."),
    (
        "    flush_after:",
        "HARchiver sends each document at once; this sends what came within the time together.",
    ),
    ("  - name: without-token", "Requests without a token are refused if none is given on the command line."),
    ("          detect_secrets:", "What looks like a secret is replaced; HARchiver recorded it."),
    ("          leave_out:", "Routing fields of HARchiver's clients are not recorded."),
    ("          client_address_fields:", "Trusted, as by HARchiver."),
];

/// The options, and the token if there is one.
pub struct Translation<'a> {
    pub arguments: &'a ArchiverArgs,
    pub token: Option<Secret>,
}

/// The reason why options cannot be translated.
#[derive(Debug, thiserror::Error)]
pub enum TranslationError {
    /// `-reverse` is not a host.
    #[error("-reverse expects `host[:port]` or `https://host[:port]`")]
    Reverse,
    /// Both ports are the same.
    #[error("-https needs a port that differs from the one for HTTP")]
    HttpsPort,
    /// `-filter-ua` is not a regular expression.
    #[error(
        "-filter-ua is not a valid regular expression: {0}; Perl's extensions, such as look-ahead, are not supported"
    )]
    FilterUa(regex_lite::Error),
    /// `-host` is not a host.
    #[error("-host expects a host name or an address; set the port with -port")]
    Host,
    /// The config has problems, for example a file that cannot be read.
    #[error("{0}\n\nrun `egret archiver ... -print-config` to see the lines")]
    Config(Report),
}

/// Quotes a text for YAML, in the form of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list(texts: &[impl AsRef<str>]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text.as_ref())).collect::<Vec<_>>().join(", "))
}

impl Translation<'_> {
    /// Checks the options beyond what clap can.
    pub fn check(&self) -> Result<(), TranslationError> {
        let ArchiverArgs { reverse, filter_ua, host, https, listen_port, .. } = self.arguments;
        if let Some(target) = reverse.as_deref().map(|target| target_of(target).1)
            && (target.is_empty() || !target.bytes().all(is_of_authority))
        {
            return Err(TranslationError::Reverse);
        }
        if https.is_some_and(|https| https != 0 && Some(https) == *listen_port) {
            return Err(TranslationError::HttpsPort);
        }
        if let Some(Err(error)) = filter_ua.as_deref().map(regex_lite::Regex::new) {
            return Err(TranslationError::FilterUa(error));
        }
        if host.as_deref().is_some_and(|host| host.is_empty() || !host.bytes().all(is_of_authority)) {
            return Err(TranslationError::Host);
        }
        Ok(())
    }

    /// Returns the config to run.
    pub fn config(&self) -> Result<Config, TranslationError> {
        let mut config =
            Config::parse("egret archiver", &self.text(false)).map_err(TranslationError::Config)?;
        if let (Some(ExporterConfig::Alf(alf)), Some(token)) =
            (config.exporters.get_mut(COLLECTOR), &self.token)
        {
            alf.service_token = Some(token.clone());
        }
        Ok(config)
    }

    /// Returns the config as commented text for `egret run`.
    pub fn yaml(&self) -> String {
        let mut commented = String::from("# The config that a command line of HARchiver stands for.\n");
        for line in self.text(true).lines() {
            for (start, comment) in COMMENTS {
                if line.starts_with(start) {
                    let indent = line.len() - line.trim_start().len();
                    let _ = writeln!(commented, "{:indent$}# {comment}", "");
                }
            }
            commented.push_str(line);
            commented.push('\n');
        }
        commented
    }

    /// Returns the text that HARchiver prints at startup, without the token.
    pub fn banner(&self) -> String {
        let ArchiverArgs { listen_port, https, reverse, env, debug, concurrency, timeout, replays, .. } =
            self.arguments;
        let on = |is_on: bool| if is_on { "on" } else { "off" };
        let recorded = match (&self.collector(), self.har_directory()) {
            (Some(collector), None) => format!("sent to {collector}"),
            (Some(collector), Some(directory)) => format!("sent to {collector}, and {}", directory.display()),
            (None, directory) => {
                let directory = directory.unwrap_or_default();
                format!("HAR files in {} (-host names a collector)", directory.display())
            }
        };
        let token = match (&self.token, self.asks_for_token()) {
            (Some(_), _) => "given",
            (None, true) => "from each request",
            (None, false) => "none",
        };
        let rows = [
            ("Version", format!("egret {}", env!("CARGO_PKG_VERSION"))),
            ("HTTP port", listen_port.unwrap_or_default().to_string()),
            ("HTTPS port", https.map_or_else(|| "none".to_owned(), |port| port.to_string())),
            (
                "Proxy mode",
                reverse.as_ref().map_or_else(|| "Forward".to_owned(), |target| format!("Reverse {target}")),
            ),
            ("Environment", env.clone().unwrap_or_else(|| "none".to_owned())),
            ("Debug", on(*debug).to_owned()),
            ("Max concurrency", concurrency.to_string()),
            ("Timeout", format!("{} s", timeout.as_secs_f64())),
            ("Replays", on(*replays).to_owned()),
            ("Service-Token", token.to_owned()),
            ("Recordings", recorded),
        ];
        rows.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name}: {value}");
            text
        })
    }

    /// Returns `true` if requests must carry a token: there is a collector and no token is given.
    fn asks_for_token(&self) -> bool {
        self.token.is_none() && self.arguments.host.is_some()
    }

    fn collector(&self) -> Option<String> {
        let ArchiverArgs { host, port, .. } = self.arguments;
        let host = host.as_deref()?;
        let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
        Some(if is_bare_ipv6 { format!("tcp://[{host}]:{port}") } else { format!("tcp://{host}:{port}") })
    }

    fn data_dir(&self) -> PathBuf {
        let ArchiverArgs { data_dir, listen_port, .. } = self.arguments;
        // Each instance has its own directory, named after its port.
        let own = || format!("./egret-data/archiver-{}", listen_port.unwrap_or_default()).into();
        data_dir.clone().unwrap_or_else(own)
    }

    fn har_directory(&self) -> Option<PathBuf> {
        let ArchiverArgs { har, host, .. } = self.arguments;
        har.clone().or_else(|| host.is_none().then(|| self.data_dir().join("har")))
    }

    fn text(&self, names_token: bool) -> String {
        let mut text = String::new();
        self.gateway(&mut text);
        let ArchiverArgs { control, reverse, .. } = self.arguments;
        let _ = writeln!(text, "control: {{ listen: {} }}", quoted(&control.to_string()));
        if self.arguments.https.is_some() {
            // HARchiver accepts `key.pem` with any permissions.
            text += "secrets: { world_readable: allow }\n";
        }
        let _ = writeln!(text, "data_dir: {}", quoted(&self.data_dir().display().to_string()));
        if let Some((_, target)) = reverse.as_deref().map(target_of) {
            let _ = writeln!(
                text,
                "providers:\n  target: {{ url: {} }}\n  target-https: {{ url: {} }}",
                quoted(&format!("http://{target}")),
                quoted(&format!("https://{target}")),
            );
        }
        self.exporters(names_token, &mut text);
        self.flows(&mut text);
        text
    }

    fn gateway(&self, text: &mut String) {
        let ArchiverArgs { reverse, concurrency, timeout, allow, .. } = self.arguments;
        *text += "gateway:\n  listen:\n";
        self.listeners(text);
        if reverse.is_none() {
            *text += "  open_proxy: true\n";
        }
        if !allow.is_empty() {
            let rules = allow.iter().map(|net| format!("{{ net: {} }}", quoted(net)));
            let _ = writeln!(text, "  egress: {{ allow: [{}] }}", rules.collect::<Vec<_>>().join(", "));
        }
        *text += "  compat: [harchiver]\n";
        // A proxy in front of your own target reports in this field the scheme of the client's request, not
        // the scheme to use for the target.
        let schemes: &[&str] = if reverse.is_some() {
            &["x-upstream-protocol"]
        } else {
            &["x-upstream-protocol", "x-forwarded-proto"]
        };
        let _ = writeln!(text, "  scheme_fields: {}", list(schemes));
        *text += "  request_ids: { enabled: false }\n";
        let _ =
            writeln!(text, "  private_fields: {}", list(&[&TOKEN_FIELDS[..], &[ENVIRONMENT_FIELD]].concat()));
        *text += "  forwarded_for: true\n  errors:\n    format: text\n    answers:\n";
        for (slug, status, detail) in RESPONSES {
            let keys = [
                status.map(|status| format!("status: {status}")),
                detail.map(|detail| format!("detail: {}", quoted(detail))),
            ];
            let _ = writeln!(
                text,
                "      {slug}: {{ {} }}",
                keys.into_iter().flatten().collect::<Vec<_>>().join(", ")
            );
        }
        let _ = writeln!(text, "  limits: {{ exchanges: {concurrency} }}");
        let timeout = format!("{}ms", timeout.as_millis().max(1));
        let _ = writeln!(text, "  timeouts: {{ connect: {timeout}, tls: {timeout}, first_byte: {timeout} }}");
    }

    fn listeners(&self, text: &mut String) {
        let ArchiverArgs { bind, listen_port, https, reverse, .. } = self.arguments;
        let (names_https, _) = reverse.as_deref().map(target_of).unwrap_or_default();
        let providers = if reverse.is_some() {
            ", provider: target, https_provider: target-https, keep_host: true"
        } else {
            ""
        };
        let mut listener = |port: u16, speaks_tls: bool| {
            let address = quoted(&std::net::SocketAddr::from((*bind, port)).to_string());
            let _ = write!(text, "    - {{ address: {address}{providers}");
            if speaks_tls || names_https {
                *text += ", scheme: https";
            }
            if speaks_tls {
                *text += ", tls: { certificate: cert.pem, key: \"${file:key.pem}\" }";
            }
            *text += " }\n";
        };
        listener(listen_port.unwrap_or_default(), false);
        if let Some(port) = https {
            listener(*port, true);
        }
    }

    fn exporters(&self, names_token: bool, text: &mut String) {
        let ArchiverArgs { env, debug, .. } = self.arguments;
        *text += "exporters:\n";
        if let Some(collector) = self.collector() {
            let _ = writeln!(text, "  {COLLECTOR}:");
            let _ = writeln!(
                text,
                "    type: alf\n    version: 1.0.0\n    transport: {{ zeromq: {} }}",
                quoted(&collector)
            );
            if let Some(token) = self.token.as_ref().filter(|_| names_token) {
                let _ = writeln!(text, "    service_token: {}", quoted(&token.to_string()));
            }
            if let Some(environment) = env {
                let _ = writeln!(text, "    environment: {}", quoted(environment));
            }
            *text += "    flush_after: 250ms\n";
            if *debug {
                *text += "    echo: true\n";
            }
        }
        if let Some(directory) = self.har_directory() {
            let _ = writeln!(
                text,
                "  files: {{ type: har, directory: {} }}",
                quoted(&directory.display().to_string())
            );
        }
        if *debug {
            *text += "  printed: { type: stdout }\n";
        }
    }

    fn flows(&self, text: &mut String) {
        let ArchiverArgs { debug, obfuscate, .. } = self.arguments;
        *text += "flows:\n";
        if *debug {
            let _ = writeln!(
                text,
                "  - name: printed\n    diagnoses:\n      - access-log: {{ export: printed, obfuscate: {}, detect_secrets: {} }}",
                *obfuscate == Obfuscate::All,
                *obfuscate != Obfuscate::None
            );
        }
        if self.asks_for_token() {
            let has = |sign: &str, join: &str| {
                let fields = TOKEN_FIELDS.map(|name| format!("request.headers['{name}'] {sign} ''"));
                fields.join(join)
            };
            // Browsers send preflight OPTIONS requests, which carry no custom fields.
            let missing = format!("request.method != 'OPTIONS' && {}", has("==", " && "));
            let body = "500: Mashape-Service-Token header missing";
            let _ = writeln!(
                text,
                "  - name: without-token\n    match: {{ when: {} }}\n    remedies:\n      - fixed-response: {{ status: 500, headers: {{ \
                 content-type: text/plain }}, body: {} }}",
                quoted(&missing),
                quoted(body)
            );
            let _ =
                writeln!(text, "  - name: recorded\n    match: {{ when: {} }}", quoted(&has("!=", " || ")));
        } else {
            *text += "  - name: recorded\n";
        }
        *text += "    diagnoses:\n";
        for exporter in
            [self.arguments.host.as_ref().map(|_| COLLECTOR), self.har_directory().map(|_| "files")]
                .into_iter()
                .flatten()
        {
            self.diagnosis(exporter, text);
        }
    }

    fn diagnosis(&self, exporter: &str, text: &mut String) {
        let ArchiverArgs { obfuscate, replays, filter_ua, reverse, .. } = self.arguments;
        let _ = writeln!(text, "      - har:\n          export: {exporter}");
        let _ = writeln!(text, "          obfuscate: {}", *obfuscate == Obfuscate::All);
        let _ = writeln!(text, "          detect_secrets: {}", *obfuscate != Obfuscate::None);
        if *replays {
            *text += "          bodies: 1MiB\n          media_types: ['*/*']\n";
        }
        if let Some(regex) = filter_ua {
            let _ = writeln!(text, "          skip: {{ user-agent: {} }}", quoted(&format!("(?i:{regex})")));
        }
        let mut left_out = OTHER_FIELDS.to_vec();
        if reverse.is_none() {
            left_out.push("x-forwarded-proto");
        }
        for (key, names) in [
            ("leave_out", &left_out[..]),
            ("service_token_fields", &TOKEN_FIELDS),
            ("environment_fields", &[ENVIRONMENT_FIELD]),
            ("client_address_fields", &["x-real-ip", "x-forwarded-for"]),
        ] {
            let _ = writeln!(text, "          {key}: {}", list(names));
        }
    }
}

/// Returns `true` if the target selects TLS, and its host and port.
fn target_of(target: &str) -> (bool, &str) {
    match target.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, target.strip_prefix("http://").unwrap_or(target)),
    }
}

fn is_of_authority(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}
