//! The proof that a request carries: a token in one of two fields.

use std::borrow::Cow;

use data_encoding::BASE64;
use egret_http1::{KnownField, RequestHead};
use zeroize::Zeroize;

use crate::config::TOKEN_BYTES_MIN;
use crate::jwt::JWT_BYTES_MAX;
use crate::unproven::Unproven;

/// The field for a token alone, besides `Proxy-Authorization`. It is never forwarded.
pub const TOKEN_FIELD: &str = "x-egret-token";

/// Maximum length of a name and a token, of which a JSON Web Token is the longest.
const GIVEN_BYTES_MAX: usize = JWT_BYTES_MAX + 256;

/// Maximum length of the credentials of `Basic`, encoded: a third more.
const BASIC_BYTES_MAX: usize = GIVEN_BYTES_MAX / 3 * 4 + 4;

/// A token, and the name that the client gave with it. Overwritten on drop if it was decoded.
pub(crate) struct Given<'a> {
    bytes: Cow<'a, [u8]>,
    /// Length of the name that precedes the token, if there is one. A colon stands between them.
    name_len: Option<usize>,
}

impl Given<'_> {
    /// Returns the token.
    pub fn token(&self) -> &[u8] {
        let start = self.name_len.map_or(0, |len| len + 1);
        self.bytes.get(start..).unwrap_or_default()
    }

    /// Returns the name that was given with the token, unless it is empty.
    pub fn name(&self) -> Option<&[u8]> {
        self.bytes.get(..self.name_len?).filter(|name| !name.is_empty())
    }

    /// Returns the name, unless it is empty, and the token, if that is a JSON Web Token: only the name can
    /// have colons then, as those of Kubernetes do.
    pub fn jwt(&self) -> (Option<&[u8]>, &[u8]) {
        let colon = self.name_len.and_then(|_| self.bytes.iter().rposition(|byte| *byte == b':'));
        let (name, token) = colon
            .map_or((&[][..], &self.bytes[..]), |colon| (&self.bytes[..colon], &self.bytes[colon + 1..]));
        (Some(name).filter(|name| !name.is_empty()), token)
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        if let Cow::Owned(bytes) = &mut self.bytes {
            bytes.zeroize();
        }
    }
}

/// The contents of the two fields of a request.
#[derive(Default)]
pub(crate) struct AllGiven<'a> {
    /// From `Proxy-Authorization`.
    pub authorization: Option<Given<'a>>,
    /// From [`TOKEN_FIELD`].
    pub own_field: Option<Given<'a>>,
}

impl<'a> AllGiven<'a> {
    /// Reads the fields of a request. A field that is there twice proves nothing: two readers could choose a
    /// different one each.
    pub fn of(request: &RequestHead, bytes: &'a [u8]) -> Result<Self, Unproven> {
        let mut all = Self::default();
        for field in &request.fields {
            let value = field.value.of(bytes);
            let (slot, given) = match field.known {
                KnownField::ProxyAuthorization => (&mut all.authorization, authorization(value)?),
                KnownField::Other if is_token_field(field.name.of(bytes)) => {
                    (&mut all.own_field, token(Cow::Borrowed(value), None)?)
                }
                _ => continue,
            };
            if slot.replace(given).is_some() {
                return Err(Unproven::Ambiguous);
            }
        }
        Ok(all)
    }
}

/// Returns `true` if `name` is [`TOKEN_FIELD`], in any case.
pub(crate) fn is_token_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(TOKEN_FIELD.as_bytes())
}

/// Reads a value of `Proxy-Authorization` (RFC 9110 §11.7.2): `Bearer` (RFC 6750 §2.1) or `Basic` (RFC 7617).
fn authorization(value: &[u8]) -> Result<Given<'_>, Unproven> {
    let space = value.iter().position(|byte| *byte == b' ').ok_or(Unproven::Wrong)?;
    let (scheme, credentials) = (&value[..space], value[space..].trim_ascii_start());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return token(Cow::Borrowed(credentials), None);
    }
    if !scheme.eq_ignore_ascii_case(b"basic") || credentials.len() > BASIC_BYTES_MAX {
        return Err(Unproven::Wrong);
    }
    let decoded = BASE64.decode(credentials).map_err(|_| Unproven::Wrong)?;
    let colon = decoded.iter().position(|byte| *byte == b':');
    // Without a colon there is no password, and the whole of it is a name.
    token(Cow::Owned(decoded), Some(colon.ok_or(Unproven::Wrong)?))
}

