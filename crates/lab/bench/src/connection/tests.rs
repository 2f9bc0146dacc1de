//! Tests that a response is read alike however its bytes arrive.

use proptest::prelude::*;

use super::*;
use crate::fixture::compiled;

/// Passes the pieces to a new response, and returns the result of the last one and the response.
fn read(pieces: &[&[u8]], plan: &Plan) -> (Result<bool, Fault>, ResponseProgress) {
    let mut reader = ResponseReader::default();
    let mut response = ResponseProgress::new();
    let mut result = Ok(false);
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        reader.buffer[..piece.len()].copy_from_slice(piece);
        result = response.process(&mut reader, piece.len(), &plan.requests[0], plan);
        if result != Ok(false) {
            break;
        }
    }
    (result, response)
}

const RESPONSES: [&str; 5] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 204 No Content\r\nServer: a b\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
];

proptest! {
    #[test]
    fn splits_do_not_change_the_response(which in 0..RESPONSES.len(), cuts in prop::collection::vec(0_usize..120, 0..6)) {
        let run = compiled(|it| (it.keep_alive, it.check_body) = (true, Some("hello".to_owned())));
        let bytes = RESPONSES[which].as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let (whole, expected) = read(&[bytes], &run.plan);
        let (result, response) = read(&pieces, &run.plan);
        prop_assert_eq!(whole, Ok(true));
        prop_assert_eq!(result, Ok(true));
        prop_assert_eq!(response.status, expected.status);
        prop_assert_eq!((response.bytes, response.bytes_body), (expected.bytes, expected.bytes_body));
        prop_assert_eq!((response.passes, response.persistent), (expected.passes, expected.persistent));
        prop_assert_eq!(&response.body, &expected.body);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_are_counted(bytes: Vec<u8>) {
        let run = compiled(|_| {});
        let (result, response) = read(&[&bytes], &run.plan);
        prop_assert_eq!(response.bytes, bytes.len() as u64);
        if result == Ok(true) {
            prop_assert!(response.status.is_some());
        }
    }
}

#[test]
fn a_connection_is_reused_only_if_the_response_ends_with_its_bytes() {
    let run = compiled(|it| it.keep_alive = true);
    let persists = |text: &str| read(&[text.as_bytes()], &run.plan).1.persistent;
    assert!(persists("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    assert!(
        !persists("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n"),
        "unrequested bytes"
    );
    assert!(!persists("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"));
    assert!(!persists("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    let closing = compiled(|_| {});
    assert!(!read(&[b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], &closing.plan).1.persistent);
}

#[test]
fn the_end_of_the_connection_completes_only_a_body_without_a_length() {
    let run = compiled(|_| {});
    let end = |text: &str| read(&[text.as_bytes()], &run.plan).1.end();
    assert!(matches!(end("HTTP/1.0 200 OK\r\n\r\nbody"), ReceiveProgress::Whole { kept: false, .. }));
    for text in ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody", "HTTP/1.1 200 OK\r\n", ""] {
        assert_eq!(end(text), ReceiveProgress::Failed(Fault::Closed, ErrorKind::UnexpectedEof), "{text}");
    }
}

#[test]
fn too_many_informational_responses_are_refused() {
    let run = compiled(|_| {});
    let hints = |count: usize| "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count);
    let last = "HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(read(&[(hints(16) + last).as_bytes()], &run.plan).0, Ok(true));
    assert_eq!(read(&[(hints(17) + last).as_bytes()], &run.plan).0, Err(Fault::Protocol));
}

#[test]
fn a_response_without_events_fails_where_they_are_measured() {
    let run = compiled(|it| it.events = true);
    for (body, is_counted, passes, events) in [
        (": sent 7\ndata: a\n\n: sent 18446744073709551615\ndata: b\n\n", true, true, 2),
        (": sent 7\ndata: a\n\n", false, true, 0),
        ("data: a\n\n", true, false, 0),
        ("", true, false, 0),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut reader = ResponseReader::default();
        let mut response = ResponseProgress { is_counted, ..ResponseProgress::new() };
        reader.buffer[..text.len()].copy_from_slice(text.as_bytes());
        let whole = response.process(&mut reader, text.len(), &run.plan.requests[0], &run.plan);
        assert_eq!((whole, response.passes), (Ok(true), passes), "{body}");
        assert_eq!(reader.event_delays.count(), events, "{body}");
        assert_eq!(reader.event_delays.min(), 0, "a moment in the future is now: {body}");
    }
}
