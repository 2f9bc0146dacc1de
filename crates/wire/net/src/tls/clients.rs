//! The certificates of clients, on listeners that ask for one.

use std::sync::Arc;

use egret_config::Problem;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::{ClientAuthorities, certificates, provider};

/// The verification of clients' certificates.
pub(super) struct Verified {
    pub verifier: Arc<dyn ClientCertVerifier>,
    /// The certificates of the authorities, one after the other in DER.
    pub authorities: Arc<[u8]>,
}

impl Verified {
    /// Reads the authorities. A client's certificate must be signed by one of them, be valid now, and be
    /// meant for a client if it says what it is meant for.
    pub fn load(authorities: ClientAuthorities<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let ClientAuthorities { file, at } = authorities;
        let reported = problems.len();
        let mut roots = RootCertStore::empty();
        let mut all = Vec::new();
        for (index, certificate) in certificates(file, at, problems).into_iter().enumerate() {
            all.extend_from_slice(&certificate);
            if let Err(error) = roots.add(certificate) {
                let number = index + 1;
                let message = format!("certificate {number} of {} cannot be used: {error}", file.display());
                problems.push(Problem::new(at, message));
            }
        }
        if problems.len() > reported {
            return None;
        }
        match WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build() {
            Ok(verifier) => Some(Self { verifier, authorities: all.into() }),
            Err(error) => {
                problems.push(Problem::new(at, format!("clients cannot be verified: {error}")));
                None
            }
        }
    }
}

/// Makes every connection verify the client's certificate itself: a resumed session would outlive it.
pub(super) fn verify_each_time(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}
