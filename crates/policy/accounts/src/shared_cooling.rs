//! The cool-down of a credential, which the gateways of a cluster share.

use std::sync::Arc;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_store::marks::{MarkHolder, MarkKey, MarkNews, MarkSink};

use super::cooling::millis;
use super::state::AccountState;

/// The cool-down of an account's credential. Another secret has another one, so it ends with the secret for
/// those who have a new one.
#[derive(Debug)]
pub(super) struct SharedCooling {
    sink: Arc<dyn MarkSink>,
    key: MarkKey,
    state: Arc<AccountState>,
    version: u32,
}

impl SharedCooling {
    /// Shares the cool-down in `state` of the credential of `version`. Equal credentials for the same
    /// providers share one.
    pub fn new(
        sink: &Arc<dyn MarkSink>,
        credential: &[u8],
        providers: &[String],
        state: Arc<AccountState>,
        version: u32,
    ) -> Arc<Self> {
        let name = [b"account\0", credential, providers.join("\0").as_bytes()].concat();
        let key = MarkKey { scope: sink.digest(&name), name: 0 };
        let shared = Arc::new(Self { sink: sink.clone(), key, state, version });
        let holder: Arc<dyn MarkHolder> = shared.clone();
        sink.watch(key.scope, Arc::downgrade(&holder));
        shared
    }

    /// Tells the other gateways about the current cool-down.
    pub fn mark(&self, now: Timestamp) {
        if let Some(mark) = self.state.mark(now, self.version) {
            self.sink.mark(self.key, mark);
        }
    }

    /// Tells the other gateways that a call which began at `started` has ended the cool-down.
    pub fn end(&self, started: Timestamp, now: Timestamp) {
        self.sink.end(self.key, millis(now.since(started)));
    }
}

impl MarkHolder for SharedCooling {
    fn told(&self, _: u128, news: MarkNews, now: Timestamp) {
        match news {
            MarkNews::Marked(mark) => self.state.merge(&mark, now, self.version),
            MarkNews::Ended(began_ago_ms) => {
                self.state.record_success(now - Duration::from_millis(began_ago_ms));
            }
            MarkNews::Freed => {}
        }
    }
}
