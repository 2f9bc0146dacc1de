//! The compilation of the options to a plan.

use std::path::Path;

use egret_har::replay;

use crate::check::Checks;
use crate::destinations::Destinations;
use crate::error::Error;
use crate::guard;
use crate::options::{Options, Target};
use crate::pace::{Pace, Rate};
use crate::plan::{Destination, FirstLength, Plan, PreparedRequest, spread};
use crate::request::{RequestBody, RequestParts, is_about_connection, is_field_line, is_method, method_of};
use crate::transport::SocketOptions;
use crate::url::Url;

/// Maximum number of concurrent exchanges, as in ab.
const CONCURRENCY_MAX: usize = 20_000;

/// Maximum number of streams on a connection of HTTP/2.
const STREAMS_MAX: usize = 1_000;

/// Maximum number of threads.
const THREADS_MAX: usize = 256;

/// Maximum number of targets.
const TARGETS_MAX: usize = 64;

/// Maximum size of a file of bodies, in bytes.
const BODY_FILE_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of bodies in a file, and of prepared requests.
const REQUESTS_MAX: usize = 100_000;

/// Maximum number of exchanges kept individually for `-g`, at 24 bytes each.
const SAMPLES_MAX: usize = 50_000_000;

/// Number of requests that `-t` implies in ab.
const AB_REQUESTS_WITH_TIME: u64 = 50_000;

/// A plan, and the details of it that a report shows.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// The first URL, shown at the top of the report.
    pub url: Url,
    /// The names of the targets, in order.
    pub names: Vec<String>,
    /// The address of the proxy, as it was given.
    pub proxy: Option<String>,
    /// `true` if requests have bodies.
    pub has_body: bool,
}

/// A request before it is rendered.
struct Draft {
    url: Url,
    parts: RequestParts,
    target: usize,
}

/// Requests before they are rendered, the order in which they are sent, and the names of the targets.
struct Drafts {
    requests: Vec<Draft>,
    order: Vec<usize>,
    names: Vec<String>,
}

impl Options {
    /// Rejects options that describe a single run, for modes that consist of several. Ignoring them silently
    /// would mislead.
    pub(crate) fn reject_files_and_conditions(&self, why: &str) -> Result<(), Error> {
        if self.fail_if.is_empty() && !self.has_files() {
            return Ok(());
        }
        Err(Error::Usage(format!("{why}: remove --fail-if, -e, -g, --json and --hdr")))
    }

    fn buffer_bytes(&self) -> Result<Option<usize>, Error> {
        let wrong = |text| Error::Usage(format!("-b {text}: expected a number of bytes, or no value"));
        let text = self.buffer.as_deref().filter(|text| !text.is_empty());
        text.map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    }

    /// Checks the options against each other, reads files, resolves hosts, and prepares the requests.
    pub(crate) fn compile(&self) -> Result<Compiled, Error> {
        self.check()?;
        let mut checks =
            Checks::compile(self.check_status.as_deref(), self.check_body.as_deref(), &self.check_fields)?;
        checks.events = self.events;
        let targets = self.targets();
        let urls = targets.iter().map(|target| self.url(&target.url)).collect::<Result<Vec<_>, _>>()?;
        let Drafts { requests: drafts, order, names } = match &self.har {
            Some(file) => self.replay(file, urls.first())?,
            None => self.drafts(&targets, &urls)?,
        };
        let has_body = drafts.iter().any(|draft| draft.parts.body.is_some());
        let url = drafts.first().map(|draft| draft.url.clone()).ok_or_else(no_target)?;
        let mut destinations = Destinations::new(self)?;
        let mut requests = Vec::with_capacity(drafts.len());
        for draft in drafts {
            if self.http2 && draft.parts.absolute {
                return Err(Error::Usage(
                    "--http2 with -X needs https targets, which are reached through a tunnel".to_owned(),
                ));
            }
            requests.push(PreparedRequest {
                destination: destinations.index_of(&draft.url, &draft.parts)?,
                target: draft.target,
                method: method_of(&draft.parts.method),
                bytes: if self.http2 { Vec::new() } else { draft.parts.render(&draft.url) },
                http2: self.http2.then(|| draft.parts.for_http2(&draft.url)).transpose()?,
                length: FirstLength::default(),
            });
        }
        let socket = SocketOptions { bind: self.bind, buffer_bytes: self.buffer_bytes()? };
        let plan = self.plan(destinations.list, requests, order, names.len(), checks, socket);
        if destinations.far.is_some()
            && !self.yes
            && let (Some(host), Some(much)) = (&destinations.far, guard::excess_of(&plan))
        {
            return Err(Error::Usage(format!(
                "`{host}` is neither on this machine nor in a private network, and this run has {much}; \
                 add --yes if its owner has agreed"
            )));
        }
        Ok(Compiled { plan, url, names, proxy: self.proxy.clone(), has_body })
    }

