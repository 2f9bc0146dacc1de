//! The config keys of the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use egret_config::{Duration, Size, text_value};
use egret_http1::is_token;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};

use egret_json::pointer::pointer_problem;
use egret_message::Condition;

egret_config::keys! {
    /// Rules for storing responses: under which key, and for how long.
    ///
    /// Without any keys, this is a shared cache as defined in RFC 9111 in which each credential has its own
    /// partition.
    pub struct CacheConfig {
        /// Freshness lifetime by status code, for responses that do not specify one:
        /// `{ 2xx: 60s, 404: 10s }`. If several ranges cover a status, the narrowest applies. Without an
        /// entry, a 5xx response is stored only if it specifies its own lifetime. Statuses 428, 429, 431 and
        /// 511 are never stored (RFC 6585), even if a range covers them.
        #[schemars(extend("x-tier" = "everyday"))]
        pub ttl: BTreeMap<Statuses, Duration>,
        /// Makes `ttl` override the cache directives of responses with the statuses it covers.
        #[serde(rename = "override")]
        pub overrides: bool,
        /// Parts of a request that belong to the cache key, besides method and URL.
        pub key: KeyConfig,
        /// Serves stored responses to every client, whatever credential they were requested with. By default
        /// each credential has its own cache partition.
        pub shared: bool,
        /// Treats the partition of a credential as that user's private cache. It then also stores `private`
        /// responses, and responses to requests with `Authorization` that a shared cache must not store.
        pub private: bool,
        /// Additional header fields that contain credentials. Fields with a typical name are recognized
        /// without being listed.
        pub credentials: Vec<String>,
        /// Methods whose responses are stored. Add `POST` only if a `POST` to this provider is a query and
        /// changes nothing. Its body is then part of the key, and its responses are stored if `ttl` with
        /// `override` covers them.
        pub methods: BTreeSet<String> = ["GET", "HEAD"].map(str::to_owned).into(),
        /// Maximum size of a stored response.
        pub max_entry: Size = Size::from_kib(1024),
        /// Maximum size of all stored responses together, including overhead. Unused responses are evicted
        /// first.
        pub memory: Size = Size::from_kib(64 * 1024),
        /// Also stores responses on disk. There they survive a restart and eviction from memory. Off by
        /// default.
        pub disk: Option<Box<DiskConfig>>,
        /// Coalescing of concurrent requests for the same response; `null` to disable it.
        pub collapse: Option<CollapseConfig> = Some(CollapseConfig::default()),
        /// Maximum freshness lifetime that is estimated from `Last-Modified` for a response that does not
        /// specify one; `0s` to disable the estimate.
        pub heuristic_max: Duration = Duration::from_secs(86_400),
        /// Time after its expiry for which a stale response is served while it is revalidated in the
        /// background, if the response does not specify one.
        pub stale_while_revalidate: Option<Duration>,
        /// Time after its expiry for which a stale response is served if the provider cannot be reached, or
        /// responds with 500, 502, 503 or 504. A time in the response takes precedence. If neither is set, it
        /// is `5m` when the provider cannot be connected to, times out or closes without a response, and `0s`
        /// otherwise. `0s` disables it.
        pub stale_if_error: Option<Duration>,
        /// Treatment of responses that set cookies.
        pub set_cookie: SetCookie = SetCookie::Refuse,
        /// Header fields that take precedence over `Cache-Control`; the first one present is used (RFC 9213).
        pub targets: Vec<String> = vec!["egret-cache-control".to_owned()],
        /// Names by which stored responses can be purged.
        pub tags: Vec<String>,
    }
}

egret_config::keys! {
    /// Storage of responses on disk.
    #[derive(Eq)]
    pub struct DiskConfig {
        /// Maximum size of the files. An index of up to a sixteenth of it is kept in memory. Unused responses
        /// are evicted first.
        pub size: Size = Size::from_kib(1024 * 1024),
        /// Directory in which each cache has its own subdirectory, readable by Egret's user only. Default:
        /// `cache` in `data_dir`.
        pub directory: Option<PathBuf>,
    }
}

/// Parts of a request that belong to the cache key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyConfig {
    /// Treatment of the query.
    pub query: QueryKey,
    /// The only query parameters that belong to the key. If the list is empty, all do. Parameters that look
    /// like a credential always belong to it, unless the cache is `shared`.
    pub parameters: Vec<String>,
    /// Header fields whose values belong to the key.
    pub headers: Vec<String>,
    /// The only parts of a JSON body that belong to the key, as JSON pointers (RFC 6901): `/model`,
    /// `/messages`. If the list is empty, the whole body does.
    pub body: Vec<String>,
    /// Makes the calling application (`x-egret-consumer`) part of the key.
    pub consumer: bool,
}

