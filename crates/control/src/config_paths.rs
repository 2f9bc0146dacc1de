//! The paths that read and change the config's files.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use egret_config::CONFIG_BYTES_MAX;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::changes::{ChangeRefusal, ConfigCall, ConfigReply, ConfigRequest, EntityTags};
use crate::problem::Problem;
use crate::trusted_proxy::User;

/// RFC 9512.
pub(crate) const YAML: &str = "application/yaml";

/// The way to the owner of the files.
#[derive(Debug)]
pub(crate) struct ConfigCalls {
    calls: mpsc::Sender<ConfigCall>,
    /// Held by the change in progress.
    change: Semaphore,
}

/// Shared by the handlers.
pub(crate) type SharedCalls = Arc<ConfigCalls>;

impl ConfigCalls {
    pub(crate) fn new(calls: mpsc::Sender<ConfigCall>) -> SharedCalls {
        Arc::new(Self { calls, change: Semaphore::new(1) })
    }

    async fn call(&self, request: ConfigRequest) -> Result<ConfigReply, Problem> {
        let (reply, replied) = oneshot::channel();
        let busy = "the gateway is draining, or too many requests are waiting";
        let unavailable = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, busy);
        self.calls.try_send(ConfigCall { request, reply }).map_err(|_| unavailable())?;
        replied.await.map_err(|_| unavailable())?.map_err(Problem::from)
    }

    /// Changes the config, unless another change is in progress.
    async fn change(&self, request: ConfigRequest) -> Result<Response, Problem> {
        let busy = "another change of the config is in progress";
        let _turn = self.change.try_acquire().map_err(|_| Problem::new(StatusCode::CONFLICT, busy))?;
        match self.call(request).await? {
            ConfigReply::Applied(applied) => {
                let etag = tag_value(&applied.etag);
                Ok(([(header::ETAG, etag)], Json(applied)).into_response())
            }
            _ => Err(mismatch()),
        }
    }
}

/// Returns all files with their text, and one tag over all of them.
pub(crate) async fn files(State(calls): State<SharedCalls>) -> Result<Response, Problem> {
    match calls.call(ConfigRequest::Files).await? {
        ConfigReply::Files(files) => {
            Ok(([(header::ETAG, tag_value(&files.etag))], Json(files)).into_response())
        }
        _ => Err(mismatch()),
    }
}

/// Returns the text of one file, with the tag over all files.
pub(crate) async fn file(
    State(calls): State<SharedCalls>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let ConfigReply::Files(files) = calls.call(ConfigRequest::Files).await? else { return Err(mismatch()) };
    let Path(name) = name.map_err(|_| Problem::from(ChangeRefusal::UnknownFile))?;
    let file = files.files.into_iter().find(|file| file.name == name).ok_or(ChangeRefusal::UnknownFile)?;
    let fields =
        [(header::ETAG, tag_value(&files.etag)), (header::CONTENT_TYPE, HeaderValue::from_static(YAML))];
    Ok((fields, file.text).into_response())
}

/// Replaces one file, and applies the config.
pub(crate) async fn replace(
    State(calls): State<SharedCalls>,
    name: Result<Path<String>, PathRejection>,
    user: Option<Extension<User>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let needed = "send `If-Match` with the `ETag` of /api/v1/config/files, so that no other change is lost";
    let etag = etag(&headers).ok_or(Problem::new(StatusCode::PRECONDITION_REQUIRED, needed))?;
    let Path(name) = name.map_err(|_| Problem::from(ChangeRefusal::UnknownFile))?;
    let text = text(body).await?;
    calls.change(ConfigRequest::Replace { name, text, etag, user: name_of(user) }).await
}

/// Checks a text without applying it.
pub(crate) async fn validate(State(calls): State<SharedCalls>, body: Body) -> Result<Response, Problem> {
    let text = text(body).await?;
    match calls.call(ConfigRequest::Validate { text }).await? {
        ConfigReply::Checked(checked) => Ok(Json(checked).into_response()),
        _ => Err(mismatch()),
    }
}

/// Lists the versions.
pub(crate) async fn versions(State(calls): State<SharedCalls>) -> Result<Response, Problem> {
    match calls.call(ConfigRequest::Versions).await? {
        ConfigReply::Versions(versions) => Ok(Json(json!({ "versions": versions })).into_response()),
        _ => Err(mismatch()),
    }
}

