//! The `Cache-Status` field (RFC 9211), which every response carries. It never contains the key.

use egret_http1::push_decimal;

use super::decision::{Action, Verdict};
use super::fwd::FwdReason;
use super::reply::Reply;

/// The handling of a response by the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatus {
    /// The reason for asking the provider; `None` for a hit.
    pub forward: Option<FwdReason>,
    /// The provider's status code, if the client receives another one.
    pub forward_status: Option<u16>,
    /// Remaining freshness in seconds; negative once the response is stale.
    pub ttl_s: Option<i64>,
    /// `true` if the response was stored.
    pub stored: bool,
    /// `true` if the request waited for another one.
    pub collapsed: bool,
    /// Additional detail: a word from a fixed list.
    pub detail: Option<&'static str>,
}

impl CacheStatus {
    /// Returns the status of a response that is served without the provider.
    pub fn hit(reply: &Reply) -> Self {
        Self { ttl_s: Some(reply.freshness.ttl_s()), ..Self::default() }
    }

    /// Returns the status of a response that is requested from the provider.
    pub fn forwarded(forward: FwdReason) -> Self {
        Self { forward: Some(forward), ..Self::default() }
    }

    /// Adds the provider's response, with `status`.
    #[must_use]
    pub fn responded(self, status: u16, verdict: &Verdict) -> Self {
        match &verdict.action {
            Action::Store(_, ttl_s) => Self { ttl_s: Some(*ttl_s), stored: true, ..self },
            Action::Pass(why) => Self { detail: Some(why.word()), ..self },
            Action::Update(_, reply) => {
                let ttl_s = Some(reply.freshness.ttl_s());
                Self {
                    forward_status: Some(status),
                    ttl_s,
                    stored: !verdict.removed.contains(&reply.candidate),
                    ..self
                }
            }
            Action::ServeStale(reply) => Self { forward_status: Some(status), ..self.failed(reply) },
            Action::PassAndUpdate(..) | Action::Again => self,
        }
    }

    /// Adds the failure of the provider.
    #[must_use]
    pub fn failed(self, reply: &Reply) -> Self {
        Self { ttl_s: Some(reply.freshness.ttl_s()), detail: Some("stale-if-error"), ..self }
    }
}

impl CacheStatus {
    /// Appends the status as one member of the field's list.
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

    /// Returns the value of the field.
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
            forward: Some(FwdReason::UriMiss),
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
