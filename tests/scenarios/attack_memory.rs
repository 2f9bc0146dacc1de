//! Memory of endless buffered bodies and of waiting connections.

use egret_tests::egret::Config;
use egret_tests::http::Client;
use egret_tests::process::Directory;
use egret_tests::provider::Provider;
use egret_tests::wait;

const MIB: u64 = 1 << 20;

#[test]
fn gathered_bodies_stay_within_their_shared_limit() {
    const CLIENTS: u64 = 120;
    // The default is 64 MiB. The allocator needs more: it separates blocks by size, and a body passes through
    // several sizes until it has its final one.
    const GROWTH_MAX: u64 = 128 * MIB;
    // The allocator keeps a few pages of each size for later use.
    const KEPT: u64 = 32 * MIB;
    const LENGTH: usize = 1 << 20;
    const MISSING: usize = 64;
    let (origin, directory) = (Provider::plain(), Directory::default());
    let key = directory.write_secret("key", "a-key-that-signs").display().to_string();
    let egret = Config::with_origin(origin.url())
        // The first client stays while the others come and go.
        .gateway("timeouts: { keep_alive: 1h }")
        .flows(format!(
            "accounts:\n  signs: {{ provider: origin, sigv4: {{ access_key_id: \"${{file:{key}}}\", secret_access_key: \"${{file:{key}}}\", region: r, service: s }} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: signs }} }}] }}]\n"
        ))
        .start();
    let post =
        format!("POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: {LENGTH}\r\n\r\n", egret.address());
    let mut whole = egret.client();
    whole.send(&post).send(vec![b'a'; LENGTH]).response().assert_forwarded(200);
    let before = egret.process().resident_bytes();
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = egret.client();
            client.offer(&post).offer(vec![b'a'; LENGTH - MISSING]);
            client
        })
        .collect();
    let sent = (LENGTH - MISSING) as u64;
    let growth = || egret.process().resident_bytes().saturating_sub(before);
    wait::until_true("all data was received or rejected, or exceeds the limit", || {
        let refused = egret.generated("bodies-full");
        let is_done = egret.stat("/clients/received_bytes") + refused * sent >= CLIENTS * sent;
        is_done || growth() > GROWTH_MAX
    });
    let taken = growth();
    println!("{CLIENTS} bodies of 1 MiB that never end: {} KiB more resident", taken >> 10);
    assert!(taken <= GROWTH_MAX, "{} KiB", taken >> 10);
    drop(clients);
    wait::until_true("all have left", || egret.stat("/clients/open") <= 1);
    wait::until_true("their memory is released", || growth() <= KEPT);
    whole.send(&post).send(vec![b'a'; LENGTH]).response().assert_forwarded(200);
}

#[test]
fn the_gateway_takes_no_huge_pages() {
    let egret = Config::default().start();
    let status = std::fs::read_to_string(format!("/proc/{}/status", egret.process().id())).unwrap();
    let enabled = status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).map(str::trim);
    assert_eq!(enabled, Some("0"), "{status}");
}
