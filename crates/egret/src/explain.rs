//! `egret explain`: shows what the gateway would do with a request, without sending it.

use std::fmt::Write;
use std::path::PathBuf;

use egret_clock::{Clock, Moment};
use egret_config::without_secrets;
use egret_diagnosis::Exports;
use egret_flow::config::match_rules;
use egret_flow::explain::ExplainedFlow;
use egret_gateway::{Resolved, Routes};
use egret_http1::{HeadLimits, Progress, RequestHead};
use egret_match::matching::Question;
use egret_match::router::{Matches, Router};
use egret_message::{Changes, Destination, Fields, ReceivedMessage, Request};
use egret_remedy::{Exchange, PendingChanges};
use serde::Serialize;

use crate::config_file;
use crate::config_path;
use crate::failure::Failure;

/// The arguments of `egret explain`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The config file. Default: `egret.yaml` in the working directory.
    file: Option<PathBuf>,
    /// The method and URL that the client would use, like `GET https://api.example.com/v1/things`.
    ///
    /// A URL of the gateway itself is treated as a base URL: `GET http://127.0.0.1:8000/stripe/v1/charges`.
    #[arg(long, short, value_name = "METHOD URL")]
    request: String,
    /// A header field of the request; may be repeated.
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The body of the request.
    #[arg(long, short, value_name = "BODY")]
    data: Option<String>,
    /// The name of the consumer.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Do not read secrets, neither from the environment nor from files: placeholders stand for them.
    #[arg(long)]
    no_secrets: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The output.
#[derive(Debug, Serialize)]
struct Explanation {
    method: String,
    provider: String,
    scheme: &'static str,
    host: String,
    port: u16,
    target: String,
    flows: Vec<ExplainedFlow>,
    /// The remedies of the matching flows, outermost first.
    remedies: Vec<RemedyStep>,
}

/// A remedy with its flow.
#[derive(Debug, Serialize)]
struct RemedyStep {
    flow: String,
    remedy: String,
    does: String,
    /// Its effect on this request, if it is a script.
    #[serde(skip_serializing_if = "String::is_empty")]
    now: String,
}

/// Returns the text to print.
pub fn explain(arguments: &Arguments) -> Result<String, Failure> {
    if arguments.no_secrets { without_secrets(|| explanation(arguments)) } else { explanation(arguments) }
}

fn explanation(arguments: &Arguments) -> Result<String, Failure> {
    let file = config_path::required(arguments.file.clone())?;
    let config = config_file::load(&file)?.config;
    let name = file.display();
    let mut bytes = head(arguments).into_bytes();
    let mut head = parse(&bytes)?;
    let (Ok(routes), Ok(router)) =
        (Routes::of(config.gateway_parts(&Exports::default())), Router::compile(&match_rules(&config.flows)))
    else {
        return Err(Failure::Failed(format!("{name}: a file that it refers to has just changed; try again")));
    };
    routes.translate(&mut head, &mut bytes).map_err(Failure::failed)?;
    let resolved = routes.resolve(&head, &bytes).map_err(Failure::failed)?;
    let (path, query) = match resolved.target.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (resolved.target.as_str(), None),
    };
    let changes = Changes::default();
    let fields = Fields::new(&head.fields, &bytes, &changes);
    let request = Request {
        provider: &resolved.provider,
        tls: resolved.tls,
        host: &resolved.host,
        port: resolved.port,
        method: head.method_text.of(&bytes),
        path: path.as_bytes(),
        query,
        fields,
        upgrade: head.upgrade,
        body: arguments.data.as_deref().map(str::as_bytes),
    };
    let now = Clock::new().timestamp(Moment::now());
    let question = Question { request: &request, roll: 0, now, has_body: true };
    let flows = egret_flow::explain::explain(&config.flows, &router, question);
    let steps =
        steps(&flows, &routes, &Rehearsal { question, resolved: &resolved, head: &head, bytes: &bytes });
    let explanation = Explanation {
        method: String::from_utf8_lossy(request.method).into_owned(),
        remedies: steps,
        flows,
        scheme: if resolved.tls { "https" } else { "http" },
        provider: resolved.provider,
        host: resolved.host,
        port: resolved.port,
        target: resolved.target,
    };
    if arguments.json { to_json(&explanation) } else { Ok(to_text(&explanation)) }
}

