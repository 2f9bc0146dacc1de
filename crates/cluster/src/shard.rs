//! The member of a shard at work: it connects, calls when a call is due, and connects again.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_clock::{Random, boot_us};
use egret_store::shared::{AllocatorReply, Call, Member, Shard, Terms};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;

use super::connection::StoreTrouble;
use super::known_generation::KnownGeneration;
use super::link::{LinkSender, Message};
use super::masters::{Master, Masters};
use super::sink::Ask;
use super::status::SharedStatus;

/// The wait before another attempt to connect is random, up to a bound that doubles between these.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Time for the last call.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// The parts of a member's task that others give to it.
pub(super) struct ShardParts {
    pub terms: Terms,
    pub shard: Shard,
    pub member: Member,
    pub known: KnownGeneration,
    pub asked: Receiver<Ask>,
    /// `None` once the member is to leave.
    pub store: watch::Receiver<Option<Arc<Masters>>>,
    pub status: SharedStatus,
    pub link: LinkSender,
}

/// A member of a shard.
pub(super) struct ShardTask {
    parts: ShardParts,
    instance: u64,
    messages: broadcast::Receiver<Message>,
    random: Random,
    /// Upper bound of the wait before the next attempt to connect.
    backoff: Duration,
    has_failed: bool,
}

/// Returns a number that nobody can predict.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}

impl ShardTask {
    pub(super) fn new(parts: ShardParts) -> Self {
        let instance = parts.member.instance();
        parts.status.change(|status| status.instance = instance);
        Self {
            instance,
            messages: parts.link.messages.subscribe(),
            parts,
            random: Random::new(random()),
            backoff: RECONNECT_MIN,
            has_failed: false,
        }
    }

    /// Works until the member is to leave.
    pub(super) async fn run(mut self) {
        while let Some(store) = self.current() {
            let ended = match self.connect(&store).await {
                Ok(Some(master)) => self.keep(&store, master).await,
                Ok(None) => Ok(()),
                Err(trouble) => Err(trouble),
            };
            if let Err(trouble) = ended {
                self.fail(&trouble);
                self.pause().await;
            }
        }
    }

    fn current(&mut self) -> Option<Arc<Masters>> {
        self.parts.store.borrow_and_update().clone()
    }

    /// Connects, and accepts groups meanwhile. Returns `None` if the config has changed.
    async fn connect(&mut self, store: &Masters) -> Result<Option<Master>, StoreTrouble> {
        let Self { parts, random, .. } = self;
        let ShardParts { member, asked, store: changed, shard, .. } = parts;
        let found = store.find(shard, random);
        tokio::pin!(found);
        loop {
            tokio::select! {
                found = &mut found => return found.map(Some),
                Some(ask) = asked.recv() => accept(member, ask),
                _ = changed.changed() => return Ok(None),
            }
        }
    }

    /// Works over a connection until it fails, the config changes, or the member leaves.
    async fn keep(&mut self, store: &Masters, mut master: Master) -> Result<(), StoreTrouble> {
        self.parts.link.set(Some(&master.connection));
        let ended = self.serve(store, &mut master).await;
        self.parts.link.set(None);
        self.parts.status.change(|status| status.master = None);
        ended.map_err(|trouble| store.failed(&master, trouble))
    }

