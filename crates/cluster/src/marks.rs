//! Throttles and cool-downs of the cluster: a task that merges them over the store, and tells their holders.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use egret_clock::{Clock, Moment, boot_us};
use egret_store::marks::{
    MARK_SCRIPT, Mark, MarkHolder, MarkKey, MarkNews, MarkScripts, MarkSink, MarkTable, PROBE_SCRIPT,
    ProbeAnswer, ProbeQuestion, ProbeTicket, RELEASE_SCRIPT,
};
use redis::{Cmd, FromRedisValue};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};

use super::connection::{Connection, StoreTrouble};
use super::link::{Link, Message};
use super::sink::Digester;

/// Maximum number of questions and news of this gateway that wait for the task.
const QUEUE_MAX: usize = 4_096;
/// Maximum number of changes in one call.
const CHANGES_MAX: usize = 256;
/// Time after which a probe without a result makes room for another one.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// Time after which a connection that has failed is tried again, if it is not replaced before.
const RETRY: Duration = Duration::from_millis(500);

/// A message to the task.
enum Ask {
    Mark(MarkKey, Sent<Mark>),
    End(MarkKey, Sent<u64>),
    Probe(ProbeQuestion),
    Release(MarkKey, u64),
}

/// Something with times that are relative to its sending.
struct Sent<T> {
    at_us: u64,
    value: T,
}

/// A new holder of the marks of a scope.
struct Watch {
    scope: u128,
    holder: Weak<dyn MarkHolder>,
}

/// The way of marks to the task.
pub(super) struct ClusterMarks {
    digester: Digester,
    asks: Sender<Ask>,
    /// Unbounded, because it has at most one message for each remedy and account of a config.
    watches: UnboundedSender<Watch>,
    owner: AtomicU64,
}

/// The task.
pub(super) struct MarksTask {
    link: Link,
    asked: Receiver<Ask>,
    watched: UnboundedReceiver<Watch>,
    scripts: MarkScripts,
    table: MarkTable,
    holders: HashMap<u128, Vec<Weak<dyn MarkHolder>>>,
    clock: Clock,
}

/// Creates the two sides. `owner` is a random number, from which probes are numbered.
pub(super) fn marks(
    cluster: &str,
    digester: Digester,
    owner: u64,
    link: Link,
) -> (Arc<ClusterMarks>, MarksTask) {
    let (asks, asked) = mpsc::channel(QUEUE_MAX);
    let (watches, watched) = mpsc::unbounded_channel();
    let sink = ClusterMarks { digester, asks, watches, owner: AtomicU64::new(owner) };
    let task = MarksTask {
        link,
        asked,
        watched,
        scripts: MarkScripts::new(cluster),
        table: MarkTable::default(),
        holders: HashMap::new(),
        clock: Clock::new(),
    };
    (Arc::new(sink), task)
}

impl fmt::Debug for ClusterMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterMarks")
    }
}

impl ClusterMarks {
    /// Without room, the others find out by themselves.
    fn ask(&self, ask: Ask) {
        let _ = self.asks.try_send(ask);
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
        // The task ends with the process.
        let _ = self.watches.send(Watch { scope, holder });
    }

    fn mark(&self, key: MarkKey, mark: Mark) {
        self.ask(Ask::Mark(key, Sent::now(mark)));
    }

    fn end(&self, key: MarkKey, began_ago_ms: u64) {
        self.ask(Ask::End(key, Sent::now(began_ago_ms)));
    }

    fn probe(&self, key: MarkKey) -> ProbeTicket {
        let owner = self.owner.fetch_add(1, Ordering::Relaxed);
        let (question, ticket) = ProbeQuestion::new(key, owner);
        self.ask(Ask::Probe(question));
        ticket
    }

    fn release(&self, key: MarkKey, owner: u64) {
        self.ask(Ask::Release(key, owner));
    }
}

