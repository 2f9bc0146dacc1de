//! Header fields with a meaning given by the config: fields that name the scheme, fields that are for the
//! gateway alone, and fields that hold the client's request id.

use egret_config::Problem;
use egret_http1::is_token;

use crate::compat::{Compat, OtherProduct};

/// Maximum number of names in each list: every field of a request is compared with them.
const NAMES_MAX: usize = 16;

/// Fields that frame or route a message. A config cannot declare them as the gateway's own.
const FIXED: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "max-forwards",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The names, in lower case.
#[derive(Debug, Default)]
pub struct NamedFields {
    scheme: Box<[Box<[u8]>]>,
    private: Box<[NamePattern]>,
    request_id: Box<[Box<[u8]>]>,
    compat: Compat,
    /// One bit for each length that a name has. It rules out nearly all other fields.
    lengths: u64,
}

/// A name, or the beginning of names, in lower case.
#[derive(Debug, PartialEq, Eq)]
enum NamePattern {
    Exact(Box<[u8]>),
    /// Without the `*`.
    Prefix(Box<[u8]>),
}

impl NamePattern {
    /// Parses a lower-case name, or `prefix*`.
    fn new(name: &str) -> Self {
        match name.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.as_bytes().into()),
            None => Self::Exact(name.as_bytes().into()),
        }
    }

    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact.eq_ignore_ascii_case(name),
            Self::Prefix(prefix) => {
                name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            }
        }
    }

    /// Returns a bit for each length, modulo 64, that a matching name has.
    fn lengths(&self) -> u64 {
        match self {
            Self::Exact(exact) => 1 << (exact.len() & 63),
            Self::Prefix(_) => u64::MAX,
        }
    }

    /// Returns `true` if it could be a pattern of fields that are for the gateway alone.
    fn is_valid(&self) -> bool {
        let (Self::Exact(text) | Self::Prefix(text)) = self;
        let is_name = is_token(text) && text.len() <= 63 && !text.contains(&b'*');
        is_name && !FIXED.iter().any(|fixed| self.matches(fixed.as_bytes()))
    }
}

/// The lists of the config that give fields a meaning.
#[derive(Debug, Clone, Copy, Default)]
pub struct NamedLists<'a> {
    /// `gateway.scheme_fields`: names.
    pub scheme: &'a [String],
    /// `gateway.private_fields`: names and patterns.
    pub private: &'a [String],
    /// `gateway.request_ids.fields`: names.
    pub request_id: &'a [String],
    /// `gateway.compat`: products. `None` if the key is missing.
    pub compat: Option<&'a [OtherProduct]>,
}

impl NamedFields {
    /// Compiles the lists.
    pub fn compile(lists: NamedLists<'_>, problems: &mut Vec<Problem>) -> Self {
        let scheme = exact_names("scheme_fields", lists.scheme, problems);
        let private = patterns("private_fields", lists.private, problems);
        let request_id = exact_names("request_ids.fields", lists.request_id, problems);
        let names = scheme.iter().chain(&request_id);
        let exact = names.fold(0, |lengths, name| lengths | 1 << (name.len() & 63));
        let lengths = private.iter().fold(exact, |lengths, pattern| lengths | pattern.lengths());
        Self { scheme, private, request_id, compat: Compat::new(lists.compat), lengths }
    }

    /// Returns the other products whose fields and parameters are read.
    #[inline]
    pub fn compat(&self) -> Compat {
        self.compat
    }

    /// Returns `true` if a name of that length may be one of them.
    pub fn may_be(&self, len: usize) -> bool {
        // A length of 64 or more may match a bit too; the look-ups compare the whole name.
        (self.lengths >> (len & 63)) & 1 != 0
    }

    /// Returns the position of `name` among the fields that name the scheme.
    pub fn scheme_position(&self, name: &[u8]) -> Option<usize> {
        position(&self.scheme, name)
    }

    /// Returns the position of `name` among the fields that hold a request id.
    pub fn request_id_position(&self, name: &[u8]) -> Option<usize> {
        position(&self.request_id, name)
    }

    /// Returns `true` if the field `name` is for the gateway alone.
    pub fn is_private(&self, name: &[u8]) -> bool {
        self.private.iter().any(|pattern| pattern.matches(name))
    }
}

