//! Endpoints that echo the request.

use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, any, delete, get, on, patch, post, put};
use data_encoding::BASE64URL;
use serde::Serialize;
use serde_json::Value;

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::multipart::{self, FormError};
use crate::query::{Query, Values};
use crate::respond;

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("GET", "/get", || get(echo_request))
        .about("Arguments, header fields, method, origin and URL as JSON; values are in lists, because a name may occur several times.")
        .example("/get?a=1&a=2"),
    Endpoint::new("HEAD", "/head", || on(MethodFilter::HEAD, echo_request))
        .about("The head of the response of `/get`."),
    Endpoint::new("POST", "/post", || post(anything))
        .about("As `/get`, with the content: `data`, and depending on its type `form`, `files` or `json`. Content of an unknown type is a `data:` URL in base64. 400 if it cannot be parsed or is too long."),
    Endpoint::new("PUT", "/put", || put(anything)).about("As `/post`."),
    Endpoint::new("PATCH", "/patch", || patch(anything)).about("As `/post`."),
    Endpoint::new("DELETE", "/delete", || delete(anything)).about("As `/post`."),
    Endpoint::new("any", "/anything", || any(anything))
        .about("As `/post`; for HEAD as `/get`.")
        .example("/anything?a=1"),
    Endpoint::new("any", "/anything/", || any(anything)).about("As `/anything`."),
    Endpoint::new("any", "/anything/{*rest}", || any(anything))
        .about("As `/anything`.")
        .example("/anything/of/this"),
    Endpoint::new("POST, PUT, PATCH", "/upload", || post(upload).put(upload).patch(upload))
        .about("Reads and discards the content, and returns its length as `bytes_received`. 500 if it is too long."),
];

/// A request without its content.
#[derive(Serialize)]
pub(crate) struct EchoedRequest {
    pub args: Values,
    pub headers: Values,
    pub method: String,
    pub origin: String,
    pub url: String,
}

/// A request with its content.
#[derive(Serialize)]
struct EchoedContent {
    #[serde(flatten)]
    request: EchoedRequest,
    data: String,
    files: Values,
    form: Values,
    json: Value,
}

#[derive(Serialize)]
struct Uploaded {
    #[serde(flatten)]
    request: EchoedRequest,
    bytes_received: u64,
}

impl EchoedRequest {
    /// Collects the parts of a call.
    pub fn of(call: &ProviderCall) -> Self {
        Self {
            args: call.query.values(),
            headers: call.shown_fields(),
            method: call.method().to_string(),
            origin: call.origin(),
            url: call.url(),
        }
    }
}

/// The response of `/get`.
pub(crate) async fn echo_request(call: ProviderCall) -> Response {
    respond::json(StatusCode::OK, &EchoedRequest::of(&call))
}

/// The response of `/anything`.
pub(crate) async fn anything(mut call: ProviderCall) -> EndpointResult {
    if call.method() == Method::HEAD {
        return Ok(echo_request(call).await);
    }
    let content = call.content_or_refusal().await?;
    let mut echoed = EchoedContent {
        request: EchoedRequest::of(&call),
        data: String::from_utf8_lossy(&content).into_owned(),
        files: Values::new(),
        form: Values::new(),
        json: Value::Null,
    };
    if !content.is_empty() {
        let content_type = call.field(&header::CONTENT_TYPE);
        echoed.parse(content_type, &content).map_err(|problem| {
            ProviderError::bad_request(format!("error parsing request body: {problem}"))
        })?;
    }
    Ok(respond::json(StatusCode::OK, &echoed))
}

/// The reason why content does not have the format that its Content-Type names.
#[derive(Debug, thiserror::Error)]
enum UnreadableContent {
    #[error("invalid form encoding")]
    Form,
    #[error("{0}")]
    Multipart(FormError),
    #[error("{0}")]
    Json(serde_json::Error),
}

impl EchoedContent {
    fn parse(&mut self, content_type: &str, content: &[u8]) -> Result<(), UnreadableContent> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "text/html" | "text/plain" => {}
            "application/x-www-form-urlencoded" => {
                let form = Query::strict(&self.data).ok_or(UnreadableContent::Form)?;
                self.form = form.values();
            }
            "multipart/form-data" => {
                let form = multipart::parse(content_type, content).map_err(UnreadableContent::Multipart)?;
                (self.form, self.files) = (form.fields, form.files);
            }
            "application/json" => {
                // Only the first document counts; anything after it is ignored.
                let mut documents = serde_json::Deserializer::from_slice(content).into_iter();
                self.json =
                    documents.next().transpose().map_err(UnreadableContent::Json)?.unwrap_or_default();
            }
            other => {
                let shown = if other.is_empty() { "application/octet-stream" } else { other };
                self.data = format!("data:{shown};base64,{}", BASE64URL.encode(content));
            }
        }
        Ok(())
    }
}

