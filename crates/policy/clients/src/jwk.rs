//! The public keys of an issuer (JWK Set, RFC 7517), and the algorithms that they verify (RFC 7518, 8037).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};
use data_encoding::BASE64URL_NOPAD;
use egret_items::words;

use crate::strict_json::{Members, StrictValue, object};

/// Maximum size of a JWK Set, in bytes.
pub(crate) const KEY_SET_BYTES_MAX: usize = 256 << 10;
/// Maximum number of keys in it. Issuers have two or three.
const KEYS_MAX: usize = 100;
/// Bounds of an RSA key, in bits (RFC 7518 §3.3). Verification takes the square of the length.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Maximum length of the public exponent of an RSA key, in bytes. Nearly all have 65537.
const EXPONENT_BYTES_MAX: usize = 4;
/// Byte before the coordinates of a point that is not compressed (SEC 1 §2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Numbers of key sets, other ones for each in this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Identifies a key by its type and value.
pub(crate) type KeyDigest = [u8; 32];

words! {
    /// An algorithm of signatures with a public key. There is none for `none` and for shared secrets.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Algorithm: name {
        Rs256 => "RS256",
        Rs384 => "RS384",
        Rs512 => "RS512",
        Ps256 => "PS256",
        Ps384 => "PS384",
        Ps512 => "PS512",
        Es256 => "ES256",
        Es384 => "ES384",
        EdDsa => "EdDSA",
    }
}

impl Algorithm {
    /// Returns the algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the kind of key that it needs.
    const fn kind(self) -> KeyKind {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => KeyKind::Rsa,
            Self::Es256 => KeyKind::P256,
            Self::Es384 => KeyKind::P384,
            Self::EdDsa => KeyKind::Ed25519,
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::EdDsa => &ED25519,
        }
    }
}

/// The kind of a key: its type and curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// A public key that verifies signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    kind: KeyKind,
    /// In the form that its algorithms read.
    bytes: Vec<u8>,
    /// Its `kid`.
    id: Option<String>,
    /// Its `alg`, the only algorithm that it is for.
    algorithm: Option<Algorithm>,
    digest: KeyDigest,
}

impl Key {
    /// Reads a key. Returns `None` if it is not for signatures, or of a kind that is not accepted (RFC 7517
    /// §5 asks to ignore these).
    fn read(members: &Members) -> Option<Self> {
        let text = |name: &str| members.get(name).map(|value| value.text().ok_or(())).transpose().ok();
        let bytes = |name: &str| BASE64URL_NOPAD.decode(text(name)??.as_bytes()).ok();
        let is_for_signatures = text("use")?.is_none_or(|meant| meant == "sig");
        let verifies = |operations: &StrictValue| matches!(operations, StrictValue::List(list) if list.iter().any(|one| one.text() == Some("verify")));
        if !is_for_signatures || !members.get("key_ops").is_none_or(verifies) {
            return None;
        }
        let (kind, bytes) = match (text("kty")??, text("crv")?) {
            ("RSA", None) => (KeyKind::Rsa, rsa(&bytes("n")?, &bytes("e")?)?),
            ("EC", Some("P-256")) => (KeyKind::P256, point(&bytes("x")?, &bytes("y")?, 32)?),
            ("EC", Some("P-384")) => (KeyKind::P384, point(&bytes("x")?, &bytes("y")?, 48)?),
            ("OKP", Some("Ed25519")) => (KeyKind::Ed25519, bytes("x").filter(|x| x.len() == 32)?),
            _ => return None,
        };
        let algorithm = match text("alg")? {
            Some(name) => Some(Algorithm::named(name).filter(|algorithm| algorithm.kind() == kind)?),
            None => None,
        };
        let value = [&[kind as u8], &bytes[..]].concat();
        let digest = digest(&SHA256, &value).as_ref().try_into().ok()?;
        Some(Self { kind, bytes, id: text("kid")?.map(str::to_owned), algorithm, digest })
    }

    /// Returns the value that identifies it.
    pub const fn digest(&self) -> KeyDigest {
        self.digest
    }

