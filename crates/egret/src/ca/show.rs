//! `egret ca show`: the authority in words.

use std::fmt::Write;

use egret_ca::{Authority, CaDirectory};
use egret_clock::rfc3339;

/// Returns the authority's name, hosts, end and fingerprint, and its directory.
pub fn text(authority: &Authority, directory: &CaDirectory) -> String {
    let constraints = authority.constraints();
    let hosts = if constraints.is_unconstrained() {
        "every host (no constraints)".to_owned()
    } else {
        constraints.hosts().map(|host| host.to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut end = Vec::new();
    rfc3339::write_unix_us(authority.not_after().as_micros(), &mut end);
    end.truncate("2026-01-02T03:04:05".len());
    let end = String::from_utf8(end).unwrap_or_default().replace('T', " ");
    let mut text = String::new();
    for (name, value) in [
        ("name", authority.name()),
        ("directory", &directory.path().display().to_string()),
        ("hosts", &hosts),
        ("valid until", &format!("{end} UTC")),
        ("SHA-256", &authority.fingerprint()),
    ] {
        let _ = writeln!(text, "{name:<12} {value}");
    }
    text
}
