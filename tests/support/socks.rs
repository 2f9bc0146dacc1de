//! The bytes of a client of SOCKS 5 (RFC 1928, RFC 1929).

use crate::http::Client;

/// The length of a reply with an IPv4 address.
const REPLY_BYTES: usize = 10;

/// Returns a greeting that offers no authentication, and the request for a tunnel to a name.
pub fn handshake(name: &str, port: u16) -> Vec<u8> {
    [&[5, 1, 0][..], &request(name, port)].concat()
}

/// Returns the request for a tunnel to a name.
pub fn request(name: &str, port: u16) -> Vec<u8> {
    let len = u8::try_from(name.len()).unwrap();
    [&[5, 1, 0, 3, len][..], name.as_bytes(), &port.to_be_bytes()].concat()
}

/// Returns the handshake that names an authority, with a user name and a password.
pub fn with_password(username: &str, password: &str, name: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 2, 0, 2, 1];
    for text in [username, password] {
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend(text.as_bytes());
    }
    bytes.extend(request(name, port));
    bytes
}

/// Sends a whole handshake, and returns the code of the reply.
pub fn code(client: &mut Client, handshake: impl AsRef<[u8]>) -> u8 {
    let answers = if handshake.as_ref()[1] == 1 { &[5, 0][..] } else { &[5, 2, 1, 0] };
    client.send(handshake);
    assert_eq!(client.bytes(answers.len()), answers);
    let reply = client.bytes(REPLY_BYTES);
    assert_eq!((reply[0], &reply[2..]), (5, &[0, 1, 0, 0, 0, 0, 0, 0][..]), "{reply:?}");
    reply[1]
}