fn token(bytes: Cow<'_, [u8]>, name_len: Option<usize>) -> Result<Given<'_>, Unproven> {
    let given = Given { bytes, name_len };
    let token = given.token();
    let is_token =
        (TOKEN_BYTES_MIN..=GIVEN_BYTES_MAX).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
    if is_token { Ok(given) } else { Err(Unproven::Wrong) }
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Progress};

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    /// Returns the token and the name in each of the two fields.
    type Read = [Option<(String, Option<String>)>; 2];

    fn read(fields: &str) -> Result<Read, Unproven> {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
        let mut request = RequestHead::new();
        assert_eq!(request.parse(&head, &HeadLimits::default()), Ok(Progress::Complete), "{fields}");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let shown = |given: Given<'_>| (text(given.token()), given.name().map(text));
        let AllGiven { authorization, own_field } = AllGiven::of(&request, &head)?;
        Ok([authorization.map(shown), own_field.map(shown)])
    }

    fn basic(text: &str) -> String {
        format!("Proxy-Authorization: Basic {}\r\n", BASE64.encode(text.as_bytes()))
    }

    #[test]
    fn a_token_is_read_from_either_field() {
        let anonymous = Some((TOKEN.to_owned(), None));
        let named = Some((TOKEN.to_owned(), Some("checkout".to_owned())));
        for (fields, expected) in [
            (String::new(), [None, None]),
            (format!("Authorization: Bearer {TOKEN}\r\n"), [None, None]),
            (format!("x-egret-token: {TOKEN}\r\n"), [None, anonymous.clone()]),
            (format!("X-Egret-TOKEN:{TOKEN} \r\n"), [None, anonymous.clone()]),
            (format!("proxy-authorization: bearer  {TOKEN}\r\n"), [anonymous.clone(), None]),
            (basic(&format!("checkout:{TOKEN}")), [named, None]),
            (basic(&format!(":{TOKEN}")), [anonymous, None]),
        ] {
            assert_eq!(read(&fields).ok(), Some(expected), "{fields}");
        }
    }

    #[test]
    fn a_name_beside_a_json_web_token_may_have_colons() {
        for (fields, expected) in [
            (
                basic("system:serviceaccount:a:b:e30.e30.AAAAAAAA"),
                (Some("system:serviceaccount:a:b"), "e30.e30.AAAAAAAA"),
            ),
            (basic(":e30.e30.AAAAAAAA"), (None, "e30.e30.AAAAAAAA")),
            (
                "Proxy-Authorization: Bearer a:b:e30.e30.AAAAAAAA\r\n".to_owned(),
                (None, "a:b:e30.e30.AAAAAAAA"),
            ),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
            let mut request = RequestHead::new();
            assert_eq!(request.parse(&head, &HeadLimits::default()), Ok(Progress::Complete), "{fields}");
            let given = AllGiven::of(&request, &head).ok().and_then(|all| all.authorization).unwrap();
            let (name, token) = given.jwt();
            assert_eq!((name, token), (expected.0.map(str::as_bytes), expected.1.as_bytes()), "{fields}");
        }
    }

    #[test]
    fn a_repeated_or_malformed_field_proves_no_client() {
        let twice = format!("x-egret-token: {TOKEN}\r\n").repeat(2);
        assert_eq!(read(&twice).err(), Some(Unproven::Ambiguous));
        assert_eq!(read(&basic(&format!(":{TOKEN}")).repeat(2)).err(), Some(Unproven::Ambiguous));
        let encoded = BASE64.encode(format!("checkout:{TOKEN}").as_bytes());
        for value in [
            String::new(),
            "Bearer".to_owned(),
            "Bearer short".to_owned(),
            format!("Bearer {TOKEN} {TOKEN}"),
            format!("Bearer {TOKEN}, Basic {encoded}"),
            format!("Bearer\t{TOKEN}"),
            format!("Digest {TOKEN}"),
            TOKEN.to_owned(),
            format!("Basic {encoded}="),
            format!("Basic {}", encoded.trim_end_matches('=')),
            format!("Basic {encoded}\u{e9}"),
            format!("Basic {}", BASE64.encode(TOKEN.as_bytes())),
            format!("Basic {}", BASE64.encode(format!("{TOKEN}:").as_bytes())),
            format!("Basic {}", BASE64.encode(&[b'x'; 2048])),
            format!("Basic {}", BASE64.encode(format!(":{}", "x".repeat(GIVEN_BYTES_MAX + 1)).as_bytes())),
            format!("Bearer {}", "x".repeat(GIVEN_BYTES_MAX + 1)),
        ] {
            let found = read(&format!("Proxy-Authorization: {value}\r\n"));
            assert_eq!(found.err(), Some(Unproven::Wrong), "{value}");
        }
    }
}