    /// Returns `true` if it may verify a signature with `algorithm` of a token that names the key `id`.
    fn fits(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        self.kind == algorithm.kind()
            && self.algorithm.is_none_or(|own| own == algorithm)
            && id.is_none_or(|id| self.id.as_deref() == Some(id))
    }

    /// Returns `true` if the signature is right. The key fits the algorithm.
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(algorithm.verification(), &self.bytes).verify(message, signature).is_ok()
    }
}

/// Returns an RSA key in DER. Some issuers write zeros before its numbers.
fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
    let without_zeros = |number: &[u8]| {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        number[zeros..].to_vec()
    };
    let (n, e) = (without_zeros(modulus), without_zeros(exponent));
    let bits = n.len() * 8 - usize::try_from(n.first()?.leading_zeros()).ok()?;
    let is_usable = RSA_BITS.contains(&bits) && e.len() <= EXPONENT_BYTES_MAX;
    let der = is_usable.then(|| RsaPublicKeyComponents { n, e }.as_der())?;
    Some(der.ok()?.as_ref().to_vec())
}

/// Returns a point of an elliptic curve by its coordinates of `len` bytes each (RFC 7518 §6.2.1).
fn point(x: &[u8], y: &[u8], len: usize) -> Option<Vec<u8>> {
    (x.len() == len && y.len() == len).then(|| [&[UNCOMPRESSED], x, y].concat())
}

/// The keys of an issuer at one time.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// Another number for each set.
    pub id: u64,
    keys: Vec<Key>,
}

impl Default for KeySet {
    fn default() -> Self {
        Self { id: NEXT_ID.fetch_add(1, Relaxed), keys: Vec::new() }
    }
}

impl KeySet {
    /// Parses a JWK Set. Keys that are not for signatures are left out.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        let members =
            object(bytes).filter(|_| bytes.len() <= KEY_SET_BYTES_MAX).ok_or(KeySetError::NotJson)?;
        let Some(StrictValue::List(list)) = members.get("keys") else { return Err(KeySetError::NoKeys) };
        if list.len() > KEYS_MAX {
            return Err(KeySetError::TooMany);
        }
        let key = |value: &StrictValue| match value {
            StrictValue::Object(members) => Key::read(members),
            _ => None,
        };
        Ok(Self { keys: list.iter().filter_map(key).collect(), ..Self::default() })
    }

    /// Returns `true` if it has no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns `true` if both have the same keys.
    pub fn is_like(&self, other: &Self) -> bool {
        self.keys == other.keys
    }

    /// Returns `true` if it has this key.
    pub fn has(&self, digest: &KeyDigest) -> bool {
        self.keys.iter().any(|key| key.digest == *digest)
    }

    /// Returns the only key for a signature with `algorithm` of a token that names the key `id`, or names
    /// none.
    pub fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Option<&Key> {
        let mut fitting = self.keys.iter().filter(|key| key.fits(algorithm, id));
        fitting.next().filter(|_| fitting.next().is_none())
    }
}

