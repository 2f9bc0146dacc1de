//! References to secrets in secret managers: `${vault:PATH#FIELD}`, `${aws:NAME#FIELD}`, `${gcp:NAME#FIELD}`.

use egret_aws::percent_encode;
use egret_config::FetchedSecret;

use super::value::field;

/// Maximum length of the name of a secret, in bytes. AWS allows 512 besides the parts of an ARN.
const NAME_BYTES_MAX: usize = 2048;

/// Maximum length of the name of a field, in bytes.
const FIELD_BYTES_MAX: usize = 256;

/// A secret manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagerKind {
    /// Vault.
    Vault,
    /// AWS Secrets Manager.
    Aws,
    /// Secret Manager of Google Cloud.
    Gcp,
}

impl ManagerKind {
    /// Every manager.
    pub const ALL: [Self; 3] = [Self::Vault, Self::Aws, Self::Gcp];

    /// The word of its references, and its key under `secrets`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Vault => "vault",
            Self::Aws => "aws",
            Self::Gcp => "gcp",
        }
    }
}

/// A reference to a secret in a secret manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagedReference<'a> {
    /// The manager that has the secret.
    pub manager: ManagerKind,
    /// The name of the secret at the manager.
    pub name: &'a str,
    /// The field of the secret; `None` for all of it.
    pub field: Option<&'a str>,
}

/// The reason why a reference cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Not a path in Vault.
    #[error(
        "write the path of the secret as Vault's API has it, without `/v1/`, and a field: `${{vault:secret/data/stripe#key}}`"
    )]
    Path,
    /// Not a name in AWS Secrets Manager.
    #[error(
        "write the name of the secret, of letters, digits and characters of `/_+=.@-!`, or its ARN: `${{aws:prod/stripe#key}}`"
    )]
    Name,
    /// Not a version of a secret of Google Cloud.
    #[error(
        "write the version of the secret as a resource: `${{gcp:projects/shop/secrets/stripe/versions/latest}}`"
    )]
    Version,
    /// An empty or long field.
    #[error("the name of a field must have 1 to {FIELD_BYTES_MAX} bytes, without control characters")]
    Field,
}

impl<'a> ManagedReference<'a> {
    /// Returns the reference that a text is; `None` for any other text.
    pub fn of(text: &'a str) -> Option<Self> {
        let inside = text.strip_prefix("${")?.strip_suffix('}').filter(|inside| !inside.contains('}'))?;
        let (word, rest) = inside.split_once(':')?;
        let manager = ManagerKind::ALL.into_iter().find(|manager| manager.word() == word)?;
        let (name, field) = rest.split_once('#').map_or((rest, None), |(name, field)| (name, Some(field)));
        Some(Self { manager, name, field })
    }

    /// Checks the names of the secret and of its field.
    pub fn check(&self) -> Result<(), ReferenceError> {
        let Self { manager, name, field } = *self;
        let is_short = name.len() <= NAME_BYTES_MAX;
        match manager {
            ManagerKind::Vault if !is_short || !is_path(name) || field.is_none() => {
                return Err(ReferenceError::Path);
            }
            ManagerKind::Aws if !is_short || !is_of(name, b"/_+=.@-!:") => return Err(ReferenceError::Name),
            ManagerKind::Gcp if !is_short || !is_version(name) || !are_segments(name) => {
                return Err(ReferenceError::Version);
            }
            ManagerKind::Vault | ManagerKind::Aws | ManagerKind::Gcp => {}
        }
        let is_field =
            |field: &str| (1..=FIELD_BYTES_MAX).contains(&field.len()) && !field.contains(char::is_control);
        if field.is_none_or(is_field) { Ok(()) } else { Err(ReferenceError::Field) }
    }

    /// Returns its part of a secret that was fetched.
    pub fn part_of(&self, secret: &str) -> FetchedSecret {
        match self.field {
            Some(name) => field(secret, name),
            None => Ok(secret.to_owned().into()),
        }
    }
}

/// Returns `true` for a path in Vault: a mount, and at least one segment more.
fn is_path(path: &str) -> bool {
    let is_first = |word: &str| path.split('/').next() == Some(word);
    !is_first("v1") && path.contains('/') && are_segments(path)
}

/// Returns `true` if no segment is empty, leads elsewhere, or has a control character.
pub(super) fn are_segments(path: &str) -> bool {
    let is_segment =
        |segment: &str| !matches!(segment, "" | "." | "..") && !segment.contains(char::is_control);
    path.split('/').all(is_segment)
}

fn is_of(text: &str, more: &[u8]) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
}

