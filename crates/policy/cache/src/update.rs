//! Stored responses that are confirmed and updated by a 304 (RFC 9111 §4.3.4), or by the response to a HEAD
//! (§4.3.5).

use egret_http1::{KnownField, decimal, trim};
use egret_message::{Fields, Request, Response};

use super::conditional::is_conditional;
use super::decision::{Action, Candidate, Validation, Verdict};
use super::directives::{Extent, ResponseDirectives};
use super::lookup::CacheRequest;
use super::not_stored::NotStored;
use super::policy::Policy;
use super::reply::Reply;
use super::stored::{CallTimes, FieldLines, Stored, age_s, is_etag, storable_lines};

impl Policy {
    /// Decides about a 304.
    pub(super) fn not_modified(
        &self,
        question: &CacheRequest,
        request: &Request<'_>,
        response: &Response<'_>,
        times: CallTimes,
        candidates: &[Candidate<'_>],
        validation: Option<&Validation>,
    ) -> Verdict {
        let pass = |action| Verdict { action, removed: Vec::new() };
        let Some(validation) = validation else { return pass(Action::Pass(NotStored::Status)) };
        let confirmed = self.confirmed(request, response.fields, candidates, validation);
        let Some((at, others)) = confirmed.split_first() else {
            let is_clients = validation.validators.is_joined && is_conditional(request);
            return pass(if is_clients { Action::Pass(NotStored::Status) } else { Action::Again });
        };
        let candidate = candidates[*at];
        let updated = self.updated(candidate.stored, request, response.fields, times);
        let has_expires = || updated.as_ref().is_ok_and(|updated| updated.lines.get(b"expires").is_some());
        let may_stay = updated.as_ref().is_ok_and(|updated| {
            let mut question = *question;
            // A HEAD validates a stored response to GET.
            question.method = if question.method == egret_http1::Method::Head {
                egret_http1::Method::Get
            } else {
                question.method
            };
            self.allows(&question, updated.status, &updated.directives, has_expires).is_ok()
        });
        let mut removed = others.to_vec();
        let stored = updated.unwrap_or_else(|_| candidate.stored.clone());
        if !may_stay {
            removed.push(*at);
        }
        let freshness = self.lifetimes.freshness(&stored, question.partition, times.received);
        let reply = Reply::new(request, *at, &stored, freshness, candidate.len, times.received);
        Verdict { action: Action::Update(Box::new(stored), reply), removed }
    }

    /// Returns the candidates that a 304 confirms, the most recent first: all with the same tag if it is
    /// strong; the most recent match for a weak tag or a date; without either, the validated candidate, if it
    /// was the only one in the request.
    fn confirmed(
        &self,
        request: &Request<'_>,
        fields: Fields<'_>,
        candidates: &[Candidate<'_>],
        validation: &Validation,
    ) -> Vec<usize> {
        let mut matching: Vec<usize> = self.matching(request, candidates).collect();
        matching.sort_by_key(|at| {
            let stored = candidates[*at].stored;
            std::cmp::Reverse((*at == validation.candidate, stored.date, stored.times.received))
        });
        let tag = fields.get(b"etag").map(trim).filter(|tag| is_etag(tag));
        if let Some(tag) = tag {
            let is_weak = tag.starts_with(b"W/");
            let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
            let is_same = |at: &usize| {
                candidates[*at]
                    .stored
                    .etag()
                    .is_some_and(|other| if is_weak { opaque(other) == opaque(tag) } else { other == tag })
            };
            matching.retain(is_same);
            matching.truncate(if is_weak { 1 } else { matching.len() });
            return matching;
        }
        let is_validated = matching.first() == Some(&validation.candidate);
        let modified = fields.get(b"last-modified").map(trim);
        let is_same = is_validated
            && modified.is_none_or(|modified| {
                candidates[validation.candidate].stored.lines.get(b"last-modified").map(trim)
                    == Some(modified)
            });
        matching.truncate(usize::from(is_same && !validation.validators.is_joined));
        matching
    }

    /// Returns `stored` updated with the fields of a newer response (RFC 9111 §3.2).
    fn updated(
        &self,
        stored: &Stored,
        request: &Request<'_>,
        newer: Fields<'_>,
        times: CallTimes,
    ) -> Result<Stored, NotStored> {
        // Directives of the newer response that name fields also apply to the stored fields.
        let newer_directives = ResponseDirectives::read(&self.targets, |name| newer.all(name));
        let newer_lines = storable_lines(newer, &newer_directives);
        let is_body = |name: &[u8]| {
            matches!(
                KnownField::of(name),
                KnownField::ContentLength | KnownField::ContentEncoding | KnownField::ContentRange
            )
        };
        let is_newer = |name: &[u8]| !is_body(name) && newer_lines.get(name).is_some();
        let mut lines = FieldLines::default();
        for (name, value) in stored.lines.iter() {
            let is_withheld = newer_directives.private.names(name) || newer_directives.no_cache.names(name);
            if !is_newer(name) && !is_withheld {
                lines.push(name, value);
            }
        }
        for (name, value) in newer_lines.iter().filter(|(name, _)| !is_body(name)) {
            lines.push(name, value);
        }
        let directives = ResponseDirectives::read(&self.targets, |name| lines.all(name));
        let mut updated = self.assemble(stored.status, lines, times, age_s(newer), directives, request)?;
        if newer_lines.get(b"date").is_none() {
            // The provider generated it after the request was sent.
            updated.redate(times.received);
        }
        updated.declared_len = stored.declared_len;
        updated.url.clone_from(&stored.url);
        Ok(updated)
    }

    /// Decides about the stored responses after the response to a HEAD.
    pub(super) fn after_head(
        &self,
        request: &Request<'_>,
        response: &Response<'_>,
        times: CallTimes,
        candidates: &[Candidate<'_>],
    ) -> Verdict {
        let pass = |removed| Verdict { action: Action::Pass(NotStored::Head), removed };
        let Some(at) = self.choose(request, candidates).filter(|_| response.status == 200) else {
            return pass(Vec::new());
        };
        let Candidate { stored, len } = candidates[at];
        let fields = response.fields;
        let is_same =
            |name: &'static [u8]| fields.get(name).is_none_or(|value| stored.lines.get(name) == Some(value));
        let len = len.or(stored.declared_len);
        let has_len =
            fields.get(b"content-length").and_then(decimal).is_none_or(|declared| len == Some(declared));
        if stored.status != 200 || !is_same(b"etag") || !is_same(b"last-modified") || !has_len {
            return pass(vec![at]);
        }
        match self.updated(stored, request, fields, times) {
            Ok(updated) if !forbids(&updated.directives) => {
                Verdict { action: Action::PassAndUpdate(at, Box::new(updated)), removed: Vec::new() }
            }
            _ => pass(vec![at]),
        }
    }
}

/// Returns `true` if a stored response with these directives must be removed.
fn forbids(directives: &ResponseDirectives) -> bool {
    directives.malformed
        || (directives.no_store && !directives.must_understand)
        || directives.private == Extent::All
}
