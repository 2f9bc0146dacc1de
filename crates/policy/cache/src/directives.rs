//! The directives of `Cache-Control` in requests (RFC 9111 §5.2.1) and responses (§5.2.2, RFC 5861, RFC
//! 8246), and of the targeted fields that replace it (RFC 9213).
//!
//! Contradictory messages are read conservatively (RFC 9111 §4.2.1): the strictest restriction applies, two
//! different lifetimes count as 0, and a malformed permission is ignored.

use egret_http1::{is_token, is_white_space, token_len, trim};

use super::structured::{Value, dictionary};

/// Maximum number of seconds; larger values are reduced to it (RFC 9111 §1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;
/// Maximum number of directives in one message; with more, it is malformed.
const DIRECTIVES_MAX: usize = 64;
/// Maximum number of names in one directive; with more, it applies to all fields.
const NAMES_MAX: usize = 32;

/// The cache directives of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent directive")]
pub struct RequestDirectives {
    /// Maximum age of the response, in seconds.
    pub max_age: Option<u64>,
    /// Minimum remaining freshness of the response, in seconds.
    pub min_fresh: Option<u64>,
    /// Maximum staleness of the response, in seconds.
    pub max_stale: Option<u64>,
    /// Maximum staleness of the response if the provider fails, in seconds (RFC 5861 §4).
    pub stale_if_error: Option<u64>,
    /// The response must have been validated for this request.
    pub no_cache: bool,
    /// Neither the request nor the response may be stored.
    pub no_store: bool,
    /// Only a stored response is wanted; the provider must not be called.
    pub only_if_cached: bool,
    /// The body must not be transformed.
    pub no_transform: bool,
}

/// The cache directives of a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent directive")]
pub struct ResponseDirectives {
    /// Freshness lifetime, in seconds.
    pub max_age: Option<u64>,
    /// Freshness lifetime in shared caches, in seconds.
    pub s_maxage: Option<u64>,
    /// Time for which it may be served stale during revalidation, in seconds (RFC 5861 §3).
    pub stale_while_revalidate: Option<u64>,
    /// Time for which it may be served stale if the provider fails, in seconds (RFC 5861 §4).
    pub stale_if_error: Option<u64>,
    /// The parts that must not be reused without validation.
    pub no_cache: Extent,
    /// The parts that are for a single user.
    pub private: Extent,
    /// The response must not be stored.
    pub no_store: bool,
    /// The response may be stored where a shared cache otherwise must not.
    pub public: bool,
    /// The response must not be served stale.
    pub must_revalidate: bool,
    /// The response must not be served stale by shared caches.
    pub proxy_revalidate: bool,
    /// The response may be stored only by a cache that implements the caching rules of its status code.
    pub must_understand: bool,
    /// The response does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// The body must not be transformed.
    pub no_transform: bool,
    /// The directives could not be parsed.
    pub malformed: bool,
    /// The directives are from a targeted field, so `Expires` is ignored (RFC 9213 §2.2).
    pub targeted: bool,
}

/// The extent of a directive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Extent {
    /// No part of the response.
    #[default]
    Nothing,
    /// The header fields of these names, in lower case.
    Fields(Vec<Box<str>>),
    /// The whole response.
    All,
}

impl Extent {
    /// Returns `true` if it names the field `name`.
    pub fn names(&self, name: &[u8]) -> bool {
        matches!(self, Self::Fields(names) if names.iter().any(|other| other.as_bytes().eq_ignore_ascii_case(name)))
    }

    /// Adds the argument of another directive of the same name.
    fn widen(&mut self, argument: Argument<'_>) {
        let names = match argument {
            Argument::Token(names) | Argument::Quoted(names) => field_names(names),
            Argument::None | Argument::Wrong => None,
        };
        *self = match (std::mem::take(self), names) {
            (Self::Nothing, Some(names)) => Self::Fields(names),
            (Self::Fields(mut known), Some(names)) if known.len() + names.len() <= NAMES_MAX => {
                known.extend(names);
                Self::Fields(known)
            }
            _ => Self::All,
        };
    }
}

