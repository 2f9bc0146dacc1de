//! The invariants of JSON Web Tokens, for the fuzzer and for tests.

use std::sync::Arc;

use egret_clients::{Clients, ClientsConfig, Issuer, JwtMemory};
use egret_clock::Timestamp;
use egret_http1::{HeadLimits, Progress, RequestHead};
use serde_json::json;

/// The issuer's keys, and all tokens that were ever signed with them and are valid.
const KEYS: &[u8] = include_bytes!("../../../../../fuzz/corpus/jwt/good-keys");
const VALID: [&[u8]; 4] = [
    include_bytes!("../../../../../fuzz/corpus/jwt/good-eddsa"),
    include_bytes!("../../../../../fuzz/corpus/jwt/good-es256"),
    include_bytes!("../../../../../fuzz/corpus/jwt/good-rs256"),
    include_bytes!("../../../../../fuzz/corpus/jwt/good-ps256"),
];

/// The clients of a listener, and what a worker remembers of them.
pub struct Subject {
    clients: Clients,
    memory: JwtMemory,
}

impl Default for Subject {
    fn default() -> Self {
        Self { clients: clients(KEYS), memory: JwtMemory::default() }
    }
}

fn issuer(clients: &Clients) -> &Arc<Issuer> {
    clients.issuer().unwrap()
}

fn clients(keys: &[u8]) -> Clients {
    let jwt = json!({ "issuer": "https://id.example", "audience": "egret" });
    let config: ClientsConfig = serde_json::from_value(json!({ "jwt": jwt })).unwrap();
    let clients = Clients::compile(&config, "c", None, false, &[]).unwrap();
    let _ = issuer(&clients).put_keys(keys);
    clients
}

/// Takes the bytes for a document of the issuer if they begin with a brace, otherwise for a client's token.
/// Returns `true` if they are accepted.
pub fn jwt(subject: &mut Subject, bytes: &[u8]) -> bool {
    if bytes.first() == Some(&b'{') { document(bytes) } else { token(subject, bytes) }
}

/// A valid token is accepted, and nothing else.
fn token(subject: &mut Subject, token: &[u8]) -> bool {
    if !token.iter().all(u8::is_ascii_graphic) {
        // Other bytes could be more fields.
        return false;
    }
    let head = [b"GET / HTTP/1.1\r\nHost: h\r\nx-egret-token: ", token, b"\r\n\r\n"].concat();
    let mut request = RequestHead::new();
    if request.parse(&head, &HeadLimits::default()) != Ok(Progress::Complete) {
        return false;
    }
    let now = Timestamp::from_secs(1_800_000_000);
    let judged = subject.clients.of_request(&request, &head, &mut subject.memory, now);
    let is_accepted = judged.unwrap().is_ok();
    assert_eq!(is_accepted, VALID.contains(&token));
    is_accepted
}

/// Keys are read the same each time, and the place of keys is one that nobody on the way can change.
fn document(bytes: &[u8]) -> bool {
    let clients = clients(KEYS);
    let issuer = issuer(&clients);
    if let Ok(url) = issuer.key_url(bytes) {
        let is_local = matches!(url.host_str(), Some("localhost" | "[::1]"))
            || url.host_str().is_some_and(|host| host.starts_with("127."));
        assert!(url.scheme() == "https" || is_local, "{url}");
        return true;
    }
    let put = issuer.put_keys(bytes);
    assert_eq!(put, issuer.put_keys(bytes));
    put.is_ok()
}
