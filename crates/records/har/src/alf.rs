//! Writes API Log Format (ALF), the input of analytics collectors: a HAR entry with its owner and origin.
//!
//! Version 1.0.0 is HAR in an envelope. Versions 1.1.0 and 2.0.0 have a subset of the HAR fields and no
//! custom ones; in them an unknown size is 0, and bodies are Base64, as agents have to send them.

use std::fmt;
use std::net::IpAddr;

use egret_items::words;
use egret_json::write_escaped;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base64;
use crate::har::{self, HarEntry, NameValue, VERSION};

/// HTTP versions that 1.1.0 and 2.0.0 define.
const HTTP_VERSIONS: [&str; 4] = ["HTTP/1", "HTTP/1.0", "HTTP/1.1", "HTTP/2"];

words! {
    /// A version of the format.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
    #[schemars(rename = "AlfVersion")]
    pub enum Version: as_str {
        /// HAR in an envelope, which most collectors accept.
        #[default]
        #[serde(rename = "1.0.0")]
        V1_0_0 => "1.0.0",
        /// A subset of the HAR fields; bodies are Base64.
        #[serde(rename = "1.1.0")]
        V1_1_0 => "1.1.0",
        /// The same as 1.1.0, without the outer objects of HAR.
        #[serde(rename = "2.0.0")]
        V2_0_0 => "2.0.0",
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is not a version of the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown ALF version `{0}`: expected 1.0.0, 1.1.0 or 2.0.0")]
pub struct UnknownVersion(String);

impl std::str::FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let known = Self::ALL.into_iter().find(|version| version.as_str() == text);
        known.ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

/// The fields of a document besides its entry.
#[derive(Clone, Copy, Default)]
pub struct Envelope<'a> {
    /// Secret that identifies the customer to a collector. It must not be empty, except in 2.0.0.
    pub service_token: &'a str,
    /// Environment, such as `production`; left out if empty.
    pub environment: &'a str,
    /// Address of the client, if it may be shown.
    pub client: Option<IpAddr>,
}

/// Does not show the token.
impl fmt::Debug for Envelope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, client, .. } = self;
        f.debug_struct("Envelope")
            .field("environment", environment)
            .field("client", client)
            .finish_non_exhaustive()
    }
}

/// The reason why a document could not be written.
#[derive(Debug, thiserror::Error)]
pub enum AlfError {
    /// The service token is missing.
    #[error("the service token is missing")]
    NoToken,
    /// The record is not a HAR entry.
    #[error("not a HAR entry: {0}")]
    Entry(#[source] serde_json::Error),
}

/// Appends the document for one entry, which is a line of JSON from [`crate::Recorder`]. Appends nothing on
/// error.
pub fn write(
    version: Version,
    entry: &[u8],
    envelope: &Envelope<'_>,
    out: &mut Vec<u8>,
) -> Result<(), AlfError> {
    if envelope.service_token.is_empty() && version != Version::V2_0_0 {
        return Err(AlfError::NoToken);
    }
    let start = out.len();
    let written = match version {
        Version::V1_0_0 => {
            write_1_0_0(entry, envelope, out);
            Ok(())
        }
        Version::V1_1_0 | Version::V2_0_0 => write_flat(version, entry, envelope, out),
    };
    if written.is_err() {
        out.truncate(start);
    }
    written
}

const CREATOR: Creator = Creator { name: "egret", version: env!("CARGO_PKG_VERSION") };

/// Writes a document that contains the entry unchanged.
fn write_1_0_0(entry: &[u8], envelope: &Envelope<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"version\":\"1.0.0\"");
    let client = envelope.client.map(|client| client.to_string()).unwrap_or_default();
    for (name, value) in [
        ("serviceToken", envelope.service_token),
        ("environment", envelope.environment),
        ("clientIPAddress", &client),
    ] {
        if !value.is_empty() {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":\"");
            write_escaped(value.as_bytes(), out);
            out.push(b'"');
        }
    }
    let Creator { name, version } = CREATOR;
    let log = format!(
        ",\"har\":{{\"log\":{{\"version\":\"{VERSION}\",\"creator\":{{\"name\":\"{name}\",\"version\":\"{version}\"}},\"entries\":["
    );
    out.extend_from_slice(log.as_bytes());
    out.extend_from_slice(entry);
    out.extend_from_slice(b"]}}}");
}