    fn plan(
        &self,
        destinations: Vec<Destination>,
        requests: Vec<PreparedRequest>,
        order: Vec<usize>,
        targets: usize,
        checks: Checks,
        socket: SocketOptions,
    ) -> Plan {
        let count = match (self.requests, self.time) {
            (None, None) => Some(1),
            (None, Some(_)) if self.ab_compat => Some(AB_REQUESTS_WITH_TIME),
            (count, _) => count,
        };
        let pace = match self.rate {
            None => Pace::Closed { ramp_up: self.ramp_up },
            Some((from, to)) if self.time.is_some() => {
                Pace::Open(Rate { from, to, over: self.time.unwrap_or_default() + self.warmup })
            }
            Some((from, _)) => Pace::Open(Rate::constant(from)),
        };
        let samples = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(SAMPLES_MAX);
        Plan {
            destinations,
            requests,
            order,
            targets,
            pace,
            count,
            duration: self.time,
            warmup: self.warmup,
            concurrency: self.concurrency * self.streams().unwrap_or(1),
            streams: self.streams(),
            threads: self.threads.min(self.concurrency),
            keep_alive: self.keep_alive || self.http2,
            timeout: self.timeout,
            socket,
            checks,
            // Different bodies from a file, and different recorded requests, naturally get different
            // responses.
            variable_length: self.variable_length || self.har.is_some() || self.body_lines.is_some(),
            stop_on_receive_error: self.ab_compat && !self.receive_errors_are_fine,
            samples_max: if self.tsv.is_some() { samples } else { 0 },
            verbosity: self.verbosity,
        }
    }

    /// Checks the options without reading files or resolving hosts.
    fn check(&self) -> Result<(), Error> {
        let usage = |message: &str| Err(Error::Usage(message.to_owned()));
        if self.requests == Some(0) {
            return usage("Invalid number of requests: -n must be at least 1");
        }
        if self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX {
            return usage(&format!("Invalid concurrency: -c must be from 1 to {CONCURRENCY_MAX}"));
        }
        if let Some(requests) = self.requests.or(self.time.is_none().then_some(1))
            && self.concurrency as u64 > requests
        {
            return usage(&format!(
                "Cannot use concurrency level greater than total number of requests: -c {} with -n {requests}",
                self.concurrency
            ));
        }
        let streams = self.streams().unwrap_or(1);
        if streams == 0 || streams > STREAMS_MAX || self.concurrency.saturating_mul(streams) > CONCURRENCY_MAX
        {
            return usage(&format!(
                "-m with --http2 must be from 1 to {STREAMS_MAX} streams, and -c times -m at most {CONCURRENCY_MAX}"
            ));
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return usage(&format!("--threads must be from 1 to {THREADS_MAX}"));
        }
        if self.timeout.is_zero() {
            return usage("-s must be above 0 seconds");
        }
        if self.time.is_some_and(|time| time.is_zero()) {
            return usage("-t must be above 0 seconds");
        }
        if let Some((from, to)) = self.rate {
            if !(from > 0.0 && to > 0.0 && from.max(to) <= 1e7) {
                return usage("--rate must be above 0 and at most 10000000 requests per second");
            }
            if (from - to).abs() > f64::EPSILON && self.time.is_none() {
                return usage("--rate FROM..TO changes over the time of the run: add -t");
            }
            if !self.ramp_up.is_zero() {
                return usage("--ramp-up applies only without a rate; use --rate FROM..TO with -t");
            }
        }
        if self.tsv.is_some() && self.requests.is_some_and(|requests| requests > SAMPLES_MAX as u64) {
            return usage(&format!("-g keeps each request in memory: -n must be at most {SAMPLES_MAX}"));
        }
        self.check_request()
    }

