//! Tests of the handshake: every way to cut a proxy's bytes gives the same outcome.

use proptest::prelude::*;

use super::*;

fn authority(text: &str) -> Authority {
    Authority::parse(text.as_bytes(), None).unwrap()
}

fn credentials() -> Credentials {
    Credentials { username: "egret".to_owned(), password: "s3cret".to_owned() }
}

/// Runs a handshake whose proxy sends `input`, at most `piece` bytes at a time. Returns what was sent, and
/// the number of bytes that were taken or the error.
fn run(mut handshake: Handshake, input: &[u8], piece: usize) -> (Vec<u8>, Result<usize, HandshakeError>) {
    let (mut sent, mut taken) = (Vec::new(), 0);
    loop {
        match handshake.step() {
            Step::Send(bytes) => sent.extend(bytes),
            Step::Done => return (sent, Ok(taken)),
            Step::Receive(wanted) => {
                let count = wanted.min(piece).min(input.len() - taken);
                if count == 0 {
                    // The proxy has closed the connection.
                    return (sent, Ok(usize::MAX));
                }
                if let Err(error) = handshake.receive(&input[taken..taken + count]) {
                    return (sent, Err(error));
                }
                taken += count;
            }
        }
    }
}

fn connect() -> Handshake {
    Handshake::connect(&authority("api.example.com:443"), Some(&credentials()))
}

fn socks() -> Handshake {
    Handshake::socks5(&authority("api.example.com:443"), Some(&credentials()))
}

#[test]
fn connect_names_the_host_and_shows_basic_credentials() {
    let head = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n";
    let expected = "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\
                    Proxy-Authorization: Basic ZWdyZXQ6czNjcmV0\r\n\r\n";
    for piece in 1..=head.len() {
        // What follows belongs to the tunnel, and stays.
        let input = [&head[..], b"220 mail\r\n\r\n"].concat();
        let (sent, outcome) = run(connect(), &input, piece);
        assert_eq!((String::from_utf8(sent).unwrap().as_str(), outcome), (expected, Ok(head.len())));
    }
}

#[test]
fn the_shortest_head_opens_the_tunnel() {
    for head in ["HTTP/1.1 200\r\n\r\n", "HTTP/1.0 204 \r\n\r\n", "HTTP/1.1 200 OK\r\nA: \r\r\n\r\n"] {
        let outcome = run(connect(), format!("{head}tunnel").as_bytes(), 64).1;
        let expected = if head.contains("\r\r") { Err(HandshakeError::NotHttp) } else { Ok(head.len()) };
        assert_eq!(outcome, expected, "{head:?}");
    }
}

#[test]
fn a_refusal_is_known_from_its_status_alone() {
    for (head, error) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n", HandshakeError::HttpCredentials),
        ("HTTP/1.1 403 Forbidden\r\n", HandshakeError::HttpStatus(403)),
        ("HTTP/1.1 100 Continue\r\n\r\n", HandshakeError::HttpStatus(100)),
        ("HTTP/1.1 302 Found\r\n", HandshakeError::HttpStatus(302)),
        ("SSH-2.0-OpenSSH_9.2\r\n", HandshakeError::NotHttp),
        ("HTTP/2.0 200 OK\r\n\r\n", HandshakeError::NotHttp),
        ("HTTP/1.1 2000 OK\r\n\r\n", HandshakeError::NotHttp),
        ("HTTP/1.1 200 OK\n\nmore bytes", HandshakeError::NotHttp),
        ("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", HandshakeError::NotHttp),
    ] {
        for piece in 1..=head.len() {
            assert_eq!(run(connect(), head.as_bytes(), piece).1, Err(error), "{head:?}");
        }
    }
}

#[test]
fn an_endless_head_ends_the_handshake() {
    let head = format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(HEAD_BYTES_MAX));
    for piece in [1, 7, 4_096] {
        assert_eq!(run(connect(), head.as_bytes(), piece).1, Err(HandshakeError::HeadTooLong));
    }
}

#[test]
fn socks_names_the_host_after_the_password() {
    let replies = [&[5, 2, 1, 0][..], &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80], b"tunnel"].concat();
    for piece in 1..=replies.len() {
        let (sent, outcome) = run(socks(), &replies, piece);
        let expected = [
            &[5, 2, 0, 2, 1, 5][..],
            b"egret",
            &[6],
            b"s3cret",
            &[5, 1, 0, 3, 15],
            b"api.example.com",
            &443u16.to_be_bytes(),
        ]
        .concat();
        assert_eq!((sent, outcome), (expected, Ok(14)));
    }
}

#[test]
fn socks_replies_have_addresses_of_each_kind() {
    for address in [
        [&[1][..], &[0; 6]].concat(),
        [&[4][..], &[0; 18]].concat(),
        [&[3, 0][..], &[0; 2]].concat(),
        [&[3, 255][..], &[b'a'; 257]].concat(),
    ] {
        let replies = [&[5, 0, 5, 0, 0][..], &address].concat();
        for piece in [1, 2, 3, 5, 300] {
            let input = [&replies[..], b"tunnel"].concat();
            assert_eq!(run(socks(), &input, piece).1, Ok(replies.len()), "{address:?}");
        }
    }
}

#[test]
fn socks_refusals_have_their_reason() {
    for (replies, error) in [
        (&[5, 0xff][..], HandshakeError::SocksCredentials),
        (&[5, 2, 1, 1], HandshakeError::SocksCredentials),
        (&[5, 0, 5, 2], HandshakeError::SocksReply(2)),
        (&[5, 1], HandshakeError::NotSocks),
        (&[4, 0], HandshakeError::NotSocks),
        (&[5, 2, 5, 0], HandshakeError::NotSocks),
        (&[5, 0, 5, 0, 1], HandshakeError::NotSocks),
        (&[5, 0, 5, 0, 0, 2], HandshakeError::NotSocks),
        (b"HTTP/1.1 400 Bad Request\r\n", HandshakeError::NotSocks),
    ] {
        for piece in 1..=replies.len() {
            assert_eq!(run(socks(), replies, piece).1, Err(error), "{replies:?}");
        }
    }
    let without = Handshake::socks5(&authority("[::1]:80"), None);
    assert_eq!(run(without, &[5, 2], 2).1, Err(HandshakeError::NotSocks));
}

#[test]
fn debug_output_shows_no_credentials() {
    assert_eq!(format!("{:?}", credentials()), "Credentials { .. }");
    assert!(!format!("{:?}", socks()).contains("s3cret"));
}

proptest! {
    #[test]
    fn any_bytes_end_alike_however_they_are_cut(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
        begins in proptest::option::of(0usize..3),
        piece in 1usize..32,
    ) {
        let begin: &[u8] = match begins {
            Some(0) => b"HTTP/1.1 200 OK\r\n",
            Some(1) => &[5, 0, 5, 0, 0],
            Some(_) => &[5, 2, 1, 0, 5, 0, 0, 3],
            None => b"",
        };
        bytes.splice(0..0, begin.iter().copied());
        for begin in [connect, socks] {
            let whole = run(begin(), &bytes, usize::MAX);
            prop_assert_eq!(&run(begin(), &bytes, piece).1, &whole.1);
            if let Ok(taken) = whole.1 && taken != usize::MAX {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}