fn write_flat(
    version: Version,
    entry: &[u8],
    envelope: &Envelope<'_>,
    out: &mut Vec<u8>,
) -> Result<(), AlfError> {
    let entry: HarEntry = serde_json::from_slice(entry).map_err(AlfError::Entry)?;
    let with = version == Version::V1_1_0;
    let entries = [AlfEntry {
        started_date_time: &entry.started_date_time,
        server: entry.server_ip_address.as_deref().filter(|address| address.parse::<IpAddr>().is_ok()),
        client: envelope.client,
        time: entry.time.max(0.0),
        request: request(&entry.request, with),
        response: response(&entry.response, with),
        timings: Timings {
            send: entry.timings.send.max(0.0),
            wait: entry.timings.wait.max(0.0),
            receive: entry.timings.receive.max(0.0),
            blocked: entry.timings.blocked.filter(|_| with),
            connect: entry.timings.connect.filter(|_| with),
        },
    }];
    let environment = Some(envelope.environment).filter(|environment| !environment.is_empty());
    let token = envelope.service_token;
    let written = if with {
        let log = Log { creator: CREATOR, entries };
        let har = Har { log };
        serde_json::to_writer(
            out,
            &Document1 { version: version.as_str(), service_token: token, environment, har },
        )
    } else {
        let service = Some(Service { token, environment }).filter(|_| !token.is_empty());
        serde_json::to_writer(
            out,
            &Document2 { version: version.as_str(), creator: CREATOR, service, entries },
        )
    };
    written.map_err(AlfError::Entry)
}

fn request(request: &har::Request, with_media_type: bool) -> AlfRequest<'_> {
    let post_data = request.post_data.as_ref();
    let encoding = |name: &str| post_data?.extra.get(name)?.as_str();
    let content = post_data.and_then(|post_data| {
        let encoding = encoding("encoding").or_else(|| encoding("_encoding"));
        content(post_data.text.as_deref()?, encoding, with_media_type.then_some(&*post_data.mime_type))
    });
    let (post_data, content) = if with_media_type { (content, None) } else { (None, content) };
    AlfRequest {
        http_version: http_version(&request.http_version),
        method: &request.method,
        url: &request.url,
        headers_size: request.headers_size.max(0),
        body_captured: post_data.is_some() || content.is_some(),
        body_size: request.body_size.max(0),
        query_string: pairs(&request.query_string),
        headers: pairs(&request.headers),
        post_data,
        content,
    }
}

fn response(response: &har::Response, with_media_type: bool) -> AlfResponse<'_> {
    let from = &response.content;
    let media_type = with_media_type.then_some(&*from.mime_type);
    let content = from.text.as_deref().and_then(|text| content(text, from.encoding.as_deref(), media_type));
    AlfResponse {
        http_version: http_version(&response.http_version),
        status: response.status.max(0),
        status_text: &response.status_text,
        headers_size: response.headers_size.max(0),
        body_captured: content.is_some(),
        body_size: response.body_size.max(0),
        headers: pairs(&response.headers),
        content,
    }
}

fn content<'a>(text: &'a str, encoding: Option<&str>, mime_type: Option<&'a str>) -> Option<AlfContent<'a>> {
    let text = if encoding == Some("base64") {
        text.to_owned()
    } else {
        let mut base64 = Vec::new();
        base64::encode(text.as_bytes(), &mut base64);
        String::from_utf8(base64).ok()?
    };
    Some(AlfContent { mime_type, encoding: "base64", text })
}

fn http_version(version: &str) -> &str {
    match version {
        "HTTP/2.0" => "HTTP/2",
        version if HTTP_VERSIONS.contains(&version) => version,
        _ => "unknown",
    }
}

fn pairs(pairs: &[NameValue]) -> Vec<Pair<'_>> {
    pairs.iter().map(|pair| Pair { name: &pair.name, value: &pair.value }).collect()
}

#[derive(Serialize)]
struct Creator {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document1<'a> {
    version: &'static str,
    service_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'a str>,
    har: Har<'a>,
}

#[derive(Serialize)]
struct Har<'a> {
    log: Log<'a>,
}

#[derive(Serialize)]
struct Log<'a> {
    creator: Creator,
    entries: [AlfEntry<'a>; 1],
}

#[derive(Serialize)]
struct Document2<'a> {
    version: &'static str,
    creator: Creator,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<Service<'a>>,
    entries: [AlfEntry<'a>; 1],
}

#[derive(Serialize)]
struct Service<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlfEntry<'a> {
    started_date_time: &'a str,
    #[serde(rename = "serverIPAddress", skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(rename = "clientIPAddress", skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    time: f64,
    request: AlfRequest<'a>,
    response: AlfResponse<'a>,
    timings: Timings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlfRequest<'a> {
    http_version: &'a str,
    method: &'a str,
    url: &'a str,
    headers_size: i64,
    body_captured: bool,
    body_size: i64,
    query_string: Vec<Pair<'a>>,
    headers: Vec<Pair<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    post_data: Option<AlfContent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<AlfContent<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlfResponse<'a> {
    http_version: &'a str,
    status: i64,
    status_text: &'a str,
    headers_size: i64,
    body_captured: bool,
    body_size: i64,
    headers: Vec<Pair<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<AlfContent<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlfContent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    encoding: &'static str,
    text: String,
}

#[derive(Serialize)]
struct Pair<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
struct Timings {
    send: f64,
    wait: f64,
    receive: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<f64>,
}

#[cfg(test)]
pub(crate) mod tests;
