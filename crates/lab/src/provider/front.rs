//! What stands before the endpoints: cross-origin rules, the rate limit, the delay, playback and faults that hold for all calls.

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

/// See the file's first line.
#[derive(Clone)]
pub(super) struct Front {
    lab: Arc<Lab>,
    router: TowerToHyperService<Router>,
}

/// What a call comes to.
pub(super) enum Outcome {
    /// An answer that hyper can give.
    Answer(Response),
    /// Something that it cannot.
    Takeover(Takeover),
}

/// What of a request is needed once it has been answered.
struct Asked {
    method: Method,
    origin: Option<HeaderValue>,
    /// Whether the client knows chunks, trailers and informational answers, which came with HTTP/1.1.
    knows_chunks: bool,
    may_keep: bool,
}

impl Front {
    /// Before all endpoints.
    pub fn new(lab: Arc<Lab>) -> Self {
        Self { router: TowerToHyperService::new(endpoint::router(Arc::clone(&lab))), lab }
    }

    /// How long a client may take to send a head.
    pub fn head_timeout(&self) -> Duration {
        self.lab.options().head_timeout
    }

    /// Answers a call.
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

    /// Takes the prefix off the target. Of the prefix alone an unclean path is left, which leads to the page below it.
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

    /// Counts the call, asks the rate limit, waits for its turn and as long as every answer is to wait, then plays back or asks the endpoint; some
    /// answers are spoiled then.
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

    /// Draws whether the answer has a fault, and which: the probabilities stand side by side from 0 to 1.
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
    /// The answer with what browsers ask for before they show it to another site's script.
    fn allowed(&self, mut response: Response) -> Response {
        const ANY: HeaderValue = HeaderValue::from_static("*");
        const TRUE: HeaderValue = HeaderValue::from_static("true");
        let fields = response.headers_mut();
        fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone().unwrap_or(ANY));
        fields.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        response
    }

    /// A script that keeps the connection only where the client would.
    fn taken_over(&self, mut script: Script) -> Outcome {
        if script.end == End::Keep && !self.may_keep {
            script.end = End::Close;
        }
        Outcome::Takeover(Takeover::Script(script))
    }
}

/// Whether a connection could carry another request after one that hyper did not answer. It cannot where content may be left
/// on it, of which only hyper knows the end.
fn may_keep(request: &hyper::Request<Incoming>) -> bool {
    let closes =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("close"));
    request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && !request.headers().get_all(header::CONNECTION).iter().any(closes)
}

/// The answer to OPTIONS, on any path.
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

/// The methods of Allow sorted and with spaces, as people read them.
fn spell_allow(fields: &mut HeaderMap) {
    let Some(list) = fields.get(header::ALLOW).and_then(|value| value.to_str().ok()) else { return };
    let mut methods: Vec<&str> = list.split(',').map(str::trim).collect();
    methods.sort_unstable();
    let spelled = answer::field_value(&methods.join(", "));
    fields.insert(header::ALLOW, spelled);
}

/// The path without empty segments and dots; `None` where it has none.
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

/// 307 to the clean path, with a page that says so to people.
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
