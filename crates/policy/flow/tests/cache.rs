//! Runs every requirement of a shared cache against the cache policy alone, with a list as the store, a
//! simulated clock, and a provider that sends the responses of the row.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so and stops")]

mod requirements;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use egret_cache::{
    Action, CacheConfig, CacheKey, CacheStatus, CallTimes, Candidate, Decision, KeyContext, KeySecret,
    Lookup, Piece, Policy, ProviderFailure, Reply, Stored, TimedResponse, Validation, problems,
};
use egret_clock::Timestamp;
use egret_http1::{HeadLimits, Method, Progress, RequestHead, ResponseHead};
use egret_message::{Fields, Request, Response};
use requirements::{Origin, ROWS, Row, Step, is_like, unmet};

/// Sun, 22 Nov 2026 00:31:16 GMT.
const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

fn date(at_s: u64) -> String {
    let moment = jiff::Timestamp::from_second(i64::try_from(at_s).unwrap()).unwrap();
    moment.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[test]
fn every_requirement_is_kept() {
    let broken: Vec<String> = ROWS.iter().filter_map(|row| Bench::run(row).err()).collect();
    assert!(broken.is_empty(), "{} of {} rows:\n{}", broken.len(), ROWS.len(), broken.join("\n"));
    assert!(ROWS.len() > 60);
}

#[test]
fn the_table_of_the_handbook_has_every_requirement() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/cache-requirements.md");
    let handbook = std::fs::read_to_string(path).unwrap();
    let rows = ROWS.iter().map(|row| {
        let Row { name, section, level, asks, .. } = row;
        format!("| {section} | {level} | {asks} | `{name}` |\n")
    });
    let table: String = rows.collect();
    if std::env::var_os("EGRET_WRITE_TABLE").is_some() {
        let start =
            handbook.find("| --- | --- | --- | --- |\n").unwrap() + "| --- | --- | --- | --- |\n".len();
        let len = handbook[start..].split("\n\n").next().unwrap().len() + 1;
        std::fs::write(
            path,
            format!("{}{table}{}", &handbook[..start], handbook.get(start + len..).unwrap_or_default()),
        )
        .unwrap();
        return;
    }
    assert!(handbook.contains(&table), "the table is out of date: run the test with EGRET_WRITE_TABLE=1");
}

/// A response.
#[derive(Debug, Clone, Default)]
struct LocalResponse {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    is_cut: bool,
}

struct Bench {
    policy: Policy,
    now: Timestamp,
    entries: Vec<(CacheKey, Stored, Vec<u8>)>,
    delay_s: u64,
    origin: VecDeque<Origin>,
    answers: usize,
    /// The last request as the provider received it.
    seen: Vec<(String, String)>,
    /// A call to make in the background.
    later: Option<(RequestText, Validation)>,
}

#[derive(Debug, Clone)]
struct RequestText {
    method: String,
    path: String,
    fields: Vec<(String, String)>,
    body: Option<String>,
}

fn pair(field: &str) -> (String, String) {
    let (name, value) = field.split_once(": ").unwrap_or_else(|| panic!("{field}"));
    (name.to_owned(), value.to_owned())
}

impl RequestText {
    fn with<T>(&self, act: impl FnOnce(&Request<'_>) -> T) -> T {
        let mut text = format!("{} / HTTP/1.1\r\nhost: h.example\r\n", self.method);
        for (name, value) in &self.fields {
            text.extend([name, ": ", value, "\r\n"]);
        }
        if let Some(body) = &self.body {
            text.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
        }
        let bytes = (text + "\r\n").into_bytes();
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete, "{self:?}");
        let (path, query) =
            self.path.split_once('?').map_or((self.path.as_str(), None), |(path, query)| (path, Some(query)));
        act(&Request {
            provider: "one",
            tls: true,
            host: "h.example",
            port: 443,
            method: self.method.as_bytes(),
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            fields: Fields::received(&head.fields, &bytes),
            upgrade: head.upgrade,
            body: self.body.as_deref().map(str::as_bytes),
        })
    }
}

