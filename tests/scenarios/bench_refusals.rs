//! Requests that `egret bench` refuses: invalid, impossible, and harmful to third parties.

use egret_tests::bench::bench;
use egret_tests::closed_port::ClosedPort;
use egret_tests::process::Directory;

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_is_wrong() {
    let directory = Directory::default();
    let bad = directory.write("bad.har", "{");
    let bad = bad.to_str().unwrap();
    let url = "http://127.0.0.1:9/";
    for (arguments, received) in [
        (
            &["-n", "5", "-c", "10", url][..],
            "Cannot use concurrency level greater than total number of requests",
        ),
        (&["-n", "0", url], "Invalid number of requests"),
        (&["-n", "many", url], "invalid value 'many'"),
        (&["-c", "30000", "-n", "30000", url], "Invalid concurrency"),
        (&["--no-such-option", url], "unexpected argument"),
        (&[], "no URL"),
        (&["ftp://127.0.0.1/"], "unsupported scheme `ftp`"),
        (&["http://127.0.0.1:99999/"], "is not a port"),
        (&["http://user:word@127.0.0.1/"], "-A USER:PASSWORD"),
        (&["-p", "/nowhere/body", url], "/nowhere/body cannot be read"),
        (&["-i", "-p", bad, url], "Cannot mix HEAD with a body"),
        (&["-p", bad, "-u", bad, url], "cannot be used with"),
        (&["--har", bad, url], "bad.har"),
        (&["-f", "SSL3", "https://127.0.0.1:9/"], "TLS1.2, TLS1.3 and ALL"),
        (&["-Z", "RC4-MD5", "https://127.0.0.1:9/"], "unknown cipher suite"),
        (&["--fail-if", "p99=10ms", url], "is not a threshold"),
        (&["--check-status", "ok", url], "is not a status code to check"),
        (&["--rate", "fast", url], "requests per second"),
        (&["-t", "10D", url], "10S"),
        (&["--vs", url, "--find-knee", url], "cannot be used with"),
        (&["--vs", url, "--json", "never-written.json", url], "remove --fail-if"),
        (&["--find-knee", "--json", "never-written.json", url], "remove --fail-if"),
        (&["-H", "no colon", url], "Name: value"),
        (&["--ab-compat", "http://127.0.0.1:9"], "invalid URL"),
    ] {
        let ran = bench(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(received), "{received:?} is not in\n{}", ran.stderr);
        assert!(!ran.printed.contains("Complete requests"), "{}", ran.printed);
    }
}

#[test]
fn an_unreachable_target_is_exit_code_1() {
    let closed = ClosedPort::take();
    let address = closed.address().to_string();
    let ran = bench(&["-q", "-n", "100", "-c", "5", &format!("http://{address}/")]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains(&address) && ran.stderr.contains("is it running"), "{}", ran.stderr);
    assert!(!ran.printed.contains("Complete requests"), "{}", ran.printed);
    let ran = bench(&["-q", "-n", "1", "http://no-such-host.invalid/"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("no-such-host.invalid"), "{}", ran.stderr);
}

#[test]
fn a_stranger_s_host_is_not_put_under_load_without_consent() {
    // A documentation address (RFC 5737), which belongs to no host.
    for load in
        [&["-n", "5000"][..], &["-n", "50", "-c", "20"], &["-t", "5"], &["-n", "500", "--rate", "100"]]
    {
        let ran = bench(&[load, &["http://192.0.2.1/"]].concat());
        assert_eq!(ran.code, 2, "{load:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("192.0.2.1") && ran.stderr.contains("--yes"), "{}", ran.stderr);
    }
    let proxied = bench(&["-n", "5000", "-X", "127.0.0.1:9", "http://192.0.2.1/"]);
    assert_eq!(proxied.code, 2, "a local proxy does not make its target local: {}", proxied.stderr);
    let near = bench(&["-q", "-n", "5000", "http://127.0.0.1:9/"]);
    assert!(!near.stderr.contains("--yes"), "{}", near.stderr);
}
