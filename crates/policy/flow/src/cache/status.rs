//! `Cache-Status` (RFC 9211): what the cache has done, for every answer. The key is never in it.

use egret_http1::push_decimal;

use super::{Action, Reply, Verdict};

/// What the cache has done for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatus {
    /// Why the provider was asked; none where it was not.
    pub forward: Option<Forward>,
    /// The status that it gave, where the client gets another.
    pub forward_status: Option<u16>,
    /// For how many seconds the answer is still fresh; below zero for how long it has not been.
    pub ttl_s: Option<i64>,
    /// Whether the answer has been stored.
    pub stored: bool,
    /// Whether another request was waited for.
    pub collapsed: bool,
    /// What else there is to say: a word from a list of ours.
    pub detail: Option<&'static str>,
}

/// Why a request goes to the provider (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// The cache is not for it.
    Bypass,
    /// Its method is none whose answers are stored.
    Method,
    /// Nothing is stored under its key.
    UriMiss,
    /// What is stored is for requests with other fields.
    VaryMiss,
    /// What is stored is fresh, and the client wants it fresher.
    Request,
    /// What is stored is no longer fresh.
    Stale,
}

impl Forward {
    /// As the field has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
        }
    }
}

impl CacheStatus {
    /// Of an answer that is served without the provider.
    pub fn hit(reply: &Reply) -> Self {
        Self { ttl_s: Some(reply.standing.ttl_s()), ..Self::default() }
    }

    /// Of an answer for which the provider is asked.
    pub fn forwarded(forward: Forward) -> Self {
        Self { forward: Some(forward), ..Self::default() }
    }

    /// The same when the provider has answered with `status`.
    #[must_use]
    pub fn answered(self, status: u16, verdict: &Verdict) -> Self {
        match &verdict.action {
            Action::Store(_, ttl_s) => Self { ttl_s: Some(*ttl_s), stored: true, ..self },
            Action::Pass(why) => Self { detail: Some(why.word()), ..self },
            Action::Update(_, reply) => {
                let ttl_s = Some(reply.standing.ttl_s());
                Self {
                    forward_status: Some(status),
                    ttl_s,
                    stored: !verdict.gone.contains(&reply.candidate),
                    ..self
                }
            }
            Action::ServeStale(reply) => Self { forward_status: Some(status), ..self.failed(reply) },
            Action::PassAndUpdate(..) | Action::Again => self,
        }
    }

    /// The same where the provider could not be had.
    #[must_use]
    pub fn failed(self, reply: &Reply) -> Self {
        Self { ttl_s: Some(reply.standing.ttl_s()), detail: Some("stale-if-error"), ..self }
    }
}

impl CacheStatus {
    /// Appends it as one member of the list that the field is.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"egret");
        match self.forward {
            None => out.extend_from_slice(b"; hit"),
            Some(forward) => {
                out.extend_from_slice(b"; fwd=");
                out.extend_from_slice(forward.word().as_bytes());
            }
        }
        if let Some(status) = self.forward_status {
            out.extend_from_slice(b"; fwd-status=");
            push_decimal(status.into(), out);
        }
        if let Some(ttl) = self.ttl_s {
            out.extend_from_slice(if ttl < 0 { b"; ttl=-" } else { b"; ttl=" });
            push_decimal(ttl.unsigned_abs(), out);
        }
        if self.stored {
            out.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            out.extend_from_slice(b"; collapsed");
        }
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            out.extend_from_slice(detail.as_bytes());
        }
    }

    /// The value of the field.
    pub fn value(&self) -> Vec<u8> {
        let mut value = Vec::new();
        self.write(&mut value);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_member_of_a_structured_list() {
        let hit = CacheStatus { ttl_s: Some(-3), ..CacheStatus::default() };
        assert_eq!(hit.value(), b"egret; hit; ttl=-3");
        let miss = CacheStatus {
            forward: Some(Forward::UriMiss),
            forward_status: Some(503),
            ttl_s: Some(5),
            stored: true,
            collapsed: true,
            detail: Some("no-store"),
        };
        assert_eq!(
            miss.value(),
            b"egret; fwd=uri-miss; fwd-status=503; ttl=5; stored; collapsed; detail=no-store"
        );
    }
}
