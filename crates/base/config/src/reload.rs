//! State that parts of a flow, such as its remedies, carry over from one config to the next.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Identity of a part across reloads: its flow, its kind, and its ordinal among the parts of that kind in the
/// flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Name of the flow.
    pub flow: String,
    /// Key of the part in the config.
    pub kind: &'static str,
    /// Ordinal, from 1.
    pub ordinal: usize,
}

/// The name within the flow: `limit`, `limit-2`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ordinal {
            1 => f.write_str(self.kind),
            ordinal => write!(f, "{}-{ordinal}", self.kind),
        }
    }
}

/// Assigns identities to the parts of one flow, in their order.
#[derive(Debug)]
pub struct Identities<'a> {
    flow: &'a str,
    counts: HashMap<&'static str, usize>,
}

impl<'a> Identities<'a> {
    /// Starts with the first part of `flow`.
    pub fn new(flow: &'a str) -> Self {
        Self { flow, counts: HashMap::new() }
    }

    /// Returns the identity of the next part, which is of that `kind`.
    pub fn next(&mut self, kind: &'static str) -> Identity {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        Identity { flow: self.flow.to_owned(), kind, ordinal: *count }
    }
}

/// The kept states of all parts of a config.
#[derive(Debug, Default)]
pub struct KeptStates(HashMap<Identity, Arc<dyn Any + Send + Sync>>);

/// Access of one part to its kept state, while it is compiled. A part keeps one state.
#[derive(Debug)]
pub struct StateKeeper<'a> {
    identity: Identity,
    before: Option<&'a KeptStates>,
    kept: &'a mut KeptStates,
}

impl<'a> StateKeeper<'a> {
    /// Creates the access of a part. `before` has the states under the previous config, `kept` gets those for
    /// the next one.
    pub fn new(identity: Identity, before: Option<&'a KeptStates>, kept: &'a mut KeptStates) -> Self {
        Self { identity, before, kept }
    }

    /// Identity of the part.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns state that outlives a reload: the state that the same part had under the previous config, if
    /// it `fits`, otherwise a new one.
    pub fn keep<State: Any + Send + Sync>(
        &mut self,
        fits: impl FnOnce(&State) -> bool,
        make: impl FnOnce() -> State,
    ) -> Arc<State> {
        let state = self.before().filter(|state| fits(state)).unwrap_or_else(|| Arc::new(make()));
        self.insert(Arc::clone(&state));
        state
    }

    /// Returns the state that the same part had under the previous config.
    pub fn before<State: Any + Send + Sync>(&self) -> Option<Arc<State>> {
        Arc::clone(self.before?.0.get(&self.identity)?).downcast().ok()
    }

    /// Keeps `state` for the next config.
    pub fn insert<State: Any + Send + Sync>(&mut self, state: Arc<State>) {
        self.kept.0.insert(self.identity.clone(), state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_finds_its_state_by_flow_kind_and_ordinal() {
        let mut identities = Identities::new("f");
        let parts = ["limit", "cache", "limit"].map(|kind| identities.next(kind));
        assert_eq!(parts.each_ref().map(ToString::to_string), ["limit", "cache", "limit-2"]);
        let mut first = KeptStates::default();
        for (number, part) in parts.iter().enumerate() {
            StateKeeper::new(part.clone(), None, &mut first).keep(|_| true, || number);
        }
        let mut second = KeptStates::default();
        for (number, part) in parts.into_iter().enumerate() {
            let mut keeper = StateKeeper::new(part, Some(&first), &mut second);
            assert_eq!(*keeper.keep(|_: &usize| true, || 9), number);
            assert_eq!(*keeper.keep(|_: &usize| false, || 9), 9);
            assert_eq!(*keeper.keep(|_: &String| true, String::new), "", "another type does not fit");
        }
        let other = Identities::new("g").next("limit");
        assert!(StateKeeper::new(other, Some(&first), &mut second).before::<usize>().is_none());
    }
}
