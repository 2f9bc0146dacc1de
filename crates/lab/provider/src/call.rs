//! A call as its endpoint sees it: the request, the client and the connection.

use std::future::{Ready, ready};
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::request::Parts;
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, HeaderName, Method, Uri, Version, header};

use crate::error::ProviderError;
use crate::query::{Query, Values};
use crate::state::SharedState;

/// Fields in which a proxy reports the client's address. They take precedence over `X-Forwarded-For`.
static CLIENT_ADDRESS: [HeaderName; 4] = [
    HeaderName::from_static("fly-client-ip"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("fastly-client-ip"),
    HeaderName::from_static("true-client-ip"),
];
static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static FORWARDED_PROTOCOL: HeaderName = HeaderName::from_static("x-forwarded-protocol");
static FORWARDED_SSL: HeaderName = HeaderName::from_static("x-forwarded-ssl");

/// Properties of the connection of a request.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The client's address, formatted once for all its requests.
    pub address: Arc<str>,
    /// `true` if the connection uses TLS.
    pub secure: bool,
}

/// A request, with the provider's shared state.
#[derive(Debug)]
pub(crate) struct ProviderCall {
    /// State shared by all calls.
    pub state: Arc<SharedState>,
    /// The query parameters.
    pub query: Query,
    parts: Parts,
    body: Body,
}

/// The error when the content cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContentError {
    /// The content exceeds this number of bytes.
    #[error("request body too large: at most {0} bytes")]
    TooLarge(usize),
    /// The connection ended early, or the framing is invalid.
    #[error("the content ended early or its framing is invalid")]
    Broken,
}

impl FromRequest<Arc<SharedState>> for ProviderCall {
    type Rejection = ProviderError;

    fn from_request(
        request: Request,
        state: &Arc<SharedState>,
    ) -> impl Future<Output = Result<Self, ProviderError>> + Send {
        let made: Ready<_> = ready(Ok(Self::new(request, Arc::clone(state))));
        made
    }
}

impl ProviderCall {
    /// Creates a call from a request to this provider.
    pub fn new(request: Request, state: Arc<SharedState>) -> Self {
        let (parts, body) = request.into_parts();
        let query = Query::lenient(parts.uri.query().unwrap_or_default());
        Self { state, query, parts, body }
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.parts.method
    }

    /// The request target.
    pub fn uri(&self) -> &Uri {
        &self.parts.uri
    }

    /// The HTTP version.
    pub fn version(&self) -> Version {
        self.parts.version
    }

    /// The header fields, in hyper's form.
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The first value of a field; empty if there is none.
    pub fn field(&self, name: &HeaderName) -> &str {
        self.nonempty_field(name).unwrap_or_default()
    }

    /// The first value of a field, if it is not empty.
    fn nonempty_field(&self, name: &HeaderName) -> Option<&str> {
        let value = self.parts.headers.get(name)?.to_str().ok()?;
        (!value.is_empty()).then_some(value)
    }

    fn peer(&self) -> Option<&Peer> {
        self.parts.extensions.get()
    }

    /// The header fields as endpoints show them: capitalized, and without those that the provider is
    /// configured to hide.
    pub fn shown_fields(&self) -> Values {
        let mut values = Values::new();
        for (name, value) in &self.parts.headers {
            let shown = canonical(name);
            if !self.state.options().hides(&shown) {
                // The value usually is ASCII; then this is a check and a copy.
                let text = value
                    .to_str()
                    .map_or_else(|_| String::from_utf8_lossy(value.as_bytes()).into_owned(), str::to_owned);
                values.entry(shown).or_default().push(text);
            }
        }
        if let Some(authority) = self.parts.uri.authority()
            && !self.state.options().hides("Host")
        {
            // RFC 9112 §3.2.2: the authority of the target takes precedence over Host.
            values.insert("Host".to_owned(), vec![authority.to_string()]);
        }
        values
    }

    /// The client's address: as reported by a proxy, or the peer's.
    pub fn origin(&self) -> String {
        if let Some(address) = CLIENT_ADDRESS.iter().find_map(|name| self.nonempty_field(name)) {
            return address.to_owned();
        }
        if let Some(list) = self.nonempty_field(&FORWARDED_FOR) {
            return list.split(',').next().unwrap_or_default().trim().to_owned();
        }
        self.peer().map(|peer| peer.address.as_ref().to_owned()).unwrap_or_default()
    }

