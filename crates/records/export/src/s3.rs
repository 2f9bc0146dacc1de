//! `type: s3`: uploads whole files to a bucket of any S3-compatible store.
//!
//! Files are written to the spool in the same way as `type: har` or `type: lines` writes them, and uploaded
//! once they are closed. Waiting files are on disk, valid and limited in size, even if the store is
//! unreachable or the process ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use egret_aws::{AccessKey, Addressing, Bucket, Signer};
use egret_clock::{Clock, Moment};
use egret_config::{Problem, Secret, Size};
use egret_har::sink::{Content, Exported, Sink};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::background::{self, Backoff};
use crate::counters::{Counters, ExporterSnapshot};
use crate::disk::System;
use crate::exporter::{Exporter, ExporterContext};
use crate::files::config::Rotation;
use crate::files::{Closed, FileFormat, Layout, Retention, Writer};
use crate::http::{Http, HttpRequest, RequestError};
use crate::open_error::OpenCause;
use crate::server_url::check_url;

/// Maximum size of a file. A larger object would need a multipart upload.
const ROTATE_MAX: Size = Size::from_kib(64 << 10);
/// Validity of a signed request.
const SIGNED_FOR: Duration = Duration::from_mins(5);
/// Maximum wait between two attempts.
const BACKOFF_MAX: Duration = Duration::from_mins(1);
/// Interval for checking the spool without a signal.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Whole files in an S3 bucket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct S3Config {
    /// URL of the store, such as `https://s3.eu-west-1.amazonaws.com`.
    pub endpoint: String,
    /// Name of the bucket, which must exist.
    pub bucket: String,
    /// Format of the files. Files that wait in another format are not uploaded, so give the exporter another
    /// name when you change it.
    #[serde(default)]
    pub format: S3Format,
    /// Prefix of object keys. It is followed by the date and the file name:
    /// `2026/11/22/NAME-20261122T105253.250Z-4f2a91.har.gz`.
    #[serde(default)]
    pub prefix: String,
    /// Region used to sign requests.
    #[serde(default = "region_default")]
    pub region: String,
    /// Position of the bucket's name in requests.
    #[serde(default)]
    pub addressing: S3Addressing,
    /// Id of the access key. Default: the environment variable `AWS_ACCESS_KEY_ID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key: Option<Secret>,
    /// Secret of the access key. Default: the environment variable `AWS_SECRET_ACCESS_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key: Option<Secret>,
    /// Maximum size of a file before it is uploaded. A file can exceed it by one batch. From `4KiB` to
    /// `64MiB`.
    #[serde(default = "egret_config::kib::<8192>")]
    pub rotate: Size,
    /// Maximum age of a file before it is uploaded; `0s` means no limit.
    #[serde(default = "egret_config::secs::<300>")]
    pub rotate_after: egret_config::Duration,
    /// Compresses objects.
    #[serde(default = "egret_config::yes")]
    pub gzip: bool,
    /// Maximum size of the files on disk, in `data_dir/spool`, while the store is unreachable; the oldest are
    /// deleted. At least twice `rotate`.
    #[serde(default = "egret_config::kib::<1_048_576>")]
    pub spool: Size,
    /// PEM file of certificate authorities that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

fn region_default() -> String {
    "us-east-1".to_owned()
}

/// Position of the bucket's name in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum S3Addressing {
    /// In the path, which every store supports.
    #[default]
    Path,
    /// In the host name.
    Host,
}

/// Format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum S3Format {
    /// HAR files, for the diagnosis `har`.
    #[default]
    Har,
    /// Text files, for the diagnoses `access-log` and `ledger`. Their names end with `.log`.
    Lines,
}

impl S3Format {
    /// Content of the files.
    pub(crate) fn content(self) -> Content {
        match self {
            Self::Har => Content::Entries,
            Self::Lines => Content::Lines,
        }
    }

    fn files(self, version: &str) -> FileFormat {
        match self {
            Self::Har => FileFormat::har(version),
            Self::Lines => FileFormat::lines(),
        }
    }
}

