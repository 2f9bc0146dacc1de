//! Throttles and cool-downs of the cluster: merges them over the store, and tells their holders.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use egret_clock::{Clock, Moment, boot_us};
use egret_items::opaque;
use egret_store::marks::{
    MARK_SCRIPT, Mark, MarkHolder, MarkKey, MarkNews, MarkSink, MarkTable, PROBE_SCRIPT, ProbeAnswer,
    ProbeQuestion, ProbeTicket, RELEASE_SCRIPT, mark_news,
};
use egret_store::shared::Shard;
use tokio::sync::mpsc::Sender;

use super::facts::{self, SharedFacts, StoreResult};
use super::link::Link;
use super::sink::Digester;
use super::store_calls::ReadyStore;

/// Places in the queue of the task that only new holders get, which cannot come again.
const WATCH_PLACES: usize = 1_024;
/// Maximum number of changes in one call.
const CHANGES_MAX: usize = 256;
/// Time after which a probe without a result makes room for another one.
const PROBE_MAX: Duration = Duration::from_secs(10);

/// A message to the task.
pub(super) enum MarkAsk {
    /// News, as of this time by the clock of the machine.
    News(MarkKey, MarkNews, u64),
    Probe(ProbeQuestion),
    Release(MarkKey, u64),
    /// A new holder of the marks of a scope.
    Watch(u128, Weak<dyn MarkHolder>),
}

/// The way of marks to the task.
struct ClusterMarks {
    digester: Digester,
    asks: Sender<MarkAsk>,
    owner: AtomicU64,
}

/// The marks that the task shares.
struct Marks {
    shard: Shard,
    table: MarkTable,
    holders: HashMap<u128, Vec<Weak<dyn MarkHolder>>>,
    clock: Clock,
}

/// Spawns the task. `owner` is a random number, from which probes are numbered.
pub(super) fn spawn(shard: Shard, digester: Digester, owner: u64, link: Link) -> Arc<dyn MarkSink> {
    let (table, holders, clock) = (MarkTable::default(), HashMap::new(), Clock::new());
    let asks = facts::spawn(link, |_| Marks { shard, table, holders, clock });
    Arc::new(ClusterMarks { digester, asks, owner: AtomicU64::new(owner) })
}

opaque!(ClusterMarks);

impl ClusterMarks {
    /// Without room, the others find out by themselves.
    fn ask(&self, ask: MarkAsk) {
        if self.asks.capacity() > WATCH_PLACES {
            let _ = self.asks.try_send(ask);
        }
    }
}

impl MarkSink for ClusterMarks {
    fn digest(&self, name: &[u8]) -> u128 {
        self.digester.digest(name)
    }

    fn is_keyed(&self) -> bool {
        self.digester.is_keyed()
    }

    fn watch(&self, scope: u128, holder: Weak<dyn MarkHolder>) {
        if self.asks.try_send(MarkAsk::Watch(scope, holder)).is_err() {
            tracing::error!("the thread of the cluster is too busy: a throttle or cool-down is not shared");
        }
    }

    fn mark(&self, key: MarkKey, mark: Mark) {
        self.ask(MarkAsk::News(key, MarkNews::Marked(mark), boot_us()));
    }

    fn end(&self, key: MarkKey, began_ago_ms: u64) {
        self.ask(MarkAsk::News(key, MarkNews::Ended(began_ago_ms), boot_us()));
    }

    fn probe(&self, key: MarkKey) -> ProbeTicket {
        let owner = self.owner.fetch_add(1, Ordering::Relaxed);
        let (question, ticket) = ProbeQuestion::new(key, owner);
        self.ask(MarkAsk::Probe(question));
        ticket
    }

    fn release(&self, key: MarkKey, owner: u64) {
        self.ask(MarkAsk::Release(key, owner));
    }
}

impl SharedFacts for Marks {
    type Ask = MarkAsk;

    const NAME: &'static str = "throttles and cool-downs";

    fn channel(&self) -> Vec<u8> {
        self.shard.mark_channel()
    }