impl<T> Sent<T> {
    fn now(value: T) -> Self {
        Self { at_us: boot_us(), value }
    }

    /// The value, and milliseconds since it was sent.
    fn aged(self) -> (T, u64) {
        (self.value, boot_us().saturating_sub(self.at_us) / 1_000)
    }
}

impl MarksTask {
    /// Works until the thread ends.
    pub(super) async fn run(mut self) {
        loop {
            let connection = self.link.connection.borrow_and_update().clone();
            let time = match connection {
                None => None,
                Some(connection) => match self.serve(connection).await {
                    Ok(()) => continue,
                    Err(error) => {
                        tracing::debug!(%error, "throttles and cool-downs are not shared for a moment");
                        Some(RETRY)
                    }
                },
            };
            if !self.wait(time).await {
                return;
            }
        }
    }

    /// Accepts what arrives without a store, until there is another connection or the time is over. Returns
    /// `false` if the thread ends.
    async fn wait(&mut self, time: Option<Duration>) -> bool {
        let until = tokio::time::sleep(time.unwrap_or(Duration::MAX));
        tokio::pin!(until);
        loop {
            tokio::select! {
                changed = self.link.connection.changed() => return changed.is_ok(),
                () = &mut until => return true,
                Some(watch) = self.watched.recv() => self.watch(watch),
                // A question is dropped, and so answered.
                Some(ask) = self.asked.recv() => drop(self.accept(ask)),
            }
        }
    }

    /// Shares marks over this connection until it fails or another one takes its place.
    async fn serve(&mut self, connection: Connection) -> Result<(), StoreTrouble> {
        connection.subscribe(self.scripts.channel().as_bytes()).await?;
        self.table.tell_all(boot_us() / 1_000);
        self.merge(&connection, true).await?;
        loop {
            tokio::select! {
                _ = self.link.connection.changed() => return Ok(()),
                Some(watch) = self.watched.recv() => self.watch(watch),
                message = self.link.messages.recv() => match message {
                    Ok(Message { channel, content }) => if *channel == *self.scripts.channel().as_bytes() {
                        self.told(&content);
                    },
                    Err(RecvError::Lagged(_)) => self.merge(&connection, true).await?,
                    Err(RecvError::Closed) => return Ok(()),
                },
                Some(ask) = self.asked.recv() => self.ask(&connection, ask).await?,
            }
        }
    }

    /// Handles what has arrived from this gateway. Marks come before the questions and releases after them.
    async fn ask(&mut self, connection: &Connection, ask: Ask) -> Result<(), StoreTrouble> {
        let mut next = Some(ask);
        while let Some(ask) = next {
            if let Some(question) = self.accept(ask) {
                self.merge(connection, false).await?;
                self.question(connection, question).await?;
            }
            next = self.asked.try_recv().ok();
        }
        self.merge(connection, false).await
    }

    /// Notes a mark or its end. Returns what only the store can answer.
    fn accept(&mut self, ask: Ask) -> Option<Question> {
        let now_ms = boot_us() / 1_000;
        match ask {
            Ask::Mark(key, sent) => {
                let (mark, age_ms) = sent.aged();
                let left_ms = mark.left_ms.saturating_sub(age_ms);
                let proof_ms = mark.proof_ms.saturating_sub_unsigned(age_ms);
                if self.table.mark(key, Mark { left_ms, proof_ms, ..mark }, now_ms) {
                    self.table.tell(key);
                }
                None
            }
            Ask::End(key, sent) => {
                let (began_ago_ms, age_ms) = sent.aged();
                if self.table.end(key, began_ago_ms.saturating_add(age_ms), now_ms) {
                    self.table.tell(key);
                }
                None
            }
            Ask::Probe(question) => Some(Question::Probe(question)),
            Ask::Release(key, owner) => Some(Question::Release(key, owner)),
        }
    }

