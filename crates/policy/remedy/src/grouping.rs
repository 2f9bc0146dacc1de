//! Per-group state of a remedy. Groups are formed by provider and by the remedy's `group_by`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use egret_match::expression::Expression;
use egret_message::{Fault, Request};
use egret_quota::GroupBy;
use egret_store::marks::MarkSink;
use parking_lot::Mutex;

use crate::exchange::Exchange;
use crate::remedy::CompileContext;

/// Maximum number of groups per remedy. Further groups share one overflow state.
const GROUPS_MAX: usize = 10_000;
/// Number of groups examined to find one that can be evicted.
const LOOKS_MAX: usize = 8;
/// Longest name of a group whose state another process can take over, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Key of the overflow group.
const OVERFLOW: GroupKey = GroupKey(0);

/// Determines the group of an exchange.
#[derive(Debug)]
pub(crate) struct Grouping {
    by: Option<GroupBy>,
    expression: Option<Expression<String>>,
    /// Names of the providers, in the order of their numbers.
    providers: Box<[Box<str>]>,
}

/// Key of a group: a hash under a secret key, so collisions cannot be constructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey(u128);

/// The name of a group: its provider, and its name within it.
#[derive(Debug, Clone, Copy, Hash)]
struct GroupName<'a> {
    provider: &'a str,
    host: &'a str,
    port: u16,
    name: &'a [u8],
}

/// The hash that makes keys of names.
#[derive(Debug)]
enum Hashing {
    /// Keys have a meaning in this process only.
    Process([RandomState; 2]),
    /// Keys are equal in all gateways of a cluster.
    Cluster(Arc<dyn MarkSink>),
}

/// States by group, bounded in number.
#[derive(Debug)]
pub(crate) struct Groups<State> {
    hashing: Hashing,
    states: Mutex<HashMap<GroupKey, NamedState<State>>>,
    /// Number of states, readable without the lock.
    len: AtomicUsize,
}

/// A state with the name of its group, which is empty if it is unknown or too long.
#[derive(Debug, Default)]
struct NamedState<State> {
    state: State,
    name: Box<[u8]>,
}

impl Grouping {
    /// Compiles a grouping by provider and, within it, by the remedy's `group_by`.
    pub fn compile(by: Option<&GroupBy>, context: &mut CompileContext<'_>) -> Option<Self> {
        let expression = match by {
            Some(GroupBy::Cel(source)) => Some(context.expression("group_by", source, false)?),
            Some(GroupBy::Param(name)) => {
                if let Some(missing) = context.scope(false).missing_parameter(name) {
                    context.problems.push(missing.at(context.path_of("group_by")));
                    return None;
                }
                None
            }
            _ => None,
        };
        let providers = context.providers.iter().map(|name| Box::from(*name)).collect();
        Some(Self { by: by.cloned(), expression, providers })
    }

    /// Name of the provider called, which a remedy may have changed.
    pub fn provider<'a>(&'a self, exchange: &'a Exchange<'_>) -> &'a str {
        let alternate = exchange.draft.call.provider.and_then(|number| self.providers.get(number));
        alternate.map_or(exchange.destination.provider, |name| name)
    }

    /// Returns the key of the exchange's group.
    pub fn key<State>(&self, groups: &Groups<State>, exchange: &Exchange<'_>) -> Result<GroupKey, Fault> {
        self.named(exchange, |name| groups.key_of(name))
    }

    /// Returns the name of the exchange's group, for a new state.
    pub fn name(&self, exchange: &Exchange<'_>) -> Box<[u8]> {
        self.named(exchange, |name| name.bytes()).unwrap_or_default().into()
    }

    fn named<T>(&self, exchange: &Exchange<'_>, act: impl FnOnce(GroupName<'_>) -> T) -> Result<T, Fault> {
        let provider = self.provider(exchange);
        // Providers without a name are distinguished by host and port.
        let host = if provider == egret_message::OTHER_HOSTS { exchange.destination.host } else { "" };
        let port = if host.is_empty() { 0 } else { exchange.destination.port };
        let name = match &self.by {
            None | Some(GroupBy::Provider) => Cow::default(),
            Some(by) => {
                group(by, self.expression.as_ref(), exchange, &exchange.request())?.into_owned().into()
            }
        };
        Ok(act(GroupName { provider, host, port, name: name.as_ref() }))
    }
}

