//! Secrets: the config refers to them, as in `${env:NAME}` or `${file:PATH}`; their values are never shown.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::env::VarError;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::Zeroizing;

use crate::file::{read_file, reason};

/// Maximum length of a secret in a file, of one that a command prints and of one in a secret manager, in
/// bytes. Keys, tokens and certificate chains are far shorter.
pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// The directory of the credentials that systemd passes to a service (`LoadCredential=`).
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// The output of a command, or a secret from a secret manager; or the reason why there is none that can be
/// used.
pub type FetchedSecret = Result<Zeroizing<String>, String>;

/// Secrets that were fetched, by their references, such as `${exec:NAME}`.
pub type FetchedSecrets = Arc<BTreeMap<String, FetchedSecret>>;

/// A secret and its source. `Debug`, `Display` and serialization show only the source.
#[derive(Clone)]
pub struct Secret {
    source: String,
    value: Zeroizing<String>,
    is_placeholder: bool,
}

thread_local! {
    /// `true` while secrets get placeholders instead of their values.
    static PLACEHOLDERS: Cell<bool> = const { Cell::new(false) };

    /// The names of the variables with secrets, while they are noted.
    static NOTED: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };

    /// The secrets that were fetched, while a config is read that was given them.
    static FETCHED: RefCell<Option<FetchedSecrets>> = const { RefCell::new(None) };
}

/// The fetched secrets that this thread had before, and has again once this is dropped.
pub(crate) struct FetchedBefore(Option<FetchedSecrets>);

impl FetchedBefore {
    /// Gives this thread secrets that were fetched.
    pub fn replace(secrets: Option<FetchedSecrets>) -> Self {
        Self(FETCHED.replace(secrets))
    }
}

impl Drop for FetchedBefore {
    fn drop(&mut self) {
        FETCHED.set(self.0.take());
    }
}

/// Runs `work`. Returns its result, and the names of the environment variables that hold a secret of a config
/// that this thread has read in it, [placeholders](without_secrets) included.
pub fn noting_secret_variables<T>(work: impl FnOnce() -> T) -> (T, BTreeSet<String>) {
    let before = NOTED.replace(Some(BTreeSet::new()));
    let result = work();
    (result, NOTED.replace(before).unwrap_or_default())
}

fn note_variable(name: &str) {
    NOTED.with_borrow_mut(|noted| noted.as_mut().map(|noted| noted.insert(name.to_owned())));
}

/// Returns `true` while this thread reads secrets, and no placeholders instead: see [`without_secrets`].
pub fn are_secrets_read() -> bool {
    !PLACEHOLDERS.get()
}

/// Runs `work`, in which every secret of a config that this thread reads is a placeholder: neither variables
/// nor files with secrets are read, no command is run, and no secret manager is called.
pub fn without_secrets<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            PLACEHOLDERS.set(self.0);
        }
    }
    let _before = Before(PLACEHOLDERS.replace(true));
    work()
}

impl Secret {
    /// Reads the secret that `${env:NAME}`, `${file:PATH}` or `${credential:NAME}` refers to. A file must be
    /// a regular one of at most 64 KiB. `${exec:NAME}`, and what is in a secret manager, is known only while
    /// a config is read whose secrets have been fetched. Trailing line ends are dropped.
    ///
    /// # Errors
    ///
    /// Fails if the source has another form, if the secret cannot be read, and if it is empty or not UTF-8.
    pub fn resolve(source: &str) -> Result<Self, SecretError> {
        let reference = Reference::parse(source)?;
        if let Reference::Variable(name) = reference {
            note_variable(name);
        }
        if PLACEHOLDERS.get() {
            return Ok(Self::placeholder(source));
        }
        let value = reference.read(source)?;
        let trimmed = value.trim_end_matches(['\r', '\n']);
        if trimmed.is_empty() {
            return Err(SecretError::Empty { name: source.to_owned() });
        }
        Ok(Self {
            source: source.to_owned(),
            value: Zeroizing::new(trimmed.to_owned()),
            is_placeholder: false,
        })
    }

    /// Creates the placeholder of a secret: 64 hexadecimal digits, other ones for each source.
    fn placeholder(source: &str) -> Self {
        let digits = |number: u8| {
            let mut hasher = DefaultHasher::new();
            (number, source).hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        };
        let value = Zeroizing::new((0..4).map(digits).collect());
        Self { source: source.to_owned(), value, is_placeholder: true }
    }

    /// Returns `true` if it stands for a secret that was not read, see [`without_secrets`]. Then nothing can
    /// be said about its content.
    pub fn is_placeholder(&self) -> bool {
        self.is_placeholder
    }