impl S3Config {
    /// Checks rules that the types cannot express.
    pub(crate) fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        if let Err(error) = self.bucket() {
            problems.push(Problem::new(format!("{at}.endpoint"), error.to_string()));
        }
        if self.access_key.is_some() != self.secret_key.is_some() {
            problems.push(Problem::new(at, "`access_key` and `secret_key` must be set together"));
        }
        if self.rotate > ROTATE_MAX {
            problems.push(Problem::new(format!("{at}.rotate"), format!("at most `{ROTATE_MAX}`")));
        }
        if self.spool.bytes() == 0 {
            problems.push(Problem::new(format!("{at}.spool"), "must be greater than 0"));
        }
        Rotation { rotate: self.rotate, keep: self.spool, keep_key: "spool" }.problems(at, problems);
    }

    fn bucket(&self) -> Result<Bucket, OpenCause> {
        let url = check_url(&self.endpoint)?;
        let addressing = match self.addressing {
            S3Addressing::Path => Addressing::Path,
            S3Addressing::Host => Addressing::VirtualHost,
        };
        Ok(Bucket::new(url, addressing, &self.bucket)?)
    }

    /// Returns its access key, or the one in the environment.
    pub(crate) fn access_key(&self) -> Result<AccessKey, OpenCause> {
        let key = match (&self.access_key, &self.secret_key) {
            (Some(id), Some(secret)) => {
                Some(AccessKey { id: id.clone(), secret: secret.clone(), session_token: None })
            }
            _ => key_of(|name| std::env::var(name).ok()),
        };
        key.ok_or(OpenCause::NoAccessKey)
    }

    fn signer(&self) -> Result<Signer, OpenCause> {
        Ok(Signer::new(self.access_key()?, &self.region, "s3"))
    }
}

/// Returns the access key in the variables that AWS's tools read. `variable` returns the value of one. As in
/// these tools, a blank value counts as none.
fn key_of(variable: impl Fn(&str) -> Option<String>) -> Option<AccessKey> {
    let secret = |name: &str| {
        let value = variable(name).filter(|value| !value.trim().is_empty())?;
        Some(Secret::from_value(format!("${{env:{name}}}"), value))
    };
    Some(AccessKey {
        id: secret("AWS_ACCESS_KEY_ID")?,
        secret: secret("AWS_SECRET_ACCESS_KEY")?,
        session_token: secret("AWS_SESSION_TOKEN"),
    })
}