/// Returns `true` for `projects/P/secrets/S/versions/V`.
fn is_version(name: &str) -> bool {
    let segments: Vec<&str> = name.split('/').collect();
    match segments[..] {
        ["projects", project, "secrets", secret, "versions", version] => {
            is_of(project, b"-.:") && is_of(secret, b"-_") && is_of(version, b"-_")
        }
        _ => false,
    }
}

/// Returns a path as it is sent: each segment percent-encoded.
pub(super) fn encoded(path: &str) -> String {
    let segment = |segment: &str| {
        let mut encoded = Vec::with_capacity(segment.len());
        percent_encode(segment.as_bytes(), &mut encoded);
        encoded.into_iter().map(char::from).collect::<String>()
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_name_a_secret_and_a_field() {
        for (text, manager, name, field) in [
            ("${vault:secret/data/a#b#c}", ManagerKind::Vault, "secret/data/a", Some("b#c")),
            ("${aws:prod/stripe}", ManagerKind::Aws, "prod/stripe", None),
            ("${aws:rds!db-1#password}", ManagerKind::Aws, "rds!db-1", Some("password")),
            (
                "${aws:arn:aws:secretsmanager:eu-west-1:1:secret:a-Xy#k}",
                ManagerKind::Aws,
                "arn:aws:secretsmanager:eu-west-1:1:secret:a-Xy",
                Some("k"),
            ),
            (
                "${gcp:projects/a.b:c/secrets/s_1/versions/latest}",
                ManagerKind::Gcp,
                "projects/a.b:c/secrets/s_1/versions/latest",
                None,
            ),
        ] {
            let reference = ManagedReference::of(text).unwrap();
            assert_eq!(reference, ManagedReference { manager, name, field });
            assert_eq!(reference.check(), Ok(()), "{text}");
        }
        for text in ["", "vault:a/b#c", "${env:A}", "${vaults:a/b#c}", "${vault:a/b#c", "${aws:a} ${aws:b}"] {
            assert_eq!(ManagedReference::of(text), None, "{text}");
        }
    }

    #[test]
    fn references_that_lead_elsewhere_are_refused() {
        let long = format!("${{vault:a/{}#b}}", "a".repeat(NAME_BYTES_MAX));
        for (text, error) in [
            ("${vault:secret/data/a}", ReferenceError::Path),
            ("${vault:secret#a}", ReferenceError::Path),
            ("${vault:/v1/secret/data/a#b}", ReferenceError::Path),
            ("${vault:v1/secret/data/a#b}", ReferenceError::Path),
            ("${vault:secret/data/../../sys/seal#b}", ReferenceError::Path),
            ("${vault:secret//a#b}", ReferenceError::Path),
            ("${vault:secret/a\r\nb#c}", ReferenceError::Path),
            (&*long, ReferenceError::Path),
            ("${vault:a/b#}", ReferenceError::Field),
            ("${vault:a/b#c\n}", ReferenceError::Field),
            ("${aws:}", ReferenceError::Name),
            ("${aws:a b}", ReferenceError::Name),
            ("${aws:\"}", ReferenceError::Name),
            ("${gcp:stripe}", ReferenceError::Version),
            ("${gcp:projects/../secrets/b/versions/1}", ReferenceError::Version),
            ("${gcp:projects/a/secrets/b/versions/../../c}", ReferenceError::Version),
            ("${gcp:projects/a/secrets/b/versions/1:destroy}", ReferenceError::Version),
            ("${gcp:projects/a/secrets/b/versions/}", ReferenceError::Version),
        ] {
            assert_eq!(ManagedReference::of(text).unwrap().check(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_accepted_path_stays_below_the_api(text in "(vault:|aws:|gcp:(projects/(\\.\\.?|[a-z.:]{1,3})/secrets/[a-z]/versions/[a-z0-9]{1,2})?)(\\.\\.?|[a-z]{1,3}|/|%2e|#|\\?|[^}]){0,8}") {
            let text = format!("${{{text}}}");
            let Some(reference) = ManagedReference::of(&text).filter(|reference| reference.check().is_ok()) else {
                return Ok(());
            };
            let field = reference.field.map(|field| format!("#{field}")).unwrap_or_default();
            let whole = format!("${{{}:{}{field}}}", reference.manager.word(), reference.name);
            prop_assert_eq!(&whole, &text);
            let sent = encoded(reference.name);
            prop_assert!(sent.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%/".contains(&byte)));
            if reference.manager != ManagerKind::Aws {
                prop_assert!(sent.split('/').all(|segment| !matches!(segment, "" | "." | "..")));
            }
        }
    }
}