    /// Creates a secret that does not come from a config; `source` is shown in its place.
    pub fn from_value(source: impl Into<String>, value: String) -> Self {
        Self { source: source.into(), value: Zeroizing::new(value), is_placeholder: false }
    }

    /// Returns the secret itself. Call it where the secret is used and keep no copy.
    pub fn expose(&self) -> &str {
        &self.value
    }
}

/// The source of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reference<'a> {
    /// An environment variable.
    Variable(&'a str),
    /// The path of a file.
    File(&'a str),
    /// A command of the config.
    Command(&'a str),
    /// A credential that systemd passes to the service.
    Credential(&'a str),
    /// A secret in a secret manager.
    Managed,
}

impl<'a> Reference<'a> {
    fn parse(source: &'a str) -> Result<Self, SecretError> {
        let inner = source.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        match inner.and_then(|inner| inner.split_once(':')) {
            Some(("env", name)) => match name.split_once(":-") {
                Some((name, _)) => Err(SecretError::Default { name: name.to_owned() }),
                None => Ok(Self::Variable(name)),
            },
            Some(("file", path)) => Ok(Self::File(path)),
            Some(("exec", name)) => Ok(Self::Command(name)),
            Some(("credential", name)) => Ok(Self::Credential(name)),
            Some(("vault" | "aws" | "gcp", _)) => Ok(Self::Managed),
            _ => Err(misspelt(source)),
        }
    }

    /// Reads the secret. `source` is the whole reference.
    fn read(self, source: &str) -> Result<Zeroizing<String>, SecretError> {
        let file_failed = |path: &Path, error| SecretError::File { path: path.display().to_string(), error };
        match self {
            Self::Variable(name) => from_environment(name, std::env::var(name)),
            Self::File(path) => {
                from_file(Path::new(path)).map_err(|error| file_failed(Path::new(path), error))
            }
            Self::Command(name) => {
                fetched(source).map_err(|message| SecretError::Command { name: name.to_owned(), message })
            }
            Self::Managed => {
                fetched(source).map_err(|message| SecretError::Managed { name: source.to_owned(), message })
            }
            Self::Credential(name) => {
                let path = credential_path(name)
                    .ok_or_else(|| SecretError::NoCredential { name: name.to_owned() })?;
                from_file(&path).map_err(|error| file_failed(&path, error))
            }
        }
    }
}

/// Returns the path of the credential called `name`, if systemd has passed any to this process.
pub fn credential_path(name: &str) -> Option<PathBuf> {
    let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    let directory = std::env::var_os(CREDENTIALS_DIRECTORY).filter(|_| is_name)?;
    Some(Path::new(&directory).join(name))
}

/// Returns the secret that was fetched for a reference.
fn fetched(source: &str) -> FetchedSecret {
    let found = FETCHED.with_borrow(|secrets| secrets.as_ref()?.get(source).cloned());
    found.unwrap_or_else(|| Err("it was not fetched".to_owned()))
}

/// Returns the value of the variable called `name`, as it was `read`.
fn from_environment(name: &str, read: Result<String, VarError>) -> Result<Zeroizing<String>, SecretError> {
    match read {
        Ok(value) => Ok(Zeroizing::new(value)),
        Err(VarError::NotPresent) => Err(SecretError::NotSet { name: name.to_owned() }),
        Err(VarError::NotUnicode(value)) => {
            drop(Zeroizing::new(value.into_encoded_bytes()));
            Err(SecretError::NotUtf8 { name: name.to_owned() })
        }
    }
}

/// Returns the error of a secret that is no reference. No part of it is shown unless it is the name of a
/// variable or of a file: it may be the secret itself.
fn misspelt(source: &str) -> SecretError {
    const FORMS: [&str; 7] =
        ["${env:", "${file:", "${exec:", "${credential:", "${vault:", "${aws:", "${gcp:"];
    if FORMS.iter().any(|form| source.contains(form)) {
        if source.starts_with("Bearer ") { SecretError::Bearer } else { SecretError::Part }
    } else if let Some(rest) = source.strip_prefix('$')
        && let name = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(rest)
        && name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    {
        SecretError::Shell { name: name.to_owned() }
    } else if source.starts_with('$') {
        SecretError::UnknownForm
    } else if ["/", "./", "../"].iter().any(|start| source.starts_with(start))
        && [".key", ".pem"].iter().any(|end| source.ends_with(end))
    {
        SecretError::Path { path: source.to_owned() }
    } else {
        SecretError::InConfig
    }
}

/// Reads the text of a secret file.
fn from_file(path: &Path) -> io::Result<Zeroizing<String>> {
    let bytes = read_file(path, SECRET_BYTES_MAX)?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// The reason why a secret cannot be used. It never holds the value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The config has the secret itself instead of its source.
    #[error("a secret must not be written in the config: use ${{env:NAME}} or ${{file:PATH}}")]
    InConfig,
    /// A variable in the form of a shell.
    #[error("a variable is written `${{env:{name}}}`")]
    Shell {
        /// Name of the variable.
        name: String,
    },
    /// The path of a file without the form of a reference.
    #[error("a file is written `${{file:{path}}}`")]
    Path {
        /// The path.
        path: String,
    },
    /// The source has another name, or none, as in a shell.
    #[error(
        "expected ${{env:NAME}}, ${{file:PATH}}, ${{exec:NAME}}, ${{credential:NAME}}, ${{vault:PATH#FIELD}}, ${{aws:NAME#FIELD}} \
         or ${{gcp:NAME#FIELD}}"
    )]
    UnknownForm,
    /// The reference is a part of the value.
    #[error("a secret is one reference, like ${{env:NAME}} or ${{file:PATH}}, without text around it")]
    Part,
    /// The reference stands after the scheme of a bearer token.
    #[error("a secret is one reference, without text around it; `bearer: {{ token: ... }}` adds the word")]
    Bearer,
    /// The reference has a default, which would be a secret in the config.
    #[error(
        "a secret has no default: it would stand in the config for everybody to read, and nobody would notice that {name} is missing; write ${{env:{name}}}"
    )]
    Default {
        /// Name of the variable.
        name: String,
    },
    /// The environment variable is not set.
    #[error("the environment variable {name} is not set")]
    NotSet {
        /// Name of the variable.
        name: String,
    },
    /// The environment variable is set, to something other than UTF-8.
    #[error("the environment variable {name} is not UTF-8")]
    NotUtf8 {
        /// Name of the variable.
        name: String,
    },
    /// The file cannot be read, or is not UTF-8.
    #[error("cannot read the secret file {path}: {}", reason(.error))]
    File {
        /// Path of the file, as written in the config.
        path: String,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The command of the config has not printed a secret.
    #[error("the command `{name}` of `secrets.commands` gives no secret: {message}")]
    Command {
        /// Name of the command.
        name: String,
        /// The reason, which the command may have given itself.
        message: String,
    },
    /// The secret manager has not given the secret.
    #[error("no secret was fetched for {name}: {message}")]
    Managed {
        /// The source, as written in the config.
        name: String,
        /// The reason.
        message: String,
    },
    /// No service manager has passed credentials, or the name is none.
    #[error(
        "there is no credential `{name}`: systemd passes one to a service with `LoadCredential={name}:PATH`, and names its directory in {CREDENTIALS_DIRECTORY}"
    )]
    NoCredential {
        /// Name of the credential.
        name: String,
    },
    /// There is nothing but line ends.
    #[error("the secret {name} is empty")]
    Empty {
        /// The source, as written in the config.
        name: String,
    },
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.value == other.value
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.source)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