/// An exporter to an S3 bucket.
#[derive(Debug)]
pub(crate) struct S3Exporter {
    format: S3Format,
    writer: Mutex<Writer>,
    signal: Arc<UploadSignal>,
    counters: Arc<Counters>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct UploadSignal {
    state: Mutex<UploadState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct UploadState {
    /// `true` if a file was closed.
    is_due: bool,
    /// Deadline for sending waiting files while the exporter is closing.
    closing: Option<Instant>,
}

impl UploadSignal {
    fn state(&self) -> MutexGuard<'_, UploadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.state().is_due = true;
        self.changed.notify_all();
    }

    /// Waits for `wait` at most. Returns earlier when the exporter is closed and, unless `only_for_close` is
    /// set, when a file is closed. Returns the deadline if the exporter is closing.
    fn rest(&self, wait: Duration, only_for_close: bool) -> Option<Instant> {
        let still = |state: &mut UploadState| state.closing.is_none() && (only_for_close || !state.is_due);
        let (mut state, _) = self
            .changed
            .wait_timeout_while(self.state(), wait, still)
            .unwrap_or_else(PoisonError::into_inner);
        state.is_due = false;
        state.closing
    }
}

impl S3Exporter {
    /// Opens the exporter and starts its thread.
    pub fn open(
        name: &str,
        config: &S3Config,
        counters: Counters,
        context: ExporterContext<'_>,
    ) -> Result<Self, OpenCause> {
        let bucket = config.bucket()?;
        let layout = Arc::new(Layout {
            name: name.to_owned(),
            directory: context.data_dir.join("spool").join(name),
            format: config.format.files(context.version),
            rotate_bytes: config.rotate.bytes(),
            rotate_after: Some(config.rotate_after.get()).filter(|after| !after.is_zero()),
            keep_bytes: Some(config.spool.bytes()),
            gzip: config.gzip,
            is_spool: true,
        });
        let counters = Arc::new(counters);
        let signal = Arc::new(UploadSignal::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let upload = Upload {
            retention: Retention::new(Arc::clone(&layout), Arc::clone(&counters)),
            http: Http::new(bucket.url(), config.ca.as_deref(), context.upstream_proxy)?,
            signer: config.signer()?,
            clock: Clock::new(),
            bucket,
            prefix: config.prefix.clone(),
            format: config.format,
            counters: Arc::clone(&counters),
            signal: Arc::clone(&signal),
            runtime: runtime?,
        };
        let thread = background::spawn("egret-s3", move || upload.run())?;
        let writer = Mutex::new(Writer::new(layout, Arc::clone(&counters), Box::new(System)));
        Ok(Self { format: config.format, writer, signal, counters, thread: Mutex::new(Some(thread)) })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for S3Exporter {
    fn takes(&self, content: Content) -> bool {
        content == self.format.content()
    }

    fn put(&self, exchange: Exported<'_>) {
        if self.writer().put(exchange.entry, Moment::now()) {
            self.signal.wake();
        }
    }

    fn tick(&self) {
        if self.writer().tick(Moment::now()) {
            self.signal.wake();
        }
    }
}

impl Exporter for S3Exporter {
    fn close(&self, deadline: Instant) {
        self.writer().end();
        self.signal.state().closing.get_or_insert(deadline);
        self.signal.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            self.counters.warn(
                "the upload thread panicked: waiting files are uploaded after the next start".to_owned(),
            );
        }
    }

    fn snapshot(&self) -> ExporterSnapshot {
        self.counters.snapshot()
    }
}

/// The reason why a file was not uploaded.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    /// The exporter is being closed, and there is no time for more files.
    #[error("files remain for the next start")]
    Closing,
    /// The exporter was closed during an upload.
    #[error("the exporter was closed before the store responded")]
    Closed,
    /// This file cannot be read or deleted.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// The name of a file has no date.
    #[error("a file name has no date")]
    NoDate,
    /// The request failed.
    #[error("{0}")]
    Request(RequestError),
    /// The store responded with this status and this code of an error.
    #[error("the store responded with status {0}{1}")]
    Status(u16, String),
}

/// The thread that uploads closed files.
struct Upload {
    retention: Retention,
    http: Http,
    bucket: Bucket,
    signer: Signer,
    clock: Clock,
    prefix: String,
    format: S3Format,
    counters: Arc<Counters>,
    signal: Arc<UploadSignal>,
    runtime: Runtime,
}

impl Upload {
    fn run(mut self) {
        let mut backoff = Backoff::up_to(BACKOFF_MAX);
        let mut closing = None;
        loop {
            let uploaded = self.upload_all(closing, &backoff);
            if closing.is_some() {
                break;
            }
            closing = match uploaded {
                Ok(()) => {
                    backoff.reset();
                    self.signal.rest(LOOK_EVERY, false)
                }
                Err(error) => {
                    self.counters.failed(error.to_string());
                    self.signal.rest(backoff.next(), true)
                }
            };
        }
        // A DNS lookup may still be running.
        self.runtime.shutdown_background();
    }

    fn upload_all(&mut self, closing: Option<Instant>, backoff: &Backoff) -> Result<(), UploadError> {
        self.count();
        loop {
            let files = self.retention.closed();
            if files.is_empty() {
                return Ok(());
            }
            self.upload_some(&files, closing, backoff)?;
            self.count();
        }
    }

    fn upload_some(
        &mut self,
        files: &[Closed],
        closing: Option<Instant>,
        backoff: &Backoff,
    ) -> Result<(), UploadError> {
        for file in files {
            if backoff.is_waiting() {
                self.counters.retries.fetch_add(1, Relaxed);
            }
            if closing.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(UploadError::Closing);
            }
            self.upload(file, closing)?;
            self.counters.succeeded();
        }
        Ok(())
    }

