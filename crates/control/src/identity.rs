//! The proof by which a gateway shows the commands of its user that it is theirs.
//!
//! Everybody on a machine may listen on a port that no gateway uses at the moment. A command that believed
//! any answer there would send its token and its calls to another user. So it asks first, with a nonce,
//! and only a gateway that can read the key of the data directory knows the answer. The answer is about both
//! ends of the connection: an impostor cannot get it from the gateway itself, whose connections have other
//! ends. What follows on the same connection comes from the same gateway.
//!
//! Both sides know the key, so the command needs no token: one that is valid for the life of this process
//! follows from the key.

use std::net::SocketAddr;

use aws_lc_rs::{hmac, rand};
use data_encoding::HEXLOWER;
use egret_config::Secret;

/// The field of a request that asks for the proof: 64 hexadecimal digits.
pub const NONCE_FIELD: &str = "x-egret-nonce";

/// The field of the response with the proof: the process, a dot, and the code.
pub const PROOF_FIELD: &str = "x-egret-proof";

/// Length of a nonce, in bytes.
const NONCE_BYTES: usize = 32;

/// Length of the number of a process, in bytes: enough for none to occur twice.
const PROCESS_BYTES: usize = 16;

/// The addresses of a connection. No two connections of a network namespace have the same ones at the same
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The control port's address.
    pub gateway: SocketAddr,
    /// The client's address.
    pub client: SocketAddr,
}

/// The key of a data directory, which gateways and commands of one user share.
#[derive(Debug, Clone)]
pub struct ControlKey(hmac::Key);

impl ControlKey {
    /// Returns the key with these bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Returns a nonce for a request. `None` if the system provides no random bytes.
    pub fn nonce() -> Option<String> {
        random::<NONCE_BYTES>()
    }

    /// Verifies the proof that arrived on a connection. Returns the token by which the gateway recognizes
    /// those with the key.
    pub fn verify(&self, nonce: &str, ends: Ends, proof: &str) -> Option<Secret> {
        let (process, code) = proof.split_once('.')?;
        is_hex::<PROCESS_BYTES>(process).then_some(())?;
        let code = HEXLOWER.decode(code.as_bytes()).ok()?;
        // Compares in constant time.
        hmac::verify(&self.0, statement(nonce, ends, process).as_bytes(), &code).ok()?;
        Some(self.access(process))
    }

    /// The token for a process. No proof reveals it: the text begins with another word.
    fn access(&self, process: &str) -> Secret {
        let code = hmac::sign(&self.0, format!("access\n{process}").as_bytes());
        Secret::from_value("the key of the data directory", HEXLOWER.encode(code.as_ref()))
    }
}

/// The text that a proof is the code of. No part contains a line break, so it can be read in one way only.
fn statement(nonce: &str, ends: Ends, process: &str) -> String {
    // A listener for both families sees IPv4 addresses in another form.
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let [gateway, client] = [ends.gateway, ends.client].map(canonical);
    format!("proof\n{nonce}\n{gateway}\n{client}\n{process}")
}

/// A gateway with a key.
#[derive(Debug)]
pub struct Identity {
    key: ControlKey,
    /// Tells this process from those before it, whose tokens are of no use here.
    process: String,
    access: Secret,
}

impl Identity {
    /// Returns the identity of this process. `None` if the system provides no random bytes.
    pub fn new(key: ControlKey) -> Option<Self> {
        let process = random::<PROCESS_BYTES>()?;
        let access = key.access(&process);
        Some(Self { key, process, access })
    }

    /// Returns the proof for a request with this nonce on this connection. `None` if it is no nonce.
    pub(crate) fn proof(&self, nonce: &str, ends: Ends) -> Option<String> {
        is_hex::<NONCE_BYTES>(nonce).then_some(())?;
        let code = hmac::sign(&self.key.0, statement(nonce, ends, &self.process).as_bytes());
        Some(format!("{}.{}", self.process, HEXLOWER.encode(code.as_ref())))
    }

    /// The token of those with the key.
    pub(crate) fn access(&self) -> &Secret {
        &self.access
    }
}

fn random<const BYTES: usize>() -> Option<String> {
    let mut bytes = [0; BYTES];
    rand::fill(&mut bytes).ok()?;
    Some(HEXLOWER.encode(&bytes))
}

/// Returns `true` for this number of bytes in hexadecimal digits.
fn is_hex<const BYTES: usize>(text: &str) -> bool {
    text.len() == 2 * BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(gateway: &str, client: &str) -> Ends {
        Ends { gateway: gateway.parse().unwrap(), client: client.parse().unwrap() }
    }

    #[test]
    fn a_proof_holds_for_its_nonce_its_connection_and_its_key() {
        let (key, at) = (ControlKey::new(&[1; 32]), ends("127.0.0.1:8001", "127.0.0.1:9"));
        let identity = Identity::new(key.clone()).unwrap();
        let nonce = ControlKey::nonce().unwrap();
        let proof = identity.proof(&nonce, at).unwrap();
        let access = key.verify(&nonce, at, &proof).unwrap();
        assert_eq!(access.expose(), identity.access().expose());
        let mapped = ends("[::ffff:127.0.0.1]:8001", "[::ffff:127.0.0.1]:9");
        assert!(key.verify(&nonce, mapped, &proof).is_some());
        let other = ControlKey::nonce().unwrap();
        assert!(key.verify(&other, at, &proof).is_none());
        for (gateway, client) in [
            ("127.0.0.1:8002", "127.0.0.1:9"),
            ("127.0.0.2:8001", "127.0.0.1:9"),
            ("[::1]:8001", "127.0.0.1:9"),
            ("127.0.0.1:8001", "127.0.0.1:10"),
            ("127.0.0.1:9", "127.0.0.1:8001"),
        ] {
            assert!(key.verify(&nonce, ends(gateway, client), &proof).is_none(), "{gateway} {client}");
        }
        assert!(ControlKey::new(&[2; 32]).verify(&nonce, at, &proof).is_none());
        let (process, code) = proof.split_once('.').unwrap();
        let forged = [
            String::new(),
            code.to_owned(),
            format!("{process}."),
            format!("{process}.{}", "0".repeat(64)),
            format!("{}.{code}", "0".repeat(32)),
            format!("{process}\n.{code}"),
            format!("{process}.{code}00"),
        ];
        for proof in forged {
            assert!(key.verify(&nonce, at, &proof).is_none(), "{proof}");
        }
    }

    #[test]
    fn a_token_ends_with_its_process_and_no_proof_reveals_it() {
        let key = ControlKey::new(&[1; 32]);
        let [one, two] = [(); 2].map(|()| Identity::new(key.clone()).unwrap());
        assert_ne!(one.access().expose(), two.access().expose());
        for nonce in ["", "00", "access", &"0".repeat(63), &"G".repeat(64), &"A".repeat(64)] {
            assert!(one.proof(nonce, ends("127.0.0.1:1", "127.0.0.1:2")).is_none(), "{nonce}");
        }
        assert!(!format!("{one:?}").contains(one.access().expose()));
    }
}
