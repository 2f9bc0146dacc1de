//! Every requirement on a shared cache, through the running gateway. `crates/policy/flow` runs the same rows
//! on the cache's logic alone; here they run with real clients, a real provider and a test clock.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use egret_tests::clock::Clock;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::process::Directory;
use egret_tests::provider::{Peer, Provider, Request};
use egret_tests::wait::{Watched, until_true};

#[path = "../../crates/policy/flow/tests/requirements/mod.rs"]
mod requirements;

use requirements::{Origin, ROWS, Row, Step, is_like, unmet};

/// Sun, 22 Nov 2026 00:31:16 GMT.
const NOW_S: u64 = 1_795_307_476;

fn date(at_s: u64) -> String {
    let moment = jiff::Timestamp::from_second(i64::try_from(at_s).unwrap()).unwrap();
    moment.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The provider's responses of a row, and the requests that it has received.
#[derive(Debug, Default)]
struct Script {
    next: VecDeque<Origin>,
    delay_s: u64,
    answers: usize,
    /// The requests received.
    seen: Vec<(String, String)>,
    unexpected: Option<String>,
}

impl Script {
    /// Returns the bytes of the next response; `None` if the provider is down.
    fn respond(&mut self, request: &Request, time: &Clock) -> Option<Vec<u8>> {
        self.seen.clone_from(&request.fields);
        time.pass(std::mem::take(&mut self.delay_s));
        let Some(next) = self.next.pop_front() else {
            self.unexpected = Some(request.line.clone());
            return None;
        };
        self.answers += 1;
        let (status, fields, body, is_cut) = match next {
            Origin::Down => return None,
            Origin::LocalResponse(status, fields, body) => (status, fields, body, false),
            Origin::Cut(fields) => (200, fields, None, true),
        };
        let mut text = format!("HTTP/1.1 {status} X\r\n");
        for field in fields {
            text.extend([field.as_str(), "\r\n"]);
        }
        let has_body = !request.line.starts_with("HEAD ") && !matches!(status, 204 | 304);
        let body = body.unwrap_or_else(|| format!("body-{}", self.answers));
        let body = if has_body { body } else { String::new() };
        if has_body {
            let missing = if is_cut { 10 } else { 0 };
            write!(text, "content-length: {}\r\n", body.len() + missing).unwrap();
        }
        // A connection that is used once is never mistaken for a dead one.
        text.push_str("connection: close\r\n\r\n");
        Some((text + &body).into_bytes())
    }
}

/// A row in progress.
struct Run<'a> {
    row: &'a Row,
    egret: &'a Egret,
    time: &'a Clock,
    script: &'a Watched<Script>,
    /// Number of exchanges that the gateway must have finished.
    exchanges: u64,
}

fn provider(script: &Arc<Watched<Script>>, time: &Clock) -> Provider {
    let (script, time) = (Arc::clone(script), time.clone());
    Provider::scripted(move |peer: &mut Peer| {
        let Some(request) = peer.request() else { return };
        let mut response = None;
        script.change(|script| response = script.respond(&request, &time));
        if let Some(response) = response {
            peer.send(response);
        }
    })
}

#[test]
fn every_requirement_is_kept_by_the_running_gateway() {
    let directory = Directory::default();
    let Some(time) = Clock::new(&directory, NOW_S) else { return };
    let scripts: Vec<_> = ROWS.iter().map(|_| Arc::new(Watched::<Script>::default())).collect();
    let providers: Vec<_> = scripts.iter().map(|script| provider(script, &time)).collect();
    let mut config = Config::default().gateway("rewrite: off");
    let mut flows = "flows:\n".to_owned();
    for (number, (row, provider)) in ROWS.iter().zip(&providers).enumerate() {
        config = config.provider(&format!("p{number}"), provider.url());
        let Row { name, config, .. } = row;
        let name = &name[..name.len().min(64)];
        writeln!(
            flows,
            "  - {{ name: {name}, match: {{ provider: p{number} }}, remedies: [ {{ cache: {config} }} ] }}"
        )
        .unwrap();
    }
    let egret = Egret::start_with(&config.flows(flows), |command| {
        time.govern(command);
    });
    let broken: Vec<String> = ROWS
        .iter()
        .zip(&scripts)
        .enumerate()
        .filter_map(|(number, (row, script))| {
            time.set(NOW_S);
            let run = Run { row, egret: &egret, time: &time, script, exchanges: 0 };
            let Row { name, section, level, asks, .. } = row;
            run.run(number).err().map(|what| format!("{name} ({section} {level}: {asks}): {what}"))
        })
        .collect();
    assert!(broken.is_empty(), "{} of {} rows:\n{}", broken.len(), ROWS.len(), broken.join("\n"));
}