    fn count(&self) {
        self.counters.spooled_bytes.store(self.retention.bytes(), Relaxed);
    }

    fn upload(&mut self, file: &Closed, closing: Option<Instant>) -> Result<(), UploadError> {
        let failed = |error| UploadError::File(file.path.clone(), error);
        let body = egret_files::system::read(&file.path).map_err(failed)?;
        let bytes = body.len() as u64;
        let key = key(&self.prefix, &file.path).ok_or(UploadError::NoDate)?;
        let now = self.clock.timestamp(Moment::now());
        let url = self.signer.presign(now, "PUT", self.bucket.object_url(&key), SIGNED_FOR);
        let target =
            url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let is_compressed = file.path.extension().is_some_and(|extension| extension == "gz");
        let fields = match self.format {
            _ if is_compressed => &GZIP,
            S3Format::Har => &JSON,
            S3Format::Lines => &TEXT,
        };
        let request = HttpRequest { method: Method::PUT, target, fields, body: body.into() };
        let limit = closing
            .map_or(Duration::from_hours(1), |deadline| deadline.saturating_duration_since(Instant::now()));
        let Self { runtime, http, .. } = self;
        let response = runtime.block_on(async { tokio::time::timeout(limit, http.send(request)).await });
        let response = response.map_err(|_| UploadError::Closed)?.map_err(UploadError::Request)?;
        if !(200..300).contains(&response.status) {
            return Err(UploadError::Status(response.status, code(&response.body)));
        }
        self.counters.wrote(self.retention.entries(&file.path).unwrap_or_default(), bytes);
        egret_files::system::remove_file(&file.path).map_err(failed)
    }
}

const JSON: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];
const TEXT: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
const GZIP: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/gzip")];

/// Returns the object key: the prefix, the date from the file name, and the file name.
fn key(prefix: &str, path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    // In `NAME-20261122T105253.250Z-4f2a91.har` the name may contain hyphens too.
    let stamp = name.rsplit('-').nth(1)?;
    let (year, month, day) = (stamp.get(..4)?, stamp.get(4..6)?, stamp.get(6..8)?);
    Some(format!("{prefix}{year}/{month}/{day}/{name}"))
}

/// Returns the code in a store's error response, such as ` (NoSuchBucket)`. The rest of the response may
/// repeat the request.
fn code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let code =
        text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let is_plain = |code: &&str| code.len() < 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    code.filter(is_plain).map_or_else(String::new, |code| format!(" ({code})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_date_of_its_file() {
        let path = Path::new("/spool/a-b/a-b-20261122T105253.250Z-4f2a91.har.gz");
        let expected = "har/2026/11/22/a-b-20261122T105253.250Z-4f2a91.har.gz";
        assert_eq!(key("har/", path).as_deref(), Some(expected));
        assert_eq!(key("", Path::new("/x")), None);
    }

    #[test]
    fn a_key_from_the_environment_needs_an_id_and_a_secret() {
        let key = |values: &[(&str, &str)]| {
            let value = |name: &str| values.iter().find(|(known, _)| *known == name);
            key_of(|name| value(name).map(|(_, value)| (*value).to_owned()))
        };
        let (id, secret) = (("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret"));
        let found = key(&[id, secret, ("AWS_SESSION_TOKEN", "token")]).unwrap();
        assert_eq!((found.id.expose(), found.secret.expose()), ("id", "secret"));
        assert_eq!(found.session_token.unwrap().expose(), "token");
        assert!(key(&[id, secret, ("AWS_SESSION_TOKEN", " ")]).unwrap().session_token.is_none());
        assert!(key(&[id]).is_none());
        assert!(key(&[id, ("AWS_SECRET_ACCESS_KEY", "")]).is_none());
    }

    #[test]
    fn an_error_is_told_by_its_code_alone() {
        assert_eq!(
            code(b"<?xml?><Error><Code>NoSuchBucket</Code><Message>m</Message></Error>"),
            " (NoSuchBucket)"
        );
        assert_eq!(code(b"<Code>a secret!</Code>"), "");
        assert_eq!(code(b"\xff"), "");
    }
}