fn position(names: &[Box<[u8]>], name: &[u8]) -> Option<usize> {
    names.iter().position(|known| known.eq_ignore_ascii_case(name))
}

/// Compiles the names of the list `gateway.key`, which cannot hold patterns.
fn exact_names(key: &str, names: &[String], problems: &mut Vec<Problem>) -> Box<[Box<[u8]>]> {
    let patterns = patterns(key, names, problems).into_iter().enumerate();
    let exact = |(index, pattern)| match pattern {
        NamePattern::Exact(name) => Some(name),
        NamePattern::Prefix(_) => {
            let message =
                "a pattern is not allowed here, because the order of the names counts: list the names";
            problems.push(Problem::new(format!("gateway.{key}[{index}]"), message));
            None
        }
    };
    patterns.filter_map(exact).collect()
}

/// Compiles the names and patterns of the list `gateway.key`.
fn patterns(key: &str, names: &[String], problems: &mut Vec<Problem>) -> Box<[NamePattern]> {
    if names.len() > NAMES_MAX {
        problems
            .push(Problem::new(format!("gateway.{key}"), format!("at most {NAMES_MAX} names are allowed")));
    }
    let pattern = |(index, name): (usize, &String)| {
        let pattern = NamePattern::new(&name.to_ascii_lowercase());
        if !pattern.is_valid() {
            let message = format!(
                "`{name}` is not a valid name for a field meant for the gateway: use up to 63 letters, digits and \
                 dashes; fields that frame or route a message are not allowed"
            );
            problems.push(Problem::new(format!("gateway.{key}[{index}]"), message));
        }
        pattern
    };
    names.iter().enumerate().map(pattern).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(scheme: &[&str], private: &[&str]) -> (NamedFields, Vec<String>) {
        let owned = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let (scheme, private, request_id) = (owned(scheme), owned(private), owned(&["X-Request-Id"]));
        let lists = NamedLists { scheme: &scheme, private: &private, request_id: &request_id, compat: None };
        let mut problems = Vec::new();
        let fields = NamedFields::compile(lists, &mut problems);
        (fields, problems.into_iter().map(|problem| problem.path).collect())
    }

    #[test]
    fn names_are_found_whatever_their_case_and_others_are_not() {
        let (fields, problems) =
            compile(&["x-upstream-protocol", "X-Forwarded-Proto"], &["Service-Token", "X-Team-*"]);
        assert_eq!(problems, [""; 0]);
        assert_eq!(fields.scheme_position(b"X-Upstream-Protocol"), Some(0));
        assert_eq!(fields.scheme_position(b"x-forwarded-proto"), Some(1));
        assert_eq!(fields.scheme_position(b"x-forwarded-for"), None);
        assert_eq!(fields.request_id_position(b"x-REQUEST-id"), Some(0));
        for (name, is_private) in [
            ("SERVICE-TOKEN", true),
            ("service-tokem", false),
            ("a", false),
            ("X-Team-", true),
            ("x-team-name-of-any-length-at-all-which-is-longer-than-sixty-four-letters", true),
            ("x-tea", false),
        ] {
            assert_eq!(fields.is_private(name.as_bytes()), is_private, "{name}");
            assert!(fields.may_be(name.len()), "a prefix has names of every length: {name}");
        }
        let (fields, _) = compile(&[], &["Service-Token"]);
        assert!(fields.may_be(13) && fields.may_be(12) && !fields.may_be(14));
        assert!(!fields.may_be(64) && !fields.may_be(1 << 40));
    }

    #[test]
    fn fields_that_frame_a_message_cannot_be_private() {
        let (_, problems) = compile(&["a b"], &["x-a", "Content-Length", "host"]);
        let expected = ["gateway.scheme_fields[0]", "gateway.private_fields[1]", "gateway.private_fields[2]"];
        assert_eq!(problems, expected);
        let (_, problems) = compile(&["x-scheme-*"], &["*", "c*", "x-*-y", "x-lunar-*"]);
        let expected = [
            "gateway.scheme_fields[0]",
            "gateway.private_fields[0]",
            "gateway.private_fields[1]",
            "gateway.private_fields[2]",
        ];
        assert_eq!(problems, expected, "a pattern of fields that frame a message, or of no fields");
    }
}
