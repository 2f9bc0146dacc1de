//! Endpoints that echo the request.

use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, any, delete, get, on, patch, post, put};
use serde::Serialize;
use serde_json::Value;

use super::answer::{self, Answer};
use super::call::Call;
use super::endpoint::Endpoint;
use super::error::ProviderError;
use super::multipart;
use super::query::{Query, Values};
use crate::base64;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        methods: "GET",
        path: "/get",
        parameters: "",
        about: "Arguments, header fields, method, origin and URL as JSON; values are in lists, because a name may occur several times.",
        example: "/get?a=1&a=2",
        route: || get(asked),
    },
    Endpoint {
        methods: "HEAD",
        path: "/head",
        parameters: "",
        about: "The head of the response of `/get`.",
        example: "/head",
        route: || on(MethodFilter::HEAD, asked),
    },
    Endpoint {
        methods: "POST",
        path: "/post",
        parameters: "",
        about: "As `/get`, with the content: `data`, and depending on its type `form`, `files` or `json`. Content of an unknown type is a `data:` URL in base64. 400 if it cannot be parsed or is too long.",
        example: "/post",
        route: || post(anything),
    },
    Endpoint {
        methods: "PUT",
        path: "/put",
        parameters: "",
        about: "As `/post`.",
        example: "/put",
        route: || put(anything),
    },
    Endpoint {
        methods: "PATCH",
        path: "/patch",
        parameters: "",
        about: "As `/post`.",
        example: "/patch",
        route: || patch(anything),
    },
    Endpoint {
        methods: "DELETE",
        path: "/delete",
        parameters: "",
        about: "As `/post`.",
        example: "/delete",
        route: || delete(anything),
    },
    Endpoint {
        methods: "any",
        path: "/anything",
        parameters: "",
        about: "As `/post`; for HEAD as `/get`.",
        example: "/anything?a=1",
        route: || any(anything),
    },
    Endpoint {
        methods: "any",
        path: "/anything/",
        parameters: "",
        about: "As `/anything`.",
        example: "/anything/",
        route: || any(anything),
    },
    Endpoint {
        methods: "any",
        path: "/anything/{*rest}",
        parameters: "",
        about: "As `/anything`.",
        example: "/anything/of/this",
        route: || any(anything),
    },
    Endpoint {
        methods: "POST, PUT, PATCH",
        path: "/upload",
        parameters: "",
        about: "Reads and discards the content, and returns its length as `bytes_received`. 500 if it is too long.",
        example: "/upload",
        route: || post(upload).put(upload).patch(upload),
    },
];

/// A request without its content.
#[derive(Serialize)]
pub(super) struct Asked {
    pub args: Values,
    pub headers: Values,
    pub method: String,
    pub origin: String,
    pub url: String,
}

/// A request with its content.
#[derive(Serialize)]
struct AskedWithContent {
    #[serde(flatten)]
    asked: Asked,
    data: String,
    files: Values,
    form: Values,
    json: Value,
}

#[derive(Serialize)]
struct Uploaded {
    #[serde(flatten)]
    asked: Asked,
    bytes_received: u64,
}

impl Asked {
    /// Collects the parts of a call.
    pub fn of(call: &Call) -> Self {
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
pub(super) async fn asked(call: Call) -> Response {
    answer::json(StatusCode::OK, &Asked::of(&call))
}

/// The response of `/anything`.
pub(super) async fn anything(mut call: Call) -> Answer {
    if call.method() == Method::HEAD {
        return Ok(asked(call).await);
    }
    let content = call.content_or_refusal().await?;
    let mut answer = AskedWithContent {
        asked: Asked::of(&call),
        data: String::from_utf8_lossy(&content).into_owned(),
        files: Values::new(),
        form: Values::new(),
        json: Value::Null,
    };
    if !content.is_empty() {
        let content_type = call.field(&header::CONTENT_TYPE);
        answer.parse(content_type, &content).map_err(|problem| {
            ProviderError::bad_request(format!("error parsing request body: {problem}"))
        })?;
    }
    Ok(answer::json(StatusCode::OK, &answer))
}

impl AskedWithContent {
    fn parse(&mut self, content_type: &str, content: &[u8]) -> Result<(), String> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "text/html" | "text/plain" => {}
            "application/x-www-form-urlencoded" => {
                let form = Query::strict(&self.data).ok_or("invalid form encoding")?;
                self.form = form.values();
            }
            "multipart/form-data" => {
                let form = multipart::parse(content_type, content).map_err(|error| error.to_string())?;
                (self.form, self.files) = (form.fields, form.files);
            }
            "application/json" => {
                // Only the first document counts; anything after it is ignored.
                let mut documents = serde_json::Deserializer::from_slice(content).into_iter();
                self.json =
                    documents.next().transpose().map_err(|error| error.to_string())?.unwrap_or_default();
            }
            other => {
                let shown = if other.is_empty() { "application/octet-stream" } else { other };
                self.data = format!("data:{shown};base64,{}", base64::encode_url_safe(content));
            }
        }
        Ok(())
    }
}

async fn upload(mut call: Call) -> Answer {
    let content = call
        .content()
        .await
        .map_err(|error| ProviderError::with_detail(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(answer::json(
        StatusCode::OK,
        &Uploaded { asked: Asked::of(&call), bytes_received: content.len() as u64 },
    ))
}
