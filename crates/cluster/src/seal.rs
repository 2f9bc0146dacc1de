//! The keys that hide from the store what the gateways of a cluster share. All are derived from the cluster's
//! `key`.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{error, hkdf, hmac};
use egret_config::Secret;
use egret_items::opaque;
use zeroize::Zeroizing;

/// Number of bytes of a digest in a key of the store.
const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const SALT: &[u8] = b"egret cluster";

/// The derived keys of a cluster.
pub(super) struct ClusterKey {
    cluster: String,
    seal: RandomizedNonceKey,
    names: hmac::Key,
}

opaque!(ClusterKey { cluster });

/// Length of a derived key.
struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl ClusterKey {
    /// Derives the keys of the cluster with that name. It fails only if the system lacks memory.
    pub fn new(cluster: &str, secret: &Secret) -> Result<Self, error::Unspecified> {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret.expose().as_bytes());
        let derive = |purpose: &[u8]| {
            let mut key = Zeroizing::new([0; KEY_BYTES]);
            prk.expand(&[purpose, cluster.as_bytes()], KeyLength)?.fill(&mut *key)?;
            Ok::<_, error::Unspecified>(key)
        };
        let seal = RandomizedNonceKey::new(&AES_256_GCM, &*derive(b"seal ")?)?;
        let names = hmac::Key::new(hmac::HMAC_SHA256, &*derive(b"names ")?);
        Ok(Self { cluster: cluster.to_owned(), seal, names })
    }

    /// Returns the name in the store of what `content` identifies.
    pub fn name(&self, content: &[u8]) -> String {
        let tag = hmac::sign(&self.names, content);
        let name = tag.as_ref().first_chunk::<NAME_BYTES>().copied().unwrap_or_default();
        format!("{:032x}", u128::from_be_bytes(name))
    }

    /// Encrypts `content` for a place that `context` describes.
    pub fn seal(&self, context: &[&[u8]], content: &[u8]) -> Option<Vec<u8>> {
        // Memory that grows would leave a copy behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(content.len() + AES_256_GCM.tag_len()));
        bytes.extend_from_slice(content);
        let nonce = self.seal.seal_in_place_append_tag(self.aad(context), &mut *bytes).ok()?;
        Some([nonce.as_ref(), &bytes[..]].concat())
    }

    /// Decrypts the output of [`seal`](Self::seal); `None` if it is from another place or another cluster.
    pub fn open(&self, context: &[&[u8]], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut bytes = Zeroizing::new(rest.to_vec());
        let length = self.seal.open_in_place(nonce, self.aad(context), &mut bytes).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }

    /// The parts with their lengths, so no two places have the same.
    fn aad(&self, context: &[&[u8]]) -> Aad<Vec<u8>> {
        let mut bytes = Vec::new();
        for part in [&[self.cluster.as_bytes()], context].concat() {
            bytes.extend_from_slice(&part.len().to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Aad::from(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cluster: &str, secret: &str) -> ClusterKey {
        ClusterKey::new(cluster, &Secret::from_value("${env:KEY}", secret.to_owned())).unwrap()
    }

    #[test]
    fn a_sealed_value_needs_its_key_and_place() {
        let secret = "0123456789abcdef0123456789abcdef";
        let place: [&[u8]; 2] = [b"token", b"main"];
        let sealed = key("a", secret).seal(&place, b"content").unwrap();
        assert_eq!(key("a", secret).open(&place, &sealed).unwrap().as_slice(), b"content");
        assert!(!sealed.windows(7).any(|bytes| bytes == b"content"));
        for (other, place) in [
            (key("b", secret), place),
            (key("a", "fedcba9876543210fedcba9876543210"), place),
            (key("a", secret), [b"token", b"other"]),
            (key("a", secret), [b"tokenm", b"ain"]),
        ] {
            assert!(other.open(&place, &sealed).is_none(), "{other:?} {place:?}");
        }
    }

    #[test]
    fn a_shortened_or_changed_value_is_not_opened() {
        let key = key("a", "0123456789abcdef0123456789abcdef");
        let sealed = key.seal(&[b"x"], b"content").unwrap();
        for length in 0..sealed.len() {
            assert!(key.open(&[b"x"], &sealed[..length]).is_none(), "{length}");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open(&[b"x"], &changed).is_none(), "{at}");
        }
    }

    #[test]
    fn the_same_content_has_the_same_name_and_another_seal() {
        let key = key("a", "0123456789abcdef0123456789abcdef");
        assert_eq!(key.name(b"x"), key.name(b"x"));
        assert_ne!(key.name(b"x"), key.name(b"y"));
        assert_ne!(key.seal(&[], b"x"), key.seal(&[], b"x"));
    }
}
