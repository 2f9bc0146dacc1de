//! Java's trust store in its oldest format, which every Java reads without an option.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use egret_clock::Timestamp;
use rustls::pki_types::CertificateDer;

/// The password that Java expects by default. It protects nothing: all entries are public.
pub const PASSWORD: &str = "changeit";

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
/// Tag of an entry that is a trusted certificate. The other tag is for private keys.
const TRUSTED_CERTIFICATE: u32 = 2;
/// Part of the checksum, so that a digest of the password and the data is not enough.
const WHITENER: &[u8] = b"Mighty Aphrodite";

/// Returns a trust store. The first certificate has the alias `egret`, the others have numbers. `created` is
/// the time that each entry shows as its creation.
pub fn trust_store<'a>(
    certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>,
    created: Timestamp,
) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut count: u32 = 0;
    for certificate in certificates {
        let alias = if count == 0 { "egret".to_owned() } else { format!("authority-{count}") };
        entries.extend_from_slice(&TRUSTED_CERTIFICATE.to_be_bytes());
        push_text(&mut entries, &alias);
        entries.extend_from_slice(&(created.as_micros() / 1000).to_be_bytes());
        push_text(&mut entries, "X.509");
        entries.extend_from_slice(&u32::try_from(certificate.len()).unwrap_or(u32::MAX).to_be_bytes());
        entries.extend_from_slice(certificate);
        count += 1;
    }
    let mut store = [MAGIC, VERSION, count].map(u32::to_be_bytes).concat();
    store.extend_from_slice(&entries);
    let checksum = checksum(&store);
    store.extend_from_slice(&checksum);
    store
}

/// Appends ASCII in Java's modified UTF-8, where it is itself.
fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// SHA-1 of the password in UTF-16, the whitener and the data.
fn checksum(store: &[u8]) -> Vec<u8> {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for unit in PASSWORD.encode_utf16() {
        context.update(&unit.to_be_bytes());
    }
    context.update(WHITENER);
    context.update(store);
    context.finish().as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let one = CertificateDer::from(vec![1, 2, 3]);
        let store = trust_store([&one], Timestamp::from_micros(5_000));
        let entry = [
            &[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 5][..],
            b"egret",
            &[0, 0, 0, 0, 0, 0, 0, 5, 0, 5],
            b"X.509",
            &[0, 0, 0, 3, 1, 2, 3],
        ]
        .concat();
        assert_eq!(store[..entry.len()], entry);
        assert_eq!(store.len(), entry.len() + 20);
    }

    #[test]
    fn keytool_lists_the_entries() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.jks");
        let authorities = &webpki_root_certs::TLS_SERVER_ROOT_CERTS[..3];
        std::fs::write(&path, trust_store(authorities, Timestamp::from_secs(1_700_000_000))).unwrap();
        let mut command = Command::new("keytool");
        command.args(["-J-Duser.language=en", "-list", "-storepass", PASSWORD, "-keystore"]).arg(&path);
        let output = match command.output() {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => panic!("{error}"),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("Keystore type: JKS") && text.contains("3 entries"), "{text}");
        for alias in ["egret", "authority-1", "authority-2"] {
            assert!(text.contains(&format!("{alias}, ")) && text.contains("trustedCertEntry"), "{text}");
        }
    }
}
