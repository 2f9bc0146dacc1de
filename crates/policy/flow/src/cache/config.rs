//! The config keys of the cache.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use egret_config::{Duration, Size};
use egret_http1::is_token;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::conditions::Condition;
use egret_json::pointer::pointer_problem;

/// What is stored of a provider's answers, under which key, and for how long.
///
/// Without any key it is a shared cache as RFC 9111 has it, in which each credential has a part of its own.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// For how long an answer is fresh where it does not say so itself, by its status: `{ 2xx: 60s, 404: 10s }`. Of several that
    /// cover a status the narrowest holds. Without one, a 5xx is stored only where it says itself for how
    /// long it is fresh. Statuses 428, 429, 431 and 511 are never stored (RFC 6585), though a range may cover
    /// them.
    pub ttl: BTreeMap<Statuses, Duration>,
    /// Whether `ttl` holds for the statuses it names whatever the answer says of caching.
    #[serde(rename = "override")]
    pub overrides: bool,
    /// What of a request tells its answer from others, besides method and URL.
    pub key: KeyConfig,
    /// Whether answers are given to whoever asks, whatever credential they were got with. Otherwise each credential has a part of the
    /// cache for itself.
    pub shared: bool,
    /// Whether the part that a credential has for itself is taken as that user's private cache: then `private` answers are stored in
    /// it, and so are those to requests with `Authorization` that nothing else allows to be stored.
    pub private: bool,
    /// Header fields that are credentials, besides those that look like it by their name.
    pub credentials: Vec<String>,
    /// Methods whose answers are stored. `POST` means that a `POST` here asks and changes nothing; its body is then part of the key,
    /// and its answers are stored where `ttl` with `override` says so.
    pub methods: BTreeSet<String>,
    /// The largest answer that is stored.
    pub max_entry: Size,
    /// What all stored answers may take together, with everything around them. What is not used goes first.
    pub memory: Size,
    /// Keeps stored answers on a disk as well: there they outlive a restart, and what is no longer in memory. Off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Box<DiskConfig>>,
    /// How requests that ask for the same at once are made one; `null` for not at all.
    pub collapse: Option<CollapseConfig>,
    /// The longest time for which an answer that says nothing is taken as fresh by its age (`Last-Modified`); `0s` for never.
    pub heuristic_max: Duration,
    /// For how long an answer that is no longer fresh may be given while it is asked for anew, where it does not say so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_while_revalidate: Option<Duration>,
    /// The same where the provider cannot be had, or answers with 500, 502, 503 or 504. Where nothing is
    /// given, here or by the answer: `5m` where the provider closes without a response, cannot be connected
    /// to or is too late, and not at all otherwise; `0s` for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_if_error: Option<Duration>,
    /// What becomes of answers that set cookies.
    pub set_cookie: SetCookie,
    /// Fields that take the place of `Cache-Control`, the first that there is (RFC 9213).
    pub targets: Vec<String>,
    /// Names by which what is stored can be purged.
    pub tags: Vec<String>,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            ttl: BTreeMap::new(),
            overrides: false,
            key: KeyConfig::default(),
            shared: false,
            private: false,
            credentials: Vec::new(),
            methods: ["GET", "HEAD"].map(str::to_owned).into(),
            max_entry: Size::from_kib(1024),
            memory: Size::from_kib(64 * 1024),
            disk: None,
            collapse: Some(CollapseConfig::default()),
            heuristic_max: Duration::from_secs(86_400),
            stale_while_revalidate: None,
            stale_if_error: None,
            set_cookie: SetCookie::Refuse,
            targets: vec!["egret-cache-control".to_owned()],
            tags: Vec::new(),
        }
    }
}

/// Where stored answers are kept besides memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskConfig {
    /// What their files may take together; up to a sixteenth of it is taken in memory as well, to know what is there. What is not used
    /// goes first.
    pub size: Size,
    /// Where each cache has a directory of its own, which only Egret's user may read. `cache` in `data_dir` if none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self { size: Size::from_kib(1024 * 1024), directory: None }
    }
}

/// What of a request tells its answer from others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyConfig {
    /// How the query is taken.
    pub query: QueryKey,
    /// Only these parameters of the query; all if none is named. Those that look like a credential always count, unless the cache is
    /// `shared`.
    pub parameters: Vec<String>,
    /// Values of these header fields.
    pub headers: Vec<String>,
    /// Of a JSON body only what these pointers (RFC 6901) name: `/model`, `/messages`. The whole body if none is given.
    pub body: Vec<String>,
    /// The application that calls (`x-egret-consumer`).
    pub consumer: bool,
}

/// How a query is part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueryKey {
    /// As sent.
    #[default]
    Exact,
    /// By its parameters, in whatever order they come.
    Sorted,
    /// Not at all.
    Ignored,
}

/// What becomes of answers that set cookies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SetCookie {
    /// They are not stored.
    #[default]
    Refuse,
    /// They are stored without the cookies.
    Strip,
}

