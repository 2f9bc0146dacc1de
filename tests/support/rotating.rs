//! An authorization server that replaces each refresh token, and notices one that comes back.

use std::sync::Arc;

use crate::provider::{Provider, Request};
use crate::wait::Watched;

/// The server. It grants `access-N-...` and `refresh-N-...`, and ends the grant when a refresh token is used
/// twice.
#[derive(Debug)]
pub struct RotatingServer {
    provider: Provider,
    grant: Arc<Watched<Grant>>,
}

/// The state of the grant.
#[derive(Debug, Default)]
pub struct Grant {
    /// Number of tokens granted so far.
    pub granted: usize,
    /// The refresh tokens that came back.
    pub reused: Vec<String>,
    /// `true` if responses are held back.
    pub is_held: bool,
    /// Number of responses held back.
    pub held: usize,
    /// Lifetime of the access tokens, in seconds.
    pub life_s: u64,
}

impl RotatingServer {
    /// The refresh token to begin with.
    pub const FIRST: &str = "refresh-0-of-the-grant";

    /// Starts it. Access tokens live for `life_s` seconds.
    pub fn start(life_s: u64) -> Self {
        let grant = Arc::new(Watched::<Grant>::default());
        grant.change(|grant| grant.life_s = life_s);
        let state = Arc::clone(&grant);
        let provider = Provider::with_responses(move |request| respond(&state, request));
        Self { provider, grant }
    }

    /// The URL of its token endpoint.
    pub fn token_url(&self) -> String {
        format!("{}/token", self.provider.url())
    }

    /// The state of the grant.
    pub fn grant(&self) -> &Watched<Grant> {
        &self.grant
    }

    /// Number of tokens granted so far. None of the refresh tokens was used twice.
    pub fn granted(&self) -> usize {
        self.grant.read(|grant| {
            assert_eq!(grant.reused, Vec::<String>::new(), "the grant is revoked");
            grant.granted
        })
    }
}

fn respond(state: &Watched<Grant>, request: &Request) -> Vec<u8> {
    let body = String::from_utf8_lossy(&request.body).into_owned();
    let mut parameters = body.split('&');
    let used = parameters.find_map(|parameter| parameter.strip_prefix("refresh_token="));
    let used = used.unwrap_or_default().to_owned();
    let (mut number, mut life_s) = (None, 0);
    state.change(|grant| {
        if used == format!("refresh-{}-of-the-grant", grant.granted) && grant.reused.is_empty() {
            grant.granted += 1;
            (number, life_s) = (Some(grant.granted), grant.life_s);
            grant.held += usize::from(grant.is_held);
        } else {
            grant.reused.push(used);
        }
    });
    let Some(number) = number else {
        return response("400 Bad Request", r#"{"error":"invalid_grant"}"#);
    };
    state.until("the response is sent", |grant| (!grant.is_held).then_some(()));
    let body = format!(
        r#"{{"access_token":"access-{number}-of-the-grant","token_type":"bearer","expires_in":{life_s},"refresh_token":"refresh-{number}-of-the-grant"}}"#
    );
    response("200 OK", &body)
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
