//! Header fields with a meaning given by the config: fields that name the scheme, and fields that are for the
//! gateway alone.

use egret_config::Problem;
use egret_http1::is_token;

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

/// The meaning that the config gives to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// The field names the scheme. If there are several, the one with the lowest number counts.
    Scheme(usize),
    /// The field is for the gateway alone and is not forwarded.
    Private,
}

impl NamedFields {
    /// Compiles the names of `gateway.scheme_fields`, and the names and patterns of `gateway.private_fields`.
    pub fn compile(scheme: &[String], private: &[String], problems: &mut Vec<Problem>) -> Self {
        let scheme = exact_names("scheme_fields", scheme, problems);
        let private = patterns("private_fields", private, problems);
        let exact = scheme.iter().fold(0, |lengths, name| lengths | 1 << (name.len() & 63));
        let lengths = private.iter().fold(exact, |lengths, pattern| lengths | pattern.lengths());
        Self { scheme, private, lengths }
    }

    /// Returns `true` if a name of that length may be one of them.
    pub fn may_be(&self, len: usize) -> bool {
        // A length of 64 or more may match a bit too; `find` compares the whole name.
        (self.lengths >> (len & 63)) & 1 != 0
    }

    /// Returns the meaning that the config gives to the field `name`.
    pub fn find(&self, name: &[u8]) -> Option<Named> {
        if !self.may_be(name.len()) {
            return None;
        }
        if let Some(number) = self.scheme.iter().position(|known| known.eq_ignore_ascii_case(name)) {
            return Some(Named::Scheme(number));
        }
        self.private.iter().any(|pattern| pattern.matches(name)).then_some(Named::Private)
    }
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
        let mut problems = Vec::new();
        let fields = NamedFields::compile(&owned(scheme), &owned(private), &mut problems);
        (fields, problems.into_iter().map(|problem| problem.path).collect())
    }

    #[test]
    fn names_are_found_whatever_their_case_and_others_are_not() {
        let (fields, problems) =
            compile(&["x-upstream-protocol", "X-Forwarded-Proto"], &["Service-Token", "X-Team-*"]);
        assert_eq!(problems, [""; 0]);
        for (name, found) in [
            ("X-Upstream-Protocol", Some(Named::Scheme(0))),
            ("x-forwarded-proto", Some(Named::Scheme(1))),
            ("SERVICE-TOKEN", Some(Named::Private)),
            ("service-tokem", None),
            ("a", None),
            ("X-Team-", Some(Named::Private)),
            (
                "x-team-name-of-any-length-at-all-which-is-longer-than-sixty-four-letters",
                Some(Named::Private),
            ),
            ("x-tea", None),
        ] {
            assert_eq!(fields.find(name.as_bytes()), found, "{name}");
        }
        let (fields, _) = compile(&[], &["Service-Token"]);
        assert!(fields.may_be(13) && !fields.may_be(14) && !fields.may_be(64) && !fields.may_be(1 << 40));
    }

    #[test]
    fn what_frames_a_message_is_nobodys_alone() {
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