impl Run<'_> {
    fn run(mut self, number: usize) -> Result<(), String> {
        let mut steps: VecDeque<Step> = self.row.steps(NOW_S, date).into();
        let mut asked = None;
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Pass(seconds) => self.time.pass(seconds),
                Step::Delay(seconds) => self.script.change(|script| script.delay_s = seconds),
                Step::Origin(origin) => self.script.change(|script| script.next.push_back(origin)),
                Step::Ask(method, path, fields, body) => asked = Some((method, path, fields, body)),
                Step::Seen(fields) if asked.is_some() => {
                    // It is visible once the response has arrived.
                    let at = steps.iter().position(|step| matches!(step, Step::Get(..))).unwrap();
                    steps.insert(at + 1, Step::Seen(fields));
                }
                Step::Seen(fields) => {
                    let seen = self.script.read(|script| script.seen.clone());
                    if let Some(field) = unmet(&fields, &seen) {
                        return Err(format!("the provider does not see `{field}` in {seen:?}"));
                    }
                }
                Step::Get(status, fields, body) => {
                    if let Some(Step::Later(origin)) = steps.front() {
                        // It is requested as soon as the client has its response.
                        self.script.change(|script| script.next.push_back(origin.clone()));
                    }
                    let (method, path, sent, sent_body) = asked.take().unwrap();
                    let is_later = matches!(steps.front(), Some(Step::Later(_)));
                    let response = self.ask(number, &method, &path, &sent, sent_body.as_deref());
                    self.until_ended(number, is_later);
                    self.compare(&response, status, &fields, body.as_deref())
                        .map_err(|what| format!("{method} {path}: {what}, got {response:?}"))?;
                }
                // Already requested.
                Step::Later(_) => {}
            }
        }
        Ok(())
    }

    fn ask(
        &self,
        number: usize,
        method: &str,
        path: &str,
        fields: &[String],
        body: Option<&str>,
    ) -> Response {
        let mut text = format!("{method} /p{number}{path} HTTP/1.1\r\nHost: {}\r\n", self.egret.address());
        for field in fields {
            text.extend([field.as_str(), "\r\n"]);
        }
        if let Some(body) = body {
            write!(text, "content-length: {}\r\n", body.len()).unwrap();
        }
        text.push_str("\r\n");
        text.push_str(body.unwrap_or_default());
        self.egret.client().send(text).any_response_to(method)
    }

    /// Waits until the gateway has finished the exchange, and the background call if there is one.
    fn until_ended(&mut self, number: usize, is_later: bool) {
        self.exchanges += 1 + u64::from(is_later);
        until_true("the exchanges have ended", || {
            let stats = self.egret.control_get("/api/v1/stats");
            // There are hundreds of others, which need not be parsed.
            let (text, name) = (stats.text(), format!("{{\"name\":\"p{number}\","));
            let at = text.find(&name).unwrap_or_else(|| panic!("no {name} in {text}"));
            let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<serde_json::Value>();
            let provider = values.next().unwrap().unwrap();
            let exchanges = provider["exchanges"].as_array().unwrap();
            exchanges.iter().map(|exchange| exchange["count"].as_u64().unwrap()).sum::<u64>()
                == self.exchanges
        });
    }

    fn compare(
        &self,
        response: &Response,
        status: u16,
        fields: &[String],
        body: Option<&str>,
    ) -> Result<(), String> {
        let (left, unexpected) = self.script.read(|script| (script.next.len(), script.unexpected.clone()));
        if let Some(line) = unexpected {
            return Err(format!("the provider is asked, and should not be: {line}"));
        }
        if left > 0 {
            return Err("the provider is not asked, and should be".to_owned());
        }
        if response.status != status {
            return Err(format!("expected {status}"));
        }
        if let Some(field) = unmet(fields, &response.fields) {
            return Err(format!("expected `{field}`"));
        }
        let body = body.map(|body| body.replace("\\r\\n", "\r\n"));
        let text = String::from_utf8_lossy(&response.body);
        if body.as_deref().is_some_and(|body| !is_like(body, &text)) {
            return Err(format!("expected {body:?}"));
        }
        Ok(())
    }
}