/// Treatment of the query in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueryKey {
    /// Verbatim.
    #[default]
    Exact,
    /// With its parameters sorted by name.
    Sorted,
    /// Ignored.
    Ignored,
}

/// Treatment of responses that set cookies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SetCookie {
    /// They are not stored.
    #[default]
    Refuse,
    /// They are stored without the cookies.
    Strip,
}

egret_config::keys! {
    /// Coalescing of concurrent requests for the same response.
    pub struct CollapseConfig {
        /// Maximum time that a request waits for the response to another one before it is sent on its own.
        pub max_wait: Duration = Duration::from_secs(5),
    }
}

/// Maximum of `max_entry`.
const ENTRY_BYTES_MAX: u64 = 1 << 30;
/// Maximum of `memory`.
const MEMORY_BYTES_MAX: u64 = 1 << 40;
/// Minimum of `disk.size` in units of `max_entry`, so one large response does not evict everything.
const ENTRIES_ON_DISK: u64 = 8;
/// Maximum of `disk.size`.
const DISK_BYTES_MAX: u64 = 1 << 40;
/// Maximum number of names in one list.
const NAMES_MAX: usize = 64;
/// Maximum length of a tag.
const TAG_BYTES_MAX: usize = 64;
/// Maximum of the durations.
const TIME_MAX: Duration = Duration::from_secs(365 * 86_400);
/// Maximum of `collapse.max_wait`.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Returns the mistakes in `config`, each with its key.
pub fn problems(config: &CacheConfig) -> Vec<(&'static str, String)> {
    let mut checks = Checks::default();
    checks.content(config);
    checks.sizes(config);
    checks.times(config);
    checks.names(config);
    checks.problems
}

#[derive(Default)]
struct Checks {
    problems: Vec<(&'static str, String)>,
}

impl Checks {
    /// Adds a problem unless the value of `key` is good.
    fn check(&mut self, key: &'static str, is_good: bool, message: &str) {
        if !is_good {
            self.problems.push((key, message.to_owned()));
        }
    }

    /// Checks the keys that select requests and responses.
    fn content(&mut self, config: &CacheConfig) {
        let KeyConfig { query, parameters, body, .. } = &config.key;
        let posts = config.methods.contains("POST");
        self.check("override", !config.overrides || !config.ttl.is_empty(), "requires a `ttl`");
        let is_stored = |statuses: &Statuses| !(statuses.len() == 1 && is_never_stored(statuses.from));
        self.check(
            "ttl",
            config.ttl.keys().all(is_stored),
            "no cache may store 428, 429, 431 or 511 (RFC 6585): remove that status",
        );
        self.check("ttl", config.ttl.values().all(|ttl| *ttl <= TIME_MAX), "must not exceed a year (`365d`)");
        let is_known = |method: &String| matches!(method.as_str(), "GET" | "HEAD" | "POST");
        self.check(
            "methods",
            config.methods.iter().all(is_known),
            "only `GET`, `HEAD` and `POST` are supported",
        );
        self.check(
            "methods",
            !config.methods.is_empty(),
            "must not be empty: without a method, nothing is stored",
        );
        self.check(
            "methods",
            !posts || config.overrides,
            "responses to `POST` are stored only with `ttl` and `override: true`",
        );
        self.check(
            "key.body",
            body.is_empty() || posts,
            "only `POST` requests have a body: add `POST` to `methods`",
        );
        self.check(
            "key.parameters",
            parameters.is_empty() || *query != QueryKey::Ignored,
            "has no effect with `query: ignored`",
        );
        self.check(
            "private",
            !(config.private && config.shared),
            "`private` and `shared` exclude each other",
        );
    }

