//! Configuration of recordings: the parts of an exchange that are kept, and their redaction.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use egret_config::{Size, text_value};
use schemars::json_schema;

use crate::exclusions::{ExclusionError, Exclusions};
use crate::key::Key;
use crate::masks::{MASK_BYTES_MAX, MASKS_MAX, Masks};
use crate::obfuscate::Obfuscator;
use crate::redact::{Redact, Unredacted};
use crate::secret_remover::SecretRemover;

/// Maximum size kept of a body. It is copied, and held in memory until it is written.
const RECORDED_BODY_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of media type patterns.
const MEDIA_TYPES_MAX: usize = 64;

egret_config::keys! {
    /// The parts of exchanges that are recorded, and their redaction.
    #[derive(Eq)]
    pub struct RecordingConfig {
        /// Replaces every value by a pseudonym, made with a key that only this installation has. Names,
        /// hosts, times and sizes stay.
        pub obfuscate: bool = true,
        /// Values that are not obfuscated, as exact paths: `request.headers.accept`, `request.query.page`,
        /// `request.path[0]`, `response.body.$.items[*].id`.
        pub exclude: Vec<String>,
        /// Replaces secrets by pseudonyms even if `obfuscate` is off: values that look like a token, a key, a
        /// card number or an e-mail address, and values with the name of a secret, such as `authorization` or
        /// `password`.
        pub detect_secrets: bool = true,
        /// Names whose values are replaced like secrets, at any depth: of members, fields, parameters and
        /// cookies. Case, `-` and `_` do not matter. `iban`, `phone`, `ip`, `ipv4`, `ipv6` and `ssn` also
        /// replace values that look like one. At most 256, for `obfuscate: false`.
        pub mask: Vec<String>,
        /// Part of bodies that is kept.
        pub bodies: Bodies = Bodies::Sizes,
        /// Media types of bodies that are kept, such as `application/json`, `text/*` or `*/*`. `*/*+json`
        /// matches every type built on JSON.
        pub media_types: Vec<String> = [
            "application/json",
            "*/*+json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/*",
        ]
        .map(str::to_owned)
        .to_vec(),
    }
}

impl RecordingConfig {
    /// Returns what happens to values, for people: `obfuscated`, `masked` or `in the clear`.
    pub fn manner(&self) -> &'static str {
        match (self.obfuscate, self.mask.is_empty()) {
            (true, _) => "obfuscated",
            (false, false) => "masked",
            (false, true) => "in the clear",
        }
    }
}

/// Part of bodies that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bodies {
    /// Nothing, not even their size.
    None,
    /// Their size.
    #[default]
    Sizes,
    /// Their beginning, up to the given size as they were sent.
    UpTo(Size),
}

/// A text that names no part of bodies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown value `{0}`: expected `none`, `sizes`, or a size like `64KiB`")]
pub struct UnknownBodies(String);

impl FromStr for Bodies {
    type Err = UnknownBodies;

    fn from_str(text: &str) -> Result<Self, UnknownBodies> {
        match text {
            "none" => Ok(Self::None),
            "sizes" => Ok(Self::Sizes),
            _ => text.parse().map(Self::UpTo).map_err(|_| UnknownBodies(text.to_owned())),
        }
    }
}

impl fmt::Display for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Sizes => f.write_str("sizes"),
            Self::UpTo(size) => size.fmt(f),
        }
    }
}

text_value!(
    Bodies,
    "a string",
    json_schema!({
        "type": "string",
        "pattern": "^(none|sizes|[0-9]+(B|KiB|MiB|GiB))$",
        "description": "`none`: nothing, not even the size; `sizes`: only the size; or a size such as `64KiB`: up to that many bytes, as they were sent.",
    })
);

/// A compiled [`RecordingConfig`].
#[derive(Debug, Clone)]
pub struct Recording {
    obfuscate: bool,
    pub(crate) exclusions: Exclusions,
    detect_secrets: bool,
    pub(crate) bodies: Bodies,
    media_types: Vec<MediaTypes>,
    masks: Arc<Masks>,
}

