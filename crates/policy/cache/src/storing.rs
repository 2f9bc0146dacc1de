//! Rules for storing responses (RFC 9111 §3).

use egret_http1::{Method, decimal};
use egret_match::target::is_unusual;
use egret_message::{Request, Response};

use super::config::{SetCookie, is_never_stored};
use super::directives::{Extent, RequestDirectives, ResponseDirectives};
use super::freshness::{ProviderFailure, is_heuristic};
use super::key::{KeyContext, Url, is_credential_parameter};
use super::lookup::CacheRequest;
use super::not_stored::NotStored;
use super::policy::Policy;
use super::stored::{CallTimes, FieldLines, Stored, age_s, storable_lines};
use super::vary::Vary;

/// Returns `true` for statuses whose caching rules are implemented (RFC 9110 §15).
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 307 | 308 | 400..=410 | 411 | 413..=415 | 417 | 421 | 422 | 426 | 500..=505)
}

impl Policy {
    /// Returns the response to store, or the reason for not storing it.
    pub(super) fn storable(
        &self,
        question: &CacheRequest,
        request: &Request<'_>,
        context: &KeyContext<'_>,
        response: &Response<'_>,
        times: CallTimes,
    ) -> Result<Stored, NotStored> {
        let Response { status, fields, .. } = *response;
        if is_unusual(request.path) {
            return Err(NotStored::Spelling);
        }
        let directives = ResponseDirectives::read(&self.targets, |name| fields.all(name));
        self.allows(question, status, &directives, || fields.get(b"expires").is_some())?;
        let declared_len = fields.get(b"content-length").and_then(decimal);
        if declared_len.is_some_and(|len| len > self.config.max_entry.bytes()) {
            return Err(NotStored::TooLarge);
        }
        if self.config.set_cookie == SetCookie::Refuse && fields.get(b"set-cookie").is_some() {
            return Err(NotStored::SetCookie);
        }
        let lines = storable_lines(fields, &directives);
        let mut stored = self.assemble(status, lines, times, age_s(fields), directives, request)?;
        stored.declared_len = declared_len;
        stored.url = stored_url(request, context);
        let freshness = self.lifetimes.freshness(&stored, question.partition, times.received);
        // Errors are transient: they are stored only with an explicit lifetime.
        if status >= 500 && self.lifetimes.configured_ttl(status).is_none() && !freshness.is_fresh() {
            return Err(NotStored::Error);
        }
        let is_useful = stored.has_validator() || freshness.is_fresh() || {
            let (partition, none) = (question.partition, RequestDirectives::default());
            self.lifetimes.may_revalidate_later(&stored, partition, freshness)
                || self.lifetimes.may_serve_on_error(
                    &stored,
                    partition,
                    freshness,
                    &none,
                    ProviderFailure::Error,
                )
        };
        if is_useful { Ok(stored) } else { Err(NotStored::Useless) }
    }

    /// Assembles a stored response for requests like `request`.
    pub(super) fn assemble(
        &self,
        status: u16,
        lines: FieldLines,
        times: CallTimes,
        age_s: u64,
        directives: ResponseDirectives,
        request: &Request<'_>,
    ) -> Result<Stored, NotStored> {
        let is_encoded = lines.get(b"content-encoding").is_some();
        let vary =
            Vary::new(&self.secret, lines.all(b"vary"), is_encoded, request.fields).ok_or(NotStored::Vary)?;
        let mut digest = self.secret.digest(b"boundary");
        digest.part(lines.as_bytes());
        digest.part(&times.received.as_micros().to_le_bytes());
        let mut stored = Stored::new(status, lines, times, age_s, directives, vary);
        stored.boundary = digest.finish();
        Ok(stored)
    }

    /// Checks the requirements of RFC 9111 §3 and of the config.
    pub(super) fn allows(
        &self,
        question: &CacheRequest,
        status: u16,
        directives: &ResponseDirectives,
        has_expires: impl FnOnce() -> bool,
    ) -> Result<(), NotStored> {
        let has_ttl = self.lifetimes.configured_ttl(status).is_some();
        let is_private = self.lifetimes.is_private(question.partition);
        if question.method == Method::Head {
            return Err(NotStored::Head);
        }
        if question.wants.no_store {
            return Err(NotStored::RequestNoStore);
        }
        if matches!(status, ..200 | 206 | 304 | 412 | 416 | 417 | 600..) {
            return Err(NotStored::Status);
        }
        let ResponseDirectives {
            no_store, must_understand, public, max_age, s_maxage, must_revalidate, ..
        } = directives;
        let has_lifetime = max_age.is_some() || s_maxage.is_some() || has_expires();
        if is_never_stored(status) || (status >= 500 && !has_ttl && !has_lifetime) {
            return Err(NotStored::Error);
        }
        if self.lifetimes.is_forced(status) {
            return Ok(());
        }
        let lets_share = *public || *must_revalidate || s_maxage.is_some();
        if directives.malformed {
            Err(NotStored::Malformed)
        } else if question.method != Method::Get {
            Err(NotStored::Unmarked)
        } else if *must_understand && !is_understood(status) {
            Err(NotStored::NotUnderstood)
        } else if *no_store && !must_understand {
            Err(NotStored::NoStore)
        } else if directives.private == Extent::All && !is_private {
            Err(NotStored::Private)
        } else if question.has_authorization && !is_private && !lets_share {
            Err(NotStored::Authorization)
        } else {
            let is_marked = *public
                || has_lifetime
                || has_ttl
                || is_heuristic(status)
                || (directives.private == Extent::All && is_private);
            if is_marked { Ok(()) } else { Err(NotStored::Unmarked) }
        }
    }
}

/// Returns the URL to store, without parts that may be a credential.
fn stored_url(request: &Request<'_>, context: &KeyContext<'_>) -> Box<[u8]> {
    let mut url = Url::of(request, context);
    if request.parameters().any(|(name, _)| is_credential_parameter(name)) {
        url.query = None;
    }
    url.text().into()
}
