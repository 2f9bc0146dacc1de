//! Parses the response of a token endpoint (RFC 6749 §5): a token or an error. Every value is validated, and
//! none is ever shown except the error codes that RFC 6749 lists.

use std::time::{Duration, SystemTime};

use egret_clock::{Timestamp, rfc3339};
use egret_items::words;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use super::wiped::WipedText;

/// Maximum size of a response, in bytes.
pub const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a token. It must fit into a request head with all other fields.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Bounds of a token's lifetime, whatever the response says. A token that expires at once would be fetched
/// for every call; a token that never expires is renewed from time to time.
const LIFE_MIN: Duration = Duration::from_secs(1);
pub(super) const LIFE_MAX: Duration = Duration::from_hours(30 * 24);

/// The error codes of RFC 6749 §5.2 and RFC 8707 §2.
const CODES: [&str; 7] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
];

/// A granted token.
pub(super) struct Granted {
    pub access_token: Zeroizing<String>,
    /// The lifetime, if the response contains one.
    pub life: Option<Duration>,
    /// The new refresh token, if the response contains one.
    pub refresh_token: Option<Zeroizing<String>>,
}

/// Reason why there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The endpoint was not reached, or did not respond in time; with the gateway's name for the error.
    #[error("the token endpoint has not responded ({0})")]
    Unreachable(&'static str),
    /// The endpoint fails, or is overloaded.
    #[error("the token endpoint responded with {0}")]
    Status(u16),
    /// The endpoint redirects the client. Redirects are not followed.
    #[error(
        "the token endpoint responded with {0}; redirects are not followed, to protect the secret: correct its URL"
    )]
    Redirected(u16),
    /// The endpoint refuses to grant a token; with its error code, if it is a known one.
    #[error("the token endpoint refused the request: {0}{code}", code = spaced(*.1))]
    Refused(u16, Option<&'static str>),
    /// The response is too long.
    #[error("the token endpoint's response exceeds {RESPONSE_BYTES_MAX} bytes")]
    TooLong,
    /// The response is truncated.
    #[error("the token endpoint's response was truncated")]
    CutShort,
    /// The response is not JSON, or not of the required shape.
    #[error("the token endpoint returned something other than JSON with a token")]
    Malformed,
    /// The response has no token, or one that is not valid in a header field.
    #[error("the token endpoint returned no token that is valid in a header field")]
    NoToken,
    /// The type of the token is unknown.
    #[error("the token endpoint granted a token that is not a bearer token")]
    TokenType,
    /// The lifetime is not a number.
    #[error("the token endpoint returned an `expires_in` that is not a number")]
    ExpiresIn,
    /// The time of expiry is not one.
    #[error("the token endpoint returned an `expires_at` that is not a time as in RFC 3339")]
    ExpiresAt,
    /// The file with the token of an identity cannot be read.
    #[error(
        "the file with the token of the identity cannot be read: correct `token_file`, or the environment variable \
         that names the file"
    )]
    IdentityFile,
    /// A service that gives keys was not reached, or did not respond in time; with the gateway's name for the
    /// error.
    #[error("{0} has not responded ({1})")]
    KeysUnreachable(KeyService, &'static str),
    /// A service that gives keys fails or refuses; with its error code, if it is a known one.
    #[error("{0} gave no keys: {1}{code}; {advice}", code = spaced(*.2), advice = .0.advice())]
    KeysRefused(KeyService, u16, Option<&'static str>),
    /// A service that gives keys has sent something else.
    #[error("{0} returned something other than keys: check its address")]
    NoKeys(KeyService),
    /// The keys are over already.
    #[error("{0} returned keys that have expired: check the clock of this machine")]
    KeysExpired(KeyService),
    /// The request, or its assertion, cannot be signed.
    #[error("the request to the token endpoint could not be signed")]
    Unsigned,
    /// The store of the cluster cannot be used, and without it no gateway may use the refresh token.
    #[error(
        "the store of the cluster cannot be used, and without it two gateways could use the same refresh token"
    )]
    StoreAway,
    /// Another gateway of the cluster should fetch the token, and has not.
    #[error("another gateway of the cluster is fetching the token, without success so far")]
    Elsewhere,
    /// A gateway of the cluster was stopped while it used the refresh token.
    #[error(
        "a gateway of the cluster was stopped while it used the refresh token, which the endpoint may have replaced: \
         configure a new refresh token"
    )]
    InDoubt,
}

