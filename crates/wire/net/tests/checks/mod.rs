//! Claims about handshakes of SOCKS 5 that hold whatever a client sends. The property tests and the fuzz
//! target share them.

use egret_message::authority::Authority;
use egret_net::proxy::handshake::connect_head;
use egret_net::socks::{SOCKS_BYTES_MAX, SocksError, SocksHandshake, SocksReply, SocksRequest};

/// The outcome of a handshake.
type Outcome = Result<Option<SocksRequest>, SocksError>;

/// Checks a handshake. The first byte says whether the client is asked for a password, and the second one the
/// length of the pieces in which the others arrive. Returns `true` if it is accepted.
pub fn socks(input: &[u8]) -> bool {
    let [asks, piece, bytes @ ..] = input else { return false };
    let (asks, piece) = (asks % 2 == 1, usize::from(*piece).max(1));
    let whole = run(asks, piece, bytes);
    assert_eq!(run(asks, usize::MAX, bytes), whole);
    let (outcome, answers, end) = whole;
    assert!(answers.len() <= 4 && matches!(end.len(), 2 | 10));
    match outcome {
        Err(_) => false,
        Ok(None) => {
            assert!(bytes.len() < SOCKS_BYTES_MAX, "the handshake has no end");
            false
        }
        Ok(Some(request)) => {
            assert_eq!(request.credentials.is_some(), asks);
            assert_eq!((answers.len(), end.len()), (if asks { 4 } else { 2 }, 10));
            check_request(asks, bytes, &request);
            true
        }
    }
}

/// Runs a handshake whose client sends pieces of this length. Returns its outcome, the answers, and the bytes
/// that would end it.
fn run(asks: bool, piece: usize, bytes: &[u8]) -> (Outcome, Vec<u8>, Vec<u8>) {
    let (mut handshake, mut answers) = (SocksHandshake::new(asks), Vec::new());
    let mut received = 0;
    loop {
        let outcome = handshake.read(&bytes[..received]);
        answers.extend_from_slice(handshake.answers());
        if received == bytes.len() || !matches!(outcome, Ok(None)) {
            return (outcome, answers, handshake.end(SocksReply::Failed));
        }
        received = received.saturating_add(piece).min(bytes.len());
    }
}

fn check_request(asks: bool, bytes: &[u8], request: &SocksRequest) {
    assert!(request.len <= SOCKS_BYTES_MAX);
    let read = |bytes: &[u8]| SocksHandshake::new(asks).read(bytes);
    assert_eq!(read(&bytes[..request.len - 1]), Ok(None), "a byte is not needed");
    assert_eq!(read(&bytes[..request.len]).as_ref().map(Option::as_ref), Ok(Some(request)));
    let named = request.target.to_string();
    assert_eq!(Authority::parse(named.as_bytes(), None).as_ref(), Ok(&request.target));
    // Nothing of the client's bytes can begin another line of the head.
    let head = connect_head(&request.target, request.credentials.as_ref());
    let lines = head.strip_suffix("\r\n\r\n").unwrap_or_default().split("\r\n");
    assert!(lines.clone().all(|line| line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())));
    assert_eq!(lines.count(), if asks { 3 } else { 2 });
}
