//! Proves the identity of a cloud: sends the requests that its keys or its token are fetched by.

use egret_accounts::CloudIdentity;
use egret_accounts::token::{Fetch, RESPONSE_BYTES_MAX, TokenEndpoint, TokenError, TokenResponse};
use egret_clock::{Clock, Moment, Timestamp};
use egret_export::fetch::{ServerClient, ServerRequest, ServerResponse};
use egret_net::config::ProxyConfig;
use tracing::Dispatch;
use url::Url;
use zeroize::Zeroizing;

use super::error::ManagerError;

/// The fields that the client adds to each request itself.
const OWN_FIELDS: [&str; 3] = ["host", "user-agent", "content-length"];

/// The time, as signatures and tokens have it.
pub fn now() -> Timestamp {
    Clock::new().timestamp(Moment::now())
}

/// Fetches what proves an identity. Servers are called through `proxy`, apart from those of this machine.
pub async fn prove(identity: &CloudIdentity, proxy: Option<&ProxyConfig>) -> Result<(), ManagerError> {
    let mut next = identity.fetch(now());
    while let Some(fetch) = next {
        let ServerResponse { status, body } = send(&fetch, proxy).await?;
        let response = if body.len() > RESPONSE_BYTES_MAX {
            Err(TokenError::TooLong)
        } else {
            Ok(TokenResponse { status, retry_after: None, body: &body })
        };
        // The caller logs the error, once: an account is not concerned.
        next = tracing::dispatcher::with_default(&Dispatch::none(), || fetch.end(now(), response));
    }
    identity.error(now()).map_or(Ok(()), |error| Err(ManagerError::Unproven(error)))
}

async fn send(fetch: &Fetch, proxy: Option<&ProxyConfig>) -> Result<ServerResponse, ManagerError> {
    let message = fetch.request().map_err(ManagerError::Unproven)?;
    let malformed = || ManagerError::Unproven(TokenError::Unsigned);
    let TokenEndpoint { tls, authority, .. } = fetch.endpoint();
    let scheme = if *tls { "https" } else { "http" };
    let url = Url::parse(&format!("{scheme}://{authority}")).map_err(|_| malformed())?;
    let mut client = ServerClient::new(&url, None, proxy.filter(|_| !fetch.is_of_machine()))?;
    let request = parts(&message).ok_or_else(malformed)?;
    let MessageParts { method, target, fields, body } = request;
    let body = Zeroizing::new(body.to_vec());
    let sent = client.send(ServerRequest { method, target, fields: &fields, body });
    let ended = tokio::time::timeout(fetch.timeout(), sent).await;
    Ok(ended.map_err(|_| ManagerError::Unproven(TokenError::Unreachable("timeout")))??)
}

/// The parts of a request that accounts have written.
#[derive(Debug, PartialEq, Eq)]
struct MessageParts<'a> {
    method: &'a str,
    target: &'a str,
    fields: Vec<(&'a str, &'a str)>,
    body: &'a [u8],
}

/// Splits a request, which is always well-formed.
fn parts(message: &[u8]) -> Option<MessageParts<'_>> {
    const END: &[u8] = b"\r\n\r\n";
    let end = message.windows(END.len()).position(|window| window == END)?;
    let (head, body) = (str::from_utf8(&message[..end]).ok()?, &message[end + END.len()..]);
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let fields = lines.filter_map(|line| line.split_once(": "));
    let is_own = |name: &str| OWN_FIELDS.iter().any(|own| name.eq_ignore_ascii_case(own));
    let fields = fields.filter(|(name, _)| !is_own(name)).collect();
    Some(MessageParts { method, target, fields, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_split_without_the_fields_of_the_client() {
        let message = b"POST /token?a HTTP/1.1\r\nHost: id.example\r\nUser-Agent: egret\r\nA: b: c\r\nContent-Length: 5\r\n\r\nx\r\n\r\n";
        let expected = MessageParts {
            method: "POST",
            target: "/token?a",
            fields: vec![("A", "b: c")],
            body: b"x\r\n\r\n",
        };
        assert_eq!(parts(message), Some(expected));
        assert_eq!(parts(b"GET / HTTP/1.1\r\n"), None);
    }
}