    /// The scheme: `https` if the connection uses TLS or a proxy reports it.
    pub fn scheme(&self) -> &str {
        if let Some(scheme) =
            self.nonempty_field(&FORWARDED_PROTO).or_else(|| self.nonempty_field(&FORWARDED_PROTOCOL))
        {
            return scheme;
        }
        let secure = self.peer().is_some_and(|peer| peer.secure);
        if secure || self.nonempty_field(&FORWARDED_SSL) == Some("on") { "https" } else { "http" }
    }

    /// Scheme and authority of the request.
    pub fn site(&self) -> String {
        let authority = self.parts.uri.authority().map(Authority::as_str);
        let authority = authority.unwrap_or_else(|| self.field(&header::HOST));
        [self.scheme(), "://", authority].concat()
    }

    /// The full URL of the request.
    pub fn url(&self) -> String {
        let mut url = self.site();
        url.push_str(self.parts.uri.path_and_query().map_or("", PathAndQuery::as_str));
        url
    }

    /// Takes the content, to be read as it arrives. There is none on a second call.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Reads the whole content, up to the provider's limit. Returns nothing on a second call.
    pub async fn content(&mut self) -> Result<Bytes, ContentError> {
        let max = self.state.options().body_bytes_max;
        let body = self.take_body();
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        // If the length is known, the limit is checked before any content is read.
        if body.size_hint().lower() > max as u64 {
            return Err(ContentError::TooLarge(max));
        }
        axum::body::to_bytes(body, max).await.map_err(|error| {
            let limited =
                std::error::Error::source(&error).is_some_and(|source| source.to_string().contains("limit"));
            if limited { ContentError::TooLarge(max) } else { ContentError::Broken }
        })
    }

    /// Reads the whole content, or returns an error response that blames the client.
    pub async fn content_or_refusal(&mut self) -> Result<Bytes, ProviderError> {
        self.content()
            .await
            .map_err(|error| ProviderError::bad_request(format!("error parsing request body: {error}")))
    }
}

/// Formats a field name as httpbin does: `x-request-id` becomes `X-Request-Id`.
pub(crate) fn canonical(name: &HeaderName) -> String {
    let mut shown = name.as_str().to_owned();
    let mut rest = shown.as_mut_str();
    loop {
        if let Some(first) = rest.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let Some(dash) = rest.find('-') else { return shown };
        rest = &mut rest[dash + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(target: &str, fields: &[(&'static str, &'static str)]) -> ProviderCall {
        let mut request = Request::builder().uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let peer = Peer { address: "10.0.0.1".into(), secure: false };
        ProviderCall::new(request.extension(peer).body(Body::empty()).unwrap(), Arc::default())
    }

    #[test]
    fn field_names_are_shown_with_capitals() {
        assert_eq!(canonical(&HeaderName::from_static("x-request-id")), "X-Request-Id");
        assert_eq!(canonical(&HeaderName::from_static("etag")), "Etag");
    }

    #[test]
    fn the_origin_is_what_a_proxy_in_front_says_else_the_peer() {
        assert_eq!(call("/get", &[]).origin(), "10.0.0.1");
        assert_eq!(call("/get", &[("x-forwarded-for", " 1.1.1.1 , 2.2.2.2")]).origin(), "1.1.1.1");
        let both = [("x-forwarded-for", "1.1.1.1"), ("true-client-ip", "3.3.3.3")];
        assert_eq!(call("/get", &both).origin(), "3.3.3.3");
    }

    #[test]
    fn the_url_is_what_was_asked_as_the_client_wrote_it() {
        let host = ("host", "a.test:1");
        assert_eq!(call("/get?a=%20b", &[host]).url(), "http://a.test:1/get?a=%20b");
        assert_eq!(call("/get", &[host, ("x-forwarded-proto", "https")]).url(), "https://a.test:1/get");
        assert_eq!(call("http://b.test/get", &[host]).url(), "http://b.test/get");
        assert_eq!(call("http://b.test/get", &[host]).shown_fields()["Host"], ["b.test"]);
    }
}
