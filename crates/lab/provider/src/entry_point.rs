//! The rules that apply to all calls before an endpoint: CORS, rate limit, delay, playback and faults.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Router};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use crate::call::Peer;
use crate::error::ProviderError;
use crate::injected_fault::{InjectedFault, script_of};
use crate::llm::LEDGER;
use crate::pace::pause;
use crate::random::Draw as _;
use crate::respond::{self, html_escaped};
use crate::state::SharedState;
use crate::stateful::{self, COUNTERS};
use crate::takeover::{Script, ScriptEnd, Takeover};
use crate::{redirect, websocket};

/// The entry point for all calls.
#[derive(Clone)]
pub(crate) struct EntryPoint {
    state: Arc<SharedState>,
    router: TowerToHyperService<Router>,
}

/// The result of a call.
pub(crate) enum CallOutcome {
    /// A response that hyper can send.
    Response(Response),
    /// An action that hyper cannot perform.
    Takeover(Takeover),
    /// A response on a stream of HTTP/2, to be spoilt by this fault.
    Faulty(Response, InjectedFault),
}

/// The parts of a request that are needed after the response is made.
struct RequestFacts {
    method: Method,
    origin: Option<HeaderValue>,
    /// `true` if the client understands chunks, trailers and informational responses, which HTTP/1.1
    /// introduced.
    knows_chunks: bool,
    /// `true` if the request came on a stream of HTTP/2, which is never taken over.
    is_stream: bool,
    may_keep: bool,
}

impl EntryPoint {
    /// Creates the entry point in front of a router for all endpoints.
    pub fn new(state: Arc<SharedState>, router: Router) -> Self {
        Self { router: TowerToHyperService::new(router), state }
    }

    /// Maximum time for a client to send a head.
    pub fn head_timeout(&self) -> Duration {
        self.state.options().head_timeout
    }

    /// Handles a call.
    pub async fn call<B>(&self, request: hyper::Request<B>, peer: Peer) -> CallOutcome
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let facts = RequestFacts {
            method: request.method().clone(),
            origin: request.headers().get(header::ORIGIN).cloned(),
            knows_chunks: request.version() == Version::HTTP_11,
            is_stream: request.version() == Version::HTTP_2,
            may_keep: may_keep(&request),
        };
        if facts.method == Method::OPTIONS {
            return CallOutcome::Response(facts.with_cors(preflight(request.headers())));
        }
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let response = match self.strip_prefix(&mut request) {
            Ok(()) if [COUNTERS, LEDGER].contains(&request.uri().path()) => self.route(request).await,
            Ok(()) => self.apply_rules(request).await,
            Err(refused) => refused.into_response(),
        };
        self.finish(facts.with_cors(response), &facts).await
    }

    /// Removes the prefix from the target. A target that is only the prefix becomes an unclean path, which
    /// redirects to the page below it.
    fn strip_prefix(&self, request: &mut Request) -> Result<(), ProviderError> {
        let prefix = self.state.options().prefix.as_str();
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
    async fn apply_rules(&self, request: Request) -> Response {
        self.state.count_request();
        let admission = self.state.admit();
        if let Some((rule, refused)) = admission.filter(|(_, admission)| !admission.admitted) {
            return stateful::with_quota_fields(stateful::rejection(rule), rule, refused);
        }
        let _permit = self.state.permit().await;
        let options = self.state.options();
        if let Some(delay) = &options.delay {
            pause(delay.draw(&mut self.state.sequences.next(), options.duration_max)).await;
        }
        let recording = self.state.recording.as_ref();
        let recorded =
            recording.and_then(|recording| recording.next_response(request.method(), request.uri()));
        let mut response = match recorded {
            Some((duration, response)) => {
                pause(duration.min(options.duration_max)).await;
                response
            }
            None => self.route(request).await,
        };
        if !options.faults.is_empty() {
            self.inject_fault(&mut response);
        }
        match admission {
            None => response,
            Some((rule, admission)) => stateful::with_quota_fields(response, rule, admission),
        }
    }

    /// Draws the fault of a response, if any: the probabilities are adjacent intervals from 0 to 1.
    fn inject_fault(&self, response: &mut Response) {
        let mut drawn = self.state.sequences.next().unit();
        for (fault, probability) in &self.state.options().faults {
            if drawn < *probability {
                response.extensions_mut().insert(InjectedFault::new(*fault));
                return;
            }
            drawn -= probability;
        }
    }

    async fn route(&self, request: Request) -> Response {
        if let Some(path) = clean_path(request.uri().path()) {
            return moved(request.method(), request.uri(), &path, &self.state.options().prefix);
        }
        let mut response = match self.router.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            sort_allow(response.headers_mut());
        }
        response
    }

    async fn finish(&self, mut response: Response, facts: &RequestFacts) -> CallOutcome {
        if let Some(fault) = response.extensions_mut().remove::<InjectedFault>() {
            self.state.count_fault(fault.fault());
            if facts.is_stream {
                return CallOutcome::Faulty(response, fault);
            }
            return facts.taken_over(fault.script(response, &facts.method).await);
        }
        if facts.is_stream {
            return CallOutcome::Response(response);
        }
        if let Some(socket) = websocket::agreed(&mut response) {
            return CallOutcome::Takeover(Takeover::WebSocket(socket, response.headers().clone()));
        }
        let is_informational = response.status().is_informational();
        let needs_script = is_informational || response.headers().contains_key(header::TRAILER);
        if needs_script && facts.knows_chunks {
            return facts.taken_over(script_of(response, &facts.method));
        }
        if needs_script {
            response.headers_mut().remove(header::TRAILER);
        }
        if is_informational {
            *response.status_mut() = StatusCode::OK;
        }
        CallOutcome::Response(response)
    }
}

