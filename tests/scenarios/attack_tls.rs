//! A server's own certificate in `tls.ca` must not authorize its key to sign certificates for other names.

use egret_tests::egret::Config;
use egret_tests::pki::Authority;
use egret_tests::process::Directory;

#[test]
fn a_pinned_certificate_is_no_authority() {
    let own = Authority::self_signed(&["other.example"], false);
    // The key's owner is not an authority, but signs a certificate for a foreign name.
    let forged = own.leaf(&["127.0.0.1"]);
    let directory = Directory::default();
    let ca = directory.write("ca.pem", own.certificate());
    let url = format!("https://{}", forged.serve("forged"));
    let egret = Config::default()
        .provider_with("origin", url, &format!("tls: {{ ca: \"{}\" }}", ca.display()))
        .start();
    egret.get("/").assert_generated(502, "tls-failed");
}
