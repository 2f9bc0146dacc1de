//! `egret explain`: shows what the gateway would do with a request, without sending it.

#[cfg(test)]
mod agreement;
mod request;

use std::fmt::Write;
use std::path::PathBuf;

use egret_config::{LocatedProblem, Report, without_secrets};
use egret_flow::explain::ExplainedFlow;
use egret_gateway::{
    Egress, EgressVerdict, GeneratedError, Rehearsal, Rehearsed, RemedyStep, Resolved, Responder,
};
use egret_measure::streams::say;
use egret_message::{ErrorKind, ListenAddress};
use egret_plan::config::ProviderConfig;
use egret_presets::PresetName;
use egret_settings::config::Config;
use egret_settings::failure::Failure;
use egret_settings::output::{print, print_json};
use egret_settings::{advice, config_file, config_path, unopened};
use serde::Serialize;

use crate::explain::request::ProbeRequest;
use crate::tail::{METHODS, check_case};

/// The way to explain what a listener with `clients` does.
const UNPROVEN: &str =
    "; no secret is read here: `--consumer NAME` stands for a client that has proven its name";

/// The arguments of `egret explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArguments {
    /// The config file, and the method and URL if `--request` does not name them. Default of the file:
    /// `egret.yaml` in the working directory. Default of the method: GET.
    #[arg(value_names = ["FILE", "METHOD", "URL"], num_args = 0..=3)]
    words: Vec<String>,
    /// The method and URL that the client would use, like `GET https://api.example.com/v1/things`.
    ///
    /// A path alone, or a URL of the gateway itself like `http://127.0.0.1:8000/stripe/v1/charges`, is a base
    /// URL. Any other URL is one of a client that has the gateway as its proxy.
    #[arg(long, short, value_name = "METHOD URL")]
    request: Option<String>,
    /// A header field of the request; may be repeated.
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The body of the request.
    #[arg(long, short, value_name = "BODY")]
    data: Option<String>,
    /// The name of the consumer. On a listener with `clients`, the client that has proven to be this one.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// The listener that receives the request. Default: the one that the URL names, else the first one for
    /// clients of a proxy.
    #[arg(long, value_name = "ADDRESS")]
    listener: Option<ListenAddress>,
    /// Accepted for scripts that have it: secrets are never read.
    #[arg(long, hide = true)]
    no_secrets: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The output.
#[derive(Debug, Serialize)]
struct Explanation {
    method: String,
    #[serde(flatten)]
    destination: Option<Resolved>,
    /// The destination of the call, if remedies send it elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    elsewhere: Option<Resolved>,
    /// The preset of the called provider: the settings and rules that come from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<ExplainedPreset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    egress: Option<Egress>,
    flows: Vec<ExplainedFlow>,
    /// The remedies of the matching flows, outermost first.
    remedies: Vec<RemedyStep>,
    answered_by: &'static str,
    /// The status code of a remedy's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The gateway's own error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<GeneratedError>,
    /// Warnings about credentials in the clear.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<LocatedProblem>,
}

/// The preset of a provider.
#[derive(Debug, Serialize)]
struct ExplainedPreset {
    name: PresetName,
    /// Date on which its facts were read.
    checked: &'static str,
    facts: Vec<PresetFact>,
}

/// A fact of a preset.
#[derive(Debug, Serialize)]
struct PresetFact {
    about: &'static str,
    value: String,
    /// Keys of the config that win over it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overridden_by: Vec<&'static str>,
}

impl ExplainedPreset {
    /// Explains the preset of a provider. Returns `None` if it has none.
    fn of(provider: &ProviderConfig) -> Option<Self> {
        let name = provider.preset?;
        let preset = name.preset();
        let set = |about: &str| -> Vec<&'static str> {
            let keys: &[(&'static str, bool)] = match about {
                "Base URL" => &[("url", !provider.url.is_empty())],
                "Timeouts" => &[
                    ("timeouts.first_byte", provider.timeouts.first_byte.is_some()),
                    ("timeouts.idle", provider.timeouts.idle.is_some()),
                ],
                _ => &[],
            };
            keys.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| *key).collect()
        };
        let facts = preset.lines().into_iter();
        let facts =
            facts.map(|(about, value)| PresetFact { about, value, overridden_by: set(about) }).collect();
        Some(Self { name, checked: &preset.checked, facts })
    }

    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "Preset: {}, whose facts were read on {}", self.name, self.checked);
        for PresetFact { about, value, overridden_by } in &self.facts {
            let note = match &overridden_by[..] {
                [] => String::new(),
                keys => format!("; the config sets `{}` itself", keys.join("` and `")),
            };
            let _ = writeln!(text, "  {about}: {value}{note}");
        }
    }
}

