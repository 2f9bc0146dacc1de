//! Tools of the command line.

use egret_tests::exec::NamedProvider;
use egret_tests::provider::ok;

use super::trial::{EXPECTED, Trial, URL};

#[test]
fn curl() {
    Trial::of(&["curl", "--silent", "--show-error", "--fail", URL])
        .reaches(EXPECTED)
        .reaches_isolated(EXPECTED)
        .is_explained(&["CURL_CA_BUNDLE", "SSL_CERT_FILE"]);
}

/// GNU's wget with `GnuTLS` reads no variable with authorities, so it is told.
#[test]
fn wget_with_its_option() {
    let line = format!("wget --quiet --output-document=- --ca-certificate=\"$SSL_CERT_FILE\" {URL}");
    Trial::of(&["sh", "-c", &line]).reaches(EXPECTED).reaches_isolated(EXPECTED);
    let unaware = ["wget", "--quiet", "--tries=1", "--output-document=-", URL];
    Trial::of(&unaware).is_explained(&["--ca-certificate"]).is_explained_isolated(&["--ca-certificate"]);
}

#[test]
fn git() {
    let hash = "0123456789abcdef0123456789abcdef01234567";
    // The simple protocol: files in a directory.
    let provider = NamedProvider::with_responses(move |request| {
        if request.target().starts_with("/repo.git/info/refs") {
            return ok(&format!("{hash}\trefs/heads/main\n"));
        }
        ok("ref: refs/heads/main\n")
    });
    Trial::at(provider, &["git", "ls-remote", "https://origin.test/repo.git"])
        .reaches("refs/heads/main")
        .reaches_isolated("refs/heads/main")
        .is_explained(&["GIT_SSL_CAINFO", "SSL_CERT_FILE"]);
}