async fn upload(mut call: ProviderCall) -> EndpointResult {
    let content = call
        .content()
        .await
        .map_err(|error| ProviderError::with_detail(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(respond::json(
        StatusCode::OK,
        &Uploaded { request: EchoedRequest::of(&call), bytes_received: content.len() as u64 },
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{TestProvider, request};
    use crate::options::Options;

    /// The response of `/anything` to content of this type.
    async fn echoed(content_type: &str, content: &'static str) -> crate::fixture::TestResponse {
        let sent = request("POST", "/anything?a=1&a=2", &[("content-type", content_type)], content);
        TestProvider::new(Options::default()).send(sent).await
    }

    #[tokio::test]
    async fn a_request_is_echoed_with_all_its_parts() {
        let json = echoed("text/plain", "text").await.json();
        assert_eq!((&json["method"], &json["origin"]), (&"POST".into(), &"10.0.0.1".into()));
        assert_eq!(json["url"], "http://a.test/anything?a=1&a=2");
        assert_eq!(json["args"], json!({ "a": ["1", "2"] }));
        assert_eq!(json["headers"], json!({ "Content-Type": ["text/plain"], "Host": ["a.test"] }));
        assert_eq!((&json["data"], &json["form"], &json["json"]), (&"text".into(), &json!({}), &Value::Null));
    }

    #[tokio::test]
    async fn content_is_parsed_by_its_type() {
        let form = echoed("application/x-www-form-urlencoded; charset=utf-8", "b=%20x&b=y+z").await.json();
        assert_eq!(form["form"], json!({ "b": [" x", "y z"] }));
        let first = echoed("application/json", "{\"a\":1} ignored").await.json();
        assert_eq!(first["json"], json!({ "a": 1 }), "only the first document counts");
        let parts = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n\"\r\n\r\nfile\r\n--x--";
        assert_eq!(
            echoed("multipart/form-data; boundary=x", parts).await.json()["files"],
            json!({ "f": ["file"] })
        );
        assert_eq!(echoed("image/png", "a?>").await.json()["data"], "data:image/png;base64,YT8-");
        assert_eq!(echoed("", "a").await.json()["data"], "data:application/octet-stream;base64,YQ==");
    }

    #[tokio::test]
    async fn content_that_contradicts_its_type_is_refused_with_the_reason() {
        for (content_type, content, detail) in [
            ("application/x-www-form-urlencoded", "a=%zz", "invalid form encoding"),
            ("multipart/form-data", "x", "no multipart boundary param in Content-Type"),
            ("multipart/form-data; boundary=x", "y", "the multipart content is broken or ends early"),
            ("application/json", "{", "EOF while parsing an object at line 1 column 1"),
        ] {
            let response = echoed(content_type, content).await;
            let detail = format!("error parsing request body: {detail}");
            assert_eq!(
                (response.status, &response.json()["detail"]),
                (400, &detail.into()),
                "{content_type}"
            );
        }
    }

    #[tokio::test]
    async fn content_is_limited_and_an_upload_only_counted() {
        let provider = TestProvider::new(Options { body_bytes_max: 10, ..Options::default() });
        let send = |target, content: &'static str| provider.send(request("POST", target, &[], content));
        assert_eq!(send("/post", "0123456789").await.status, 200);
        let refused = send("/post", "0123456789a").await;
        let detail = "error parsing request body: request body too large: at most 10 bytes";
        assert_eq!((refused.status, &refused.json()["detail"]), (400, &detail.into()));
        assert_eq!(send("/upload", "0123456789").await.json()["bytes_received"], 10);
        assert_eq!(send("/upload", "0123456789a").await.status, 500);
    }

    #[tokio::test]
    async fn fields_that_are_configured_to_be_hidden_are_not_shown() {
        let provider = TestProvider::new(Options { hidden_fields: vec!["x-*".into()], ..Options::default() });
        let sent = [("x-secret", "1"), ("y", "2")];
        let response = provider.send(request("GET", "/headers", &sent, "")).await;
        assert_eq!(response.json()["headers"], json!({ "Host": ["a.test"], "Y": ["2"] }));
    }
}
