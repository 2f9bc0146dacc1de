//! `egret tail`: shows the calls through a running gateway, one line each, as they end.

pub mod line;

use std::io::{self, BufRead, ErrorKind, IsTerminal, Write};

use clap::{Args, ValueEnum};
use egret_config::Problem;
use egret_json::printable::printable_json;
use egret_measure::streams::say;
use egret_service::control_client::{Belief, ControlClient, ControlClientError};
use egret_settings::failure::Failure;
use serde_json::Value;

use crate::asked_gateway::AskedGateway;
use line::{Exchange, Style};

/// Maximum length of a line of the stream: far above that of any exchange.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The methods of RFC 9110, and PATCH.
pub const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// The calls to show, and how.
#[expect(clippy::struct_excessive_bools, reason = "the options are independent of each other")]
#[derive(Debug, Args)]
pub struct TailArguments {
    #[command(flatten)]
    asked: AskedGateway,
    /// Only calls to this provider; `-` for hosts without one.
    #[arg(long, short, value_name = "NAME", allow_hyphen_values = true)]
    provider: Vec<String>,
    /// Only calls to this host, as in a flow's match: `*.example.com`.
    #[arg(long, value_name = "PATTERN")]
    host: Vec<String>,
    /// Only calls with this method.
    #[arg(long, short, value_name = "METHOD")]
    method: Vec<String>,
    /// Only calls to this path, as in a flow's match: `/v1/users/*`. It is relative to the provider's URL.
    #[arg(long, value_name = "PATTERN")]
    path: Vec<String>,
    /// Only responses with this status: `429`, `5xx`, `200-299`, or `none`.
    #[arg(long, short, value_name = "STATUS")]
    status: Vec<String>,
    /// Only calls of this consumer.
    #[arg(long, value_name = "NAME")]
    consumer: Vec<String>,
    /// Only calls that this flow matches.
    #[arg(long, value_name = "NAME")]
    flow: Vec<String>,
    /// Only responses of `provider`, `cache` or `egret`; `nobody` if the client got no response.
    #[arg(long, value_name = "WHO")]
    answered_by: Vec<String>,
    /// Only errors of Egret with this name, such as `dns-failed`.
    #[arg(long, value_name = "SLUG")]
    error: Vec<String>,
    /// Only calls with this query parameter, as in a flow's match: `page=*`.
    #[arg(long, value_name = "NAME=PATTERN")]
    query: Vec<String>,
    /// Only calls with this header field, as in a flow's match: `accept=*json*`.
    #[arg(long, value_name = "NAME=PATTERN")]
    header: Vec<String>,
    /// Only calls that took at least this long, like `1s`.
    #[arg(long, value_name = "DURATION")]
    slower_than: Option<String>,
    /// The last failed calls, from before anybody looked, instead of those to come: with an error of Egret,
    /// or a status of 401, 403, 429 or 5xx.
    #[arg(long, conflicts_with = "sample")]
    failed: bool,
    /// Number of failed calls to show.
    #[arg(short = 'n', value_name = "NUMBER", default_value_t = 20, requires = "failed")]
    number: u32,
    /// Record at most one in this number of exchanges, at random.
    #[arg(long, value_name = "NUMBER")]
    sample: Option<u32>,
    /// Print one JSON object for each call, in the format of the control API.
    #[arg(long)]
    json: bool,
    /// Accepted for those who know tail(1): calls are always followed.
    #[arg(short = 'f', long = "follow", hide = true)]
    follow: bool,
    /// Also show header fields, and what each remedy decided. With --json, all details.
    #[arg(long, short)]
    verbose: bool,
    /// When to use colors.
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
}

/// When to use colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    /// In a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The end of the output.
enum End {
    /// Nobody reads standard output any more.
    Unread,
    /// The gateway has ended the stream.
    Stopped,
}

/// Shows calls until standard output is closed or the gateway stops.
pub fn run(arguments: &TailArguments) -> Result<(), Failure> {
    let client = arguments.asked.client()?;
    arguments.check_names(&client)?;
    if arguments.failed {
        return show_failed(arguments, &client);
    }
    let stream = client.stream(&arguments.request_path()?).map_err(|error| refused(&client, &error))?;
    if io::stderr().is_terminal() {
        say(format_args!("watching the calls through the gateway at {}; Ctrl-C ends", client.address));
    }
    let mut tail = Tail { arguments, client: &client, style: arguments.style(), one_in: 1 };
    match tail.follow(stream) {
        Ok(End::Unread) => Ok(()),
        Ok(End::Stopped) => Err(Failure::Failed(format!("the gateway at {} has stopped", client.address))),
        Err(error) => Err(Failure::Failed(format!(
            "the connection to the gateway at {} is lost: {}",
            client.address,
            in_words(&error)
        ))),
    }
}