    fn sizes(&mut self, config: &CacheConfig) {
        let sizes = 1..=ENTRY_BYTES_MAX;
        self.check("max_entry", sizes.contains(&config.max_entry.bytes()), "must be from `1B` to `1GiB`");
        self.check(
            "memory",
            (config.max_entry.bytes()..=MEMORY_BYTES_MAX).contains(&config.memory.bytes()),
            "must be from `max_entry` to `1TiB`",
        );
        let Some(disk) = &config.disk else { return };
        let bytes = disk.size.bytes();
        self.check("disk.size", bytes >= config.memory.bytes(), "must not be less than `memory`");
        self.check(
            "disk.size",
            bytes / ENTRIES_ON_DISK >= config.max_entry.bytes(),
            "must be at least eight times `max_entry`, so one response does not evict all others",
        );
        self.check("disk.size", bytes <= DISK_BYTES_MAX, "must not exceed `1TiB`");
        let is_named = disk.directory.as_ref().is_none_or(|path| !path.as_os_str().is_empty());
        self.check("disk.directory", is_named, "must not be empty: omit it for `cache` in `data_dir`");
    }

    fn times(&mut self, config: &CacheConfig) {
        let wait = config.collapse.as_ref().map(|collapse| collapse.max_wait);
        let is_wait = |wait: Duration| !wait.is_zero() && wait <= WAIT_MAX;
        self.check(
            "collapse.max_wait",
            wait.is_none_or(is_wait),
            "must be greater than `0s` and at most `10m`; to disable coalescing, set `collapse: null`",
        );
        for (key, time) in [
            ("heuristic_max", Some(config.heuristic_max)),
            ("stale_while_revalidate", config.stale_while_revalidate),
            ("stale_if_error", config.stale_if_error),
        ] {
            self.check(key, time.is_none_or(|time| time <= TIME_MAX), "must not exceed a year (`365d`)");
        }
    }

    /// Checks the lists of names.
    fn names(&mut self, config: &CacheConfig) {
        let KeyConfig { parameters, headers, body, .. } = &config.key;
        for (key, names) in
            [("key.headers", headers), ("credentials", &config.credentials), ("targets", &config.targets)]
        {
            self.check(
                key,
                names.iter().all(|name| is_token(name.as_bytes())),
                "a header field's name must consist of letters, digits and `-`",
            );
        }
        let is_tag = |tag: &String| {
            (1..=TAG_BYTES_MAX).contains(&tag.len()) && tag.bytes().all(|byte| byte.is_ascii_graphic())
        };
        self.check(
            "tags",
            config.tags.iter().all(is_tag),
            "a tag must consist of 1 to 64 visible ASCII characters",
        );
        for (key, names) in [
            ("key.parameters", parameters),
            ("key.headers", headers),
            ("key.body", body),
            ("credentials", &config.credentials),
            ("targets", &config.targets),
            ("tags", &config.tags),
        ] {
            self.check(key, names.len() <= NAMES_MAX, "at most 64 names are allowed");
        }
        if let Some(problem) = body.iter().find_map(|pointer| pointer_problem(pointer)) {
            self.problems.push(("key.body", problem));
        }
    }
}

/// Returns `true` for statuses that no cache may store (RFC 6585 §3 to §6): they describe one client, or its
/// network.
pub(super) const fn is_never_stored(status: u16) -> bool {
    matches!(status, 428 | 429 | 431 | 511)
}

/// A status code, a class or a range: `200`, `2xx`, `500-504`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Statuses {
    from: u16,
    to: u16,
}

impl Statuses {
    /// Returns `true` if `status` is in the range.
    pub fn covers(self, status: u16) -> bool {
        (self.from..=self.to).contains(&status)
    }

    /// Number of status codes in the range.
    pub fn len(self) -> u16 {
        self.to - self.from + 1
    }

    /// Always `false`: a range has at least one status code.
    pub fn is_empty(self) -> bool {
        false
    }
}

/// A text that is not a range of status codes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a status: expected 200 to 599, a class like `2xx` or a range like `500-504`")]
pub struct StatusesError(String);

impl FromStr for Statuses {
    type Err = StatusesError;

    fn from_str(text: &str) -> Result<Self, StatusesError> {
        match text.parse() {
            Ok(Condition::Status(from, to)) => Ok(Self { from, to }),
            _ => Err(StatusesError(text.to_owned())),
        }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Condition::Status(self.from, self.to).fmt(f)
    }
}

text_value!(
    Statuses or number,
    "a status, a class like `2xx` or a range like `500-504`",
    json_schema!({
        "description": "A status like `200`, a class like `2xx` or a range like `500-504`.",
        "type": "string",
        "pattern": "^([2-5]xx|[2-5][0-9][0-9](-[2-5][0-9][0-9])?)$",
    })
);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: serde_json::Value) -> Result<CacheConfig, String> {
        serde_json::from_value(config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_written_config_is_read_again() {
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
    fn an_invalid_setting_is_refused_by_its_key() {
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
