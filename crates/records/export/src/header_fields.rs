//! Additional header fields of exporters, whose values are secrets.

use std::collections::BTreeMap;

use egret_config::{Problem, Secret};
use hyper::header::{HeaderName, HeaderValue};

use crate::open_error::OpenCause;

/// Maximum number of additional header fields. More would be a mistake.
const FIELDS_MAX: usize = 16;

/// Fields that the exporter sends itself.
const OWN_FIELDS: [&str; 9] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

/// Header fields by name, as in the config.
pub(crate) type HeaderFields = BTreeMap<String, Secret>;

/// Checks rules that the types cannot express, of the key `headers` of the exporter `at`.
pub(crate) fn header_problems(headers: &HeaderFields, at: &str, problems: &mut Vec<Problem>) {
    for name in headers.keys().filter(|name| HeaderName::try_from(*name).is_err()) {
        let message = format!("`{name}` is not a valid header field name");
        problems.push(Problem::new(format!("{at}.headers.{name}"), message));
    }
    for name in headers.keys().filter(|name| OWN_FIELDS.contains(&name.to_ascii_lowercase().as_str())) {
        let message = format!("Egret sends `{name}` itself: remove it");
        problems.push(Problem::new(format!("{at}.headers.{name}"), message));
    }
    if headers.len() > FIELDS_MAX {
        problems.push(Problem::new(format!("{at}.headers"), format!("more than {FIELDS_MAX} header fields")));
    }
}

/// Returns the configured header fields. The error does not contain any value.
pub(crate) fn header_fields(headers: &HeaderFields) -> Result<Vec<(HeaderName, HeaderValue)>, OpenCause> {
    let field = |(name, value): (&String, &Secret)| {
        let wrong = || OpenCause::HeaderValue(name.clone());
        let mut sent = HeaderValue::try_from(value.expose()).map_err(|_| wrong())?;
        sent.set_sensitive(true);
        Ok((HeaderName::try_from(name).map_err(|_| wrong())?, sent))
    };
    headers.iter().map(field).collect()
}
