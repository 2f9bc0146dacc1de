//! The rules that apply to all calls before an endpoint: CORS, rate limit, delay, playback and faults.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::answer::{self, html_escaped};
use super::call::Peer;
use super::endpoint;
use super::error::ProviderError;
use super::fault::{Spoiled, unbroken};
use super::lab::Lab;
use super::pace::pause;
use super::scene::{self, COUNTERS};
use super::takeover::{End, Script, Takeover};
use super::{redirect, websocket};

/// The entry point for all calls.
#[derive(Clone)]
pub(super) struct Front {
    lab: Arc<Lab>,
    router: TowerToHyperService<Router>,
}

/// The result of a call.
pub(super) enum Outcome {
    /// A response that hyper can send.
    Answer(Response),
    /// An action that hyper cannot perform.
    Takeover(Takeover),
}

/// The parts of a request that are needed after the response is made.
struct Asked {
    method: Method,
    origin: Option<HeaderValue>,
    /// `true` if the client understands chunks, trailers and informational responses, which HTTP/1.1
    /// introduced.
    knows_chunks: bool,
    may_keep: bool,
}

impl Front {
    /// Creates the entry point with a router for all endpoints.
    pub fn new(lab: Arc<Lab>) -> Self {
        Self { router: TowerToHyperService::new(endpoint::router(Arc::clone(&lab))), lab }
    }

    /// Maximum time for a client to send a head.
    pub fn head_timeout(&self) -> Duration {
        self.lab.options().head_timeout
    }

    /// Handles a call.
    pub async fn call(&self, request: hyper::Request<Incoming>, peer: Peer) -> Outcome {
        let asked = Asked {
            method: request.method().clone(),
            origin: request.headers().get(header::ORIGIN).cloned(),
            knows_chunks: request.version() == Version::HTTP_11,
            may_keep: may_keep(&request),
        };
        if asked.method == Method::OPTIONS {
            return Outcome::Answer(asked.allowed(preflight(request.headers())));
        }
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let response = match self.within_prefix(&mut request) {
            Ok(()) if request.uri().path() == COUNTERS => self.routed(request).await,
            Ok(()) => self.admitted(request).await,
            Err(refused) => refused.into_response(),
        };
        self.outcome(asked.allowed(response), &asked).await
    }

    /// Removes the prefix from the target. A target that is only the prefix becomes an unclean path, which
    /// redirects to the page below it.
    fn within_prefix(&self, request: &mut Request) -> Result<(), ProviderError> {
        let prefix = self.lab.options().prefix.as_str();
        if prefix.is_empty() {
            return Ok(());
        }
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        let rest = target.strip_prefix(prefix).map(|rest| if rest.is_empty() { "//" } else { rest });
        let rest = rest.filter(|rest| rest.starts_with('/')).and_then(|rest| rest.parse().ok());
        *request.uri_mut() = rest.ok_or_else(ProviderError::not_found)?;
        Ok(())
    }

    /// Applies the rules to a call: counts it, applies the rate limit, waits for its turn and for the
    /// configured delay, then plays back a response or calls the endpoint. Marks some responses with a fault.
    async fn admitted(&self, request: Request) -> Response {
        self.lab.count_request();
        let admission = self.lab.admit();
        if let Some((rule, refused)) = admission.filter(|(_, admission)| !admission.admitted) {
            return scene::limited(scene::refusal(rule), rule, refused);
        }
        let _place = self.lab.place().await;
        let options = self.lab.options();
        if let Some(delay) = &options.delay {
            pause(delay.draw(&mut self.lab.sequences.next(), options.duration_max)).await;
        }
        let recording = self.lab.recording.as_ref();
        let recalled = recording.and_then(|recording| recording.answer(request.method(), request.uri()));
        let mut response = match recalled {
            Some((duration, response)) => {
                pause(duration.min(options.duration_max)).await;
                response
            }
            None => self.routed(request).await,
        };
        if !options.faults.is_empty() {
            self.spoil(&mut response);
        }
        match admission {
            None => response,
            Some((rule, admission)) => scene::limited(response, rule, admission),
        }
    }

    /// Draws the fault of a response, if any: the probabilities are adjacent intervals from 0 to 1.
    fn spoil(&self, response: &mut Response) {
        let mut drawn = self.lab.sequences.next().unit();
        for (fault, probability) in &self.lab.options().faults {
            if drawn < *probability {
                response.extensions_mut().insert(Spoiled::by(*fault));
                return;
            }
            drawn -= probability;
        }
    }

