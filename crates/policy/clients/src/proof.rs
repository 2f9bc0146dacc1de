//! The proof of a client, and its judgement by a listener.

use std::fmt;
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_config::Problem;
use egret_http1::RequestHead;

use crate::certificate::CertificateName;
use crate::config::{ClientsConfig, NameFrom};
use crate::given::{AllGiven, Given};
use crate::tokens::{Digest, Tokens};

/// The name that a client has proven, and how.
pub struct Proven {
    name: Box<str>,
    by: By,
}

/// The proof of a name.
pub(crate) enum By {
    /// A token with this digest.
    Token(Digest),
    /// A certificate that one of these authorities has signed, until it expires.
    Certificate { authorities: Arc<[u8]>, until: Timestamp },
}

impl fmt::Debug for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proven").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Proven {
    pub(crate) fn new(name: &str, by: By) -> Arc<Self> {
        Arc::new(Self { name: name.into(), by })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The reason why a client has not proven its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// It sent no token, or showed no certificate.
    #[error(
        "this listener serves only clients that prove who they are: send your token as `Proxy-Authorization: Bearer \
                 TOKEN`, as the proxy's user and password, or as `x-egret-token: TOKEN`"
    )]
    Missing,
    /// It sent a token that no client has, or a name that does not belong to the token.
    #[error("the token is not that of a client, or not of the client that is named with it")]
    Wrong,
    /// It sent several tokens, which belong to different clients or stand in fields of the same name.
    #[error("the request has several tokens: send one")]
    Ambiguous,
    /// A reload took back what it had proven on this connection, or its certificate has expired.
    #[error("what this connection has proven is no longer accepted: connect again")]
    Withdrawn,
    /// Its certificate is not accepted, or has no name.
    #[error("the certificate of this connection is not accepted")]
    Certificate,
}

impl Unproven {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Missing, Self::Wrong, Self::Ambiguous, Self::Withdrawn, Self::Certificate];

    /// Returns a short name for metrics.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::Ambiguous => "ambiguous",
            Self::Withdrawn => "withdrawn",
            Self::Certificate => "certificate",
        }
    }
}

/// The clients of a listener, and how they prove who they are.
pub struct Clients(ProofKind);

enum ProofKind {
    Tokens(Tokens),
    Certificates { authorities: Arc<[u8]>, from: NameFrom },
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            ProofKind::Tokens(_) => "Clients(tokens)",
            ProofKind::Certificates { .. } => "Clients(certificates)",
        })
    }
}

impl Clients {
    /// Compiles the key at `at` (`gateway.listen[0].clients`). `authorities` are the certificates in `ca`,
    /// with which the listener's TLS verifies those of clients; `None` on a listener without TLS.
    pub fn compile(
        config: &ClientsConfig,
        at: &str,
        authorities: Option<Arc<[u8]>>,
        has_tls: bool,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        config.check(at, has_tls, &mut problems);
        let kind = match (config.ca.is_some(), authorities) {
            (true, Some(authorities)) => ProofKind::Certificates { authorities, from: config.name_from },
            // Without authorities, their file has been reported.
            (true, None) => return Err(problems),
            (false, _) => {
                ProofKind::Tokens(Tokens::compile(&config.tokens, &config.old_tokens, at, &mut problems))
            }
        };
        if problems.is_empty() { Ok(Self(kind)) } else { Err(problems) }
    }

    /// Returns the values of `Proxy-Authenticate` for a client that has not proven who it is (RFC 9110
    /// §11.7.1). No scheme is registered for certificates.
    pub const fn challenges(&self) -> &'static [&'static str] {
        match self.0 {
            ProofKind::Tokens(_) => &["Basic realm=\"egret\", charset=\"UTF-8\"", "Bearer realm=\"egret\""],
            ProofKind::Certificates { .. } => &["Certificate realm=\"egret\""],
        }
    }

    /// Returns the client that a request proves by itself. `None` if clients prove their names by
    /// certificates.
    pub fn of_request(&self, request: &RequestHead, bytes: &[u8]) -> Option<Result<&Arc<Proven>, Unproven>> {
        let ProofKind::Tokens(tokens) = &self.0 else { return None };
        Some(AllGiven::of(request, bytes).and_then(|given| client_of(tokens, &given)))
    }

    /// Returns the client that shows the certificate `der`, which TLS has verified. `None` if clients prove
    /// their names by tokens.
    pub fn of_certificate(&self, der: Option<&[u8]>) -> Option<Result<Arc<Proven>, Unproven>> {
        let ProofKind::Certificates { authorities, from } = &self.0 else { return None };
        let named = der.ok_or(Unproven::Missing);
        let named = named.and_then(|der| CertificateName::read(der, *from).ok_or(Unproven::Certificate));
        Some(named.map(|CertificateName { name, until }| {
            Proven::new(&name, By::Certificate { authorities: Arc::clone(authorities), until })
        }))
    }

    /// Checks that a client still proves at `now` what it has proven earlier on its connection, perhaps to
    /// an earlier config.
    pub fn confirm(&self, proven: &Proven, now: Timestamp) -> Result<(), Unproven> {
        let is_confirmed = match (&self.0, &proven.by) {
            (ProofKind::Tokens(tokens), By::Token(digest)) => {
                tokens.client_of(digest).is_some_and(|client| client.name == proven.name)
            }
            (ProofKind::Certificates { authorities, .. }, By::Certificate { authorities: before, until }) => {
                (Arc::ptr_eq(authorities, before) || authorities == before) && now <= *until
            }
            _ => false,
        };
        if is_confirmed { Ok(()) } else { Err(Unproven::Withdrawn) }
    }
}

/// Returns the client that all given tokens belong to.
fn client_of<'t>(tokens: &'t Tokens, given: &AllGiven<'_>) -> Result<&'t Arc<Proven>, Unproven> {
    let of = |given: &Given<'_>| {
        let client = tokens.client(given.token()).ok_or(Unproven::Wrong)?;
        let is_named = given.name().is_none_or(|name| *name == *client.name.as_bytes());
        if is_named { Ok(client) } else { Err(Unproven::Wrong) }
    };
    match (&given.authorization, &given.own_field) {
        (None, None) => Err(Unproven::Missing),
        (Some(one), None) | (None, Some(one)) => of(one),
        (Some(one), Some(other)) => match (of(one)?, of(other)?) {
            (one, other) if one.name == other.name => Ok(one),
            _ => Err(Unproven::Ambiguous),
        },
    }
}

#[cfg(test)]
mod tests;
