//! Claims about the fields of gRPC that hold whatever a peer sends. The property tests and the fuzz target
//! share them.

use egret_message::grpc::{
    GrpcMethod, GrpcStatus, decode_message, encode_message, is_grpc, read_timeout, write_timeout,
};

/// Checks six values that are in lines: a media type, a path, a timeout, a status, a message, and the lines
/// of trailers.
pub fn grpc_values(bytes: &[u8]) {
    let mut lines = bytes.splitn(6, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let (media_type, path, timeout, status, message, trailers) =
        (next(), next(), next(), next(), next(), next());
    check_media_type(media_type);
    check_path(path);
    check_timeout(timeout);
    let code = std::str::from_utf8(status).ok().filter(|text| text.len() < 3 && !text.starts_with('+'));
    let code = code.filter(|text| *text == "0" || !text.starts_with('0')).and_then(|text| text.parse().ok());
    assert_eq!(GrpcStatus::read(status), code.and_then(GrpcStatus::of_code).unwrap_or(GrpcStatus::Unknown));
    let text = decode_message(message);
    assert_eq!(decode_message(encode_message(&text).as_bytes()), text);
    let has_status = trailers.to_ascii_lowercase().windows(12).any(|window| window == b"grpc-status:");
    assert!(has_status || GrpcStatus::in_trailers(trailers).is_none());
}

fn check_media_type(media_type: &[u8]) {
    let lower = media_type.to_ascii_lowercase();
    let essence = lower.split(|byte| b"; \t".contains(byte)).next().unwrap_or_default();
    let expected = essence == b"application/grpc" || essence.starts_with(b"application/grpc+");
    assert_eq!(is_grpc(media_type), expected);
}

fn check_path(path: &[u8]) {
    if let Some(GrpcMethod { service, method }) = GrpcMethod::of_path(path) {
        assert_eq!(format!("/{service}/{method}").as_bytes(), path);
        assert!(!method.contains('/'));
    }
}

fn check_timeout(value: &[u8]) {
    if let Some(timeout) = read_timeout(value) {
        let written = read_timeout(write_timeout(timeout).as_bytes());
        assert!(written.is_some_and(|written| timeout.is_zero() || written <= timeout));
    }
}
