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
    private: Box<[Box<[u8]>]>,
    /// One bit for each length that a name has. It rules out nearly all other fields.
    lengths: u64,
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
    /// Compiles the names of `gateway.scheme_fields` and `gateway.private_fields`.
    pub fn compile(scheme: &[String], private: &[String], problems: &mut Vec<Problem>) -> Self {
        let mut lengths = 0;
        let mut names = |key: &str, names: &[String]| -> Box<[Box<[u8]>]> {
            if names.len() > NAMES_MAX {
                problems.push(Problem::new(
                    format!("gateway.{key}"),
                    format!("at most {NAMES_MAX} names are allowed"),
                ));
            }
            let names = names.iter().map(|name| name.to_ascii_lowercase()).enumerate();
            let names = names.map(|(index, name)| {
                if !is_token(name.as_bytes()) || name.len() > 63 || FIXED.contains(&name.as_str()) {
                    let message = format!(
                        "`{name}` is not a valid name for a field meant for the gateway: use up to 63 letters, digits and \
                         dashes; fields that frame or route a message are not allowed"
                    );
                    problems.push(Problem::new(format!("gateway.{key}[{index}]"), message));
                }
                lengths |= 1 << (name.len() & 63);
                name.into_bytes().into_boxed_slice()
            });
            names.collect()
        };
        let scheme = names("scheme_fields", scheme);
        let private = names("private_fields", private);
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
        self.private.iter().any(|known| known.eq_ignore_ascii_case(name)).then_some(Named::Private)
    }
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
        let (fields, problems) = compile(&["x-upstream-protocol", "X-Forwarded-Proto"], &["Service-Token"]);
        assert_eq!(problems, [""; 0]);
        for (name, found) in [
            ("X-Upstream-Protocol", Some(Named::Scheme(0))),
            ("x-forwarded-proto", Some(Named::Scheme(1))),
            ("SERVICE-TOKEN", Some(Named::Private)),
            ("service-tokem", None),
            ("a", None),
        ] {
            assert_eq!(fields.find(name.as_bytes()), found, "{name}");
        }
        assert!(fields.may_be(13) && !fields.may_be(14) && !fields.may_be(64) && !fields.may_be(1 << 40));
    }

    #[test]
    fn what_frames_a_message_is_nobodys_alone() {
        let (_, problems) = compile(&["a b"], &["x-a", "Content-Length", "host"]);
        let expected = ["gateway.scheme_fields[0]", "gateway.private_fields[1]", "gateway.private_fields[2]"];
        assert_eq!(problems, expected);
    }
}