/// Parses a list of field names; `None` if any of them is invalid.
fn field_names(list: &[u8]) -> Option<Vec<Box<str>>> {
    let names = list.split(|byte| *byte == b',').map(trim).filter(|name| !name.is_empty());
    let name = |name: &[u8]| {
        let text = std::str::from_utf8(name).ok().filter(|_| is_token(name))?;
        Some(text.to_ascii_lowercase().into_boxed_str())
    };
    let names: Vec<_> = names.map(name).take(NAMES_MAX + 1).collect::<Option<_>>()?;
    (!names.is_empty() && names.len() <= NAMES_MAX).then_some(names)
}

/// The argument of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// A quoted string, still escaped.
    Quoted(&'a [u8]),
    /// Not valid by the grammar.
    Wrong,
}

impl Argument<'_> {
    /// Parses whole seconds, in either form (RFC 9111 §5.2).
    fn seconds(self) -> Option<u64> {
        match self {
            Self::Token(digits) | Self::Quoted(digits) => seconds(digits),
            Self::None | Self::Wrong => None,
        }
    }

    fn is_none(self) -> bool {
        self == Self::None
    }
}

/// Parses a number of seconds (RFC 9111 §1.2.2).
pub fn seconds(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| egret_http1::decimal(digits).unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
}

/// Calls `each` with every directive of the lines of a `Cache-Control`. Returns `false` if the lines cannot
/// be parsed.
fn each_directive<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    mut each: impl FnMut(&'a [u8], Argument<'a>),
) -> bool {
    let mut left = DIRECTIVES_MAX;
    for line in lines {
        let mut rest = line;
        loop {
            let blank = rest.iter().take_while(|byte| is_white_space(**byte) || **byte == b',').count();
            rest = &rest[blank..];
            if rest.is_empty() {
                break;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            let (name, after) = rest.split_at(token_len(rest));
            let Some((argument, after)) = argument(after) else { return false };
            each(name, argument);
            rest = after;
        }
    }
    true
}

/// Splits the argument at the beginning of `rest` from the text after the directive. Returns `None` if a
/// quoted string does not end.
fn argument(rest: &[u8]) -> Option<(Argument<'_>, &[u8])> {
    let (argument, after) = match rest {
        [b'=', b'"', quoted @ ..] => {
            let len = quoted_len(quoted)?;
            (Argument::Quoted(&quoted[..len]), &quoted[len + 1..])
        }
        [b'=', rest @ ..] if token_len(rest) > 0 => {
            let (token, after) = rest.split_at(token_len(rest));
            (Argument::Token(token), after)
        }
        [b'=', after @ ..] => (Argument::Wrong, after),
        after => (Argument::None, after),
    };
    let end = directive_end(after)?;
    let is_whole = after[..end].iter().all(|byte| is_white_space(*byte));
    Some((if is_whole { argument } else { Argument::Wrong }, &after[end..]))
}

/// Returns the length of a quoted string, after its opening quote.
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    text.iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    })
}

/// Returns the position of the next comma outside quotes, or the end.
fn directive_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at) {
            None | Some(b',') => return Some(at),
            Some(b'"') => at += quoted_len(&text[at + 1..])? + 2,
            Some(_) => at += 1,
        }
    }
}

/// Keeps the smaller value.
fn least(slot: &mut Option<u64>, seconds: u64) {
    *slot = Some(slot.map_or(seconds, |other| other.min(seconds)));
}

/// Sets a lifetime. Two different values, or an invalid one, count as 0.
fn lifetime(slot: &mut Option<u64>, seconds: Option<u64>) {
    let seconds = seconds.unwrap_or(0);
    *slot = Some(if slot.is_none_or(|other| other == seconds) { seconds } else { 0 });
}

impl RequestDirectives {
    /// Parses the lines of `Cache-Control`. Without any line, `Pragma: no-cache` (`is_pragma`) counts as
    /// `no-cache`.
    pub fn read<'a>(lines: impl Iterator<Item = &'a [u8]>, is_pragma: bool) -> Self {
        let mut directives = Self::default();
        let mut is_any = false;
        let is_whole = each_directive(lines, |name, argument| {
            is_any = true;
            directives.apply(name, argument);
        });
        directives.no_cache |= !is_whole || (is_pragma && !is_any);
        directives
    }

    fn apply(&mut self, name: &[u8], argument: Argument<'_>) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("no-cache") {
            self.no_cache = true;
        } else if is("no-store") {
            self.no_store = true;
        } else if is("no-transform") {
            self.no_transform = true;
        } else if is("only-if-cached") {
            self.only_if_cached |= argument.is_none();
        } else if is("max-age") {
            least(&mut self.max_age, argument.seconds().unwrap_or(0));
        } else if is("min-fresh") {
            let seconds = argument.seconds().unwrap_or(SECONDS_MAX);
            self.min_fresh = Some(self.min_fresh.unwrap_or(0).max(seconds));
        } else if is("max-stale") {
            let any = if argument.is_none() { SECONDS_MAX } else { 0 };
            least(&mut self.max_stale, argument.seconds().unwrap_or(any));
        } else if is("stale-if-error") {
            least(&mut self.stale_if_error, argument.seconds().unwrap_or(0));
        }
    }
}

