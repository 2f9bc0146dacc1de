//! Set of failure causes that have been logged, so each is logged once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of distinct causes. Further causes are not logged.
const CAUSES_MAX: usize = 8;

/// Causes that have been logged. Shared between threads without a lock.
#[derive(Debug, Default)]
pub(crate) struct LoggedCauses([AtomicU64; CAUSES_MAX]);

impl LoggedCauses {
    /// Returns `true` on the first call with `cause`, as long as the set has room for it.
    pub fn is_new(&self, cause: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        cause.hash(&mut hasher);
        // Zero marks an empty entry.
        let hash = hasher.finish() | 1;
        for known in &self.0 {
            match known.compare_exchange(0, hash, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(known) if known == hash => return false,
                Err(_) => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_reported_once_and_their_number_bounded() {
        let causes = LoggedCauses::default();
        let news = (0..100).filter(|number| causes.is_new(&number.to_string())).count();
        assert_eq!(news, CAUSES_MAX);
        assert!((0..100).all(|number| !causes.is_new(&number.to_string())));
    }

    #[test]
    fn of_many_threads_one_is_told_that_it_is_new() {
        let causes = LoggedCauses::default();
        let news = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..4).filter(|cause| causes.is_new(&format!("{cause}"))).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(news, 4);
    }
}
