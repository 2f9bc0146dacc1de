//! A JSON Web Token (RFC 7519) in compact form (RFC 7515 §7.1), read as far as it can be without a key.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use egret_clock::Timestamp;

use crate::jwk::{Algorithm, Key};
use crate::jwt_config::JwtConfig;
use crate::proven::is_usable;
use crate::strict_json::{Members, StrictValue, object};
use crate::unproven::Unproven;

/// Maximum length of a token, in bytes. With Base64 around it, it fits into a head of the default size.
pub(crate) const JWT_BYTES_MAX: usize = 8 << 10;

/// Latest time in a claim, in seconds: the end of the year 9999.
const SECS_MAX: f64 = 253_402_300_799.0;

/// The types of tokens that may prove a client. A token of any other type is meant for something else (RFC
/// 8725 §3.11).
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/// Members of the header that are refused: critical extensions, of which none is understood, a content that
/// is not a set of claims, such as a nested token, and a payload in another coding (RFC 7797).
const REFUSED_MEMBERS: [&str; 3] = ["crit", "cty", "b64"];

/// A token. Nothing is proven by it before its signature is verified.
#[derive(Debug)]
pub(crate) struct Jwt<'t> {
    pub algorithm: Algorithm,
    header: Members,
    claims: Members,
    /// The part that is signed.
    signed: &'t [u8],
    signature: Vec<u8>,
}

/// The name that a token is for, and the time from which it proves nothing any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClaimedName {
    pub name: String,
    pub until: Timestamp,
}

impl<'t> Jwt<'t> {
    /// Reads a token.
    pub fn parse(token: &'t [u8]) -> Result<Self, Unproven> {
        let malformed = Unproven::JwtMalformed;
        if token.len() > JWT_BYTES_MAX {
            return Err(malformed);
        }
        let mut parts = token.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed);
        };
        let decoded = |part: &[u8]| BASE64URL_NOPAD.decode(part).map_err(|_| malformed);
        let signed = &token[..header.len() + 1 + claims.len()];
        let header = object(&decoded(header)?).ok_or(malformed)?;
        let algorithm = header.get("alg").and_then(StrictValue::text).ok_or(malformed)?;
        let algorithm = Algorithm::named(algorithm).ok_or(Unproven::JwtAlgorithm)?;
        let is_type = |value: &StrictValue| {
            value.text().is_some_and(|text| TYPES.iter().any(|known| known.eq_ignore_ascii_case(text)))
        };
        let is_understood = REFUSED_MEMBERS.iter().all(|name| !header.contains_key(*name))
            && header.get("typ").is_none_or(is_type)
            && header.get("kid").is_none_or(|id| id.text().is_some());
        if !is_understood {
            return Err(malformed);
        }
        let claims = object(&decoded(claims)?).ok_or(malformed)?;
        Ok(Self { algorithm, header, claims, signed, signature: decoded(signature)? })
    }

    /// Returns the name of its key, if it has one.
    pub fn key_id(&self) -> Option<&str> {
        self.header.get("kid").and_then(StrictValue::text)
    }

    /// Returns `true` if `key` has signed it.
    pub fn is_signed_with(&self, key: &Key) -> bool {
        key.verifies(self.algorithm, self.signed, &self.signature)
    }

    /// Returns the name that it is for, if the listener with this config accepts its claims at `now`.
    pub fn claimed_name(&self, config: &JwtConfig, now: Timestamp) -> Result<ClaimedName, Unproven> {
        let text = |name: &str| self.claims.get(name).and_then(StrictValue::text);
        if text("iss") != Some(&*config.issuer) {
            return Err(Unproven::JwtIssuer);
        }
        if !self.claims.get("aud").is_some_and(|audience| is_for(audience, &config.audience)) {
            return Err(Unproven::JwtAudience);
        }
        let leeway = config.leeway.get();
        let until = self.time("exp")?.ok_or(Unproven::JwtExpired)? + leeway;
        if until <= now {
            return Err(Unproven::JwtExpired);
        }
        for name in ["nbf", "iat"] {
            if self.time(name)?.is_some_and(|from| now + leeway < from) {
                return Err(Unproven::JwtEarly);
            }
        }
        let name = text(&config.name).filter(|name| is_usable(name)).ok_or(Unproven::JwtName)?;
        Ok(ClaimedName { name: name.to_owned(), until })
    }

    /// Returns the time in a claim, which may have a fraction (RFC 7519 §2, `NumericDate`).
    fn time(&self, name: &str) -> Result<Option<Timestamp>, Unproven> {
        let Some(value) = self.claims.get(name) else { return Ok(None) };
        let seconds = match value {
            StrictValue::Number(number) => {
                number.as_f64().filter(|seconds| (0.0..=SECS_MAX).contains(seconds))
            }
            _ => None,
        };
        let seconds = seconds.ok_or(Unproven::JwtMalformed)?;
        Ok(Some(Timestamp::default() + Duration::from_secs_f64(seconds)))
    }
}

/// Returns `true` if the claim `aud` is the audience, or a list of texts that has it.
fn is_for(claim: &StrictValue, audience: &str) -> bool {
    match claim {
        StrictValue::Text(text) => text == audience,
        StrictValue::List(list) => {
            list.iter().all(|one| one.text().is_some()) && list.iter().any(|one| one.text() == Some(audience))
        }
        _ => false,
    }
}