    fn check_request(&self) -> Result<(), Error> {
        let usage = |message: String| Err(Error::Usage(message));
        if self.targets().len() > TARGETS_MAX {
            return usage(format!("at most {TARGETS_MAX} targets are allowed"));
        }
        if self.head && self.body_file().is_some() {
            return usage("Cannot mix HEAD with a body: remove -i, or -p and -u".to_owned());
        }
        if self.head && self.method().is_some() {
            return usage("Cannot mix -i with -m".to_owned());
        }
        if self.ab_compat && self.chunked {
            return usage("--chunked requires HTTP/1.1: remove --ab-compat".to_owned());
        }
        if let Some(method) = self.method().filter(|method| !is_method(method)) {
            return usage(format!("-m {method}: not a method; expected a word like PATCH"));
        }
        if let Some(line) = self.fields.iter().find(|line| !is_field_line(line)) {
            return usage(format!("-H {line:?}: expected a header line of the form `Name: value`"));
        }
        if let Some(line) = self.fields.iter().find(|line| self.http2 && is_about_connection(line)) {
            return usage(format!("-H {line:?}: HTTP/2 has no fields about the connection: remove it"));
        }
        let texts =
            self.cookies.iter().chain(self.authorization.iter()).chain(self.proxy_authorization.iter());
        if texts.chain([&self.content_type]).any(|text| text.contains(['\r', '\n', '\0'])) {
            return usage("-C, -A, -P and -T must each be a single line".to_owned());
        }
        if self.authorization.iter().chain(&self.proxy_authorization).any(|text| !text.contains(':')) {
            return usage("-A and -P take USER:PASSWORD".to_owned());
        }
        if self.har.is_some() && (self.body_file().is_some() || self.head || self.method().is_some()) {
            return usage(
                "--har defines the methods and bodies: remove -p, -u, -i, -m and --body-lines".to_owned(),
            );
        }
        if self.targets().is_empty() && self.har.is_none() {
            return Err(no_target());
        }
        Ok(())
    }

    fn url(&self, text: &str) -> Result<Url, Error> {
        let without_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
        if self.ab_compat && !without_scheme.contains('/') {
            return Err(Error::Usage(format!("invalid URL `{text}`: ab requires a slash after the host")));
        }
        text.parse().map_err(|error| Error::Url(text.to_owned(), error))
    }

    /// Creates the requests for each target, with each body.
    fn drafts(&self, targets: &[Target], urls: &[Url]) -> Result<Drafts, Error> {
        let bodies = self.bodies()?;
        let each = bodies.len().max(1);
        let mut drafts = Vec::new();
        for (target, url) in urls.iter().enumerate() {
            for at in 0..each {
                let parts = self.parts(url, bodies.get(at).cloned());
                drafts.push(Draft { url: url.clone(), parts, target });
            }
        }
        if drafts.len() > REQUESTS_MAX {
            return Err(Error::Usage(format!(
                "too many requests: targets times bodies must be at most {REQUESTS_MAX}"
            )));
        }
        let weights: Vec<u32> = targets.iter().map(|target| target.weight).collect();
        let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
        let round = spread(&weights.iter().map(|weight| weight / divisor).collect::<Vec<_>>());
        // Each target iterates over the bodies independently.
        let mut next = vec![0; urls.len()];
        let order = std::iter::repeat_n(round, each).flatten().map(|target| {
            let body = next[target] % each;
            next[target] += 1;
            target * each + body
        });
        let names = urls.iter().map(Url::to_string).collect();
        Ok(Drafts { requests: drafts, order: order.collect(), names })
    }