/// An error in the config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct RecordingError {
    /// Path of the field within the config: `exclude[2]`.
    pub path: String,
    /// The mistake, and what was expected.
    pub message: String,
}

impl Recording {
    /// Compiles a config. Returns all errors at once.
    pub fn compile(config: &RecordingConfig) -> Result<Self, Vec<RecordingError>> {
        let mut errors = Vec::new();
        let exclusions =
            Exclusions::compile(config.exclude.iter().map(String::as_str)).unwrap_or_else(|wrong| {
                errors.extend(wrong.into_iter().map(|error| excluded(config, &error)));
                Exclusions::default()
            });
        let mut add = |path: String, message: String| errors.push(RecordingError { path, message });
        if let Bodies::UpTo(size) = config.bodies
            && size.bytes() > RECORDED_BODY_BYTES_MAX
        {
            add(
                "bodies".to_owned(),
                format!("at most {} of a body can be kept", Size::from_bytes(RECORDED_BODY_BYTES_MAX)),
            );
        }
        let masks = masks(config, &mut add);
        let mut media_types = Vec::new();
        for (index, pattern) in config.media_types.iter().enumerate() {
            match MediaTypes::compile(pattern) {
                Some(_) if index >= MEDIA_TYPES_MAX => {
                    add(format!("media_types[{index}]"), format!("more than {MEDIA_TYPES_MAX} media types"));
                    break;
                }
                Some(pattern) => media_types.push(pattern),
                None => add(
                    format!("media_types[{index}]"),
                    format!(
                        "`{pattern}` is not a media type: expected for example `application/json`, `text/*` or `*/*+json`"
                    ),
                ),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let RecordingConfig { obfuscate, detect_secrets, bodies, .. } = *config;
        Ok(Self { obfuscate, exclusions, detect_secrets, bodies, media_types, masks: Arc::new(masks) })
    }

    /// Adds names of fields, parameters and members whose values are secrets, in addition to the built-in
    /// ones. Case does not matter.
    #[must_use]
    pub fn with_secret_names(mut self, secret_names: &[Box<str>]) -> Self {
        Arc::make_mut(&mut self.masks).add_names(secret_names.iter().map(|name| &**name));
        self
    }

    /// Returns the rules for values that it asks for, with this key.
    pub(crate) fn redaction(&self, key: Key) -> Box<dyn Redact> {
        if self.obfuscate {
            Box::new(Obfuscator::new(key, self.exclusions.clone()))
        } else if self.detect_secrets {
            Box::new(SecretRemover::new(key, Arc::clone(&self.masks)))
        } else {
            Box::new(Unredacted)
        }
    }

    /// Returns the number of bytes to keep of a body of this media type, as it is sent. 0 means that no body
    /// is kept.
    pub fn wanted_bytes(&self, media_type: &[u8]) -> u64 {
        match self.bodies {
            Bodies::UpTo(size) if self.media_types.iter().any(|wanted| wanted.has(media_type)) => {
                size.bytes()
            }
            _ => 0,
        }
    }
}

/// Compiles the masks of a config, and adds their mistakes.
fn masks(config: &RecordingConfig, add: &mut impl FnMut(String, String)) -> Masks {
    let mut masks = Masks::default();
    let mask = &config.mask;
    if !mask.is_empty() && config.obfuscate {
        add(
            "mask".to_owned(),
            "every value is replaced already: add `obfuscate: false`, or remove `mask`".to_owned(),
        );
    }
    if !mask.is_empty() && !config.detect_secrets {
        add(
            "mask".to_owned(),
            "masks are looked for together with secrets: remove `detect_secrets: false`".to_owned(),
        );
    }
    if mask.len() > MASKS_MAX {
        add("mask".to_owned(), format!("more than {MASKS_MAX} names"));
    }
    for (index, name) in mask.iter().take(MASKS_MAX).enumerate() {
        if !masks.add(name) {
            let message = format!(
                "`{name}` is not a name of up to {MASK_BYTES_MAX} bytes: expected for example `phone`"
            );
            add(format!("mask[{index}]"), message);
        }
    }
    masks
}

fn excluded(config: &RecordingConfig, error: &ExclusionError) -> RecordingError {
    let index = config.exclude.iter().position(|path| *path == error.path).unwrap_or_default();
    RecordingError { path: format!("exclude[{index}]"), message: error.to_string() }
}

/// A pattern of media types, in lower case: `*` for any type or subtype, `*+json` for any subtype with this
/// suffix.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MediaTypes {
    kind: String,
    subtype: String,
}

impl MediaTypes {
    fn compile(pattern: &str) -> Option<Self> {
        let (kind, subtype) = pattern.split_once('/')?;
        let is_part = |part: &str| part == "*" || crate::media::is_token(part) && !part.contains('*');
        let is_right = is_part(kind) && is_part(subtype.strip_prefix("*+").unwrap_or(subtype));
        is_right.then(|| Self { kind: kind.to_ascii_lowercase(), subtype: subtype.to_ascii_lowercase() })
    }

