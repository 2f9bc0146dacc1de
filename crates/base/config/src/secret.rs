//! Secrets: the config refers to them as `${env:NAME}` or `${file:PATH}`; their values are never shown.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::Zeroizing;

use crate::file::read_file;

/// Maximum length of a secret file. Keys, tokens and certificate chains are far shorter.
const FILE_BYTES_MAX: usize = 64 << 10;

/// A secret and its source. `Debug`, `Display` and serialization show only the source.
#[derive(Clone)]
pub struct Secret {
    source: String,
    value: Zeroizing<String>,
}

impl Secret {
    /// Reads the secret that `${env:NAME}` or `${file:PATH}` refers to. A file must be a regular one of at
    /// most 64 KiB; its trailing line ends are dropped.
    pub fn resolve(source: &str) -> Result<Self, String> {
        let inner = source
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'))
            .ok_or("a secret must not be written in the config: use ${env:NAME} or ${file:PATH}")?;
        let value = match inner.split_once(':') {
            Some(("env", name)) => Zeroizing::new(
                std::env::var(name)
                    .map_err(|_| format!("the environment variable {name} is not set or not UTF-8"))?,
            ),
            Some(("file", path)) => {
                from_file(path).map_err(|message| format!("cannot read the secret file {path}: {message}"))?
            }
            _ => return Err("expected ${env:NAME} or ${file:PATH}".to_owned()),
        };
        let trimmed = value.trim_end_matches(['\r', '\n']);
        if trimmed.is_empty() {
            return Err(format!("the secret {source} is empty"));
        }
        Ok(Self { source: source.to_owned(), value: Zeroizing::new(trimmed.to_owned()) })
    }

    /// Creates a secret that does not come from a config; `source` is shown in its place.
    pub fn given(source: impl Into<String>, value: String) -> Self {
        Self { source: source.into(), value: Zeroizing::new(value) }
    }

    /// Returns the secret itself. Call it where the secret is used and keep no copy.
    pub fn expose(&self) -> &str {
        &self.value
    }
}

/// Reads the text of a secret file.
fn from_file(path: &str) -> Result<Zeroizing<String>, String> {
    let bytes = read_file(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    Ok(Zeroizing::new(text.to_owned()))
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
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret, written as ${env:NAME} or ${file:PATH}")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Secret, D::Error> {
                Secret::resolve(&Cow::<'de, str>::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_newtype_struct(SECRET, Visitor)
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
            "pattern": "^\\$\\{(env|file):[^}]+\\}$",
            "description": "A secret, written as `${env:NAME}` or `${file:PATH}`.",
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
    fn a_secret_that_is_given_is_not_shown_either() {
        let secret = Secret::given("${env:TOKEN}", "hunter2".to_owned());
        assert_eq!(
            (secret.expose(), format!("{secret:?} {secret}")),
            ("hunter2", "Secret(${env:TOKEN}) ${env:TOKEN}".to_owned())
        );
    }

    #[test]
    fn a_secret_in_clear_is_refused_without_repeating_it() {
        let message = Secret::resolve("hunter2").unwrap_err();
        assert!(!message.contains("hunter2"), "{message}");
    }

    #[test]
    fn a_missing_secret_says_which() {
        assert!(Secret::resolve("${env:EGRET_NO_SUCH}").unwrap_err().contains("EGRET_NO_SUCH"));
        assert!(Secret::resolve("${file:/no/such}").unwrap_err().contains("/no/such"));
    }

    #[test]
    fn a_file_that_holds_no_secret_says_why() {
        let path = std::env::temp_dir().join(format!("egret-secret-{}", std::process::id()));
        let resolve = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Secret::resolve(&format!("${{file:{}}}", path.display()))
        };
        assert_eq!(resolve(b"hunter2\r\n").unwrap().expose(), "hunter2");
        assert_eq!(resolve(&vec![b'a'; FILE_BYTES_MAX]).unwrap().expose().len(), FILE_BYTES_MAX);
        for (bytes, why) in [
            (vec![b'a'; FILE_BYTES_MAX + 1], "it is longer than 65536 bytes"),
            (b"hunter2\xff".to_vec(), "it is not UTF-8"),
            (b"\n".to_vec(), "is empty"),
        ] {
            let message = resolve(&bytes).unwrap_err();
            assert!(message.ends_with(why) && !message.contains("hunter2"), "{message}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