    fn bodies(&self) -> Result<Vec<RequestBody>, Error> {
        let body = |bytes: Vec<u8>| RequestBody {
            bytes,
            content_type: self.content_type.clone(),
            chunked: self.chunked,
        };
        let Some(file) = self.body_file() else { return Ok(Vec::new()) };
        let text = Error::read(file, BODY_FILE_BYTES_MAX)?;
        if self.body_lines.is_none() {
            return Ok(vec![body(text)]);
        }
        let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let bodies: Vec<_> = lines.filter(|line| !line.is_empty()).map(|line| body(line.to_vec())).collect();
        if bodies.is_empty() {
            return Err(Error::Usage(format!("{}: no lines to send", file.display())));
        }
        Ok(bodies)
    }

    fn parts(&self, url: &Url, body: Option<RequestBody>) -> RequestParts {
        let method = match self.method() {
            Some(method) => method,
            None if self.head => "HEAD",
            None if self.put.is_some() => "PUT",
            None if self.body_file().is_some() => "POST",
            None => "GET",
        };
        let last = self.cookies.len().saturating_sub(1);
        RequestParts {
            method: method.to_owned(),
            fields: self.fields.clone(),
            // ab accepts several and sends the last.
            cookies: if self.ab_compat { self.cookies[last..].to_vec() } else { self.cookies.clone() },
            authorization: self.authorization.clone(),
            proxy_authorization: self.proxy_authorization.clone(),
            body,
            keep_alive: self.keep_alive,
            ab_compat: self.ab_compat,
            absolute: self.proxy.is_some() && !url.secure,
        }
    }

    /// Reads the requests of a recording, in order.
    fn replay(&self, file: &Path, base: Option<&Url>) -> Result<Drafts, Error> {
        let entries = replay::read(file).map_err(|error| Error::Har(file.to_owned(), error))?;
        let mut drafts = Vec::with_capacity(entries.len());
        for entry in &entries {
            let recorded = self.url(&entry.url)?;
            let url = match base {
                Some(base) => Url { path: recorded.path, ..base.clone() },
                None => recorded,
            };
            drafts.push(Draft { parts: self.recorded(&url, entry), url, target: 0 });
        }
        if drafts.is_empty() {
            return Err(Error::Usage(format!("{}: no requests to send", file.display())));
        }
        let order = (0..drafts.len()).collect();
        Ok(Drafts { requests: drafts, order, names: vec![file.display().to_string()] })
    }

    fn recorded(&self, url: &Url, entry: &replay::ReplayedRequest) -> RequestParts {
        let content_type =
            entry.request_fields.iter().find(|field| field.0.eq_ignore_ascii_case("content-type"));
        let body = (!entry.request_body.is_empty()).then(|| RequestBody {
            bytes: entry.request_body.clone(),
            content_type: content_type.map_or_else(|| self.content_type.clone(), |field| field.1.clone()),
            chunked: self.chunked,
        });
        let kept = entry.request_fields.iter().filter(|field| !is_made_here(&field.0));
        let recorded =
            kept.map(|(name, value)| format!("{name}: {value}")).filter(|line| is_field_line(line));
        let own = |line: &String| {
            let name = line.split(':').next().unwrap_or_default();
            self.fields
                .iter()
                .any(|field| field.split(':').next().unwrap_or_default().eq_ignore_ascii_case(name))
        };
        let fields = recorded.filter(|line| !own(line)).chain(self.fields.iter().cloned()).collect();
        RequestParts { method: entry.method.clone(), fields, ..self.parts(url, body) }
    }
}

/// Returns `true` if a recorded field concerns the recorded connection or is generated by the client.
fn is_made_here(name: &str) -> bool {
    const NAMES: [&str; 10] = [
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "transfer-encoding",
        "content-length",
        "content-type",
        "upgrade",
        "te",
    ];
    NAMES.iter().any(|own| name.eq_ignore_ascii_case(own))
}

fn no_target() -> Error {
    Error::Usage("no URL: write http://HOST[:PORT]/PATH, or name a recording with --har".to_owned())
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests;
