//! The member of a segment at work: it connects, calls when a call is due, and connects again.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egret_clock::{Random, boot_us};
use egret_store::shared::{BookReply, Call, Member, Segment, Terms};
use redis::PushInfo;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{broadcast, watch};

use super::config::ClusterConfig;
use super::connection::{StoreConnection, StoreTrouble};
use super::link::{LinkSender, message};
use super::sink::Ask;
use super::{ClusterStatus, LEAVE_MAX};

/// The wait before another attempt to connect is random, up to a bound that doubles between these.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

pub(super) struct SegmentTask {
    terms: Terms,
    segment: Segment,
    instance: u64,
    member: Member,
    asked: Receiver<Ask>,
    /// `None` once the member is to leave.
    config: watch::Receiver<Option<Arc<ClusterConfig>>>,
    status: Arc<Mutex<ClusterStatus>>,
    link: LinkSender,
    pushes: broadcast::Receiver<PushInfo>,
    random: Random,
    /// Upper bound of the wait before the next attempt to connect.
    backoff: Duration,
    has_failed: bool,
}

/// Returns a number that nobody can predict.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}

impl SegmentTask {
    pub(super) fn new(
        config: &ClusterConfig,
        terms: Terms,
        member: Member,
        asked: Receiver<Ask>,
        receiver: watch::Receiver<Option<Arc<ClusterConfig>>>,
        status: Arc<Mutex<ClusterStatus>>,
        link: LinkSender,
    ) -> Self {
        let pushes = link.pushes().subscribe();
        Self {
            terms,
            segment: Segment::new(&config.name, 0),
            instance: member.instance(),
            member,
            asked,
            config: receiver,
            status,
            link,
            pushes,
            random: Random::new(random()),
            backoff: RECONNECT_MIN,
            has_failed: false,
        }
    }

    /// Works until the member is to leave.
    pub(super) async fn run(mut self) {
        while let Some(config) = self.current() {
            match self.connect(&config).await {
                Ok(Some(connection)) => {
                    self.link.set(Some(&connection));
                    let ended = self.serve(connection).await;
                    self.link.set(None);
                    if let Err(trouble) = ended {
                        self.fail(&trouble);
                    }
                }
                Ok(None) => {}
                Err(trouble) => {
                    self.fail(&trouble);
                    self.pause().await;
                }
            }
        }
    }

    fn current(&mut self) -> Option<Arc<ClusterConfig>> {
        self.config.borrow_and_update().clone()
    }

    /// Connects, and accepts groups meanwhile. Returns `None` if the config has changed.
    async fn connect(&mut self, config: &ClusterConfig) -> Result<Option<StoreConnection>, StoreTrouble> {
        let Self { member, asked, config: changed, segment, link, .. } = self;
        let open = StoreConnection::open(&config.redis, segment, link.pushes());
        tokio::pin!(open);
        loop {
            tokio::select! {
                opened = &mut open => return opened.map(Some),
                Some(ask) = asked.recv() => accept(member, ask),
                _ = changed.changed() => return Ok(None),
            }
        }
    }

    /// Waits before the next attempt to connect, and accepts groups meanwhile.
    async fn pause(&mut self) {
        let most_us = u64::try_from(self.backoff.as_micros()).unwrap_or(u64::MAX);
        let wait = Duration::from_micros(self.random.up_to(most_us)).max(RECONNECT_MIN / 2);
        self.backoff = (self.backoff * 2).min(RECONNECT_MAX);
        let Self { member, asked, config: changed, .. } = self;
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

    /// Calls over this connection until it fails, the config changes, or the member leaves.
    async fn serve(&mut self, mut connection: StoreConnection) -> Result<(), StoreTrouble> {
        loop {
            while let Ok(ask) = self.asked.try_recv() {
                accept(&mut self.member, ask);
            }
            let now_ms = boot_us() / 1_000;
            if self.member.is_due(now_ms) {
                let (nonce, jitter) = (self.random.draw() | 1, self.random.up_to(200));
                let call = self.member.call(Arc::clone(&connection.run), nonce, jitter, now_ms);
                self.send(&mut connection, &call).await?;
                continue;
            }
            let wait = Duration::from_millis(self.member.due_ms().saturating_sub(now_ms).clamp(1, 60_000));
            tokio::select! {
                Some(ask) = self.asked.recv() => accept(&mut self.member, ask),
                push = self.pushes.recv() => self.pushed(push),
                changed = self.config.changed() => {
                    if changed.is_err() || self.config.borrow().is_none() {
                        self.leave(&mut connection).await;
                    }
                    return Ok(());
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn send(&mut self, connection: &mut StoreConnection, call: &Call) -> Result<(), StoreTrouble> {
        let sent = Instant::now();
        let script = self.segment.call(call, &self.terms);
        let reply = connection.call(&script).await?;
        let reply = BookReply::from_script(&reply, call.groups.len()).map_err(|_| StoreTrouble::Reply)?;
        self.member.answered(call.seq, &reply, boot_us() / 1_000);
        self.succeed(&reply, sent.elapsed());
        Ok(())
    }

    async fn leave(&mut self, connection: &mut StoreConnection) {
        let call = self.member.leave(Arc::clone(&connection.run), self.random.draw() | 1, boot_us() / 1_000);
        let sent = tokio::time::timeout(LEAVE_MAX, self.send(connection, &call)).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!("the cluster was left without a word: the units of this gateway come back later");
        }
    }

    /// Handles a message. One that is missed costs the time until the next renewal.
    fn pushed(&mut self, push: Result<PushInfo, RecvError>) {
        let Ok(push) = push else { return };
        let Some((channel, message)) = message(&push) else { return };
        if channel != self.segment.channel() {
            return;
        }
        if let Some((group, press)) = self.segment.pressed(message, self.instance) {
            self.member.pressed(group, press);
        }
    }

    fn succeed(&mut self, reply: &BookReply, took: Duration) {
        self.backoff = RECONNECT_MIN;
        if std::mem::take(&mut self.has_failed) {
            tracing::info!("the store of shared quotas works again");
        }
        let (groups, members) = (self.member.group_count(), self.member.lease().roster());
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.is_up = true;
        status.error = None;
        status.calls += 1;
        status.call_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        status.members = members;
        status.groups = groups;
        if let BookReply::Told(told) = reply
            && let Some(learning_ms) = told.groups.iter().map(|group| group.learning_ms).max()
        {
            status.learning_ms = learning_ms;
        }
    }

    fn fail(&mut self, trouble: &StoreTrouble) {
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::error!(
                "the store of shared quotas failed: {trouble}; `on_store_error` applies until it works again"
            );
        }
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.is_up = false;
        status.error = Some(trouble.to_string());
    }
}

fn accept(member: &mut Member, ask: Ask) {
    match ask {
        Ask::Group(group) => member.ask(&group),
        Ask::Farewell(farewell) => member.farewell(farewell),
    }
}