    /// Marks come before the questions for probes and their releases. A question that is dropped is answered.
    async fn asked(&mut self, asks: Vec<MarkAsk>, store: Option<&ReadyStore>) -> StoreResult {
        let questions: Vec<_> = asks.into_iter().filter_map(|ask| self.accept(ask)).collect();
        let Some(store) = store else { return Ok(()) };
        self.merge(store, false).await?;
        for question in questions {
            self.question(store, question).await?;
        }
        Ok(())
    }

    async fn told(&mut self, news: &[u8], _: &ReadyStore) -> StoreResult {
        self.hear(news);
        Ok(())
    }

    async fn sync(&mut self, store: &ReadyStore) -> StoreResult {
        self.table.tell_all(boot_us() / 1_000);
        self.merge(store, true).await
    }
}

impl Marks {
    /// Notes news and holders. Returns what only the store can answer.
    fn accept(&mut self, ask: MarkAsk) -> Option<MarkAsk> {
        match ask {
            MarkAsk::News(key, news, sent_us) => {
                let now_us = boot_us();
                let news = news.aged(now_us.saturating_sub(sent_us) / 1_000);
                if self.table.told(key, news, now_us / 1_000) {
                    self.table.tell(key);
                }
                None
            }
            MarkAsk::Watch(scope, holder) => {
                self.watch(scope, holder);
                None
            }
            MarkAsk::Probe(_) | MarkAsk::Release(..) => Some(ask),
        }
    }

    /// Tells the store about all changes. With `reads_all`, it tells all marks.
    async fn merge(&mut self, store: &ReadyStore, mut reads_all: bool) -> StoreResult {
        loop {
            let changes = self.table.take_changes(CHANGES_MAX, boot_us() / 1_000);
            if changes.is_empty() && !reads_all {
                return Ok(());
            }
            let call = self.shard.merge_marks(&changes, reads_all);
            let texts: StoreResult<Vec<Vec<u8>>> = store.evaluate(MARK_SCRIPT, &call).await;
            if texts.is_err() {
                for (key, _) in changes {
                    self.table.tell(key);
                }
            }
            reads_all = false;
            for text in texts? {
                self.hear(&text);
            }
        }
    }

    async fn question(&self, store: &ReadyStore, question: MarkAsk) -> StoreResult {
        match question {
            MarkAsk::Probe(question) => {
                let call = self.shard.probe_mark(&question, PROBE_MAX);
                let wait_ms: u64 = store.evaluate(PROBE_SCRIPT, &call).await?;
                question.answer(match wait_ms {
                    0 => ProbeAnswer::Granted,
                    wait_ms => ProbeAnswer::Wait(Duration::from_millis(wait_ms).min(PROBE_MAX)),
                });
            }
            MarkAsk::Release(key, owner) => {
                let _: u64 = store.evaluate(RELEASE_SCRIPT, &self.shard.release_probe(key, owner)).await?;
            }
            MarkAsk::News(..) | MarkAsk::Watch(..) => {}
        }
        Ok(())
    }

    /// Merges news from the store, and tells the holders.
    fn hear(&mut self, text: &[u8]) {
        let Some((key, news)) = mark_news(text) else { return };
        if !self.table.told(key, news, boot_us() / 1_000) {
            return;
        }
        let now = self.clock.timestamp(Moment::now());
        for holder in self.holders.get(&key.scope).into_iter().flatten().filter_map(Weak::upgrade) {
            holder.told(key.name, news, now);
        }
    }

    /// Adds a holder, tells it what is known, and forgets those that are gone.
    fn watch(&mut self, scope: u128, holder: Weak<dyn MarkHolder>) {
        if let Some(holder) = holder.upgrade() {
            let now = self.clock.timestamp(Moment::now());
            for (name, mark) in self.table.of_scope(scope, boot_us() / 1_000) {
                holder.told(name, MarkNews::Marked(mark), now);
            }
        }
        self.holders.entry(scope).or_default().push(holder);
        self.holders.retain(|_, holders| {
            holders.retain(|holder| holder.strong_count() > 0);
            !holders.is_empty()
        });
    }
}