/// Shows the last failed calls, the newest last.
fn show_failed(arguments: &TailArguments, client: &ControlClient) -> Result<(), Failure> {
    let path = arguments.request_path()?;
    let list = client.get(&path).map_err(|error| refused(client, &error))?;
    let list: Value = serde_json::from_slice(&list).unwrap_or_default();
    let tail = Tail { arguments, client, style: arguments.style(), one_in: 1 };
    let exchanges: Vec<&Value> = list["exchanges"].as_array().into_iter().flatten().collect();
    if exchanges.is_empty() {
        // `limit` is always there.
        let has_filter = path.contains('&');
        say(if has_filter {
            "none of the failed calls that are kept matches"
        } else {
            "no failed call is kept"
        });
    }
    for exchange in exchanges.into_iter().rev() {
        let line = format!("{exchange}\n");
        match write(&tail.exchange(exchange, line.as_bytes())) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(Failure::Failed(format!("standard output: {error}")));
            }
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "nothing has arrived for five seconds".to_owned(),
        _ => error.to_string(),
    }
}

fn refused(client: &ControlClient, error: &ControlClientError) -> Failure {
    let address = client.address;
    match error {
        ControlClientError::Refused { status: 400, detail } => Failure::Misused(detail.clone()),
        ControlClientError::Refused { status: 401, .. } if matches!(client.belief, Belief::Named(None)) => {
            Failure::Failed(format!(
                "no token for the gateway at {address}: run this in the gateway's directory, where it keeps \
             `egret-data/control.key`, name its config with --config, or its token with --token"
            ))
        }
        _ => Failure::Failed(format!(
            "cannot watch the gateway at {address}: {error}; is `egret run` running?"
        )),
    }
}

/// Refuses a known method in small letters, which no server takes for it.
pub fn check_case(method: &str) -> Result<(), String> {
    match METHODS.iter().find(|known| known.eq_ignore_ascii_case(method) && **known != method) {
        Some(meant) => Err(format!("methods are case-sensitive; did you mean `{meant}`?")),
        None => Ok(()),
    }
}

impl TailArguments {
    /// Fails if a filter names what does not exist, because no call would ever be shown.
    fn check_names(&self, client: &ControlClient) -> Result<(), Failure> {
        for slug in &self.error {
            known("error", slug, egret_message::ErrorKind::ALL.iter().map(|kind| kind.slug()))?;
        }
        for method in &self.method {
            check_case(method).map_err(|message| Failure::Misused(format!("--method: {message}")))?;
        }
        if self.provider.is_empty() && self.flow.is_empty() {
            return Ok(());
        }
        // If the gateway cannot be asked, the stream says why.
        let Ok(config) = client.get("/api/v1/config") else { return Ok(()) };
        let config: Value = serde_json::from_slice(&config).unwrap_or_default();
        let providers =
            || config["providers"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let flows =
            || config["flows"].as_array().into_iter().flatten().filter_map(|flow| flow["name"].as_str());
        self.provider
            .iter()
            .filter(|name| *name != "-")
            .try_for_each(|name| known("provider", name, providers()))?;
        self.flow.iter().try_for_each(|name| known("flow", name, flows()))
    }

    /// Returns the path of the stream with the filters.
    fn request_path(&self) -> Result<String, Failure> {
        let mut query = String::new();
        let mut add = |key: &str, value: &str| {
            query.push(if query.is_empty() { '?' } else { '&' });
            encode(key, &mut query);
            query.push('=');
            encode(value, &mut query);
        };
        let lists = [
            ("provider", &self.provider),
            ("host", &self.host),
            ("method", &self.method),
            ("path", &self.path),
            ("status", &self.status),
            ("consumer", &self.consumer),
            ("flow", &self.flow),
            ("answered_by", &self.answered_by),
            ("error", &self.error),
        ];
        for (key, values) in lists {
            for value in values {
                add(key, value);
            }
        }
        for (key, pairs) in [("query", &self.query), ("header", &self.header)] {
            for pair in pairs {
                let (name, value) = pair.split_once('=').ok_or_else(|| {
                    Failure::Misused(format!("--{key}: expected a name and a pattern, like `{key}=*`"))
                })?;
                add(&format!("{key}.{name}"), value);
            }
        }
        if let Some(least) = &self.slower_than {
            add("slower_than", least);
        }
        if let Some(sample) = self.sample {
            add("sample", &sample.to_string());
        }
        if self.failed {
            add("limit", &self.number.to_string());
            return Ok(format!("/api/v1/failures{query}"));
        }
        Ok(format!("/api/v1/traffic/stream{query}"))
    }

    fn style(&self) -> Style {
        let is_terminal = io::stdout().is_terminal();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colors = match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && !is_set("NO_COLOR") && !is_dumb,
        };
        Style { colors, is_terminal, has_dates: self.failed }
    }
}