impl ExplainArguments {
    /// Explains the request, and prints the result. Fails if the gateway would respond with an error.
    ///
    /// No route, flow or condition depends on the value of a secret. So none is read, and a script that is
    /// rehearsed cannot show one.
    pub fn run(&self) -> Result<(), Failure> {
        without_secrets(|| self.explain())
    }

    fn explain(&self) -> Result<(), Failure> {
        let RequestWords { file, method, url } = self.words()?;
        let file = config_path::required(file)?;
        let loaded = config_file::load(&file)?;
        let warnings = of_clear_text(loaded.warnings, &loaded.config);
        let name = file.display().to_string();
        let plan = ExplainedConfig::new(&name, &loaded.config)?;
        let rehearsed = plan.ask(&ProbeRequest {
            method: &method,
            url: &url,
            fields: &self.header,
            body: self.data.as_deref(),
            consumer: self.consumer.as_deref(),
            listener: self.listener,
        })?;
        let mut explanation = Explanation::new(method, rehearsed, warnings.problems());
        explanation.preset = explanation.called_preset(&loaded.config);
        if self.json {
            print_json(&to_json(&explanation)?)?;
        } else {
            if !warnings.findings.is_empty() {
                say(&warnings);
            }
            print(&explanation.to_text())?;
        }
        explanation.verdict()
    }

    /// Returns the file, the method and the URL, from the option or from the words without one.
    fn words(&self) -> Result<RequestWords, Failure> {
        let (file, request) = match (&self.request, &*self.words) {
            (Some(request), [] | [_]) => (self.words.first(), request.trim().to_owned()),
            (Some(_), _) => {
                return Err(Failure::misused("the request is named twice: leave out `--request`"));
            }
            (None, [method, url]) if is_method(method) => (None, format!("{method} {url}")),
            (None, [url]) if url.contains("://") => (None, url.clone()),
            (None, [] | [_]) => {
                let message = "no request is named: write one, as in `egret explain egret.yaml GET https://api.example.com/path`";
                return Err(Failure::misused(message));
            }
            (None, [file, request @ ..]) => (Some(file), request.join(" ")),
        };
        let (method, url) = request.split_once(' ').unwrap_or(("GET", &request));
        check_case(method).map_err(Failure::misused)?;
        if METHODS.contains(&url) {
            return Err(Failure::Misused(format!(
                "the URL is missing: write it after the method, as in `{url} /shop/orders`"
            )));
        }
        Ok(RequestWords {
            file: file.map(PathBuf::from),
            method: method.to_owned(),
            url: url.trim().to_owned(),
        })
    }
}

struct RequestWords {
    file: Option<PathBuf>,
    method: String,
    url: String,
}

/// Returns `true` if a word is a method, and no name of a file: it has capitals only, or should.
fn is_method(word: &str) -> bool {
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
    (!word.is_empty() && word.bytes().all(is_capital)) || check_case(word).is_err()
}

/// Keeps the warnings about credentials that others on the network path could read.
fn of_clear_text(mut warnings: Report, config: &Config) -> Report {
    let clear = advice::clear::advise(config);
    warnings.findings.retain(|finding| clear.contains(&finding.problem));
    warnings
}

/// A config in the form in which the gateway would run it.
struct ExplainedConfig<'a> {
    config: &'a Config,
    rehearsal: Rehearsal,
}

impl<'a> ExplainedConfig<'a> {
    /// Compiles a valid config, whose file is `name`.
    fn new(name: &str, config: &'a Config) -> Result<Self, Failure> {
        let exports = unopened::exports(&config.exporters);
        let rehearsal = Rehearsal::new(config.gateway_parts(&exports), &[config.control.listen]);
        // Only a file that has changed since the config was read can be a problem here.
        let rehearsal = rehearsal.map_err(|problems| Failure::misused(Report::unplaced(name, problems)))?;
        Ok(Self { config, rehearsal })
    }

