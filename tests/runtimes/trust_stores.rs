//! `egret ca install` with the real tools of the system and of Chromium. Their stores are in a mount
//! namespace, so those of the machine stay as they are.

use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::intercepted::{Intercepting, SecureProvider, config};
use egret_tests::process::{run, run_checked};
use egret_tests::provider::{Provider, ok};

/// Calls the URL with curl and Chromium before, while and after the authority is installed. Both use their
/// own stores: no variable or option names the authority.
const SCRIPT: &str = r#"
egret=$1 proxy=$2 url=$3
mount -t tmpfs none /etc/ssl/certs
mount -t tmpfs none /usr/local/share/ca-certificates
update-ca-certificates >/dev/null 2>&1
export HOME=$PWD/home
mkdir -p "$HOME/.pki/nssdb"
certutil -d "sql:$HOME/.pki/nssdb" -N --empty-password
calls() {
    echo "$1 curl: $(curl --silent --noproxy '' --proxy "$proxy" "$url" || echo "exit code $?")"
    echo "$1 Chromium: $(chromium --headless --no-sandbox --disable-gpu --disable-background-networking \
        --user-data-dir="$PWD/profile" --proxy-server="$proxy" --proxy-bypass-list='<-loopback>' \
        --dump-dom "$url" 2>/dev/null | grep --only-matching 'for /page')"
}
calls before
"$egret" ca install --config egret.yaml >/dev/null
calls installed
"$egret" ca uninstall --config egret.yaml >/dev/null
calls uninstalled
"#;

#[test]
fn curl_and_chromium_trust_the_authority_while_it_is_installed() {
    let namespaces = run(Command::new("unshare").args(["--map-root-user", "--mount", "true"]));
    if !namespaces.status.success() {
        eprintln!("skipped: this user may not make a mount namespace");
        return;
    }
    let origin = Provider::with_responses(|request| ok(&format!("for {}", request.target())));
    let secure = SecureProvider::before(&origin.url());
    let gateway = Intercepting::start(&config(&secure, "interception: { hosts: [localhost] }\n"), &secure);
    let mut script = Command::new("unshare");
    script.args(["--map-root-user", "--mount", "sh", "-e", "-c", SCRIPT, "sh"]).arg(binary());
    script.args([gateway.egret.url(), format!("{}/page", secure.url())]);
    let printed = run_checked(script.current_dir(gateway.egret.directory().path()));
    let lines: Vec<&str> = printed.lines().collect();
    let expected = [
        "before curl: exit code 60",
        "before Chromium: ",
        "installed curl: for /page",
        "installed Chromium: for /page",
        "uninstalled curl: exit code 60",
        "uninstalled Chromium: ",
    ];
    assert_eq!(lines, expected);
}