/// Fails unless `names` have this one of an option.
fn known<'n>(
    option: &str,
    name: &str,
    mut names: impl Iterator<Item = &'n str> + Clone,
) -> Result<(), Failure> {
    let all = names.clone();
    if names.any(|known| known == name) {
        return Ok(());
    }
    let Problem { message, suggestion, .. } = Problem::unknown_name("", option, name, all);
    let meant = suggestion.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    Err(Failure::Misused(format!("--{option}: {message}{meant}")))
}

/// Percent-encodes a part of a query.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&data_encoding::HEXUPPER.encode(&[byte]));
        }
    }
}

/// The command while it runs.
struct Tail<'a> {
    arguments: &'a TailArguments,
    client: &'a ControlClient,
    style: Style,
    /// The share of exchanges that was told last.
    one_in: u64,
}

impl Tail<'_> {
    /// Shows the lines of the stream.
    fn follow(&mut self, mut stream: impl BufRead) -> io::Result<End> {
        let mut line = Vec::new();
        loop {
            line.clear();
            io::Read::take(&mut stream, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Ok(End::Stopped);
            }
            let Ok(value) = serde_json::from_slice::<Value>(&line) else { continue };
            let text = match value["type"].as_str() {
                Some("exchange") => self.exchange(&value, &line),
                Some("lost") => {
                    let count = value["count"].as_u64().unwrap_or_default();
                    say(format_args!(
                        "{count} exchanges are not shown: they came faster than they were read"
                    ));
                    continue;
                }
                Some("status") => {
                    self.note_share(&value);
                    if is_unread() {
                        return Ok(End::Unread);
                    }
                    continue;
                }
                // A later version may have other lines.
                _ => continue,
            };
            if let Err(error) = write(&text) {
                return if error.kind() == ErrorKind::BrokenPipe { Ok(End::Unread) } else { Err(error) };
            }
        }
    }

    fn exchange(&self, value: &Value, line: &[u8]) -> Vec<u8> {
        let id = value["id"].as_u64().filter(|_| self.arguments.verbose);
        // The exchange may have left the list already.
        let list = if self.arguments.failed { "failures" } else { "traffic" };
        let details = id.and_then(|id| self.client.get(&format!("/api/v1/{list}/{id}")).ok());
        if self.arguments.json {
            let details = details.map(|details| [&details[..], b"\n"].concat());
            let json = String::from_utf8_lossy(details.as_deref().unwrap_or(line));
            return printable_json(&json).into_owned().into_bytes();
        }
        let mut text = self.style.line(&Exchange::of(value));
        if let Some(details) = details.and_then(|details| serde_json::from_slice(&details).ok()) {
            self.style.details(&details, &mut text);
        }
        text.into_bytes()
    }

    /// Tells the share of exchanges that are shown, when it changes.
    fn note_share(&mut self, status: &Value) {
        let one_in = status["one_in"].as_u64().unwrap_or(1);
        if one_in == self.one_in {
            return;
        }
        self.one_in = one_in;
        if one_in == 1 {
            say("all exchanges are recorded again");
        } else if self.arguments.sample.is_none_or(|sample| u64::from(sample) != one_in) {
            say(format_args!("there are too many exchanges: one of {one_in} is recorded"));
        }
    }
}

/// Writes to standard output at once.
fn write(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// Returns `true` if standard output is a pipe that nobody reads any more.
fn is_unread() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        arguments: TailArguments,
    }

    fn path(arguments: &[&str]) -> Result<String, Failure> {
        let all = std::iter::once("tail").chain(arguments.iter().copied());
        Command::try_parse_from(all).unwrap().arguments.request_path()
    }

    #[test]
    fn filters_go_into_the_query() {
        assert_eq!(path(&[]).unwrap(), "/api/v1/traffic/stream");
        let all =
            ["-p", "-", "-m", "get", "-s", "5xx", "-s", "429", "--path", "/a b/*", "--slower-than", "1s"];
        assert_eq!(
            path(&all).unwrap(),
            "/api/v1/traffic/stream?provider=-&method=get&path=%2Fa%20b%2F%2A&status=5xx&status=429&slower_than=1s"
        );
        assert_eq!(
            path(&["--query", "q=a&b", "--header", "Accept=*", "--sample", "10"]).unwrap(),
            "/api/v1/traffic/stream?query.q=a%26b&header.Accept=%2A&sample=10"
        );
        assert!(matches!(path(&["--query", "q"]), Err(Failure::Misused(_))));
        assert_eq!(path(&["--failed", "-p", "a"]).unwrap(), "/api/v1/failures?provider=a&limit=20");
    }
}