    fn ask(&self, question: &ProbeRequest<'_>) -> Result<Rehearsed, Failure> {
        question.ask(&self.rehearsal, &self.config.flows)
    }
}

impl Explanation {
    fn new(method: String, rehearsed: Rehearsed, warnings: Vec<LocatedProblem>) -> Self {
        let Rehearsed { destination, elsewhere, egress, flows, remedies, answer } = rehearsed;
        let (answered_by, status, error) = match answer {
            Responder::Provider => ("provider", None, None),
            Responder::Relay => ("tunnel", None, None),
            Responder::Intercepted => ("interception", None, None),
            Responder::Remedy(status) => ("remedy", Some(status), None),
            Responder::Error(error) => ("egret", None, Some(error)),
        };
        let preset = None;
        Self {
            method,
            destination,
            elsewhere,
            preset,
            egress,
            flows,
            remedies,
            answered_by,
            status,
            error,
            warnings,
        }
    }

    /// Explains the preset of the provider that is called.
    fn called_preset(&self, config: &Config) -> Option<ExplainedPreset> {
        let called = self.elsewhere.as_ref().or(self.destination.as_ref())?;
        ExplainedPreset::of(config.providers.get(&called.provider)?)
    }

    /// Fails if the gateway would respond with an error of its own.
    fn verdict(&self) -> Result<(), Failure> {
        let Some(GeneratedError { error, status, detail }) = &self.error else { return Ok(()) };
        let hint = if *error == ErrorKind::ClientUnproven.slug() { UNPROVEN } else { "" };
        Err(Failure::Failed(format!("the gateway answers {status} with the error `{error}`: {detail}{hint}")))
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        let Some(destination) = &self.destination else { return text };
        let method = &self.method;
        let Resolved { target, .. } = destination;
        let is_tunnel = method == "CONNECT" || self.answered_by == "tunnel";
        let _ = if is_tunnel {
            writeln!(text, "{method} opens a tunnel to {}:{}", destination.host, destination.port)
        } else {
            writeln!(text, "{method} {target} goes to {}", place(destination))
        };
        if let Some(call) = &self.elsewhere {
            let _ = writeln!(text, "A flow sends the call to {}: {}", place(call), call.target);
        }
        if let Some(preset) = &self.preset {
            preset.write(&mut text);
        }
        if let Some(egress) = &self.egress {
            let _ = writeln!(text, "Egress: {}", egress_text(egress));
            if let Some(proxy) = &egress.proxy {
                let who = if egress.addresses_follow { "Egret" } else { "the proxy" };
                let _ = writeln!(text, "Through the proxy {proxy}; {who} looks the host up");
            }
        }
        match (self.answered_by, self.status) {
            ("remedy", Some(status)) => {
                let _ = writeln!(text, "Answer: a remedy responds with {status}");
            }
            ("tunnel", _) => text.push_str("Answer: Egret relays the tunnel unread, so no remedy applies\n"),
            ("interception", _) => {
                text.push_str(
                    "Answer: Egret serves the requests in the tunnel itself: explain one of them\n",
                );
            }
            _ => {}
        }
        self.write_flows(&mut text);
        text
    }

    fn write_flows(&self, text: &mut String) {
        let Self { flows, remedies, answered_by, .. } = self;
        let is_forwarded = *answered_by == "provider";
        if flows.is_empty() {
            if is_forwarded {
                text.push_str("\nThe config has no flows: no remedy applies.\n");
            }
            return;
        }
        text.push_str("\nFlows\n");
        for verdict in flows {
            let _ = writeln!(text, "  {}: {}", verdict.flow, verdict_text(verdict));
        }
        if !flows.iter().any(|verdict| verdict.matches) {
            text.push_str("\nNo flow matches: no remedy applies.\n");
            return;
        }
        if *answered_by == "tunnel" {
            return;
        }
        text.push_str("\nRemedies, outermost first\n");
        for (number, RemedyStep { flow, remedy, does, now }) in (1..).zip(remedies) {
            let _ = writeln!(text, "  {number}. {remedy} of {flow}: {does}");
            if !now.is_empty() {
                let _ = writeln!(text, "     with this request: {now}");
            }
        }
        if remedies.is_empty() {
            text.push_str("  none\n");
        }
    }
}