impl ResponseDirectives {
    /// Parses the first field of `targets` that is present, well-formed and not empty; without one,
    /// `Cache-Control`.
    pub fn read<'a, Lines: Iterator<Item = &'a [u8]>>(
        targets: &'a [Box<str>],
        lines: impl Fn(&'a [u8]) -> Lines,
    ) -> Self {
        let of = |target: &'a str| dictionary(lines(target.as_bytes())).filter(|members| !members.is_empty());
        if let Some(members) = targets.iter().find_map(|target| of(target)) {
            return Self::targeted(&members);
        }
        let mut directives = Self::default();
        let is_whole =
            each_directive(lines(b"cache-control"), |name, argument| directives.apply(name, argument));
        directives.malformed = !is_whole;
        directives
    }

    fn targeted(members: &[(&[u8], Value)]) -> Self {
        let mut directives = Self { targeted: true, ..Self::default() };
        for (name, value) in members {
            let mut digits = [0; 20];
            let argument = match value {
                Value::Boolean(false) => continue,
                Value::Boolean(true) => Argument::None,
                Value::Integer(number) => Argument::Token(written(*number, &mut digits)),
                Value::Other => Argument::Wrong,
            };
            directives.apply(name, argument);
        }
        directives
    }

    fn apply(&mut self, name: &[u8], argument: Argument<'_>) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache.widen(argument);
        } else if is("private") {
            self.private.widen(argument);
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = true;
        } else if is("no-transform") {
            self.no_transform = true;
        } else if is("public") {
            self.public |= argument.is_none();
        } else if is("immutable") {
            self.immutable |= argument.is_none();
        } else if is("max-age") {
            lifetime(&mut self.max_age, argument.seconds());
        } else if is("s-maxage") {
            lifetime(&mut self.s_maxage, argument.seconds());
        } else if is("stale-while-revalidate") {
            least(&mut self.stale_while_revalidate, argument.seconds().unwrap_or(0));
        } else if is("stale-if-error") {
            least(&mut self.stale_if_error, argument.seconds().unwrap_or(0));
        }
    }
}

