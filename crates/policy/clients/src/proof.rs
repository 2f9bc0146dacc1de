//! The judgement of the proofs of clients by a listener.

use std::fmt;
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_config::Problem;
use egret_http1::RequestHead;

use crate::certificate::CertificateName;
use crate::config::{ClientsConfig, NameFrom};
use crate::given::{AllGiven, Given};
use crate::issuer::{Issuer, JwtMemory};
use crate::proven::{By, Proven};
use crate::tokens::Tokens;
use crate::unproven::Unproven;
use crate::users::Users;

/// The clients of a listener, and how they prove who they are.
pub struct Clients(ProofKind);

enum ProofKind {
    /// Tokens of the config, and those of an issuer.
    Tokens(Tokens, Option<Arc<Issuer>>),
    Certificates {
        authorities: Arc<[u8]>,
        from: NameFrom,
    },
    /// Users of a Unix socket.
    Users(Users),
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            ProofKind::Tokens(..) => "Clients(tokens)",
            ProofKind::Certificates { .. } => "Clients(certificates)",
            ProofKind::Users(_) => "Clients(users)",
        })
    }
}

impl Clients {
    /// Compiles the key at `at` (`gateway.listen[0].clients`). `authorities` are the certificates in `ca`,
    /// with which the listener's TLS verifies those of clients; `None` on a listener without TLS. The keys of
    /// `known` issuers are kept.
    pub fn compile(
        config: &ClientsConfig,
        at: &str,
        authorities: Option<Arc<[u8]>>,
        has_tls: bool,
        known: &[Arc<Issuer>],
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        config.check(at, has_tls, &mut problems);
        let kind = match (config.ca.is_some(), authorities) {
            (true, Some(authorities)) => ProofKind::Certificates { authorities, from: config.name_from },
            // Without authorities, their file has been reported.
            (true, None) => return Err(problems),
            (false, _) if !config.users.is_empty() => {
                ProofKind::Users(Users::compile(&config.users, at, &mut problems))
            }
            (false, _) => {
                let tokens = Tokens::compile(&config.tokens, &config.old_tokens, at, &mut problems);
                let jwt = config.jwt.as_ref();
                let issuer =
                    jwt.and_then(|jwt| Issuer::compile(jwt, &format!("{at}.jwt"), known, &mut problems));
                ProofKind::Tokens(tokens, issuer)
            }
        };
        if problems.is_empty() { Ok(Self(kind)) } else { Err(problems) }
    }