/// The reason why a document does not have the keys of an issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It is no JSON object, or has a name twice.
    #[error("it is not a JSON object of at most 256 KiB in which each name is there once")]
    NotJson,
    /// It has no list of keys.
    #[error("it is not a JWK Set (RFC 7517): it has no list `keys`")]
    NoKeys,
    /// It has too many keys.
    #[error("it has more than 100 keys")]
    TooMany,
    /// It has no key that is accepted.
    #[error("it has no key that verifies signatures: RSA of 2048 to 8192 bits, P-256, P-384 or Ed25519")]
    NotUsable,
    /// It is the metadata of another issuer.
    #[error("its `issuer` is not the configured one")]
    OtherIssuer,
    /// It names no place where the keys are.
    #[error("its `jwks_uri` is not an `https` URL")]
    NoUrl,
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn keys(list: &str) -> Vec<Key> {
        KeySet::parse(format!("{{\"keys\":[{list}],\"more\":1}}").as_bytes()).unwrap().keys
    }

    fn ed25519(more: &str) -> String {
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}"{more}}}"#)
    }

    #[test]
    fn a_key_that_is_not_for_signatures_is_left_out() {
        for more in ["", r#","kid":"a","alg":"EdDSA","use":"sig","key_ops":["verify"]"#] {
            assert_eq!(keys(&ed25519(more)).len(), 1, "{more}");
        }
        for more in [
            r#","use":"enc""#,
            r#","use":1"#,
            r#","key_ops":["encrypt"]"#,
            r#","key_ops":"verify""#,
            r#","alg":"ES256""#,
            r#","alg":"HS256""#,
            r#","alg":"RSA-OAEP""#,
            r#","kid":7"#,
        ] {
            assert!(keys(&ed25519(more)).is_empty(), "{more}");
        }
        for other in [
            "7".to_owned(),
            "{}".to_owned(),
            r#"{"kty":"oct","k":"c2VjcmV0c2VjcmV0c2VjcmV0"}"#.to_owned(),
            format!(r#"{{"kty":"OKP","crv":"X25519","x":"{X}"}}"#),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, &X[1..]),
            format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}="}}"#),
            format!(r#"{{"kty":"EC","crv":"P-256","x":"{X}"}}"#),
            format!(r#"{{"kty":"EC","crv":"P-384","x":"{X}","y":"{X}"}}"#),
            format!(r#"{{"kty":"EC","crv":"secp256k1","x":"{X}","y":"{X}"}}"#),
            format!(r#"{{"kty":"RSA","n":"{X}","e":"AQAB"}}"#),
            r#"{"kty":"RSA","n":"","e":"AQAB"}"#.to_owned(),
            format!(r#"{{"kty":"RSA","n":"{}w","e":"AQABAQE"}}"#, "_".repeat(341)),
            format!(r#"{{"kty":"RSA","n":"{}w","e":""}}"#, "_".repeat(341)),
        ] {
            assert!(keys(&other).is_empty(), "{other}");
        }
    }

    #[test]
    fn rsa_keys_have_bounds() {
        let modulus = |bits: usize| {
            let mut n = vec![0xff; bits.div_ceil(8)];
            n[0] = u8::MAX >> (n.len() * 8 - bits);
            BASE64URL_NOPAD.encode(&n)
        };
        for (bits, is_accepted) in [(1024, false), (2047, false), (2048, true), (8192, true), (8200, false)] {
            let list = format!(r#"{{"kty":"RSA","n":"{}","e":"AQAB"}}"#, modulus(bits));
            assert_eq!(keys(&list).len(), usize::from(is_accepted), "{bits}");
        }
    }

    #[test]
    fn a_document_without_keys_says_why() {
        let error = |text: &str| KeySet::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error("<html>"), KeySetError::NotJson);
        assert_eq!(error(r#"{"keys":[],"keys":[]}"#), KeySetError::NotJson);
        assert_eq!(error("{}"), KeySetError::NoKeys);
        assert_eq!(error(r#"{"keys":{}}"#), KeySetError::NoKeys);
        assert_eq!(error(&format!("{{\"keys\":[{}0]}}", "0,".repeat(KEYS_MAX))), KeySetError::TooMany);
        assert!(KeySet::parse(br#"{"keys":[]}"#).unwrap().is_empty());
        let long = format!("{{\"keys\":[]{}}}", " ".repeat(KEY_SET_BYTES_MAX));
        assert_eq!(error(&long), KeySetError::NotJson);
    }

    #[test]
    fn the_key_must_be_the_only_one_that_fits() {
        let set =
            |list: &[String]| KeySet::parse(format!("{{\"keys\":[{}]}}", list.join(",")).as_bytes()).unwrap();
        let named = |id: &str| ed25519(&format!(r#","kid":"{id}""#));
        let find = |set: &KeySet, id| set.find(Algorithm::EdDsa, id).is_some();
        let one = set(&[named("a")]);
        assert!(find(&one, Some("a")) && find(&one, None) && !find(&one, Some("b")));
        assert!(one.find(Algorithm::Es256, Some("a")).is_none());
        let two = set(&[named("a"), named("b")]);
        assert!(find(&two, Some("a")) && !find(&two, None));
        assert!(!find(&set(&[named("a"), named("a")]), Some("a")));
        assert!(!find(&set(&[ed25519("")]), Some("a")));
        assert!(one.is_like(&set(&[named("a")])) && !one.is_like(&two) && one.id != two.id);
    }
}