/// Returns the name of the exchange's group under `by`, with its compiled expression; empty if there is none.
pub(crate) fn group<'a>(
    by: &GroupBy,
    expression: Option<&Expression<String>>,
    exchange: &'a Exchange<'_>,
    request: &'a Request<'a>,
) -> Result<Cow<'a, [u8]>, Fault> {
    let name = match by {
        GroupBy::Account => exchange.account().map(|account| account.name().as_bytes()),
        GroupBy::Header(name) => request.fields.get(name.as_bytes()),
        GroupBy::Consumer => request.consumer(),
        GroupBy::Param(name) => exchange.params().get(name),
        GroupBy::Provider => Some(request.provider.as_bytes()),
        GroupBy::Cel(_) => {
            let Some(expression) = expression else { return Ok(Cow::Borrowed(b"")) };
            return Ok(Cow::Owned(exchange.evaluate(expression)?.into_bytes()));
        }
    };
    Ok(Cow::Borrowed(name.unwrap_or_default()))
}

impl<State> Default for Groups<State> {
    fn default() -> Self {
        Self::new(None)
    }
}

impl GroupKey {
    /// The key as a number, which stands for the group's name in a cluster.
    pub fn number(self) -> u128 {
        self.0
    }

    /// The key with that number.
    pub fn of_number(number: u128) -> Self {
        Self(number.max(1))
    }
}

impl GroupName<'_> {
    /// The name as bytes that no other name has.
    fn bytes(&self) -> Vec<u8> {
        let Self { provider, host, port, name } = self;
        [provider.as_bytes(), b"\0", host.as_bytes(), b"\0", &port.to_be_bytes(), name].concat()
    }
}

impl<'a> GroupName<'a> {
    /// The name that has these bytes.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let is_end = |byte: &u8| *byte == 0;
        let (provider, rest) = bytes.split_at(bytes.iter().position(is_end)?);
        let rest = rest.strip_prefix(b"\0")?;
        let (host, rest) = rest.split_at(rest.iter().position(is_end)?);
        let (port, name) = rest.strip_prefix(b"\0")?.split_first_chunk::<2>()?;
        let [provider, host] = [provider, host].map(std::str::from_utf8);
        Some(Self { provider: provider.ok()?, host: host.ok()?, port: u16::from_be_bytes(*port), name })
    }
}

impl<State: Default> Groups<State> {
    /// Returns `true` if no group has a state. The result may lag behind.
    pub fn is_empty(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// Applies `act` to the state of a group, if it has one.
    pub fn look<T>(&self, key: GroupKey, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut states = self.states.lock();
        let key = if states.contains_key(&key) { key } else { OVERFLOW };
        states.get_mut(&key).map(|named| act(&mut named.state))
    }

    /// Applies `act` to the state of a group, and creates the state with the group's `name` if necessary. If
    /// there are too many groups, one whose state is `forgettable` is evicted.
    pub fn with<T>(
        &self,
        key: GroupKey,
        name: impl FnOnce() -> Box<[u8]>,
        forgettable: impl Fn(&State) -> bool,
        act: impl FnOnce(&mut State) -> T,
    ) -> T {
        let mut states = self.states.lock();
        let mut place = key;
        if states.len() >= GROUPS_MAX && !states.contains_key(&key) {
            let mut examined = states.iter().take(LOOKS_MAX);
            match examined
                .find(|(other, named)| **other != OVERFLOW && forgettable(&named.state))
                .map(|(other, _)| *other)
            {
                Some(other) => drop(states.remove(&other)),
                None => place = OVERFLOW,
            }
        }
        let named = states.entry(place).or_insert_with(|| {
            let name = if place == key { name() } else { Box::default() };
            let name = if name.len() > NAME_BYTES_MAX { Box::default() } else { name };
            NamedState { state: State::default(), name }
        });
        let result = act(&mut named.state);
        self.len.store(states.len(), Relaxed);
        result
    }

    /// Removes the state of a group if it `is_done`. Returns `true` if it was removed.
    pub fn forget(&self, key: GroupKey, is_done: impl FnOnce(&State) -> bool) -> bool {
        let mut states = self.states.lock();
        let key = if states.contains_key(&key) { key } else { OVERFLOW };
        let is_forgotten = states.get(&key).is_some_and(|named| is_done(&named.state));
        if is_forgotten {
            states.remove(&key);
        }
        self.len.store(states.len(), Relaxed);
        is_forgotten
    }
}

impl<State> Groups<State> {
    /// Creates groups without a state. Their keys are those of a cluster, if there is one.
    pub fn new(cluster: Option<&Arc<dyn MarkSink>>) -> Self {
        let hashing = cluster
            .map_or_else(|| Hashing::Process(Default::default()), |sink| Hashing::Cluster(sink.clone()));
        Self { hashing, states: Mutex::default(), len: AtomicUsize::new(0) }
    }