    /// Returns the values of `Proxy-Authenticate` for a client that has not proven who it is (RFC 9110
    /// §11.7.1). No scheme is registered for certificates and users.
    pub const fn challenges(&self) -> &'static [&'static str] {
        match self.0 {
            ProofKind::Tokens(..) => &["Basic realm=\"egret\", charset=\"UTF-8\"", "Bearer realm=\"egret\""],
            ProofKind::Certificates { .. } => &["Certificate realm=\"egret\""],
            ProofKind::Users(_) => &["User realm=\"egret\""],
        }
    }

    /// Returns `true` if a client has to send a token.
    pub const fn ask_for_tokens(&self) -> bool {
        matches!(self.0, ProofKind::Tokens(..))
    }

    /// Returns the reason why a connection proves no client that has proven none at its beginning.
    pub const fn without_proof(&self) -> Unproven {
        if matches!(self.0, ProofKind::Users(_)) { Unproven::User } else { Unproven::Withdrawn }
    }

    /// Returns the issuer whose tokens are accepted, if there is one.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        match &self.0 {
            ProofKind::Tokens(_, issuer) => issuer.as_ref(),
            ProofKind::Certificates { .. } | ProofKind::Users(_) => None,
        }
    }

    /// Returns the client that a request proves by itself at `now`. `None` if connections prove the names of
    /// clients. `memory` is that of the worker.
    pub fn of_request(
        &self,
        request: &RequestHead,
        bytes: &[u8],
        memory: &mut JwtMemory,
        now: Timestamp,
    ) -> Option<Result<Arc<Proven>, Unproven>> {
        let ProofKind::Tokens(tokens, issuer) = &self.0 else { return None };
        let given = AllGiven::of(request, bytes);
        let mut client = |given: &Given<'_>| match (tokens.client(given.token()), issuer) {
            (None, Some(issuer)) => client_of_issuer(issuer, given, memory, now),
            (None, None) => Err(Unproven::Wrong),
            (Some(client), _) => named(Arc::clone(client), given.name()),
        };
        Some(given.and_then(|given| client_of(&given, &mut client)))
    }

    /// Returns the client that the user of a connection is. `None` if that user is none of the clients, or if
    /// clients prove their names in another way. `user` asks the system.
    pub fn of_user(&self, user: impl FnOnce() -> Option<u32>) -> Option<Arc<Proven>> {
        let ProofKind::Users(users) = &self.0 else { return None };
        users.client(user()?).cloned()
    }

    /// Returns the client that shows the certificate `der`, which TLS has verified. `None` if clients prove
    /// their names in another way.
    pub fn of_certificate(&self, der: Option<&[u8]>) -> Option<Result<Arc<Proven>, Unproven>> {
        let ProofKind::Certificates { authorities, from } = &self.0 else { return None };
        let named = der.ok_or(Unproven::Missing);
        let named = named.and_then(|der| CertificateName::read(der, *from).ok_or(Unproven::Certificate));
        Some(named.map(|CertificateName { name, until }| {
            Proven::new(&name, By::Certificate { authorities: Arc::clone(authorities), until })
        }))
    }

    /// Checks that a client still proves at `now` what it has proven earlier on its connection, perhaps to
    /// an earlier config. `memory` is that of the worker.
    pub fn confirm(&self, proven: &Proven, memory: &mut JwtMemory, now: Timestamp) -> Result<(), Unproven> {
        let is_confirmed = match (&self.0, &proven.by) {
            (ProofKind::Tokens(tokens, _), By::Token(digest)) => {
                tokens.client_of(digest).is_some_and(|client| client.name == proven.name)
            }
            (ProofKind::Tokens(_, Some(issuer)), By::Jwt(proof)) => {
                issuer.confirms(proof, &mut memory.keys, now)
            }
            (ProofKind::Certificates { authorities, .. }, By::Certificate { authorities: before, until }) => {
                (Arc::ptr_eq(authorities, before) || authorities == before) && now <= *until
            }
            (ProofKind::Users(users), By::User(user)) => {
                users.client(*user).is_some_and(|client| client.name == proven.name)
            }
            _ => false,
        };
        if is_confirmed { Ok(()) } else { Err(Unproven::Withdrawn) }
    }
}

/// Returns the client that all given tokens belong to; `of` finds that of one.
fn client_of(
    given: &AllGiven<'_>,
    mut of: impl FnMut(&Given<'_>) -> Result<Arc<Proven>, Unproven>,
) -> Result<Arc<Proven>, Unproven> {
    match (&given.authorization, &given.own_field) {
        (None, None) => Err(Unproven::Missing),
        (Some(one), None) | (None, Some(one)) => of(one),
        (Some(one), Some(other)) => match (of(one)?, of(other)?) {
            (one, other) if one.name == other.name => Ok(one),
            _ => Err(Unproven::Ambiguous),
        },
    }
}

/// Returns the client that a token of the issuer proves. Whatever has no dot is meant as another token.
fn client_of_issuer(
    issuer: &Issuer,
    given: &Given<'_>,
    memory: &mut JwtMemory,
    now: Timestamp,
) -> Result<Arc<Proven>, Unproven> {
    let (name, token) = given.jwt();
    if !token.contains(&b'.') {
        return Err(Unproven::Wrong);
    }
    named(issuer.client(token, memory, now)?, name)
}

/// Returns the client, unless another name was given with its token.
fn named(client: Arc<Proven>, name: Option<&[u8]>) -> Result<Arc<Proven>, Unproven> {
    let is_named = name.is_none_or(|name| *name == *client.name.as_bytes());
    if is_named { Ok(client) } else { Err(Unproven::Wrong) }
}

#[cfg(test)]
mod tests;
