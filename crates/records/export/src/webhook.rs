//! `type: webhook`: posts alerts to a URL, signed as Standard Webhooks (version 1.0) describes.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use data_encoding::BASE64;
use egret_config::{Problem, Secret, Size};
use egret_har::sink::{Content, Exported};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::collector::{Batches, CollectorExporter, failed, flush_after_default, interpret};
use crate::counters::Counters;
use crate::exporter::ExporterContext;
use crate::header_fields::{HeaderFields, header_fields, header_problems};
use crate::http::{Http, HttpRequest};
use crate::open_error::OpenCause;
use crate::server_url::check_url;
use crate::ship::{SendOutcome, Transport};

/// Prefix of a secret that is written in Base64.
const BASE64_PREFIX: &str = "whsec_";

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Posts each alert as a JSON object to a URL, and again until it is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// URL of the receiver.
    pub url: String,
    /// Key of the signature in `webhook-signature`: HMAC-SHA-256 over `webhook-id`, `webhook-timestamp` and
    /// the body, joined by dots. After `whsec_` the key is read as Base64. Without it, nothing is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Header fields sent with every request, such as the receiver's API key.
    #[serde(default, skip_serializing_if = "HeaderFields::is_empty")]
    pub headers: HeaderFields,
    /// Maximum size of the alerts on disk, in `data_dir/spool`, while the receiver is unreachable; the oldest
    /// are deleted. At least `16MiB`.
    #[serde(default = "egret_config::kib::<16_384>")]
    pub spool: Size,
    /// PEM file of certificate authorities that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

impl WebhookConfig {
    /// Checks rules that the types cannot express.
    pub(crate) fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        if let Err(error) = check_url(&self.url) {
            problems.push(Problem::new(format!("{at}.url"), error.to_string()));
        }
        let is_known = |secret: &&Secret| !secret.is_placeholder();
        if let Some(Err(error)) = self.secret.as_ref().filter(is_known).map(signing_key) {
            problems.push(Problem::new(format!("{at}.secret"), error.to_string()));
        }
        header_problems(&self.headers, at, problems);
        self.batches().problems(at, problems);
    }

    fn batches(&self) -> Batches {
        // A batch is full with the first alert, so none waits.
        Batches { flush_after: flush_after_default(), batch: 1, spool: self.spool }
    }

    /// Opens an exporter of alerts, and starts its thread.
    pub(crate) fn open(
        &self,
        name: &str,
        counters: Counters,
        context: ExporterContext<'_>,
    ) -> Result<CollectorExporter, OpenCause> {
        let url = check_url(&self.url)?;
        let mut http = Http::new(&url, self.ca.as_deref(), context.upstream_proxy)?;
        http.add_fields(header_fields(&self.headers)?);
        let key = self.secret.as_ref().map(signing_key).transpose()?;
        let webhook = Webhook { http, target: url.path().to_owned(), key };
        let pack = |alert: &Exported<'_>| alert.entry.to_vec();
        CollectorExporter::start(name, Content::Alerts, pack, self.batches(), counters, context, webhook)
    }
}

/// Reads the key of signatures.
fn signing_key(secret: &Secret) -> Result<hmac::Key, OpenCause> {
    let text = secret.expose();
    match text.strip_prefix(BASE64_PREFIX) {
        None => Ok(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes())),
        Some(coded) => {
            let bytes = Zeroizing::new(BASE64.decode(coded.as_bytes()).map_err(|_| OpenCause::SigningKey)?);
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        }
    }
}

/// A receiver of alerts.
struct Webhook {
    http: Http,
    /// Path of the receiver's URL.
    target: String,
    key: Option<hmac::Key>,
}

/// The part of an alert that the exporter reads.
#[derive(Deserialize)]
struct Identified {
    /// The same each time that the alert is sent.
    id: String,
}

impl Webhook {
    async fn post(&mut self, alert: &[u8]) -> SendOutcome {
        let Ok(Identified { id }) = serde_json::from_slice(alert) else { return damaged() };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
        let signature = self.key.as_ref().map(|key| signature(key, &id, &now_s, alert));
        let mut fields = vec![(CONTENT_TYPE, "application/json"), (ID, &*id), (TIMESTAMP, &*now_s)];
        fields.extend(signature.as_deref().map(|signature| (SIGNATURE, signature)));
        let request = HttpRequest {
            method: Method::POST,
            target: self.target.clone(),
            fields: &fields,
            body: alert.to_vec().into(),
        };
        match self.http.send(request).await {
            Ok(response) => interpret(&response, 1, alert.len() as u64),
            Err(error) => failed(error.to_string()),
        }
    }
}

impl Transport for Webhook {
    async fn send(&mut self, batch: &[Vec<u8>]) -> SendOutcome {
        match batch {
            [alert] => self.post(alert).await,
            // The spool may have more records than one in a batch, each of which can be sent alone.
            _ => SendOutcome::TooLarge,
        }
    }
}

fn damaged() -> SendOutcome {
    let warning = Some("an alert is damaged".to_owned());
    SendOutcome::Accepted { rejected: 1, bytes: 0, warning }
}

/// Signs an alert (Standard Webhooks 1.0, "Signature scheme").
fn signature(key: &hmac::Key, id: &str, timestamp: &str, body: &[u8]) -> String {
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    format!("v1,{}", BASE64.encode(hmac::sign(key, &signed).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_standard() {
        // The example of the specification's libraries.
        let secret = Secret::from_value("test", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let key = signing_key(&secret).unwrap();
        let signed = signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b"{\"test\": 2432232314}");
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn invalid_settings_are_reported_at_their_keys() {
        let config = serde_json::json!({ "url": "receiver", "spool": "1MiB" });
        let mut config: WebhookConfig = serde_json::from_value(config).unwrap();
        config.secret = Some(Secret::from_value("${env:KEY}", "whsec_***".to_owned()));
        for name in ["a b", "Webhook-Id"] {
            config.headers.insert(name.to_owned(), Secret::from_value("${env:KEY}", "k".to_owned()));
        }
        let mut problems = Vec::new();
        config.problems("exporters.w", &mut problems);
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "exporters.w.url",
                "exporters.w.secret",
                "exporters.w.headers.a b",
                "exporters.w.headers.Webhook-Id",
                "exporters.w.spool",
            ]
        );
    }
}
