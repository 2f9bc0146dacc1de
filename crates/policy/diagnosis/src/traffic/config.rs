//! The config keys of live traffic: `control.traffic`.

use egret_config::{Problem, Size};
use egret_har::recording::{Bodies, Recording, RecordingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of the keys. The list is in memory, and a body is shown whole.
const TRAFFIC_BODY_BYTES_MAX: u64 = 1 << 20;
const ENTRIES_MAX: u32 = 100_000;
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Number of failed exchanges that are kept.
const FAILURES_MAX: u32 = 100;

/// Media types of bodies that people can read, besides those that recordings keep by default.
const MORE_MEDIA_TYPES: [&str; 4] =
    ["application/xml", "*/*+xml", "application/x-ndjson", "application/graphql"];

egret_config::keys! {
    /// The list of recent exchanges, for the page and `egret tail`. Egret records exchanges only while
    /// somebody reads the list, and for ten minutes after that; then it empties the list. The list always
    /// needs a token.
    #[derive(Eq)]
    pub struct TrafficConfig {
        /// The values that readers do not see: `secrets`, which are recognized by their name or by their
        /// look; `all` values, as in obfuscated recordings; or `off`, none.
        pub redact: Redact,
        /// Names whose values readers do not see either, at any depth: of members, fields, parameters and
        /// cookies. Case, `-` and `_` do not matter. `iban`, `phone`, `ip`, `ipv4`, `ipv6` and `ssn` also
        /// hide values that look like one. At most 256, for `redact: secrets`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub mask: Vec<String>,
        /// The part of each readable body that is kept, at most `1MiB`. `0B` keeps none.
        pub bodies: Size = Size::from_kib(16),
        /// The number of exchanges that are kept, at most 100,000. 0 switches live traffic off.
        #[schemars(range(max = 100_000))]
        pub entries: u32 = 1_000,
        /// The memory of all kept exchanges, at most `1GiB`. Older exchanges make room for new ones.
        pub memory: Size = Size::from_kib(32 << 10),
        /// The memory of failed exchanges, at most `1GiB`. Egret keeps the last hundred of them always,
        /// whether or not somebody reads: those with an error of Egret, and those with a status of 401, 403,
        /// 429 or 5xx. `redact` and `bodies` apply to them too. `0B` keeps none.
        pub failures: Size = Size::from_kib(4 << 10),
    }
}

/// The values that readers of live traffic do not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Redact {
    /// Values that look like secrets, or have the name of one.
    #[default]
    Secrets,
    /// All values, as in obfuscated recordings.
    All,
    /// None.
    Off,
}

impl TrafficConfig {
    /// Returns every value that is out of bounds. `at` is the path of the key.
    pub fn problems(&self, at: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut check = |key: &str, is_within: bool, max: String| {
            if !is_within {
                problems.push(Problem::new(format!("{at}.{key}"), format!("must be at most {max}")));
            }
        };
        let size = |bytes: u64| Size::from_bytes(bytes).to_string();
        check("bodies", self.bodies.bytes() <= TRAFFIC_BODY_BYTES_MAX, size(TRAFFIC_BODY_BYTES_MAX));
        check("entries", self.entries <= ENTRIES_MAX, ENTRIES_MAX.to_string());
        check("memory", self.memory.bytes() <= MEMORY_BYTES_MAX, size(MEMORY_BYTES_MAX));
        check("failures", self.failures.bytes() <= MEMORY_BYTES_MAX, size(MEMORY_BYTES_MAX));
        if !self.mask.is_empty() && self.redact != Redact::Secrets {
            let message =
                "masks are looked for together with secrets: write `redact: secrets`, or remove `mask`";
            problems.push(Problem::new(format!("{at}.mask"), message));
        } else if let Err(errors) = Recording::compile(&self.recording_config()) {
            let of_masks = errors.into_iter().filter(|error| error.path.starts_with("mask"));
            problems
                .extend(of_masks.map(|error| Problem::new(format!("{at}.{}", error.path), error.message)));
        }
        problems
    }

    /// Returns the config of the list of failed exchanges.
    pub(super) fn of_failures(self) -> Self {
        let entries = if self.failures.bytes() == 0 { 0 } else { FAILURES_MAX };
        Self { entries, memory: self.failures, ..self }
    }

    /// Returns the rules by which exchanges are written for readers. `None` if a key is out of bounds.
    pub(super) fn recording(&self) -> Option<Recording> {
        Recording::compile(&self.recording_config()).ok()
    }

    fn recording_config(&self) -> RecordingConfig {
        let bodies = if self.bodies.bytes() == 0 { Bodies::Sizes } else { Bodies::UpTo(self.bodies) };
        let mut media_types = RecordingConfig::default().media_types;
        media_types.extend(MORE_MEDIA_TYPES.map(str::to_owned));
        RecordingConfig {
            obfuscate: self.redact == Redact::All,
            detect_secrets: self.redact != Redact::Off,
            mask: self.mask.clone(),
            bodies,
            media_types,
            ..RecordingConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_within_bounds_and_each_key_has_one() {
        assert_eq!(TrafficConfig::default().problems("control.traffic"), []);
        let config: TrafficConfig = serde_json::from_str(
            r#"{ "redact": "all", "bodies": "2MiB", "entries": 100001, "memory": "2GiB", "failures": "2GiB" }"#,
        )
        .unwrap();
        let paths: Vec<_> =
            config.problems("control.traffic").into_iter().map(|problem| problem.path).collect();
        let keys = ["bodies", "entries", "memory", "failures"].map(|key| format!("control.traffic.{key}"));
        assert_eq!(paths, keys);
    }

    #[test]
    fn masks_are_names_beside_secrets_alone() {
        let problems = |json: &str| {
            let config: TrafficConfig = serde_json::from_str(json).unwrap();
            config.problems("t").into_iter().map(|problem| problem.path).collect::<Vec<_>>()
        };
        assert_eq!(problems(r#"{ "mask": ["name", "iban"] }"#), [""; 0]);
        assert_eq!(problems(r#"{ "mask": ["name", "$.a", ""] }"#), ["t.mask[1]", "t.mask[2]"]);
        for redact in ["all", "off"] {
            assert_eq!(problems(&format!(r#"{{ "redact": "{redact}", "mask": ["name"] }}"#)), ["t.mask"]);
        }
    }

    #[test]
    fn bodies_that_people_can_read_are_kept() {
        let recording = TrafficConfig::default().recording().unwrap();
        assert_eq!(recording.wanted_bytes(b"application/json"), 16 << 10);
        assert_eq!(recording.wanted_bytes(b"application/soap+xml; charset=utf-8"), 16 << 10);
        assert_eq!(recording.wanted_bytes(b"image/png"), 0);
        let none = TrafficConfig { bodies: Size::from_bytes(0), ..TrafficConfig::default() };
        assert_eq!(none.recording().unwrap().wanted_bytes(b"application/json"), 0);
    }
}