/// How requests that ask for the same at once are made one.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CollapseConfig {
    /// How long one waits for the answer to another before it goes on by itself.
    pub max_wait: Duration,
}

impl Default for CollapseConfig {
    fn default() -> Self {
        Self { max_wait: Duration::from_secs(5) }
    }
}

/// The largest `max_entry`.
const ENTRY_BYTES_MAX: u64 = 1 << 30;
/// The largest `memory`.
const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// The disk has room for so many of the largest answers at least, so that one of them does not empty it.
const ENTRIES_ON_DISK: u64 = 8;
/// The largest `disk.size`.
const DISK_BYTES_MAX: u64 = 1 << 40;
/// More names in one list are refused.
const NAMES_MAX: usize = 64;
/// The longest tag.
const TAG_BYTES_MAX: usize = 64;
/// The longest time that a config may name.
const TIME_MAX: Duration = Duration::from_secs(365 * 86_400);
/// The longest that one waits for another.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// What is wrong with `config`, by key.
pub fn problems(config: &CacheConfig) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    let mut note = |key, is_good: bool, message: &str| {
        if !is_good {
            problems.push((key, message.to_owned()));
        }
    };
    let KeyConfig { query, parameters, headers, body, .. } = &config.key;
    let posts = config.methods.contains("POST");
    note("override", !config.overrides || !config.ttl.is_empty(), "there is no `ttl` that could hold");
    let is_stored = |statuses: &Statuses| !(statuses.len() == 1 && is_never_stored(statuses.from));
    note(
        "ttl",
        config.ttl.keys().all(is_stored),
        "no cache may store 428, 429, 431 or 511 (RFC 6585): leave that status out",
    );
    note("ttl", config.ttl.values().all(|ttl| *ttl <= TIME_MAX), "up to a year (`365d`)");
    let is_known = |method: &String| matches!(method.as_str(), "GET" | "HEAD" | "POST");
    note("methods", config.methods.iter().all(is_known), "answers are stored for `GET`, `HEAD` and `POST`");
    note("methods", !config.methods.is_empty(), "with no method, nothing is stored");
    note(
        "methods",
        !posts || config.overrides,
        "answers to `POST` are stored only with `ttl` and `override: true`",
    );
    note("key.body", body.is_empty() || posts, "only `POST` has a body: name it in `methods`");
    note(
        "key.parameters",
        parameters.is_empty() || *query != QueryKey::Ignored,
        "with `query: ignored` none counts",
    );
    note("private", !(config.private && config.shared), "a `shared` cache is nobody's own");
    let sizes = 1..=ENTRY_BYTES_MAX;
    note("max_entry", sizes.contains(&config.max_entry.bytes()), "from `1B` to `1GiB`");
    note(
        "memory",
        (config.max_entry.bytes()..=MEMORY_BYTES_MAX).contains(&config.memory.bytes()),
        "from `max_entry` to `1TiB`",
    );
    if let Some(disk) = &config.disk {
        let bytes = disk.size.bytes();
        note("disk.size", bytes >= config.memory.bytes(), "less than `memory` has would be of no use");
        note(
            "disk.size",
            bytes / ENTRIES_ON_DISK >= config.max_entry.bytes(),
            "at least eight times `max_entry`, so that one answer does not take the place of all others",
        );
        note("disk.size", bytes <= DISK_BYTES_MAX, "up to `1TiB`");
        let is_named = disk.directory.as_ref().is_none_or(|path| !path.as_os_str().is_empty());
        note("disk.directory", is_named, "names no directory; leave it out for `cache` in `data_dir`");
    }
    let wait = config.collapse.as_ref().map(|collapse| collapse.max_wait);
    let is_wait = |wait: Duration| !wait.is_zero() && wait <= WAIT_MAX;
    note(
        "collapse.max_wait",
        wait.is_none_or(is_wait),
        "above `0s`, up to `10m`; `collapse: null` for not at all",
    );
    note("heuristic_max", config.heuristic_max <= TIME_MAX, "up to a year (`365d`)");
    for (key, time) in
        [("stale_while_revalidate", config.stale_while_revalidate), ("stale_if_error", config.stale_if_error)]
    {
        note(key, time.is_none_or(|time| time <= TIME_MAX), "up to a year (`365d`)");
    }
    for (key, names) in
        [("key.headers", headers), ("credentials", &config.credentials), ("targets", &config.targets)]
    {
        note(
            key,
            names.iter().all(|name| is_token(name.as_bytes())),
            "a header field's name has letters, digits and `-`",
        );
    }
    let is_tag = |tag: &String| {
        (1..=TAG_BYTES_MAX).contains(&tag.len()) && tag.bytes().all(|byte| byte.is_ascii_graphic())
    };
    note("tags", config.tags.iter().all(is_tag), "a tag has 1 to 64 visible ASCII characters");
    for (key, names) in [
        ("key.parameters", parameters),
        ("key.headers", headers),
        ("key.body", body),
        ("credentials", &config.credentials),
        ("targets", &config.targets),
        ("tags", &config.tags),
    ] {
        note(key, names.len() <= NAMES_MAX, "at most 64 names");
    }
    if let Some(problem) = body.iter().find_map(|pointer| pointer_problem(pointer)) {
        problems.push(("key.body", problem));
    }
    problems
}

