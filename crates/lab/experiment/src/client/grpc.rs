//! The request of a unary call of gRPC: a message of `egret.provider.Echo`, and the fields around it.

/// The type of gRPC's messages.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

/// The field by which a client says that it reads trailers, which servers of gRPC require.
pub(crate) const TRAILERS_FIELD: &str = "te: trailers";

/// The tag of the payload: field 1, of bytes.
const PAYLOAD: u8 = 1 << 3 | 2;

/// Returns the body of a call whose payload has this many letters.
pub(crate) fn body(payload_bytes: usize) -> Vec<u8> {
    let mut message = Vec::with_capacity(payload_bytes + 16);
    if payload_bytes > 0 {
        message.push(PAYLOAD);
        let mut length = payload_bytes;
        while length > 0x7f {
            message.push(length.to_le_bytes()[0] | 0x80);
            length >>= 7;
        }
        message.push(length.to_le_bytes()[0]);
        message.resize(message.len() + payload_bytes, b'x');
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], &message].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_message_with_its_prefix() {
        assert_eq!(body(0), [0, 0, 0, 0, 0]);
        assert_eq!(body(2), [0, 0, 0, 0, 4, 0x0a, 2, b'x', b'x']);
        let long = body(300);
        assert_eq!((long.len(), &long[..8]), (308, &[0, 0, 0, 1, 0x2f, 0x0a, 0xac, 2][..]));
    }
}