/// The newtype name of secrets. The loader recognizes it and does not show the value.
pub(crate) const SECRET: &str = "Secret";

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SecretVisitor;

        impl<'de> de::Visitor<'de> for SecretVisitor {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret, written like ${env:NAME} or ${file:PATH}")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Secret, D::Error> {
                Secret::resolve(&Cow::<'de, str>::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_newtype_struct(SECRET, SecretVisitor)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^\\$\\{(env|file|exec|credential|vault|aws|gcp):[^}]+\\}$",
            "description": "A secret, written as `${env:NAME}`, `${file:PATH}`, `${exec:NAME}`, `${credential:NAME}`, `${vault:PATH#FIELD}`, `${aws:NAME#FIELD}` or `${gcp:NAME#FIELD}`.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_the_environment_and_never_shown() {
        let secret = Secret::resolve("${env:PATH}").unwrap();
        assert_eq!(secret.expose(), std::env::var("PATH").unwrap());
        assert_eq!(format!("{secret:?} {secret}"), "Secret(${env:PATH}) ${env:PATH}");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"${env:PATH}\"");
    }

    #[test]
    fn variables_with_secrets_are_noted() {
        let read = || {
            let _ = Secret::resolve("${env:PATH}");
            let _ = Secret::resolve("${env:EGRET_NO_SUCH}");
            let _ = Secret::resolve("${file:/no/such}");
            without_secrets(|| Secret::resolve("${env:TOKEN}")).is_ok()
        };
        let (outer, noted) = noting_secret_variables(|| noting_secret_variables(read));
        assert_eq!((outer.0, noted.len()), (true, 0));
        assert_eq!(outer.1.into_iter().collect::<Vec<_>>(), ["EGRET_NO_SUCH", "PATH", "TOKEN"]);
    }

    #[test]
    fn a_secret_that_is_given_is_not_shown_either() {
        let secret = Secret::from_value("${env:TOKEN}", "hunter2".to_owned());
        assert_eq!(
            (secret.expose(), format!("{secret:?} {secret}")),
            ("hunter2", "Secret(${env:TOKEN}) ${env:TOKEN}".to_owned())
        );
    }

    #[test]
    fn a_secret_in_clear_is_refused_without_repeating_it() {
        for secret in ["hunter2", "$hunter2", "${hunter2}", "/hunter2", "./hunter2/", "hunter2.pem"] {
            let message = Secret::resolve(secret).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn a_missing_secret_says_which() {
        let message = |source: &str| Secret::resolve(source).unwrap_err().to_string();
        assert_eq!(message("${env:EGRET_NO_SUCH}"), "the environment variable EGRET_NO_SUCH is not set");
        assert!(message("${file:/no/such}").contains("/no/such"));
        assert_eq!(
            message("${var:HOME}"),
            "expected ${env:NAME}, ${file:PATH}, ${exec:NAME}, ${credential:NAME}, ${vault:PATH#FIELD}, ${aws:NAME#FIELD} or \
             ${gcp:NAME#FIELD}"
        );
        for source in ["${SHOP_2}", "$SHOP_2"] {
            assert_eq!(message(source), "a variable is written `${env:SHOP_2}`");
        }
        assert!(message("Bearer ${env:T}").ends_with("; `bearer: { token: ... }` adds the word"));
        assert_eq!(message("./client.key"), "a file is written `${file:./client.key}`");
        for name in ["a", "", "..", "a/b"] {
            let message = message(&format!("${{credential:{name}}}"));
            assert!(message.contains(&format!("LoadCredential={name}:PATH")), "{message}");
        }
    }

    #[test]
    fn fetched_secrets_are_known_while_a_config_is_read() {
        let failed = || Err("it ended with exit code 1".to_owned());
        let secrets = [
            ("${exec:a}", Ok(Zeroizing::new("hunter2\n".to_owned()))),
            ("${exec:b}", failed()),
            ("${vault:a/b#c}", Ok(Zeroizing::new("hunter3".to_owned()))),
            ("${aws:b}", failed()),
        ]
        .map(|(reference, secret)| (reference.to_owned(), secret));
        let resolve = Secret::resolve;
        {
            let _before = FetchedBefore::replace(Some(Arc::new(BTreeMap::from(secrets))));
            for (reference, value) in [("${exec:a}", "hunter2"), ("${vault:a/b#c}", "hunter3")] {
                let secret = resolve(reference).unwrap();
                assert_eq!((secret.expose(), secret.is_placeholder()), (value, false));
                assert_eq!(format!("{secret:?}"), format!("Secret({reference})"));
            }
            for (reference, message) in [
                (
                    "${exec:b}",
                    "the command `b` of `secrets.commands` gives no secret: it ended with exit code 1",
                ),
                ("${aws:b}", "no secret was fetched for ${aws:b}: it ended with exit code 1"),
                ("${gcp:c}", "no secret was fetched for ${gcp:c}: it was not fetched"),
            ] {
                assert_eq!(resolve(reference).unwrap_err().to_string(), message);
            }
            assert!(without_secrets(|| resolve("${exec:b}")).unwrap().is_placeholder());
        }
        assert!(resolve("${exec:a}").unwrap_err().to_string().ends_with("it was not fetched"));
    }

    #[test]
    fn a_variable_that_is_no_text_says_so_without_its_value() {
        let value = std::os::unix::ffi::OsStringExt::from_vec(b"hunter2\xff".to_vec());
        let error = from_environment("TOKEN", Err(VarError::NotUnicode(value))).unwrap_err();
        assert_eq!(error.to_string(), "the environment variable TOKEN is not UTF-8");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    #[test]
    fn a_file_that_holds_no_secret_says_why() {
        let path = std::env::temp_dir().join(format!("egret-secret-{}", std::process::id()));
        let resolve = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Secret::resolve(&format!("${{file:{}}}", path.display()))
        };
        assert_eq!(resolve(b"hunter2\r\n").unwrap().expose(), "hunter2");
        assert_eq!(resolve(&vec![b'a'; SECRET_BYTES_MAX]).unwrap().expose().len(), SECRET_BYTES_MAX);
        for (bytes, why) in [
            (vec![b'a'; SECRET_BYTES_MAX + 1], "it is longer than 65536 bytes"),
            (b"hunter2\xff".to_vec(), "it is not UTF-8"),
            (b"\n".to_vec(), "is empty"),
        ] {
            let message = resolve(&bytes).unwrap_err().to_string();
            assert!(message.ends_with(why) && !message.contains("hunter2"), "{message}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
