//! The built-in provider echoes over WebSocket.

use egret_tests::built_in::BuiltIn;
use egret_tests::http::{Client, WEBSOCKET};
use egret_tests::provider_pair::{ProviderPair, request};

fn open(provider: &BuiltIn, query: &str) -> Client {
    let mut client = provider.client();
    client.send(format!("GET /websocket/echo{query} HTTP/1.1\r\nHost: a\r\n{WEBSOCKET}\r\n"));
    let agreed = client.head();
    assert_eq!((agreed.status, agreed.field("upgrade")), (101, Some("websocket")));
    assert_eq!(agreed.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    client
}

/// Returns a client's frame, with a mask that does not change the payload.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    let length = u8::try_from(payload.len()).unwrap();
    [&[first, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

#[test]
fn a_handshake_that_is_none_is_refused_alike() {
    let pair = ProviderPair::default();
    let upgrade = |sent: egret_tests::provider_pair::RequestBuilder| {
        sent.field("Connection", "Upgrade").field("Upgrade", "websocket")
    };
    for sent in [
        request("GET", "/websocket/echo"),
        upgrade(request("GET", "/websocket/echo")),
        upgrade(request("GET", "/websocket/echo")).field("Sec-WebSocket-Version", "12"),
        upgrade(request("GET", "/websocket/echo")).field("Sec-WebSocket-Version", "13"),
        request("GET", "/websocket/echo?max_fragment_size=0"),
        request("GET", "/websocket/echo?max_fragment_size=x"),
        request("GET", "/websocket/echo?max_message_size=1048577"),
        request("GET", "/websocket/echo?max_fragment_size=20&max_message_size=10"),
    ] {
        let (ours, _) = pair.assert_alike(&sent);
        assert_eq!(ours.status, 400);
    }
}

#[test]
fn messages_come_back_whole() {
    let provider = BuiltIn::start(&[]);
    let mut client = open(&provider, "");
    client.send(frame(0x81, b"hello"));
    assert_eq!(client.bytes(7), b"\x81\x05hello");
    client.send(frame(0x02, b"ab")).send(frame(0x89, b"ping")).send(frame(0x80, b"c"));
    assert_eq!(client.bytes(6), b"\x8a\x04ping", "a ping gets a pong within a message");
    assert_eq!(client.bytes(5), b"\x82\x03abc");
    client.send(frame(0x88, &1000_u16.to_be_bytes()));
    assert_eq!(client.bytes(4), b"\x88\x02\x03\xe8");
    client.assert_closed();
}

#[test]
fn a_message_comes_back_in_fragments_of_the_size_asked_for() {
    let provider = BuiltIn::start(&[]);
    let mut client = open(&provider, "?max_fragment_size=3&max_message_size=6");
    client.send(frame(0x01, b"abc")).send(frame(0x80, b"de"));
    assert_eq!(client.bytes(9), b"\x01\x03abc\x80\x02de");
    client.send(frame(0x81, b"abcd"));
    let closing = client.bytes(4);
    assert_eq!(
        (closing[0], u16::from_be_bytes([closing[2], closing[3]])),
        (0x88, 1002),
        "too large a fragment"
    );
}

#[test]
fn forbidden_frames_close_the_socket_with_a_status() {
    let provider = BuiltIn::start(&[]);
    for (bytes, status) in [
        (vec![0x81, 0x01, b'a'], 1002),
        (frame(0xc1, b"a"), 1002),
        (frame(0x83, b""), 1002),
        (frame(0x80, b"a"), 1002),
        (frame(0x09, b""), 1002),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x88, b"\x03"), 1002),
        ([frame(0x01, b"a"), frame(0x81, b"b")].concat(), 1002),
    ] {
        let mut client = open(&provider, "");
        client.send(&bytes);
        let closing = client.bytes(4);
        assert_eq!((closing[0], u16::from_be_bytes([closing[2], closing[3]])), (0x88, status), "{bytes:?}");
    }
}

#[test]
fn a_socket_lives_no_longer_than_the_maximum() {
    let provider = BuiltIn::start(&["--max-duration", "50ms"]);
    let mut client = open(&provider, "");
    assert_eq!(client.bytes(4), b"\x88\x02\x03\xe8");
    client.assert_closed();
}