impl LocalResponse {
    fn with<T>(&self, method: &str, act: impl FnOnce(&Response<'_>) -> T) -> T {
        let mut text = format!("HTTP/1.1 {} X\r\n", self.status);
        for (name, value) in &self.fields {
            text.extend([name, ": ", value, "\r\n"]);
        }
        let bytes = (text + "\r\n").into_bytes();
        let mut head = ResponseHead::new();
        let method = Method::of(method.as_bytes());
        assert_eq!(
            head.parse(&bytes, &HeadLimits::default(), method).unwrap(),
            Progress::Complete,
            "{self:?}"
        );
        act(&Response { status: head.status, fields: Fields::received(&head.fields, &bytes), body: None })
    }

    fn marked(mut self, status: CacheStatus) -> Self {
        self.fields.push(("cache-status".to_owned(), String::from_utf8(status.value()).unwrap()));
        self
    }
}

impl Bench {
    fn run(row: &Row) -> Result<(), String> {
        let config: CacheConfig = serde_json::from_str(row.config).unwrap();
        assert_eq!(problems(&config), [], "{}", row.name);
        let policy = Policy::new(&config, "flow", Arc::new(KeySecret::new(&[5; 32])));
        let (entries, origin, seen) = Default::default();
        let mut bench = Self { policy, now: NOW, entries, delay_s: 0, origin, answers: 0, seen, later: None };
        let mut steps: VecDeque<Step> = row.steps(NOW.as_secs(), date).into();
        let mut asked: Option<RequestText> = None;
        while let Some(step) = steps.pop_front() {
            let wrong = |what: String| Err(format!("{}: {what}", row.name));
            match step {
                Step::Pass(seconds) => bench.now = bench.now + Duration::from_secs(seconds),
                Step::Delay(seconds) => bench.delay_s = seconds,
                Step::Origin(origin) => bench.origin.push_back(origin),
                Step::Ask(method, path, fields, body) => {
                    let fields = fields.iter().map(|field| pair(field)).collect();
                    asked = Some(RequestText { method, path, fields, body });
                    bench.seen.clear();
                }
                Step::Seen(fields) => {
                    // The provider sees the request when the response is requested: put the check after it.
                    let at = steps.iter().position(|step| matches!(step, Step::Get(..)));
                    match at {
                        Some(at) if asked.is_some() => steps.insert(at + 1, Step::Seen(fields)),
                        _ => {
                            if let Some(field) = unmet(&fields, &bench.seen) {
                                return wrong(format!(
                                    "the provider does not see `{field}` in {:?}",
                                    bench.seen
                                ));
                            }
                        }
                    }
                }
                Step::Get(status, fields, body) => {
                    let request = asked.take().unwrap();
                    let answer = bench.ask(&request).map_err(|what| {
                        format!("{}: {} {}: {what}", row.name, request.method, request.path)
                    })?;
                    let text = String::from_utf8(answer.body.clone()).unwrap();
                    let has_body =
                        body.as_deref().is_none_or(|body| is_like(&body.replace("\\r\\n", "\r\n"), &text));
                    let unmet = unmet(&fields, &answer.fields);
                    if answer.status != status || unmet.is_some() || !has_body || !bench.origin.is_empty() {
                        return wrong(format!(
                            "{} {}: expected {status} {unmet:?} {body:?}, unasked {:?}, got {answer:?}",
                            request.method, request.path, bench.origin
                        ));
                    }
                }
                Step::Later(origin) => {
                    let Some((request, validation)) = bench.later.take() else {
                        return wrong("no background call is pending".to_owned());
                    };
                    bench.origin.push_back(origin);
                    bench.call(&request, CacheStatus::default(), Some(&validation)).unwrap();
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, request: &RequestText) -> Result<LocalResponse, String> {
        let context = KeyContext::default();
        let question = match request.with(|request| self.policy.look_up(request, &context)) {
            Lookup::Look(question) => question,
            Lookup::OnlyIfCached => return Ok(LocalResponse { status: 504, ..LocalResponse::default() }),
            Lookup::Forward(forward) => {
                let answer = self.fetch(request)?.ok_or("the provider is unreachable")?;
                let groups = request.with(|asked| {
                    answer
                        .with(&request.method, |response| self.policy.invalidated(asked, &context, response))
                });
                self.entries.retain(|(key, _, _)| !groups.contains(&key.group));
                return Ok(answer.marked(CacheStatus::forwarded(forward)));
            }
        };
        let (at, decision) = self.with_candidates(question.key, |bench, candidates| {
            request.with(|request| bench.policy.decide(&question, request, candidates, bench.now))
        });
        match decision {
            Decision::Serve(reply) => Ok(self.render(&at, &reply).marked(CacheStatus::hit(&reply))),
            Decision::ServeStale(reply, validation) => {
                self.later = validation.map(|validation| (request.clone(), validation));
                Ok(self.render(&at, &reply).marked(CacheStatus::hit(&reply)))
            }
            Decision::Validate(validation) => {
                let status = CacheStatus::forwarded(validation.forward);
                self.call(request, status, Some(&validation))
            }
            Decision::Forward(forward) => self.call(request, CacheStatus::forwarded(forward), None),
            Decision::OnlyIfCached => Ok(LocalResponse { status: 504, ..LocalResponse::default() }),
        }
    }

    /// Calls `act` with the responses stored under a key and their positions.
    fn with_candidates<T>(
        &self,
        key: CacheKey,
        act: impl FnOnce(&Self, &[Candidate<'_>]) -> T,
    ) -> (Vec<usize>, T) {
        let found = self.entries.iter().enumerate().filter(|(_, (other, _, _))| *other == key);
        let (at, candidates): (Vec<usize>, Vec<Candidate<'_>>) = found
            .map(|(at, (_, stored, body))| (at, Candidate { stored, len: Some(body.len() as u64) }))
            .unzip();
        (at, act(self, &candidates))
    }

    /// Calls the provider and handles its response.
    fn call(
        &mut self,
        request: &RequestText,
        status: CacheStatus,
        validation: Option<&Validation>,
    ) -> Result<LocalResponse, String> {
        let context = KeyContext::default();
        let Lookup::Look(question) = request.with(|request| self.policy.look_up(request, &context)) else {
            panic!("the cache serves this request")
        };
        let mut sent = request.clone();
        if let Some(Validation { validators, .. }) = validation {
            sent.fields.retain(|(name, _)| name != "if-none-match" && name != "if-modified-since");
            for (name, value) in [
                ("if-none-match", &validators.if_none_match),
                ("if-modified-since", &validators.if_modified_since),
            ] {
                let value = value.as_ref().map(|value| String::from_utf8(value.clone()).unwrap());
                sent.fields.extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        let sent_at = self.now;
        let Some(answer) = self.fetch(&sent)? else {
            let (at, reply) = self.with_candidates(question.key, |bench, candidates| {
                let failure = ProviderFailure::Silence;
                request.with(|request| bench.policy.fail(&question, request, candidates, failure, bench.now))
            });
            let failed = LocalResponse { status: 502, ..LocalResponse::default() };
            return Ok(reply.map_or(failed, |reply| self.render(&at, &reply).marked(status.failed(&reply))));
        };
        let times = CallTimes { sent: sent_at, received: self.now };
        let (at, verdict) = self.with_candidates(question.key, |bench, candidates| {
            request.with(|asked| {
                answer.with(&request.method, |response| {
                    let response = TimedResponse { response, times };
                    bench.policy.receive(&question, asked, &context, response, candidates, validation)
                })
            })
        });
        let status = status.responded(answer.status, &verdict);
        let answer = match verdict.action {
            Action::Again => return self.call(request, status, None),
            Action::Pass(_) => answer.marked(status),
            Action::PassAndUpdate(candidate, stored) => {
                self.entries[at[candidate]].1 = *stored;
                answer.marked(status)
            }
            Action::ServeStale(reply) => self.render(&at, &reply).marked(status),
            Action::Update(stored, reply) => {
                self.entries[at[reply.candidate]].1 = *stored;
                self.render(&at, &reply).marked(status)
            }
            Action::Store(stored, _) => {
                if !answer.is_cut {
                    self.entries.push((question.key, *stored, answer.body.clone()));
                }
                answer.marked(status)
            }
        };
        let mut gone: Vec<usize> = verdict.removed.iter().map(|candidate| at[*candidate]).collect();
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.entries.remove(at);
        }
        Ok(answer)
    }

    /// Returns the provider's next response, or `None` if the provider is unreachable.
    fn fetch(&mut self, request: &RequestText) -> Result<Option<LocalResponse>, String> {
        self.seen.clone_from(&request.fields);
        self.now = self.now + Duration::from_secs(std::mem::take(&mut self.delay_s));
        let origin = self.origin.pop_front().ok_or("the provider is called but should not be")?;
        self.answers += 1;
        let (status, fields, body, is_cut) = match origin {
            Origin::Down => return Ok(None),
            Origin::LocalResponse(status, fields, body) => (status, fields, body, false),
            Origin::Cut(fields) => (200, fields, None, true),
        };
        let mut fields: Vec<_> = fields.iter().map(|field| pair(field)).collect();
        let has_body = request.method != "HEAD" && !matches!(status, 204 | 304);
        let body =
            if has_body { body.unwrap_or_else(|| format!("body-{}", self.answers)) } else { String::new() };
        if has_body {
            fields.push(("content-length".to_owned(), body.len().to_string()));
        }
        Ok(Some(LocalResponse { status, fields, body: body.into_bytes(), is_cut }))
    }

    /// Builds the client's response from a stored one.
    fn render(&self, at: &[usize], reply: &Reply) -> LocalResponse {
        let (_, stored, body) = &self.entries[at[reply.candidate]];
        let len = body.len() as u64;
        let mut lines = Vec::new();
        reply.write_fields(stored, len, &mut lines);
        let mut fields: Vec<_> = String::from_utf8(lines).unwrap().lines().map(pair).collect();
        let range = |range: egret_cache::ByteRange| {
            body[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].to_vec()
        };
        let sent = match reply.pieces(stored, len) {
            None => body.clone(),
            Some(pieces) => pieces
                .into_iter()
                .flat_map(|piece| match piece {
                    Piece::Text(text) => text,
                    Piece::Stored(of) => range(of),
                })
                .collect(),
        };
        if let Some(len) = reply.content_length(stored, len) {
            assert_eq!(len, sent.len() as u64);
            fields.push(("content-length".to_owned(), len.to_string()));
        }
        let body = if reply.has_body { sent } else { Vec::new() };
        LocalResponse { status: reply.status(stored), fields, body, is_cut: false }
    }
}