/// Formats a number as digits.
fn written(number: i64, digits: &mut [u8; 20]) -> &[u8] {
    use std::io::Write as _;
    let mut rest = &mut digits[..];
    // Twenty characters hold any 64-bit number.
    let _ = write!(rest, "{number}");
    let left = rest.len();
    &digits[..20 - left]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn response(text: &str) -> ResponseDirectives {
        ResponseDirectives::read(&[], |_| text.split('\n').map(str::as_bytes))
    }

    fn request(text: &str) -> RequestDirectives {
        RequestDirectives::read(text.split('\n').map(str::as_bytes), false)
    }

    fn fields(names: &[&str]) -> Extent {
        Extent::Fields(names.iter().map(|name| Box::from(*name)).collect())
    }

    #[test]
    fn directives_are_read_in_any_case_and_across_lines() {
        let read = response(
            "Max-Age=60, s-maxage=\"30\",,\tMUST-REVALIDATE\nproxy-revalidate, public ,immutable, no-transform, \
             must-understand, stale-while-revalidate=5, stale-if-error=7, no-cache=\"Set-Cookie, x-a\", private=x-b, ext=\"a,no-store\"",
        );
        let expected = ResponseDirectives {
            max_age: Some(60),
            s_maxage: Some(30),
            stale_while_revalidate: Some(5),
            stale_if_error: Some(7),
            no_cache: fields(&["set-cookie", "x-a"]),
            private: fields(&["x-b"]),
            public: true,
            must_revalidate: true,
            proxy_revalidate: true,
            must_understand: true,
            immutable: true,
            no_transform: true,
            ..ResponseDirectives::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn contradictory_directives_are_read_the_strict_way() {
        assert_eq!(response("max-age=60, max-age=60").max_age, Some(60));
        for stale in
            ["max-age=60, max-age=30", "max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=6s"]
        {
            assert_eq!(response(stale).max_age, Some(0), "{stale}");
        }
        for stale in ["max-age =60", "max-age= 60", "max-age=60 x", "max-age=60;x"] {
            assert_eq!(response(stale).max_age, Some(0), "{stale}");
        }
        assert_eq!(response("max-age=99999999999999999999999").max_age, Some(SECONDS_MAX));
        assert_eq!(response("private=\"x-a\", private").private, Extent::All);
        assert_eq!(response("no-cache=\"x a\"").no_cache, Extent::All);
        assert_eq!(response("no-cache=\"\"").no_cache, Extent::All);
        assert!(response("no-store=1").no_store && response("no-store x").no_store);
        assert!(!response("public=1").public && !response("immutable x").immutable);
        assert!(!response("x=\"no-store\", no-storex").no_store);
        for malformed in ["private=\"x", "x=\"a\\\"", "a \"b"] {
            assert!(response(malformed).malformed, "{malformed}");
        }
        assert!(response(&"a,".repeat(100)).malformed && !response(&"a,".repeat(60)).malformed);
    }

    #[test]
    fn every_directive_of_a_request_is_read() {
        let read =
            request("max-age=5, max-age=7, min-fresh=1, min-fresh=3, max-stale, max-stale=9, no-cache=x");
        let expected = RequestDirectives {
            max_age: Some(5),
            min_fresh: Some(3),
            max_stale: Some(9),
            no_cache: true,
            ..RequestDirectives::default()
        };
        assert_eq!(read, expected);
        assert_eq!(request("max-stale").max_stale, Some(SECONDS_MAX));
        assert_eq!(request("max-stale=x").max_stale, Some(0));
        let read =
            request("no-store, only-if-cached, no-transform, stale-if-error=4, max-age=x, min-fresh=x");
        assert!(read.no_store && read.only_if_cached && read.no_transform);
        assert_eq!(
            (read.stale_if_error, read.max_age, read.min_fresh),
            (Some(4), Some(0), Some(SECONDS_MAX))
        );
        assert!(request("a=\"").no_cache, "a malformed directive is read conservatively");
        let none = || std::iter::empty::<&[u8]>();
        assert!(
            RequestDirectives::read(none(), true).no_cache
                && !RequestDirectives::read(none(), false).no_cache
        );
        assert!(!RequestDirectives::read([&b"max-age=1"[..]].into_iter(), true).no_cache);
    }

    #[test]
    fn a_well_formed_targeted_field_replaces_cache_control() {
        let targets: [Box<str>; 2] = ["egret-cache-control".into(), "cdn-cache-control".into()];
        let read = |first: &'static str, second: &'static str| {
            ResponseDirectives::read(&targets, |name| {
                let line = match name {
                    b"egret-cache-control" => first,
                    b"cdn-cache-control" => second,
                    _ => "no-store",
                };
                [line.as_bytes()].into_iter()
            })
        };
        let targeted = read("max-age=5, private=?0", "max-age=7");
        assert!(targeted.targeted && !targeted.no_store && targeted.private == Extent::Nothing);
        assert_eq!(targeted.max_age, Some(5));
        assert_eq!(read("", "max-age=7").max_age, Some(7));
        assert_eq!(read("MAX-AGE=5", "max-age=7, public").max_age, Some(7));
        assert!(read("max-age=5,", "").no_store && !read("max-age=5,", "").targeted);
        assert_eq!(read("max-age=\"5\"", "").max_age, Some(0));
        assert_eq!(read("max-age=-5", "").max_age, Some(0));
        assert_eq!(read("private=\"x-a\"", "").private, Extent::All);
    }

    proptest! {
        #[test]
        fn an_additional_directive_never_permits_more(
            text in "((max-age|s-maxage|private|no-store|no-cache|x)(=[0-9]{1,3}|=\"[a-z, ]{0,6}\"?)?[ ,;]{0,2}){0,8}",
            bytes: Vec<u8>,
        ) {
            RequestDirectives::read([&bytes[..]].into_iter(), false);
            ResponseDirectives::read(&[], |_| [&bytes[..]].into_iter());
            let read = response(&text);
            let more = response(&format!("{text}\nno-store"));
            prop_assert!(more.malformed || more.no_store);
            prop_assert_eq!(read.malformed, more.malformed);
        }
    }
}
