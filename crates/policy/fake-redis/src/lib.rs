//! Runs a script for Redis without Redis, for tests: by the same Lua, over hashes in memory, on a clock that
//! the test sets. It has the commands that the script of shared quotas uses, and no other. `make model` plays
//! histories beside a real server, whose replies must be equal.
//!
//! Everything here panics if the script fails: that is how a test fails.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that cannot continue panics with the reason"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, Value, Variadic};

/// Redis lets a script see no global that is not there, and create none.
const SANDBOX: &str = "setmetatable(_G, {
    __index = function(_, name) error('no global ' .. name) end,
    __newindex = function(_, name) error('a new global ' .. name) end,
})";

/// The content of the server: hashes by their keys.
pub type Keys = BTreeMap<Vec<u8>, Hash>;

/// A hash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hash {
    /// The values by their fields.
    pub fields: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The time at which the server removes it, if it has an end.
    pub ends_ms: Option<u64>,
}

/// A server with one script.
#[derive(Debug)]
pub struct FakeRedis {
    lua: Lua,
    script: Function,
    keyspace: Rc<RefCell<Keyspace>>,
}

#[derive(Debug, Default)]
struct Keyspace {
    now_ms: u64,
    keys: Keys,
}

impl FakeRedis {
    /// Creates an empty server, and compiles the script.
    pub fn new(script: &str) -> Self {
        let lua = Lua::new();
        let keyspace = Rc::new(RefCell::new(Keyspace::default()));
        let called = keyspace.clone();
        let call = move |lua: &Lua, words: Variadic<Value>| {
            let words: Vec<Vec<u8>> = words.iter().map(text).collect();
            let texts = called.borrow_mut().run(&words);
            texts.map(|texts| sequence(lua, &texts)).transpose()
        };
        let redis = lua.create_table().unwrap();
        redis.set("call", lua.create_function(call).unwrap()).unwrap();
        lua.globals().set("redis", redis).unwrap();
        lua.load(SANDBOX).exec().unwrap();
        let script = lua.load(script).into_function().unwrap_or_else(|error| panic!("{error}"));
        Self { lua, script, keyspace }
    }

    /// Runs the script at `now_ms` by the server's clock. Returns the text that it replies.
    pub fn run(&self, keys: &[Vec<u8>], arguments: &[Vec<u8>], now_ms: u64) -> Vec<u8> {
        self.keyspace.borrow_mut().now_ms = now_ms;
        for (name, texts) in [("KEYS", keys), ("ARGV", arguments)] {
            self.lua.globals().raw_set(name, sequence(&self.lua, texts).unwrap()).unwrap();
        }
        let reply: LuaString = self.script.call(()).unwrap_or_else(|error| panic!("{error}"));
        reply.as_bytes().to_vec()
    }

    /// A copy of the content.
    pub fn keys(&self) -> Keys {
        self.keyspace.borrow().keys.clone()
    }

    /// Replaces the content, as another server does that takes over.
    pub fn restore(&self, keys: Keys) {
        self.keyspace.borrow_mut().keys = keys;
    }

    /// Looks at the content.
    pub fn inspect<T>(&self, look: impl FnOnce(&Keys) -> T) -> T {
        look(&self.keyspace.borrow().keys)
    }
}

impl Keyspace {
    /// Runs a command. Returns its texts, if it has any.
    fn run(&mut self, words: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let (name, rest) = words.split_first().unwrap();
        let now_ms = self.now_ms;
        // The server removes what is over before anything else.
        if let Some(key) = rest.first()
            && self.keys.get(key).and_then(|hash| hash.ends_ms).is_some_and(|ends_ms| ends_ms <= now_ms)
        {
            self.keys.remove(key);
        }
        match (name.as_slice(), rest) {
            (b"TIME", []) => {
                let time = [now_ms / 1_000, now_ms % 1_000 * 1_000];
                return Some(time.map(|number| number.to_string().into_bytes()).into());
            }
            (b"HGETALL", [key]) => {
                let fields = self.keys.get(key).map(|hash| hash.fields.iter()).into_iter().flatten();
                let texts = fields.flat_map(|(field, value)| [field.clone(), value.clone()]);
                return Some(texts.collect());
            }
            (b"HSET", [key, pairs @ ..]) => {
                let hash = self.keys.entry(key.clone()).or_default();
                let (pairs, []) = pairs.as_chunks::<2>() else { panic!("a field without a value") };
                hash.fields.extend(pairs.iter().cloned().map(<(Vec<u8>, Vec<u8>)>::from));
            }
            (b"HDEL", [key, field]) => {
                if let Some(hash) = self.keys.get_mut(key) {
                    hash.fields.remove(field);
                    if hash.fields.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
            (b"DEL", [key]) => drop(self.keys.remove(key)),
            (b"PEXPIRE", [key, ms]) => {
                let ms: u64 = std::str::from_utf8(ms).unwrap().parse().unwrap();
                if let Some(hash) = self.keys.get_mut(key) {
                    hash.ends_ms = Some(now_ms + ms);
                }
            }
            // The reply has what the message has.
            (b"PUBLISH", [_, _]) => {}
            _ => panic!("the fake has no {} of {} words", name.escape_ascii(), rest.len()),
        }
        None
    }
}

/// The text of a word. Redis writes numbers in a way of its own, so a script passes texts.
fn text(word: &Value) -> Vec<u8> {
    let Value::String(text) = word else { panic!("{word:?} is no text") };
    text.as_bytes().to_vec()
}

fn sequence(lua: &Lua, texts: &[Vec<u8>]) -> mlua::Result<mlua::Table> {
    let texts = texts.iter().map(|text| lua.create_string(text)).collect::<mlua::Result<Vec<_>>>()?;
    lua.create_sequence_from(texts)
}