/// The error code behind a status, if it is known.
fn spaced(code: Option<&str>) -> String {
    code.map(|code| format!(" {code}")).unwrap_or_default()
}

words! {
    /// A service that gives temporary keys of AWS.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum KeyService: Display {
        /// The security token service, which lets an identity assume a role.
        Sts => "STS",
        /// The instance metadata service of a machine.
        Instance => "the instance metadata service",
        /// The credentials endpoint of a container.
        Container => "the credentials endpoint of the container",
    }
}

impl KeyService {
    /// Returns what to check after a refusal.
    fn advice(self) -> &'static str {
        match self {
            Self::Sts => "check the role, and that its trust policy allows this identity",
            Self::Instance => {
                "attach a role to the machine (an instance profile), and allow its metadata service"
            }
            Self::Container => "check the role of the task or pod",
        }
    }
}

impl TokenError {
    /// Returns `true` if a retry is unlikely to succeed.
    pub(super) fn is_lasting(self) -> bool {
        !matches!(
            self,
            Self::Unreachable(_)
                | Self::KeysUnreachable(..)
                | Self::KeysRefused(_, 408 | 425 | 429 | 500.., _)
                // A role may be attached to the machine at any time.
                | Self::KeysRefused(KeyService::Instance, 404, _)
                | Self::KeysRefused(.., Some("Throttling" | "IDPCommunicationError"))
                | Self::Status(_)
                | Self::TooLong
                | Self::CutShort
                | Self::StoreAway
                | Self::Elsewhere
        )
    }
}

/// The members of a response that are used; all others are ignored. A duplicate member makes the response
/// malformed.
#[derive(Deserialize)]
struct Members {
    access_token: Option<WipedText>,
    token_type: Option<String>,
    expires_in: Option<Value>,
    refresh_token: Option<WipedText>,
}

/// The members of the token of an installation that are used.
#[derive(Deserialize)]
struct Installation {
    token: Option<WipedText>,
    expires_at: Option<String>,
}

/// The only member of an error response that is used.
#[derive(Deserialize)]
struct TokenRefusal {
    error: Option<String>,
}

/// Parses a response with this status and body.
pub(super) fn read(status: u16, body: &[u8]) -> Result<Granted, TokenError> {
    read_as(status, body, granted)
}

/// Parses the response to a request for the token of an installation of a GitHub App, which arrived at `now`.
pub(super) fn read_installation(status: u16, body: &[u8], now: Timestamp) -> Result<Granted, TokenError> {
    read_as(status, body, |body| {
        let Installation { token, expires_at } = object(body).ok_or(TokenError::Malformed)?;
        let access_token = token.map(|WipedText(token)| token).filter(|token| is_sendable(token));
        let access_token = access_token.ok_or(TokenError::NoToken)?;
        let expires_at = expires_at.as_deref().and_then(time).ok_or(TokenError::ExpiresAt)?;
        let life = expires_at.since(now).clamp(LIFE_MIN, LIFE_MAX);
        Ok(Granted { access_token, life: Some(life), refresh_token: None })
    })
}

/// Parses a response whose body is read by `granted` if the request has succeeded.
fn read_as(
    status: u16,
    body: &[u8],
    granted: impl FnOnce(&[u8]) -> Result<Granted, TokenError>,
) -> Result<Granted, TokenError> {
    match status {
        200..=299 => granted(body),
        300..=399 => Err(TokenError::Redirected(status)),
        408 | 425 | 429 => Err(TokenError::Status(status)),
        400..=499 => {
            let code = object::<TokenRefusal>(body).and_then(|refusal| refusal.error);
            let known = code.and_then(|code| CODES.into_iter().find(|known| *known == code));
            Err(TokenError::Refused(status, known))
        }
        _ => Err(TokenError::Status(status)),
    }
}

fn granted(body: &[u8]) -> Result<Granted, TokenError> {
    let members = object(body).ok_or(TokenError::Malformed)?;
    let Members { access_token, token_type, expires_in, refresh_token } = members;
    let WipedText(access_token) = access_token.ok_or(TokenError::NoToken)?;
    if !is_sendable(&access_token) {
        return Err(TokenError::NoToken);
    }
    if !token_type.is_some_and(|token_type| token_type.eq_ignore_ascii_case("bearer")) {
        return Err(TokenError::TokenType);
    }
    let life = expires_in.map(|value| life(&value)).transpose()?;
    // RFC 6749 appendix A.17. An invalid refresh token is ignored, and the old one stays in use.
    let is_refresh_token = |text: &str| {
        (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
    };
    let refresh_token = refresh_token.map(|WipedText(text)| text).filter(|text| is_refresh_token(text));
    Ok(Granted { access_token, life, refresh_token })
}

/// Parses a JSON object. Serde alone would also accept a list of the members in their order.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    // JSON is UTF-8 (RFC 8259 §8.1). The parser does not validate members that it skips.
    let text = std::str::from_utf8(body).ok().filter(|text| text.trim_start().starts_with('{'))?;
    serde_json::from_str(text).ok()
}

