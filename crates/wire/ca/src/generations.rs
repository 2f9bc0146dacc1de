//! A bounded map that forgets what was not used for long.

use std::collections::HashMap;
use std::hash::Hash;

/// A map in two generations. New entries go to the young one. When it is full, it becomes the old one, and
/// the previous old one is dropped. An entry that is used while it is old becomes young again.
#[derive(Debug)]
pub(crate) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Maximum number of entries of one generation.
    max: usize,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// Creates a map of at most `max` entries, two at least.
    pub fn new(max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), max: (max / 2).max(1) }
    }

    /// Returns a young entry.
    pub fn young(&self, key: &K) -> Option<&V> {
        self.young.get(key)
    }

    /// Removes and returns an old entry.
    pub fn take_old(&mut self, key: &K) -> Option<V> {
        self.old.remove(key)
    }

    /// Adds a young entry, in place of the young one with this key.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_map_is_bounded_and_keeps_what_is_used(keys in prop::collection::vec(0_u8..32, 0..400)) {
            let mut map = Generations::new(8);
            for key in keys {
                for key in [key, 255] {
                    if map.young(&key).is_none() {
                        let value = map.take_old(&key).unwrap_or(key);
                        map.insert(key, value);
                    }
                    prop_assert_eq!(map.young(&key), Some(&key));
                }
                prop_assert!(map.len() <= 8, "{}", map.len());
            }
        }
    }

    #[test]
    fn an_old_entry_goes_unless_it_is_used() {
        let mut map = Generations::new(4);
        for key in [1, 2, 3] {
            map.insert(key, key);
        }
        assert_eq!(map.young(&1), None);
        assert_eq!(map.take_old(&1), Some(1));
        assert_eq!(map.len(), 2);
        map.insert(1, 1);
        map.insert(4, 4);
        assert_eq!((map.take_old(&2), map.take_old(&3)), (None, Some(3)));
        assert_eq!(map.young(&4), Some(&4));
    }
}
