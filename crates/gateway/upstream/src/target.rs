//! The target of a call: an upstream, and what of the received request is sent there.

use std::rc::Rc;

use egret_http1::Span;
use egret_message::Destination;

use crate::Upstream;

/// A call to make: the destination and the request to send. All ways of routing lead to this.
#[derive(Debug, Clone)]
pub struct CallTarget {
    /// The provider that the call belongs to, or a host that no configured provider has.
    pub upstream: Rc<Upstream>,
    /// The upstream whose base path precedes the target, if it is not `upstream`: a remedy has changed the
    /// target to one that belongs to another provider.
    pub based_on: Option<Rc<Upstream>>,
    /// Path and query, relative to the provider's URL: a part of the received target.
    pub target: Span,
    /// The way in which an empty path is sent.
    pub empty_path: EmptyPath,
    /// `true` if the target differs from the received one.
    pub new_target: bool,
    /// The `Host` sent to the provider, if the client chose one that is not the provider's own.
    pub kept_host: Option<Box<KeptHost>>,
    /// `true` if the received `Host` is the provider's own.
    pub has_own_host: bool,
    /// `true` if the client named the provider by base URL, so the response is rewritten to match.
    pub is_rewritten: bool,
}

/// The form in which an empty path, relative to the provider's URL, is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyPath {
    /// A slash behind the base path.
    Slash,
    /// Nothing: the client requested the base path itself, without a slash at its end.
    Bare,
    /// An asterisk: the request is about the server as a whole (RFC 9112 §3.2.4).
    Asterisk,
}

/// A host that the client chose for a provider with a different one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptHost {
    /// The host as the client wrote it.
    pub sent: Span,
    /// The host in lower case.
    pub name: Box<str>,
    /// The port.
    pub port: u16,
    /// `true` if the config lists the host as one of the provider's.
    pub is_known: bool,
}

impl CallTarget {
    /// Creates a call of `target`, the whole target, at `upstream`.
    pub fn whole(upstream: Rc<Upstream>, target: Span) -> Self {
        Self {
            upstream,
            based_on: None,
            target,
            empty_path: EmptyPath::Slash,
            new_target: false,
            kept_host: None,
            has_own_host: false,
            is_rewritten: false,
        }
    }

    /// Returns the path that precedes the target.
    pub fn base(&self) -> &[u8] {
        &self.based_on.as_ref().unwrap_or(&self.upstream).plan.path_prefix
    }

    /// Returns the `Host` to send to the provider, if it differs from the received one.
    pub fn host_field<'a>(&'a self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match &self.kept_host {
            Some(kept) => Some(kept.sent.of(bytes)),
            None if self.has_own_host => None,
            None => Some(&self.upstream.plan.host_field),
        }
    }

    /// Returns the destination as flows see it.
    pub fn destination(&self) -> Destination<'_> {
        let plan = &self.upstream.plan;
        let kept = self.kept_host.as_ref();
        Destination {
            provider: plan.provider(),
            tls: plan.origin.tls,
            host: plan.host_text(),
            port: plan.origin.authority.port,
            base: self.base(),
            has_bare_base: self.empty_path == EmptyPath::Bare,
            kept_host: kept.map(|kept| (&*kept.name, kept.port)),
            takes_credentials: kept.is_none_or(|kept| kept.is_known),
        }
    }
}