/// The file of a version to return.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct VersionQuery {
    file: Option<String>,
}

/// Returns the text of a version's config file, or of a file that it includes.
pub(crate) async fn version(
    State(calls): State<SharedCalls>,
    number: Result<Path<u64>, PathRejection>,
    query: Result<Query<VersionQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path(number) = number.map_err(|_| Problem::from(ChangeRefusal::UnknownVersion))?;
    let wrong = "name an included file with `file=NAME`, or leave the query out";
    let Query(VersionQuery { file }) = query.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, wrong))?;
    match calls.call(ConfigRequest::Version { number, file }).await? {
        ConfigReply::Text(text) => Ok(([(header::CONTENT_TYPE, YAML)], text).into_response()),
        _ => Err(mismatch()),
    }
}

/// The version to return to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackQuery {
    version: u64,
}

/// Returns to a version.
pub(crate) async fn rollback(
    State(calls): State<SharedCalls>,
    query: Result<Query<RollbackQuery>, QueryRejection>,
    user: Option<Extension<User>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let needed = "name the version with `version=N`; /api/v1/config/versions lists them";
    let Query(RollbackQuery { version: number }) =
        query.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, needed))?;
    let (etag, user) = (etag(&headers), name_of(user));
    calls.change(ConfigRequest::Rollback { number, etag, user }).await
}

/// Applies the files as they are.
pub(crate) async fn reload(State(calls): State<SharedCalls>) -> Result<Response, Problem> {
    calls.change(ConfigRequest::Reload).await
}

fn name_of(user: Option<Extension<User>>) -> Option<String> {
    user.map(|Extension(user)| user.name.to_string())
}

/// Returns the tags of `If-Match`. `*` names no state that the client has read, so it does not count.
fn etag(headers: &HeaderMap) -> Option<EntityTags> {
    let value = headers.get(header::IF_MATCH)?.to_str().ok()?;
    (value.trim() != "*").then(|| EntityTags::new(value))
}

fn tag_value(etag: &str) -> HeaderValue {
    HeaderValue::from_str(etag).unwrap_or(HeaderValue::from_static("\"\""))
}

async fn text(body: Body) -> Result<String, Problem> {
    let too_long = "a config has at most 1 MiB";
    let bytes = to_bytes(body, CONFIG_BYTES_MAX)
        .await
        .map_err(|_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, too_long))?;
    String::from_utf8(bytes.into())
        .map_err(|_| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "the config is not UTF-8"))
}

/// A reply of another kind than the request; it cannot occur.
fn mismatch() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the reply does not fit the request")
}

impl From<ChangeRefusal> for Problem {
    fn from(refusal: ChangeRefusal) -> Self {
        match refusal {
            ChangeRefusal::NoFile => Self::new(
                StatusCode::CONFLICT,
                "Egret runs without a config file: write one (`egret reference config` lists the keys) and start with `egret run --config FILE`",
            ),
            ChangeRefusal::UnknownFile => Self::new(
                StatusCode::NOT_FOUND,
                "the config has no file of this name; /api/v1/config/files lists them",
            ),
            ChangeRefusal::UnknownVersion => Self::new(
                StatusCode::NOT_FOUND,
                "no version has this number; /api/v1/config/versions lists them",
            ),
            ChangeRefusal::Busy => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "another config is being checked: try again")
            }
            ChangeRefusal::Stale => Self::new(
                StatusCode::PRECONDITION_FAILED,
                "the files have changed since they were read: read /api/v1/config/files again",
            ),
            ChangeRefusal::Off => Self::new(
                StatusCode::FORBIDDEN,
                "`control.config_changes: off` refuses changes over the API: change the file itself",
            ),
            ChangeRefusal::Forbidden(problems) => Self::new(
                StatusCode::FORBIDDEN,
                "`control.config_changes` refuses these changes over the API; nothing has changed",
            )
            .with_problems(problems),
            ChangeRefusal::Invalid(problems) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "the config is invalid; nothing has changed")
                    .with_problems(problems)
            }
            ChangeRefusal::ReadOnly(detail) => Self::new(StatusCode::FORBIDDEN, detail),
            ChangeRefusal::Rejected(detail) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
            ChangeRefusal::Failed(detail) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail),
        }
    }
}
