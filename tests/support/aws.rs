//! Stand-ins of what AWS gives temporary keys by: the metadata service of a machine, and STS.

use serde_json::json;

use crate::provider::Provider;

/// An end of keys that no test reaches.
pub const LATER: &str = "2099-01-01T00:00:00Z";

/// A role.
pub const ROLE: &str = "arn:aws:iam::123456789012:role/reader";

/// Path of the name of a machine's role, and of its keys.
pub const ROLES: &str = "/latest/meta-data/iam/security-credentials/";

/// Returns a response with this status and body.
pub fn response(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Returns keys in JSON. The secret and the token are named after their id.
pub fn keys(id: &str, end: &str) -> String {
    json!({
        "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": id, "SecretAccessKey": format!("secret-of-{id}"),
        "Token": format!("token-of-{id}"), "Expiration": end,
    })
    .to_string()
}

/// Returns the response of STS to an action, with this key.
pub fn assumed(action: &str, id: &str, secret: &str) -> Vec<u8> {
    let xml = format!(
        "<?xml version=\"1.0\"?>\n<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <{action}Result>\n    \
         <AssumedRoleUser><Arn>{ROLE}/egret</Arn></AssumedRoleUser>\n    <Credentials>\n      \
         <AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\n      \
         <SessionToken>token-of-{id}</SessionToken><Expiration>{LATER}</Expiration>\n    </Credentials>\n  \
         </{action}Result>\n</{action}Response>\n"
    );
    response("200 OK", &xml)
}

/// Starts the metadata service of a machine, whose keys `given` returns as a whole response.
pub fn machine(given: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Provider {
    Provider::with_responses(move |request| {
        if request.line == "PUT /latest/api/token HTTP/1.1" {
            return response("200 OK", "the-session");
        }
        match request.target().strip_prefix(ROLES) {
            _ if request.values("x-aws-ec2-metadata-token") != ["the-session"] => {
                response("401 Unauthorized", "")
            }
            Some("") => response("200 OK", "reader"),
            Some("reader") => given(),
            _ => response("404 Not Found", ""),
        }
    })
}