fn to_json(explanation: &Explanation) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(explanation);
    text.map(|text| text + "\n").map_err(|error| Failure::Failed(format!("cannot write JSON: {error}")))
}

/// Describes a destination.
fn place(destination: &Resolved) -> String {
    let Resolved { provider, scheme, host, port, .. } = destination;
    if provider == egret_message::OTHER_HOSTS {
        format!("{scheme}://{host}:{port}, which is not a configured provider")
    } else {
        format!("the provider `{provider}`, at {scheme}://{host}:{port}")
    }
}

fn egress_text(egress: &Egress) -> String {
    let Egress { authority, verdict, detail, rule, addresses_follow, later, configured, .. } = egress;
    let detail = detail.as_deref().unwrap_or_default();
    let by = rule.as_ref().map(|rule| format!(" by `{rule}`")).unwrap_or_default();
    let mut text = match verdict {
        EgressVerdict::Off => return format!("{authority} is not judged (`gateway.egress.mode: off`)"),
        EgressVerdict::Denied => return format!("{authority} is denied{by}: {detail}"),
        EgressVerdict::Reported => {
            format!("{authority} is only reported (`mode: report`); `enforce` would deny it{by}: {detail}")
        }
        EgressVerdict::Allowed if rule.is_none() && *configured => {
            format!("{authority} is allowed, as the URL of a configured provider")
        }
        EgressVerdict::Allowed if rule.is_none() => format!("{authority} is allowed by default"),
        EgressVerdict::Allowed => format!("{authority} is allowed{by}"),
    };
    if *addresses_follow {
        text.push_str("; its addresses are judged when it is looked up");
    }
    for (number, rule) in later.iter().enumerate() {
        let _ = write!(text, "{} `{rule}`", if number == 0 { ", also by" } else { "," });
    }
    text
}

fn verdict_text(verdict: &ExplainedFlow) -> String {
    if let Some(why_not) = &verdict.why_not {
        return format!("does not match: {why_not}");
    }
    let mut words = "matches".to_owned();
    if let Some(share) = verdict.sample {
        let _ = write!(words, " {share} % of such requests");
    }
    if let Some(condition) = &verdict.when_response {
        let _ = write!(words, " if the response meets `{condition}`");
    }
    for (number, (name, value)) in verdict.parameters.iter().enumerate() {
        let _ = write!(words, "{} {name} = `{value}`", if number == 0 { "," } else { " and" });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_explained_with_what_the_config_sets_itself() {
        let text =
            "providers: { ai: { preset: openai, timeouts: { idle: 1m } }, own: { url: 'http://own.test' } }";
        let config = Config::parse("egret.yaml", text).unwrap();
        let explained = ExplainedPreset::of(&config.providers["ai"]).unwrap();
        let mut text = String::new();
        explained.write(&mut text);
        for line in [
            "Preset: openai, whose facts were read on 2026-",
            "  Base URL: `https://api.openai.com`\n",
            "  Timeouts: `first_byte: 10m`, `idle: 10m`; the config sets `timeouts.idle` itself\n",
            "  Advice on repeating: `x-should-retry`",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(ExplainedPreset::of(&config.providers["own"]).is_none());
    }

    #[test]
    fn remedies_see_a_refusal_in_the_format_of_its_provider() {
        let text = r"
providers:
  one: { url: 'http://one.test', errors: { format: openai } }
  two: { url: 'http://two.test' }
flows:
- name: refused
  remedies:
  - script:
      source: |
        function onResponse(request, response) {
          return respond({ status: response.headers.get('content-type') === 'application/json' ? 451 : 452 });
        }
  - script: { source: 'function onRequest(request) { return refuse(); }' }
";
        let config = Config::parse("egret.yaml", text).unwrap();
        let explained = ExplainedConfig::new("egret.yaml", &config).unwrap();
        let ask = |url| {
            let (method, fields) = ("GET", &[][..]);
            explained.ask(&ProbeRequest { method, url, fields, body: None, consumer: None, listener: None })
        };
        assert_eq!(ask("http://one.test/").unwrap().answer, Responder::Remedy(451));
        assert_eq!(ask("http://two.test/").unwrap().answer, Responder::Remedy(452));
    }
}