    /// Returns `true` if the keys are those of this cluster, or of none.
    pub fn are_of(&self, cluster: Option<&Arc<dyn MarkSink>>) -> bool {
        match (&self.hashing, cluster) {
            (Hashing::Process(_), None) => true,
            (Hashing::Cluster(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    /// Shows each state to `see`.
    pub fn each(&self, mut see: impl FnMut(&State)) {
        self.each_named(|_, state| see(state));
    }

    /// Shows each state to `see`, with the name of its group.
    pub fn each_named(&self, mut see: impl FnMut(&[u8], &State)) {
        let states = self.states.lock();
        states.values().for_each(|named| see(&named.name, &named.state));
    }

    /// Returns the key of the group whose name has these bytes.
    pub fn key_of_bytes(&self, name: &[u8]) -> Option<GroupKey> {
        GroupName::parse(name).map(|name| self.key_of(name))
    }

    fn key_of(&self, name: GroupName<'_>) -> GroupKey {
        match &self.hashing {
            Hashing::Process(hashers) => {
                let [high, low] = hashers.each_ref().map(|hasher| u128::from(hasher.hash_one(name)));
                GroupKey::of_number(high << 64 | low)
            }
            Hashing::Cluster(sink) => GroupKey::of_number(sink.digest(&name.bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_room_share_one_state_until_others_can_be_forgotten() {
        let groups = Groups::<u32>::default();
        let key = |name: &str| {
            groups.key_of(GroupName { provider: "one", host: "", port: 0, name: name.as_bytes() })
        };
        assert!(groups.is_empty());
        for name in 0..GROUPS_MAX + 50 {
            groups.with(key(&name.to_string()), Box::default, |_| false, |state| *state += 1);
        }
        assert_eq!(groups.states.lock().len(), GROUPS_MAX + 1);
        assert_eq!(groups.look(key("never seen"), |state| *state), Some(50));
        groups.with(key("new"), Box::default, |state| *state == 1, |state| *state = 7);
        assert_eq!(groups.look(key("new"), |state| *state), Some(7));
        assert!(groups.forget(key("new"), |state| *state == 7));
        assert_eq!(groups.states.lock().len(), GROUPS_MAX);
    }

    #[test]
    fn a_name_is_the_same_for_the_process_that_reads_its_bytes() {
        let name = GroupName { provider: "one", host: "api.example", port: 8443, name: b"a\0b" };
        let (here, there) = (Groups::<u32>::default(), Groups::<u32>::default());
        assert_ne!(here.key_of(name), there.key_of(name), "keys have a meaning in one process only");
        assert_eq!(there.key_of_bytes(&name.bytes()), Some(there.key_of(name)));
        for bytes in [b"".as_slice(), b"one", b"one\0host", b"one\0host\0\x01", b"\xff\0\0\0\0"] {
            assert_eq!(there.key_of_bytes(bytes), None, "{bytes:?}");
        }
    }
}