/// Statuses that no cache may store (RFC 6585 §3 to §6): they are about one client, or about its network.
pub(super) const fn is_never_stored(status: u16) -> bool {
    matches!(status, 428 | 429 | 431 | 511)
}

/// A status, a class or a range of them: `200`, `2xx`, `500-504`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Statuses {
    from: u16,
    to: u16,
}

impl Statuses {
    /// Whether `status` is among them.
    pub fn covers(self, status: u16) -> bool {
        (self.from..=self.to).contains(&status)
    }

    /// How many there are.
    pub fn len(self) -> u16 {
        self.to - self.from + 1
    }

    /// None is never written.
    pub fn is_empty(self) -> bool {
        false
    }
}

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(Condition::Status(from, to)) => Ok(Self { from, to }),
            _ => Err(format!(
                "`{text}` is no status: write one from 200 to 599, a class like `2xx` or a range like `500-504`"
            )),
        }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Condition::Status(self.from, self.to).fmt(f)
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Statuses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status, a class like `2xx` or a range like `500-504`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Statuses, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, status: u64) -> Result<Statuses, E> {
                status.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A status like `200`, a class like `2xx` or a range like `500-504`.",
            "type": "string",
            "pattern": "^([2-5]xx|[2-5][0-9][0-9](-[2-5][0-9][0-9])?)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: serde_json::Value) -> Result<CacheConfig, String> {
        serde_json::from_value(config).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_what_was_read() {
        let config = read(json!({
            "ttl": { "200": "60s", "404": "10s", "5xx": "1s", "300-308": "5m" },
            "override": true,
            "key": { "query": "sorted", "parameters": ["q"], "headers": ["accept"], "body": ["/model"], "consumer": true },
            "methods": ["GET", "POST"],
            "disk": { "size": "2GiB", "directory": "/var/cache/egret" },
            "collapse": { "max_wait": "2s" },
            "stale_if_error": "1h",
            "set_cookie": "strip",
            "tags": ["search"],
        }))
        .unwrap();
        assert_eq!(problems(&config), []);
        assert_eq!(read(serde_json::to_value(&config).unwrap()).unwrap(), config);
        assert_eq!(problems(&CacheConfig::default()), []);
        assert_eq!(read(json!({ "collapse": null })).unwrap().collapse, None);
        assert_eq!(read(json!({ "disk": {} })).unwrap().disk, Some(Box::default()));
        assert!(serde_json::to_string(&schemars::schema_for!(CacheConfig)).unwrap().contains("[2-5]xx"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_key() {
        for (config, key) in [
            (json!({ "override": true }), "override"),
            (json!({ "ttl": { "200": "366d" } }), "ttl"),
            (json!({ "methods": ["PUT"] }), "methods"),
            (json!({ "methods": [] }), "methods"),
            (json!({ "methods": ["POST"] }), "methods"),
            (json!({ "key": { "body": ["/a"] } }), "key.body"),
            (json!({ "key": { "query": "ignored", "parameters": ["a"] } }), "key.parameters"),
            (json!({ "key": { "headers": ["a b"] } }), "key.headers"),
            (json!({ "shared": true, "private": true }), "private"),
            (json!({ "max_entry": "0B" }), "max_entry"),
            (json!({ "memory": "512KiB" }), "memory"),
            (json!({ "disk": { "size": "63MiB" } }), "disk.size"),
            (json!({ "memory": "1MiB", "disk": { "size": "7MiB" } }), "disk.size"),
            (json!({ "disk": { "size": "1025GiB" } }), "disk.size"),
            (json!({ "disk": { "directory": "" } }), "disk.directory"),
            (json!({ "collapse": { "max_wait": "0s" } }), "collapse.max_wait"),
            (json!({ "collapse": { "max_wait": "11m" } }), "collapse.max_wait"),
            (json!({ "heuristic_max": "366d" }), "heuristic_max"),
            (json!({ "stale_if_error": "366d" }), "stale_if_error"),
            (json!({ "credentials": [""] }), "credentials"),
            (json!({ "targets": ["a:"] }), "targets"),
            (json!({ "tags": ["a b"] }), "tags"),
            (json!({ "tags": vec!["a"; 65] }), "tags"),
            (
                json!({ "methods": ["POST"], "override": true, "ttl": { "200": "1s" }, "key": { "body": ["a"] } }),
                "key.body",
            ),
        ] {
            let problems = problems(&read(config.clone()).unwrap());
            assert_eq!(problems.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key], "{config}");
        }
        for wrong in
            [json!({ "ttl": { "2x": "1s" } }), json!({ "ttl": { "timeout": "1s" } }), json!({ "tll": {} })]
        {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