/// Returns the head that a client of a forward proxy would send.
fn head(arguments: &Arguments) -> String {
    let (method, url) = arguments.request.trim().split_once(' ').unwrap_or(("GET", arguments.request.trim()));
    let mut head = format!("{method} {} HTTP/1.1\r\n", url.trim());
    if let Some(data) = &arguments.data {
        let _ = write!(head, "Content-Length: {}\r\n", data.len());
    }
    let names_host = |field: &&String| field.to_ascii_lowercase().starts_with("host:");
    if !arguments.header.iter().any(|field| names_host(&field)) {
        head.push_str("Host: localhost\r\n");
    }
    let consumer = arguments.consumer.iter().map(|consumer| format!("x-egret-consumer: {consumer}"));
    for field in arguments.header.iter().cloned().chain(consumer) {
        head.push_str(&field);
        head.push_str("\r\n");
    }
    head + "\r\n"
}

fn parse(bytes: &[u8]) -> Result<RequestHead, Failure> {
    let mut head = RequestHead::new();
    match head.parse(bytes, &HeadLimits::default()) {
        Ok(Progress::Complete) if head.len == bytes.len() => Ok(head),
        Ok(_) => {
            Err(Failure::Misused("the method, the URL or a header field contains a line end".to_owned()))
        }
        Err(error) => Err(Failure::Misused(format!(
            "this request cannot be sent: {error} Expected `--request 'GET https://api.example.com/path'` and `-H 'name: value'`"
        ))),
    }
}

/// A request that scripts are run on.
struct Rehearsal<'a> {
    question: Question<'a>,
    resolved: &'a Resolved,
    head: &'a RequestHead,
    bytes: &'a [u8],
}

impl Rehearsal<'_> {
    /// Returns what each remedy of a flow does with the request, with the changes that scripts of outer flows
    /// have put into `draft`.
    fn run<'e>(
        &'e self,
        flow: usize,
        routes: &'e Routes,
        matches: &'e Matches,
        draft: &'e mut PendingChanges,
    ) -> Vec<String> {
        let Self { question, resolved, head, bytes } = *self;
        let Resolved { provider, tls, host, port, target } = resolved;
        let destination = Destination { provider, tls: *tls, host, port: *port, ..Destination::NO_UPSTREAM };
        let received = ReceivedMessage { head, bytes, body: question.request.body };
        let mut exchange = Exchange::new(question.now, destination, received, target.as_bytes(), draft);
        routes.rehearse(flow, matches, &mut exchange)
    }
}

fn steps(flows: &[ExplainedFlow], routes: &Routes, rehearsal: &Rehearsal<'_>) -> Vec<RemedyStep> {
    let mut matches = Matches::default();
    routes.find(rehearsal.question, &mut matches);
    let mut draft = PendingChanges::default();
    let mut steps = Vec::new();
    for (number, verdict) in flows.iter().enumerate().filter(|(_, verdict)| verdict.matches) {
        let mut now = rehearsal.run(number, routes, &matches, &mut draft).into_iter();
        for (remedy, does) in routes.remedies(number) {
            // Diagnoses follow the remedies.
            let now = now.next().unwrap_or_default();
            steps.push(RemedyStep { flow: verdict.flow.clone(), remedy: remedy.to_owned(), does, now });
        }
    }
    steps
}

fn to_json(explanation: &Explanation) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(explanation);
    text.map(|text| text + "\n").map_err(|error| Failure::Failed(format!("cannot write JSON: {error}")))
}

fn to_text(explanation: &Explanation) -> String {
    let Explanation { method, provider, scheme, host, port, target, flows, remedies } = explanation;
    let to = if provider == egret_message::OTHER_HOSTS {
        "no configured provider".to_owned()
    } else {
        format!("the provider `{provider}`")
    };
    let mut text = format!("{method} {target} is sent to {to}, at {scheme}://{host}:{port}\n");
    if flows.is_empty() {
        text.push_str("\nThe config has no flows: the request is forwarded unchanged.\n");
        return text;
    }
    text.push_str("\nFlows\n");
    for verdict in flows {
        let _ = writeln!(text, "  {}: {}", verdict.flow, verdict_text(verdict));
    }
    if !flows.iter().any(|verdict| verdict.matches) {
        text.push_str("\nNo flow matches: the request is forwarded unchanged.\n");
        return text;
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