    /// Waits before the next attempt to connect, and accepts groups meanwhile. The first waits are short:
    /// most failures are those of a connection, not of a server.
    async fn pause(&mut self) {
        let most_us = u64::try_from(self.backoff.as_micros()).unwrap_or(u64::MAX);
        let wait = Duration::from_micros(self.random.up_to(most_us)).max(RECONNECT_MIN / 10);
        self.backoff = (self.backoff * 2).min(RECONNECT_MAX);
        let ShardParts { member, asked, store: changed, .. } = &mut self.parts;
        let sleep = tokio::time::sleep(wait);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return,
                Some(ask) = asked.recv() => accept(member, ask),
                _ = changed.changed() => return,
            }
        }
    }

    async fn serve(&mut self, store: &Masters, master: &mut Master) -> Result<(), StoreTrouble> {
        let address = master.address().clone();
        let switched = store.switched(&address);
        tokio::pin!(switched);
        loop {
            while let Ok(ask) = self.parts.asked.try_recv() {
                accept(&mut self.parts.member, ask);
            }
            let now_ms = boot_us() / 1_000;
            if self.parts.member.is_due(now_ms) {
                let (nonce, jitter) = (self.random.draw() | 1, self.random.up_to(200));
                let incarnation = Arc::clone(&master.connection.incarnation);
                let call = self.parts.member.call(incarnation, nonce, jitter, now_ms);
                self.send(master, &call).await?;
                continue;
            }
            let due_ms = self.parts.member.due_ms();
            let wait = Duration::from_millis(due_ms.saturating_sub(now_ms).clamp(1, 60_000));
            let ShardParts { member, asked, store: changed, .. } = &mut self.parts;
            tokio::select! {
                Some(ask) = asked.recv() => accept(member, ask),
                message = self.messages.recv() => self.notice(message),
                trouble = &mut switched => return Err(trouble),
                changed = changed.changed() => {
                    if changed.is_err() || self.parts.store.borrow().is_none() {
                        self.leave(master).await;
                    }
                    return Ok(());
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn send(&mut self, master: &mut Master, call: &Call) -> Result<(), StoreTrouble> {
        let sent = Instant::now();
        let ShardParts { terms, shard, member, known, .. } = &mut self.parts;
        let reply = master.connection.call(&shard.call(call, terms)).await?;
        let reply =
            AllocatorReply::from_script(&reply, call.groups.len()).map_err(|_| StoreTrouble::Reply)?;
        if member.answered(call.seq, &reply, boot_us() / 1_000) {
            known.note(member.generation());
        }
        self.succeed(master, &reply, sent.elapsed());
        Ok(())
    }

    async fn leave(&mut self, master: &mut Master) {
        let incarnation = Arc::clone(&master.connection.incarnation);
        let call = self.parts.member.leave(incarnation, self.random.draw() | 1, boot_us() / 1_000);
        let sent = tokio::time::timeout(LEAVE_MAX, self.send(master, &call)).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!(
                "the cluster was left without a leave message: the units of this gateway come back later"
            );
        }
    }

    /// Handles a message. One that is missed costs the time until the next renewal.
    fn notice(&mut self, message: Result<Message, RecvError>) {
        let Ok(Message { channel, content }) = message else { return };
        let ShardParts { shard, member, .. } = &mut self.parts;
        if *channel != *shard.channel() {
            return;
        }
        if let Some((group, hint)) = shard.hint(&content, self.instance) {
            member.hinted(group, hint);
        }
    }

    fn succeed(&mut self, master: &Master, reply: &AllocatorReply, took: Duration) {
        self.backoff = RECONNECT_MIN;
        if std::mem::take(&mut self.has_failed) {
            tracing::info!(master = %master.address(), "the store of shared quotas works again");
        }
        let (groups, members) = (self.parts.member.group_count(), self.parts.member.lease().member_count());
        self.parts.status.change(|status| {
            status.is_up = true;
            status.error = None;
            if status.master.is_none() {
                status.master = Some(master.address().to_string());
            }
            status.members = members;
            status.groups = groups;
            status.count(took);
            if let AllocatorReply::Applied(reply) = reply
                && let Some(recovery_ms) = reply.groups.iter().map(|group| group.recovery_ms).max()
            {
                status.recovers_for(recovery_ms);
            }
        });
    }

    fn fail(&mut self, trouble: &StoreTrouble) {
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::error!(
                "the store of shared quotas failed: {trouble}; `on_store_error` applies until it works again"
            );
        }
        self.parts.status.change(|status| {
            status.is_up = false;
            status.failures += 1;
            status.error = Some(trouble.to_string());
        });
    }
}

fn accept(member: &mut Member, ask: Ask) {
    match ask {
        Ask::Group(group) => member.ask(&group),
        Ask::Leave(message) => member.leave_group(message),
    }
}