    async fn routed(&self, request: Request) -> Response {
        if let Some(path) = cleaned(request.uri().path()) {
            return moved(request.method(), request.uri(), &path, &self.lab.options().prefix);
        }
        let mut response = match self.router.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            spell_allow(response.headers_mut());
        }
        response
    }

    async fn outcome(&self, mut response: Response, asked: &Asked) -> Outcome {
        if let Some(spoiled) = response.extensions_mut().remove::<Spoiled>() {
            self.lab.count_fault(spoiled.fault());
            return asked.taken_over(spoiled.script(response, &asked.method).await);
        }
        if let Some(socket) = websocket::agreed(&mut response) {
            return Outcome::Takeover(Takeover::WebSocket(socket, response.headers().clone()));
        }
        let is_informational = response.status().is_informational();
        let is_bent = is_informational || response.headers().contains_key(header::TRAILER);
        if is_bent && asked.knows_chunks {
            return asked.taken_over(unbroken(response, &asked.method));
        }
        if is_bent {
            response.headers_mut().remove(header::TRAILER);
        }
        if is_informational {
            *response.status_mut() = StatusCode::OK;
        }
        Outcome::Answer(response)
    }
}

impl Asked {
    /// Adds the fields that browsers require before another site's script may read the response.
    fn allowed(&self, mut response: Response) -> Response {
        const ANY: HeaderValue = HeaderValue::from_static("*");
        const TRUE: HeaderValue = HeaderValue::from_static("true");
        let fields = response.headers_mut();
        fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone().unwrap_or(ANY));
        fields.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        response
    }

    /// Takes the connection over. Keeps it open afterwards only if the client would.
    fn taken_over(&self, mut script: Script) -> Outcome {
        if script.end == End::Keep && !self.may_keep {
            script.end = End::Close;
        }
        Outcome::Takeover(Takeover::Script(script))
    }
}

/// Returns `true` if a connection can carry another request after a response that hyper did not send. It
/// cannot if content may be left on it, because only hyper knows where the content ends.
fn may_keep(request: &hyper::Request<Incoming>) -> bool {
    let closes =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("close"));
    request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && !request.headers().get_all(header::CONNECTION).iter().any(closes)
}

/// The response to OPTIONS, on any path.
fn preflight(fields: &HeaderMap) -> Response {
    let mut response = answer::empty(StatusCode::OK);
    let allowed = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, HEAD, PUT, DELETE, PATCH, OPTIONS");
    allowed.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    allowed.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    if let Some(names) = fields.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        allowed.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

/// Sorts the methods in Allow, and separates them with spaces for readability.
fn spell_allow(fields: &mut HeaderMap) {
    let Some(list) = fields.get(header::ALLOW).and_then(|value| value.to_str().ok()) else { return };
    let mut methods: Vec<&str> = list.split(',').map(str::trim).collect();
    methods.sort_unstable();
    let spelled = answer::field_value(&methods.join(", "));
    fields.insert(header::ALLOW, spelled);
}

/// Removes empty segments and dot segments from a path. Returns `None` if there are none.
fn cleaned(path: &str) -> Option<String> {
    if !path.contains("//") && !path.contains("/.") {
        return None;
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let slash = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    let clean = format!("/{}{slash}", segments.join("/"));
    (clean != path).then_some(clean)
}

/// Redirects to the clean path with 307, and a page for people.
fn moved(method: &Method, uri: &Uri, path: &str, prefix: &str) -> Response {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = format!("{prefix}{path}{query}");
    let mut response = redirect::to(StatusCode::TEMPORARY_REDIRECT, &location);
    if matches!(*method, Method::GET | Method::HEAD) {
        let link = html_escaped(&location);
        response.headers_mut().insert(header::CONTENT_TYPE, answer::HTML);
        *response.body_mut() = Body::from(format!("<a href=\"{link}\">Temporary Redirect</a>.\n\n"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cleaned_of_empty_segments_and_dots() {
        for (path, clean) in [
            ("//get", "/get"),
            ("/a//b", "/a/b"),
            ("/a/./b/", "/a/b/"),
            ("/a/../b", "/b"),
            ("/../..", "/"),
            ("//", "/"),
        ] {
            assert_eq!(cleaned(path).as_deref(), Some(clean), "{path}");
        }
        for path in ["/", "/get", "/a/b/", "/a/.hidden", "*"] {
            assert_eq!(cleaned(path), None, "{path}");
        }
    }
}
