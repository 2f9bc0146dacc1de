//! The directives of `Cache-Control` in requests (RFC 9111 §5.2.1) and responses (§5.2.2, RFC 5861, RFC 8246), and of the targeted fields
//! that take its place (RFC 9213).
//!
//! A message that contradicts itself is read the way in which less is reused (RFC 9111 §4.2.1): of restrictions the narrowest holds, two
//! lifetimes that differ are none, and a permission that is written wrongly is not there.

use egret_http1::{is_token, is_white_space, token_len, trim};

use super::structured::{Value, dictionary};

/// A number of seconds. Larger ones than fit are this large (RFC 9111 §1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;
/// More directives in one message are taken as malformed.
const DIRECTIVES_MAX: usize = 64;
/// More names in one directive are taken as the directive without names, which goes for all fields.
const NAMES_MAX: usize = 32;

/// What the client wants of caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a directive that is there or not")]
pub struct RequestDirectives {
    /// No response that is older, in seconds.
    pub max_age: Option<u64>,
    /// No response that is stale sooner than in so many seconds.
    pub min_fresh: Option<u64>,
    /// A response that has been stale for at most so many seconds will do.
    pub max_stale: Option<u64>,
    /// The same where the provider cannot be had (RFC 5861 §4).
    pub stale_if_error: Option<u64>,
    /// No response that has not been validated now.
    pub no_cache: bool,
    /// Nothing of this is stored.
    pub no_store: bool,
    /// Nothing that the provider would have to be asked for.
    pub only_if_cached: bool,
    /// The body stays as it is.
    pub no_transform: bool,
}

/// What the provider lets caches do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a directive that is there or not")]
pub struct ResponseDirectives {
    /// For how many seconds it is fresh.
    pub max_age: Option<u64>,
    /// The same for caches that many share.
    pub s_maxage: Option<u64>,
    /// For how many seconds more it may be served while it is validated (RFC 5861 §3).
    pub stale_while_revalidate: Option<u64>,
    /// The same where the provider cannot be had (RFC 5861 §4).
    pub stale_if_error: Option<u64>,
    /// What is not reused without validation.
    pub no_cache: Extent,
    /// What is for one user only.
    pub private: Extent,
    /// Nothing is stored.
    pub no_store: bool,
    /// It may be stored where that would not be clear.
    pub public: bool,
    /// It is never reused stale.
    pub must_revalidate: bool,
    /// The same for shared caches.
    pub proxy_revalidate: bool,
    /// It is stored only by who knows what its status asks of caches.
    pub must_understand: bool,
    /// It does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// The body stays as it is.
    pub no_transform: bool,
    /// It cannot be told what is allowed.
    pub malformed: bool,
    /// A targeted field has said it: `Expires` says nothing then (RFC 9213 §2.2).
    pub targeted: bool,
}

/// How much of a response a directive is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Extent {
    /// None.
    #[default]
    Nothing,
    /// The fields of these names, in lower case.
    Fields(Vec<Box<str>>),
    /// All of it.
    All,
}

impl Extent {
    /// Whether it covers the field `name`.
    pub fn names(&self, name: &[u8]) -> bool {
        matches!(self, Self::Fields(names) if names.iter().any(|other| other.as_bytes().eq_ignore_ascii_case(name)))
    }

    /// With what another directive of the same name is about.
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

/// The names of a list, where all of it is names.
fn field_names(list: &[u8]) -> Option<Vec<Box<str>>> {
    let names = list.split(|byte| *byte == b',').map(trim).filter(|name| !name.is_empty());
    let name = |name: &[u8]| {
        let text = std::str::from_utf8(name).ok().filter(|_| is_token(name))?;
        Some(text.to_ascii_lowercase().into_boxed_str())
    };
    let names: Vec<_> = names.map(name).take(NAMES_MAX + 1).collect::<Option<_>>()?;
    (!names.is_empty() && names.len() <= NAMES_MAX).then_some(names)
}

/// What follows a directive's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument<'a> {
    None,
    Token(&'a [u8]),
    /// Between quotes, as written.
    Quoted(&'a [u8]),
    /// Something that the grammar has not got.
    Wrong,
}

impl Argument<'_> {
    /// Whole seconds, in either form (RFC 9111 §5.2).
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

/// A number of seconds as a field writes it (RFC 9111 §1.2.2).
pub fn seconds(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| egret_http1::decimal(digits).unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
}

/// Shows each directive of the lines of a `Cache-Control` to `each`. Says whether all of them could be told apart.
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

/// The argument with which `rest` begins, and what follows the directive. `None` where it has no end.
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

/// Where a quoted text ends, whose first quote is before it.
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    text.iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    })
}

/// Where the next comma is that stands in no quotes.
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

/// The smaller of both, where one was said before.
fn least(slot: &mut Option<u64>, seconds: u64) {
    *slot = Some(slot.map_or(seconds, |other| other.min(seconds)));
}

/// A lifetime: two that differ are none, and so is one that is no number.
fn lifetime(slot: &mut Option<u64>, seconds: Option<u64>) {
    let seconds = seconds.unwrap_or(0);
    *slot = Some(if slot.is_none_or(|other| other == seconds) { seconds } else { 0 });
}

impl RequestDirectives {
    /// Of the lines of `Cache-Control`. Where there are none, `Pragma: no-cache` is one (`is_pragma`).
    pub fn read<'a>(lines: impl Iterator<Item = &'a [u8]>, is_pragma: bool) -> Self {
        let mut directives = Self::default();
        let mut is_any = false;
        let is_whole = each_directive(lines, |name, argument| {
            is_any = true;
            directives.tell(name, argument);
        });
        directives.no_cache |= !is_whole || (is_pragma && !is_any);
        directives
    }

    fn tell(&mut self, name: &[u8], argument: Argument<'_>) {
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
    /// Of the first of the fields `targets` that a response has and that is well-formed and not empty, or else of its `Cache-Control`.
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
            each_directive(lines(b"cache-control"), |name, argument| directives.tell(name, argument));
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
            directives.tell(name, argument);
        }
        directives
    }

    fn tell(&mut self, name: &[u8], argument: Argument<'_>) {
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

/// A number in digits.
fn written(number: i64, digits: &mut [u8; 20]) -> &[u8] {
    use std::io::Write as _;
    let mut rest = &mut digits[..];
    // Twenty digits hold any number of 64 bits.
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
    fn every_directive_of_a_response_is_read_in_any_case_and_over_lines() {
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
    fn what_contradicts_itself_is_read_the_careful_way() {
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
        assert!(request("a=\"").no_cache, "what cannot be read asks for more care");
        let none = || std::iter::empty::<&[u8]>();
        assert!(
            RequestDirectives::read(none(), true).no_cache
                && !RequestDirectives::read(none(), false).no_cache
        );
        assert!(!RequestDirectives::read([&b"max-age=1"[..]].into_iter(), true).no_cache);
    }

    #[test]
    fn a_targeted_field_takes_the_place_of_cache_control_where_it_is_well_formed() {
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
        fn nothing_panics_and_a_directive_more_never_permits_more(
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