    /// Tells the store about all changes. With `reads_all`, it tells all marks.
    async fn merge(&mut self, connection: &Connection, reads_all: bool) -> Result<(), StoreTrouble> {
        let mut reads_all = reads_all;
        loop {
            let changes = self.table.take_changes(CHANGES_MAX, boot_us() / 1_000);
            if changes.is_empty() && !reads_all {
                return Ok(());
            }
            let mut arguments = vec![self.scripts.channel().to_owned(), u8::from(reads_all).to_string()];
            arguments.extend(changes.iter().filter_map(MarkScripts::change));
            let keys = [self.scripts.marks(), self.scripts.ends()];
            let texts = evaluate(connection, MARK_SCRIPT, &keys, &arguments).await;
            let texts: Vec<Vec<u8>> = match texts {
                Ok(texts) => texts,
                Err(error) => {
                    for (key, _) in &changes {
                        self.table.tell(*key);
                    }
                    return Err(error);
                }
            };
            reads_all = false;
            for text in &texts {
                self.told(text);
            }
        }
    }

    async fn question(&self, connection: &Connection, question: Question) -> Result<(), StoreTrouble> {
        match question {
            Question::Probe(question) => {
                let key = question.key();
                let keys = [self.scripts.marks(), self.scripts.probe(key)];
                let arguments =
                    [key.to_string(), question.owner().to_string(), PROBE_MAX.as_millis().to_string()];
                let wait_ms: u64 = evaluate(connection, PROBE_SCRIPT, &keys, &arguments).await?;
                question.answer(match wait_ms {
                    0 => ProbeAnswer::Granted,
                    wait_ms => ProbeAnswer::Wait(Duration::from_millis(wait_ms).min(PROBE_MAX)),
                });
            }
            Question::Release(key, owner) => {
                let arguments = [owner.to_string(), self.scripts.channel().to_owned(), key.to_string()];
                let _: u64 =
                    evaluate(connection, RELEASE_SCRIPT, &[self.scripts.probe(key)], &arguments).await?;
            }
        }
        Ok(())
    }

    /// Merges news from the store, and tells the holders.
    fn told(&mut self, text: &[u8]) {
        let Some((key, news)) = MarkScripts::news(text) else { return };
        if !self.table.told(key, news, boot_us() / 1_000) {
            return;
        }
        let now = self.clock.timestamp(Moment::now());
        for holder in self.holders.get(&key.scope).into_iter().flatten().filter_map(Weak::upgrade) {
            holder.told(key.name, news, now);
        }
    }

    /// Adds the holders that have arrived, and forgets those that are gone.
    fn watch(&mut self, watch: Watch) {
        let mut next = Some(watch);
        while let Some(Watch { scope, holder }) = next {
            self.introduce(scope, &holder);
            self.holders.entry(scope).or_default().push(holder);
            next = self.watched.try_recv().ok();
        }
        self.holders.retain(|_, holders| {
            holders.retain(|holder| holder.strong_count() > 0);
            !holders.is_empty()
        });
    }

    /// Tells a holder what is known.
    fn introduce(&self, scope: u128, holder: &Weak<dyn MarkHolder>) {
        let Some(holder) = holder.upgrade() else { return };
        let now = self.clock.timestamp(Moment::now());
        for (name, mark) in self.table.of_scope(scope, boot_us() / 1_000) {
            holder.told(name, MarkNews::Marked(mark), now);
        }
    }
}

/// A message that only the store can answer.
enum Question {
    Probe(ProbeQuestion),
    Release(MarkKey, u64),
}

/// Runs a script. Its text is sent each time: marks are rare.
async fn evaluate<T: FromRedisValue>(
    connection: &Connection,
    script: &str,
    keys: &[String],
    arguments: &[String],
) -> Result<T, StoreTrouble> {
    let mut command = Cmd::new();
    command.arg("EVAL").arg(script).arg(keys.len()).arg(keys).arg(arguments);
    connection.query(&command).await
}