/// Returns `true` if a token is valid in a header field. All visible characters are accepted, because
/// providers use more than RFC 6750 §2.1 allows.
pub(super) fn is_sendable(token: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses a time as in RFC 3339.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    let since = rfc3339::read(text)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok().map(Timestamp::from_micros)
}

/// Parses a number of seconds. Some providers send it as a string.
fn life(value: &Value) -> Result<Duration, TokenError> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let seconds = seconds.filter(|seconds: &f64| !seconds.is_nan()).ok_or(TokenError::ExpiresIn)?;
    let seconds = seconds.clamp(LIFE_MIN.as_secs_f64(), LIFE_MAX.as_secs_f64());
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life_of(expires_in: &str) -> Result<Option<Duration>, TokenError> {
        let body = format!(r#"{{"access_token":"t","token_type":"Bearer"{expires_in}}}"#);
        read(200, body.as_bytes()).map(|granted| granted.life)
    }

    fn error_of(status: u16, body: &str) -> TokenError {
        read(status, body.as_bytes()).err().unwrap_or_else(|| panic!("{body} is taken for a token"))
    }

    #[test]
    fn a_token_is_taken_with_what_belongs_to_it() {
        let body =
            br#"{"access_token":"a.b-c_d~e+f/g|h==","token_type":"BEARER","expires_in":3600,"refresh_token":"r 2","scope":"x","more":[1]}"#;
        let granted = read(200, body).ok().unwrap();
        assert_eq!(*granted.access_token, "a.b-c_d~e+f/g|h==");
        assert_eq!(granted.life, Some(Duration::from_hours(1)));
        assert_eq!(granted.refresh_token.map(|token| token.to_string()), Some("r 2".to_owned()));
    }

    #[test]
    fn a_life_is_bounded_whatever_it_says() {
        let secs = |secs| Ok(Some(Duration::from_secs(secs)));
        for (expires_in, expected) in [
            ("", Ok(None)),
            (r#","expires_in":null"#, Ok(None)),
            (r#","expires_in":60"#, secs(60)),
            (r#","expires_in":"60""#, secs(60)),
            (r#","expires_in":60.0"#, secs(60)),
            (r#","expires_in":0"#, Ok(Some(LIFE_MIN))),
            (r#","expires_in":-5"#, Ok(Some(LIFE_MIN))),
            (r#","expires_in":1e300"#, Ok(Some(LIFE_MAX))),
            (r#","expires_in":"1e999""#, Ok(Some(LIFE_MAX))),
            (r#","expires_in":99999999999999999999"#, Ok(Some(LIFE_MAX))),
            (r#","expires_in":"nan""#, Err(TokenError::ExpiresIn)),
            (r#","expires_in":"soon""#, Err(TokenError::ExpiresIn)),
            (r#","expires_in":"""#, Err(TokenError::ExpiresIn)),
            (r#","expires_in":true"#, Err(TokenError::ExpiresIn)),
            (r#","expires_in":[60]"#, Err(TokenError::ExpiresIn)),
        ] {
            assert_eq!(life_of(expires_in), expected, "{expires_in}");
        }
    }

    #[test]
    fn a_response_without_a_token_has_its_own_error() {
        for body in [
            "",
            "<html>no</html>",
            "[]",
            r#"["t","bearer"]"#,
            "null",
            "\"t\"",
            "{",
            r#"{"access_token":5,"token_type":"bearer"}"#,
        ] {
            assert_eq!(error_of(200, body), TokenError::Malformed, "{body}");
        }
        let not_utf_8 = b"{\"access_token\":\"t\",\"token_type\":\"bearer\",\"x\":\"\xff\"}";
        assert_eq!(read(200, not_utf_8).err(), Some(TokenError::Malformed));
        let twice = r#"{"access_token":"a","access_token":"b","token_type":"bearer"}"#;
        assert_eq!(error_of(200, twice), TokenError::Malformed, "two parsers could see two tokens");
        for token in ["", " ", "a b", "a\\r\\nX-Smuggled: 1", "\\u0000", "\u{e4}"] {
            let body = format!(r#"{{"access_token":"{token}","token_type":"bearer"}}"#);
            assert_eq!(error_of(200, &body), TokenError::NoToken, "{token}");
        }
        let long =
            format!(r#"{{"access_token":"{}","token_type":"bearer"}}"#, "a".repeat(TOKEN_BYTES_MAX + 1));
        assert_eq!(error_of(200, &long), TokenError::NoToken);
        assert_eq!(error_of(200, r#"{"token_type":"bearer"}"#), TokenError::NoToken);
        for token_type in ["", r#","token_type":"mac""#, r#","token_type":null"#] {
            assert_eq!(
                error_of(200, &format!(r#"{{"access_token":"a"{token_type}}}"#)),
                TokenError::TokenType
            );
        }
    }

    #[test]
    fn a_refusal_shows_nothing_but_a_known_code() {
        let code = |body: &str| error_of(401, body);
        assert_eq!(
            code(r#"{"error":"invalid_client","error_description":"hunter2"}"#),
            TokenError::Refused(401, Some("invalid_client"))
        );
        for body in [r#"{"error":"hunter2"}"#, r#"{"error":5}"#, "hunter2", ""] {
            assert_eq!(code(body), TokenError::Refused(401, None), "{body}");
        }
        assert_eq!(error_of(302, ""), TokenError::Redirected(302));
        for status in [429, 500, 503, 101] {
            assert_eq!(error_of(status, "hunter2"), TokenError::Status(status));
        }
    }

    #[test]
    fn the_token_of_an_installation_ends_at_its_time() {
        let now = Timestamp::from_secs(1_800_000_000);
        let of = |body: &str| read_installation(201, body.as_bytes(), now);
        let granted =
            of(r#"{"token":"ghs_x","expires_at":"2027-01-15T09:00:00Z","permissions":{}}"#).ok().unwrap();
        assert_eq!((&**granted.access_token, granted.life), ("ghs_x", Some(Duration::from_hours(1))));
        let past = of(r#"{"token":"ghs_x","expires_at":"2016-07-11T22:14:10Z"}"#).ok().unwrap();
        assert_eq!(past.life, Some(LIFE_MIN));
        for (body, error) in [
            ("<html>", TokenError::Malformed),
            (r#"{"message":"hunter2"}"#, TokenError::NoToken),
            (r#"{"token":"a b","expires_at":"2027-01-15T09:00:00Z"}"#, TokenError::NoToken),
            (r#"{"token":"a"}"#, TokenError::ExpiresAt),
            (r#"{"token":"a","expires_at":"soon"}"#, TokenError::ExpiresAt),
        ] {
            assert_eq!(of(body).err(), Some(error), "{body}");
        }
        let refused = read_installation(404, br#"{"message":"Not Found"}"#, now);
        assert_eq!(refused.err(), Some(TokenError::Refused(404, None)));
    }

    #[test]
    fn a_service_that_gives_no_keys_is_named_with_advice() {
        use KeyService::{Container, Instance, Sts};
        for (error, says, is_lasting) in [
            (
                TokenError::KeysRefused(Sts, 403, Some("AccessDenied")),
                "STS gave no keys: 403 AccessDenied; check",
                true,
            ),
            (TokenError::KeysRefused(Sts, 400, Some("Throttling")), "400 Throttling", false),
            (TokenError::KeysRefused(Instance, 404, None), "404; attach a role to the machine", false),
            (TokenError::KeysRefused(Container, 404, None), "404; check the role of the task", true),
            (TokenError::KeysRefused(Sts, 408, None), "408; check the role", false),
            (TokenError::KeysRefused(Instance, 425, None), "425; attach a role", false),
            (TokenError::KeysRefused(Container, 503, None), "503; check the role of the task", false),
            (TokenError::KeysUnreachable(Instance, "tls"), "metadata service has not responded (tls)", false),
        ] {
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.is_lasting(), is_lasting, "{error}");
        }
    }

    #[test]
    fn a_refresh_token_that_cannot_be_one_is_left_alone() {
        for refresh_token in ["", "a\\nb", "\u{e4}"] {
            let body =
                format!(r#"{{"access_token":"t","token_type":"bearer","refresh_token":"{refresh_token}"}}"#);
            assert!(read(200, body.as_bytes()).ok().unwrap().refresh_token.is_none(), "{refresh_token}");
        }
    }
}
