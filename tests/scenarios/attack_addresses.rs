//! Addresses that stand for others, and little-known metadata services.

use egret_tests::egret::Config;

/// Checks that each of these addresses is known as that of a metadata service.
fn are_metadata(hosts: &[&str]) {
    // Everything is denied, so nothing is called however an address is interpreted; the reason shows the
    // interpretation.
    let egret = Config::default().gateway("egress: { default: deny }").start();
    for host in hosts {
        let before = egret.denials("metadata");
        let request = format!("GET http://[{host}]/latest/meta-data HTTP/1.1\r\nHost: a\r\n\r\n");
        egret.client().send(request).response().assert_generated(403, "egress-denied");
        let tunnel = format!("CONNECT [{host}]:80 HTTP/1.1\r\nHost: a\r\n\r\n");
        let refused = egret.client().send(tunnel).response_to("HEAD");
        assert_eq!((refused.status, refused.field("x-egret-error")), (403, Some("egress-denied")), "{host}");
        assert_eq!(egret.denials("metadata") - before, 2, "{host}");
    }
}

#[test]
fn a_metadata_service_is_denied_however_its_address_is_written() {
    are_metadata(&[
        // Scaleway's metadata service.
        "fd00:42::42",
        // IPv4-translated.
        "::ffff:0:169.254.169.254",
        "::ffff:0:a9fe:a9fe",
        // ISATAP, with and without the bit for a global address, under any prefix.
        "::5efe:169.254.169.254",
        "::200:5efe:169.254.169.254",
        "2001:db8:1:2:0:5efe:a9fe:a9fe",
        "2001:db8:1:2:200:5efe:169.254.169.254",
    ]);
}

#[test]
fn a_metadata_service_is_denied_behind_each_prefix_of_a_local_translator() {
    // RFC 8215 leaves it to the network which of the prefixes it translates.
    are_metadata(&[
        "64:ff9b:1:ffff::169.254.169.254",
        "64:ff9b:1:ffff::a9fe:a9fe",
        "64:ff9b:1:1:2:3:169.254.169.254",
    ]);
}