    fn has(&self, media_type: &[u8]) -> bool {
        if (&*self.kind, &*self.subtype) == ("*", "*") {
            return true;
        }
        let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let slash = essence.iter().position(|byte| *byte == b'/').unwrap_or(essence.len());
        let (kind, subtype) = (&essence[..slash], essence.get(slash + 1..).unwrap_or_default());
        let suffix_is = |suffix: &str| {
            subtype.len() > suffix.len()
                && subtype[subtype.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
        };
        (self.kind == "*" || kind.eq_ignore_ascii_case(self.kind.as_bytes()))
            && ((self.subtype == "*" && !subtype.is_empty())
                || self.subtype.strip_prefix('*').is_some_and(suffix_is)
                || subtype.eq_ignore_ascii_case(self.subtype.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_read_and_compiled() {
        let config: RecordingConfig = serde_json::from_str(
            r#"{"bodies": "64KiB", "media_types": ["application/json", "*/*+json", "text/*"]}"#,
        )
        .unwrap();
        assert!(config.obfuscate && config.detect_secrets);
        let recording = Recording::compile(&config).unwrap();
        for (media_type, is_wanted) in [
            ("application/json", true),
            ("Application/JSON ; charset=utf-8", true),
            ("application/problem+json", true),
            ("application/+json", false),
            ("text/html", true),
            ("text", false),
            ("image/png", false),
            ("", false),
        ] {
            assert_eq!(
                recording.wanted_bytes(media_type.as_bytes()),
                if is_wanted { 65_536 } else { 0 },
                "{media_type}"
            );
        }
        let sizes = Recording::compile(&RecordingConfig::default()).unwrap();
        assert_eq!(sizes.wanted_bytes(b"application/json"), 0);
    }

    #[test]
    fn all_that_is_wrong_is_told_with_its_place() {
        let config = RecordingConfig {
            exclude: vec!["request.query.page".to_owned(), "query.page".to_owned()],
            bodies: Bodies::UpTo(Size::from_bytes(1 << 40)),
            media_types: vec!["text/*".to_owned(), "json".to_owned(), "a/b*".to_owned()],
            ..RecordingConfig::default()
        };
        let errors = Recording::compile(&config).unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["exclude[1]", "bodies", "media_types[1]", "media_types[2]"], "{errors:?}");
        let paths = |config: RecordingConfig| {
            let mask = ["name", "iban", "$.name"].map(str::to_owned).into();
            let errors = Recording::compile(&RecordingConfig { mask, ..config }).unwrap_err();
            errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
        };
        let secrets = RecordingConfig { obfuscate: false, ..RecordingConfig::default() };
        assert_eq!(paths(secrets.clone()), ["mask[2]"]);
        assert_eq!(paths(RecordingConfig::default()), ["mask", "mask[2]"]);
        assert_eq!(paths(RecordingConfig { detect_secrets: false, ..secrets.clone() }), ["mask", "mask[2]"]);
        let mask = vec!["name".to_owned(); MASKS_MAX + 1];
        let errors = Recording::compile(&RecordingConfig { mask, ..secrets }).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(serde_json::from_str::<Bodies>("\"64\"").unwrap_err().to_string().contains("`64KiB`"));
        assert!(serde_json::from_str::<Bodies>("\"none\"").is_ok_and(|bodies| bodies == Bodies::None));
    }
}