impl RequestFacts {
    /// Adds the fields that browsers require before another site's script may read the response.
    fn with_cors(&self, mut response: Response) -> Response {
        const ANY: HeaderValue = HeaderValue::from_static("*");
        const TRUE: HeaderValue = HeaderValue::from_static("true");
        let fields = response.headers_mut();
        fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone().unwrap_or(ANY));
        fields.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        response
    }

    /// Takes the connection over. Keeps it open afterwards only if the client would.
    fn taken_over(&self, mut script: Script) -> CallOutcome {
        if script.end == ScriptEnd::Keep && !self.may_keep {
            script.end = ScriptEnd::Close;
        }
        CallOutcome::Takeover(Takeover::Script(script))
    }
}

/// Returns `true` if a connection can carry another request after a response that hyper did not send. It
/// cannot if content may be left on it, because only hyper knows where the content ends.
fn may_keep(request: &hyper::Request<impl HttpBody>) -> bool {
    let closes =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("close"));
    request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && !request.headers().get_all(header::CONNECTION).iter().any(closes)
}

/// The response to OPTIONS, on any path.
fn preflight(fields: &HeaderMap) -> Response {
    let mut response = respond::empty(StatusCode::OK);
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
fn sort_allow(fields: &mut HeaderMap) {
    let Some(list) = fields.get(header::ALLOW).and_then(|value| value.to_str().ok()) else { return };
    let mut methods: Vec<&str> = list.split(',').map(str::trim).collect();
    methods.sort_unstable();
    let spelled = respond::field_value(&methods.join(", "));
    fields.insert(header::ALLOW, spelled);
}

/// Removes empty segments and dot segments from a path. Returns `None` if there are none.
fn clean_path(path: &str) -> Option<String> {
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
        response.headers_mut().insert(header::CONTENT_TYPE, respond::HTML);
        *response.body_mut() = Body::from(format!("<a href=\"{link}\">Temporary Redirect</a>.\n\n"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::Delay;
    use crate::fault_kind::Fault;
    use crate::fixture::{TestProvider, request};
    use crate::options::{Options, RateLimit};

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
            assert_eq!(clean_path(path).as_deref(), Some(clean), "{path}");
        }
        for path in ["/", "/get", "/a/b/", "/a/.hidden", "*"] {
            assert_eq!(clean_path(path), None, "{path}");
        }
    }

    fn provider(change: impl FnOnce(&mut Options)) -> TestProvider {
        let mut options = Options { seed: Some(1), ..Options::default() };
        change(&mut options);
        TestProvider::new(options)
    }

    #[tokio::test]
    async fn a_limit_of_all_calls_spares_the_counters() {
        let limit = RateLimit { limit: 2, window: Duration::from_hours(1), by_clock: false };
        let provider = provider(|it| it.rate_limit = Some(limit));
        let mut statuses = Vec::new();
        for target in ["/get", "/status/404", "/get", "/counters"] {
            statuses.push(provider.get(target).await.status);
        }
        assert_eq!(statuses, [200, 404, 429, 200]);
        let counted = &provider.get("/counters").await.json()["rate_limit"];
        assert_eq!((&counted["admitted"], &counted["refused"]), (&2.into(), &1.into()));
    }

    #[tokio::test]
    async fn faults_occur_with_their_probabilities_and_are_counted() {
        let provider = provider(|it| it.faults = vec![(Fault::Reset, 0.2), (Fault::Garbage, 0.1)]);
        let mut taken_over = 0;
        for _ in 0..1_000 {
            let outcome = provider.call(request("GET", "/get", &[], "")).await;
            taken_over += u32::from(matches!(outcome, CallOutcome::Takeover(_)));
        }
        let counters = provider.get("/counters").await.json();
        let [reset, garbage] = ["reset", "garbage"].map(|name| counters["faults"][name].as_u64().unwrap());
        assert_eq!(u64::from(taken_over), reset + garbage);
        assert!((160..240).contains(&reset) && (70..130).contains(&garbage), "{reset} {garbage}");
    }

    #[tokio::test(start_paused = true)]
    async fn parallel_calls_wait_for_their_turn_and_for_the_delay() {
        let provider = provider(|it| {
            it.parallel = Some(2);
            it.delay = Some(Delay::Constant(Duration::from_millis(100)));
        });
        let started = tokio::time::Instant::now();
        let calls = (0..5).map(|_| provider.get("/get"));
        let responses = futures_util::future::join_all(calls).await;
        assert!(responses.iter().all(|response| response.status == 200));
        // Two at a time: three rounds of 100 ms.
        assert_eq!(started.elapsed().as_millis(), 300);
    }

    #[tokio::test]
    async fn a_prefix_is_required_and_removed() {
        let provider = provider(|it| it.prefix = "/p".into());
        assert_eq!(provider.get("/p/get").await.status, 200);
        assert_eq!(provider.get("/get").await.status, 404);
        assert_eq!(provider.get("/pget").await.status, 404);
        let bare = provider.get("/p").await;
        assert_eq!((bare.status, bare.field("location")), (307, "/p/"));
        let unclean = provider.get("/p/a/../get?x=1").await;
        assert_eq!((unclean.status, unclean.field("location")), (307, "/p/get?x=1"));
        assert!(provider.get("/p/").await.text().contains("<a href=\"/p/get?a=1&amp;a=2\">"));
    }

    #[tokio::test]
    async fn browsers_of_other_sites_may_read_every_response() {
        let provider = provider(|_| {});
        let origin = [("origin", "http://b.test"), ("access-control-request-headers", "x-a")];
        let response = provider.send(request("GET", "/status/500", &origin, "")).await;
        assert_eq!(response.field("access-control-allow-origin"), "http://b.test");
        assert_eq!(response.field("access-control-allow-credentials"), "true");
        let preflight = provider.send(request("OPTIONS", "/nowhere", &origin, "")).await;
        assert_eq!((preflight.status, preflight.field("access-control-allow-headers")), (200, "x-a"));
        assert_eq!(provider.get("/get").await.field("access-control-allow-origin"), "*");
    }

    #[tokio::test]
    async fn unknown_paths_and_methods_are_told_apart() {
        let provider = provider(|_| {});
        let unknown = provider.get("/nothing").await;
        assert_eq!((unknown.status, unknown.text()), (404, "404 no such endpoint: see / for a list\n"));
        let wrong = provider.send(request("DELETE", "/upload", &[], "")).await;
        assert_eq!((wrong.status, wrong.field("allow")), (405, "PATCH, POST, PUT"));
    }

    #[tokio::test]
    async fn an_http_1_0_client_gets_a_final_response_without_trailers() {
        let provider = provider(|_| {});
        for target in ["/status/103", "/sse?count=1&duration=1ms"] {
            let mut request = request("GET", target, &[], "");
            *request.version_mut() = Version::HTTP_10;
            let response = provider.send(request).await;
            assert_eq!((response.status, response.field("trailer")), (200, ""), "{target}");
        }
    }
}
