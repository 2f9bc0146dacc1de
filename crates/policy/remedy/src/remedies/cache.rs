//! `cache`: serves stored responses, and stores responses of the provider. [`Policy`] decides what may be
//! stored and served. Stored responses are partitioned by credential. They are kept in memory, optionally
//! also on a disk, and survive a reload.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::rand;
use egret_clock::Timestamp;
use egret_http1::{Method, ResponseFraming};
use egret_store::entries::{
    BodyWriter, DiskLookup, Entries, Entry, EntryLimits, Full, Loading, Purge, Seal, StoredBody,
};
use smallvec::SmallVec;

use crate::exchange::{Checkpoint, Exchange};
use crate::local_response::{LocalKind, LocalResponse};
use crate::remedy::InnerRemedy;
use crate::remedy::{CompileContext, Mode, Needs, Reaction, Remedy, Step};
use egret_accounts::Account;
use egret_cache::{
    Action, CacheConfig, CacheCounts, CacheDisk, CacheEvent, CacheRequest, CacheSnapshot, CacheStatus,
    CallTimes, Candidate, Decision, DiskConfig, DiskLocation, Form, FwdReason, KeyContext, KeySecret, Lookup,
    NotStored, Policy, ProviderFailure, Reply, SECRET_BYTES, Served, Stored, Validation, Verdict,
    fingerprint, problems,
};
use egret_match::expression::BODY_BYTES_MAX;
use egret_message::{CallFailure, Destination, FailureKind, Outcome, Reason, Refused, Request};
use egret_store::coalescer::{Background, Coalescer, Ending, Leader, Turn, Waiter};

/// Maximum wait for the disk. After it, the request goes on as if nothing were stored there. A working disk
/// never takes this long.
const DISK_WAIT_MAX: Duration = Duration::from_secs(1);

/// Maximum wait for a response of unknown length that is still arriving. After it, the request streams the
/// response. The wait helps because the response may turn out to be too large to store, and a request that
/// has received part of it then cannot get the rest.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// The entries stored under a key.
type Found = SmallVec<[Arc<Entry<Stored>>; 2]>;

/// Serves stored responses, and stores responses.
#[derive(Debug)]
pub struct Cache {
    policy: Policy,
    state: Arc<State>,
    tags: Arc<[Box<str>]>,
}

/// State that survives a reload.
#[derive(Debug)]
pub struct State {
    secret: Arc<KeySecret>,
    entries: Arc<Entries<Stored>>,
    coalescer: Arc<Coalescer>,
    counts: CacheCounts,
    /// The part of the config that determines keys and stored content. If it changes, entries would not be
    /// found, or would be found by requests that must not get them.
    config: CacheConfig,
    disk: Option<DiskLocation>,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct Held {
    forwarded: Option<Box<ForwardedRequest>>,
    waiting: Option<Waiter>,
    /// Start of the wait for another request, and the reason.
    waited: Option<(Timestamp, FwdReason)>,
    /// `true` if the wait for another request has ended, so the request does not wait again.
    has_waited: bool,
    /// The wait for a response that is still arriving.
    body_wait: BodyWait,
    fetch: Fetch,
}

/// The wait of a request for a response of unknown length that is still arriving.
#[derive(Debug, Default)]
enum BodyWait {
    /// No such response was found.
    #[default]
    None,
    /// Waits until the response is complete, or until this time.
    Waits(Arc<StoredBody>, Timestamp),
    /// The wait is over: the request streams the response.
    Over,
}

/// The state of a request's look-up on the disk.
#[derive(Debug, Default)]
enum Fetch {
    /// Not started, or nothing is on the disk.
    #[default]
    None,
    /// In progress; the request waits until this time.
    UnderWay(Loading, Timestamp),
    /// Finished: everything that can be loaded is in memory.
    Done,
    /// Abandoned: the disk may have an entry that the request does not know of.
    Abandoned,
}

/// A request that was forwarded to the provider.
#[derive(Debug)]
struct ForwardedRequest {
    /// `None` if the request bypasses the cache.
    question: Option<CacheRequest>,
    status: CacheStatus,
    validation: Option<Validation>,
    /// The entries stored when it was forwarded.
    found: Found,
    sent: Timestamp,
    /// Present if other requests may wait for the response.
    leader: Option<Leader>,
    /// Checkpoint of the pending changes when the cache saw the request.
    mark: Checkpoint,
    /// `true` if the disk may have an entry that is not in `found`.
    is_blind: bool,
}

impl Remedy for Cache {
    type Config = CacheConfig;
    type Held = Held;

    fn compile(config: &CacheConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let problems = problems(config);
        if !problems.is_empty() {
            for (key, message) in problems {
                context.problem(key, message);
            }
            return None;
        }
        let chooser =
            context.inner.iter().find(|inner| inner.chooses_account && !config.shared).map(|inner| {
                let InnerRemedy { number, key, .. } = inner;
                format!(
                    "`remedies[{number}].{key}` chooses an account after the cache look-up, so responses \
                     cannot be stored per account: put it before the cache, or set `shared`"
                )
            });
        if let Some(message) = chooser {
            context.problem("", message);
            return None;
        }
        let mut secret = [0; SECRET_BYTES];
        if rand::fill(&mut secret).is_err() {
            context.problem("", "the system provides no random numbers for the cache keys");
            return None;
        }
        let lasting = State::lasting(config, context.mode);
        let seal = Seal { fingerprint: fingerprint(&lasting, context.flow()), secret };
        let (workers, place) = (context.workers, disk_location(&lasting, context));
        // Exchanges that still run under the old config may know of changes that the new state does not
        // receive.
        let has =
            context.kept().is_some_and(|before: Arc<State>| before.disk.is_some() && before.disk == place);
        let state = context.keep(
            |state: &State| state.config == lasting,
            || State::new(config, lasting.clone(), (seal, place, has), workers),
        );
        let policy = Policy::new(config, context.flow(), Arc::clone(&state.secret));
        let tags = config.tags.iter().map(|tag| tag.as_str().into()).collect();
        Some(Self { policy, state, tags })
    }

    fn describe(&self) -> String {
        let CacheConfig { shared, memory, max_entry, disk, .. } = self.policy.config();
        let whose = if *shared { "shared by all clients" } else { "per credential" };
        let on_disk = disk.as_ref().map_or_else(String::new, |disk| format!(", {} on disk", disk.size));
        format!("serves stored responses, {whose}: up to {max_entry} each and {memory} in total{on_disk}")
    }

    fn needs(&self) -> Needs {
        let is_for_bodies = self.policy.config().methods.contains("POST");
        let most = if is_for_bodies { BODY_BYTES_MAX } else { 0 };
        Needs { request_body: most, replay: most, ..Needs::default() }
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut Held, cx: &mut Context<'_>) -> Poll<Step> {
        let place = key_context(exchange);
        if exchange.draft.call.is_alternate {
            // The request asks for a response of the original provider, not of another one.
            self.bypass(exchange, held, FwdReason::Bypass);
            return Poll::Ready(Step::Next);
        }
        match self.policy.ask(&exchange.request(), &place) {
            Lookup::Look(question) => self.look(exchange, held, &question, cx),
            Lookup::Forward(why) => {
                self.bypass(exchange, held, why);
                Poll::Ready(Step::Next)
            }
            Lookup::OnlyIfCached => Poll::Ready(self.refuse(exchange, FwdReason::Bypass)),
        }
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut Held) -> Reaction {
        let Some(asked) = held.forwarded.take() else { return Reaction::Pass };
        match (exchange.outcome, exchange.local_response) {
            (Outcome::Response(_), None) => self.received(exchange, held, asked),
            (Outcome::Failure(_), _) | (_, Some(LocalKind::Refused(_))) => self.failed(exchange, asked),
            (Outcome::None | Outcome::Response(_), _) => {
                add_cache_status(exchange, asked.status);
                Reaction::Pass
            }
        }
    }
}

/// Returns the location of the disk that `config` asks for, or `None` while the config is only checked.
fn disk_location(config: &CacheConfig, context: &CompileContext<'_>) -> Option<DiskLocation> {
    Some(DiskLocation::new(
        config.disk.as_ref()?,
        context.data_dir?,
        context.flow(),
        context.identity.ordinal,
    ))
}

impl Cache {
    /// Returns the counters of the cache and the size of its content.
    pub fn snapshot(&self) -> CacheSnapshot {
        let State { entries, counts, .. } = &*self.state;
        let disk = entries.disk().map(|disk| disk.stats());
        CacheSnapshot { disk, ..counts.snapshot(entries.stats()) }
    }

    /// Removes the entries that `purge` selects. Returns their number.
    pub fn purge(&self, purge: Purge<'_>) -> usize {
        self.state.entries.purge(purge)
    }

    /// Returns its disk, if it has one.
    pub fn disk(&self) -> Option<CacheDisk> {
        CacheDisk::of(&self.state.entries, self.policy.config())
    }

    /// Looks up stored responses and makes the request wait, go on, or get a response.
    fn look(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut Held,
        question: &CacheRequest,
        cx: &Context<'_>,
    ) -> Poll<Step> {
        let State { entries, coalescer, .. } = &*self.state;
        let (id, now) = (question.key.id, exchange.now);
        if self.still_waits(exchange, held, cx) || still_loads(exchange, held, cx) {
            return Poll::Pending;
        }
        if let BodyWait::Waits(body, _) = &held.body_wait
            && body.poll_ended(cx).is_ready()
        {
            if body.lacks_room() {
                // The body is gone. All waiting requests go on at once, and so do later ones.
                coalescer.note_uncacheable(id, now);
            }
            held.body_wait = BodyWait::Over;
        }
        let background = exchange.draft.background.take();
        let is_background = background.is_some();
        let mut leader = background.map(|background| background.leader);
        loop {
            let mut found = Found::new();
            entries.find(question.key.into(), &mut found);
            let decision = self.policy.decide(question, &exchange.request(), &candidates(&found), now);
            // A leader does not let its waiters wait for the disk.
            if !decision.is_served() && leader.is_none() && self.fetch(held, question, now) {
                if still_loads(exchange, held, cx) {
                    return Poll::Pending;
                }
                continue;
            }
            if let Decision::Serve(reply) | Decision::ServeStale(reply, _) = &decision
                && !is_background
                && found[reply.candidate].body.len().is_none()
            {
                match settle(exchange, held, (&found[reply.candidate], reply), cx) {
                    Some(Poll::Pending) => return Poll::Pending,
                    // The response is complete or gone.
                    Some(Poll::Ready(())) => continue,
                    None => {}
                }
            }
            let (validation, why) = match decision {
                Decision::Serve(reply) => {
                    leader.into_iter().for_each(Leader::finish);
                    return Poll::Ready(self.hit(exchange, held, &found, reply));
                }
                Decision::ServeStale(reply, _) if !is_background => {
                    if leader.is_none() {
                        leader = coalescer.leader(id, now);
                    }
                    exchange.draft.background = leader.map(Background::new);
                    return Poll::Ready(self.hit(exchange, held, &found, reply));
                }
                Decision::ServeStale(_, validation) => (validation, FwdReason::Stale),
                Decision::Validate(validation) => {
                    let why = validation.forward;
                    (Some(validation), why)
                }
                Decision::Forward(why) => (None, why),
                Decision::OnlyIfCached => return Poll::Ready(self.refuse(exchange, FwdReason::UriMiss)),
            };
            if leader.is_none() && !held.has_waited && self.may_collapse(question, &exchange.request(), why) {
                match coalescer.join(id, now) {
                    Turn::Leader(first) => {
                        // Another request may have stored the response since the look-up.
                        leader = Some(first);
                        continue;
                    }
                    Turn::Wait(waiting) => {
                        held.waiting = Some(waiting);
                        held.waited.get_or_insert((now, why));
                        if self.still_waits(exchange, held, cx) {
                            return Poll::Pending;
                        }
                        continue;
                    }
                    Turn::Alone => {}
                }
            }
            self.forward(exchange, held, (*question, why), (found, validation), leader);
            return Poll::Ready(Step::Next);
        }
    }

    /// Starts loading entries from the disk, once per request. Returns `true` if loading is in progress.
    fn fetch(&self, held: &mut Held, question: &CacheRequest, now: Timestamp) -> bool {
        if !matches!(held.fetch, Fetch::None) {
            return false;
        }
        held.fetch = match self.state.entries.look_up(question.key.into()) {
            DiskLookup::Nothing => Fetch::None,
            DiskLookup::Loading(loading) => Fetch::UnderWay(loading, now + DISK_WAIT_MAX),
            DiskLookup::Unknown => Fetch::Abandoned,
        };
        matches!(held.fetch, Fetch::UnderWay(..))
    }

    /// Returns `true` if the request waits for the response to another one.
    fn still_waits(&self, exchange: &mut Exchange<'_>, held: &mut Held, cx: &Context<'_>) -> bool {
        let Some(waiting) = &mut held.waiting else { return false };
        let since = held.waited.map_or(exchange.now, |(since, _)| since);
        let until = since + self.max_wait();
        match waiting.poll(cx) {
            // If the leader gave up, another waiter takes its place.
            Poll::Ready(ending) => held.has_waited = ending == Ending::Finished,
            Poll::Pending if exchange.now < until => {
                exchange.poll_at(until);
                return true;
            }
            Poll::Pending => held.has_waited = true,
        }
        held.waiting = None;
        false
    }

    fn max_wait(&self) -> Duration {
        self.policy.config().collapse.as_ref().map_or(Duration::ZERO, |collapse| collapse.max_wait.get())
    }

    /// Returns `true` if this request's response may serve other requests: it asks for a complete response
    /// and has no conditions of its own.
    fn may_collapse(&self, question: &CacheRequest, request: &Request<'_>, why: FwdReason) -> bool {
        const OF_ITS_OWN: [&[u8]; 3] = [b"range", b"if-none-match", b"if-modified-since"];
        self.policy.config().collapse.is_some()
            && question.method != Method::Head
            && !question.wants.no_store
            && matches!(why, FwdReason::UriMiss | FwdReason::VaryMiss | FwdReason::Stale)
            && OF_ITS_OWN.iter().all(|name| request.fields.get(name).is_none())
    }

    /// Forwards the request to the provider, with the validators if there are any.
    fn forward(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut Held,
        (question, why): (CacheRequest, FwdReason),
        (found, validation): (Found, Option<Validation>),
        leader: Option<Leader>,
    ) {
        let mark = exchange.draft.checkpoint();
        if let Some(Validation { validators, .. }) = &validation {
            let fields = &mut exchange.draft.request;
            for (name, value) in [
                (&b"if-none-match"[..], &validators.if_none_match),
                (b"if-modified-since", &validators.if_modified_since),
            ] {
                match value {
                    Some(value) => fields.set(name, value),
                    None => fields.remove(name),
                }
            }
        }
        if held.waited.is_some() {
            self.state.counts.count(exchange.worker, CacheEvent::Collapsed);
        }
        let status = CacheStatus::forwarded(why);
        let sent = exchange.now;
        let question = Some(question);
        let is_blind = matches!(held.fetch, Fetch::Abandoned);
        held.forwarded = Some(Box::new(ForwardedRequest {
            question,
            status,
            validation,
            found,
            sent,
            leader,
            mark,
            is_blind,
        }));
    }

    /// Lets a request bypass the cache. It may only invalidate stored responses.
    fn bypass(&self, exchange: &Exchange<'_>, held: &mut Held, why: FwdReason) {
        self.state.counts.count(exchange.worker, CacheEvent::Bypass);
        held.forwarded = Some(Box::new(ForwardedRequest {
            question: None,
            status: CacheStatus::forwarded(why),
            validation: None,
            found: Found::new(),
            sent: exchange.now,
            leader: None,
            mark: exchange.draft.checkpoint(),
            is_blind: false,
        }));
    }

    /// Refuses an `only-if-cached` request for which there is no suitable stored response.
    fn refuse(&self, exchange: &Exchange<'_>, why: FwdReason) -> Step {
        self.state.counts.count(exchange.worker, CacheEvent::Bypass);
        let mut refused = Refused::new(
            Reason::NotCached,
            "the request has `only-if-cached`, and there is no suitable stored response",
        );
        let status = CacheStatus::forwarded(why).value();
        refused.fields.push(("Cache-Status".into(), status));
        refused.into()
    }

    /// Returns a stored response for the client.
    fn hit(&self, exchange: &Exchange<'_>, held: &Held, found: &Found, reply: Reply) -> Step {
        let State { counts, .. } = &*self.state;
        let is_fresh = reply.freshness.is_fresh();
        counts.count(exchange.worker, if is_fresh { CacheEvent::Hit } else { CacheEvent::Stale });
        let mut status = CacheStatus::hit(&reply);
        if let Some((_, why)) = held.waited {
            counts.count(exchange.worker, CacheEvent::Collapsed);
            (status.forward, status.collapsed) = (Some(why), true);
        }
        status.detail = matches!(held.fetch, Fetch::Done).then_some("disk");
        Step::LocalResponse(Box::new(self.served(exchange, &found[reply.candidate], reply, status)))
    }

    fn served(
        &self,
        exchange: &Exchange<'_>,
        entry: &Arc<Entry<Stored>>,
        reply: Reply,
        status: CacheStatus,
    ) -> LocalResponse {
        entry.touch();
        self.state.counts.served(exchange.worker, reply.freshness.age);
        LocalResponse::Stored(Served::new(Arc::clone(entry), reply, status))
    }

    /// Handles a failed call. A stored response may be used instead.
    fn failed(&self, exchange: &mut Exchange<'_>, asked: Box<ForwardedRequest>) -> Reaction {
        let Some(question) = asked.question else {
            add_cache_status(exchange, asked.status);
            return Reaction::Pass;
        };
        let changes = exchange.draft.request.first(asked.mark.request_changes());
        let is_silent = |failure: CallFailure| {
            matches!(failure.kind, FailureKind::Connect | FailureKind::Timeout | FailureKind::Reset)
        };
        let trouble = match exchange.outcome {
            Outcome::Failure(failure) if is_silent(failure) => ProviderFailure::Silence,
            _ => ProviderFailure::Error,
        };
        let reply = self.policy.fail(
            &question,
            &exchange.request_at(&asked.mark, &changes),
            &candidates(&asked.found),
            (trouble, exchange.now),
        );
        asked.leader.into_iter().for_each(Leader::finish);
        let Some(reply) = reply else {
            self.state.counts.count(exchange.worker, CacheEvent::Miss);
            add_cache_status(exchange, asked.status);
            return Reaction::Pass;
        };
        self.state.counts.count(exchange.worker, CacheEvent::Stale);
        let status = asked.status.failed(&reply);
        Reaction::LocalResponse(Box::new(self.served(exchange, &asked.found[reply.candidate], reply, status)))
    }

    /// Handles the provider's response.
    fn received(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut Held,
        mut asked: Box<ForwardedRequest>,
    ) -> Reaction {
        let State { entries, counts, .. } = &*self.state;
        let (worker, now) = (exchange.worker, exchange.now);
        if exchange.draft.call.is_alternate {
            // Another provider has responded, on behalf of an inner remedy.
            add_cache_status(exchange, asked.status);
            return Reaction::Pass;
        }
        let Some(question) = asked.question else {
            self.invalidate(exchange, &asked);
            add_cache_status(exchange, asked.status);
            return Reaction::Pass;
        };
        if exchange.draft.call.account != asked.mark.account() && !self.policy.config().shared {
            return self.pass_unknown(exchange, held, asked);
        }
        let Some((verdict, mut status)) = self.decide_on_response(exchange, &question, &asked) else {
            return Reaction::Pass;
        };
        if asked.is_blind && exchange.response().is_some_and(|response| verdict.is_newer(response.status)) {
            entries.remove_unloaded(question.key.into());
        }
        let Verdict { action, removed: gone } = verdict;
        let found = std::mem::take(&mut asked.found);
        let remove_gone = || {
            for at in &gone {
                entries.remove(&found[*at]);
            }
        };
        match action {
            Action::Again => {
                asked.validation = None;
                asked.found = found;
                held.forwarded = Some(asked);
                return Reaction::RepeatClean;
            }
            Action::Update(stored, reply) => {
                counts.count(worker, CacheEvent::Revalidated);
                let entry = &found[reply.candidate];
                // The entry may have been removed meanwhile, or may not be kept.
                let updated = (!gone.contains(&reply.candidate))
                    .then(|| entries.update(entry, (*stored).clone(), now))
                    .flatten()
                    .unwrap_or_else(|| entry.with(*stored));
                remove_gone();
                asked.leader.take().into_iter().for_each(Leader::finish);
                return Reaction::LocalResponse(Box::new(self.served(exchange, &updated, reply, status)));
            }
            Action::ServeStale(reply) => {
                counts.count(worker, CacheEvent::Stale);
                asked.leader.take().into_iter().for_each(Leader::finish);
                let entry = &found[reply.candidate];
                return Reaction::LocalResponse(Box::new(self.served(exchange, entry, reply, status)));
            }
            Action::PassAndUpdate(candidate, stored) => {
                counts.count(worker, CacheEvent::Miss);
                entries.update(&found[candidate], *stored, now);
                remove_gone();
            }
            Action::Pass(why) => {
                counts.count(worker, CacheEvent::Miss);
                remove_gone();
                self.could_not_store(&question, why, asked.leader.is_some(), now);
            }
            Action::Store(stored, _) => {
                counts.count(worker, CacheEvent::Miss);
                remove_gone();
                if let Ok(filling) = self.begin(exchange, &question, *stored) {
                    counts.count(worker, CacheEvent::Stored);
                    self.state.coalescer.note_cacheable(question.key.id);
                    exchange.draft.body_writer = filling;
                } else {
                    let why = NotStored::TooLarge;
                    status = CacheStatus { stored: false, ttl_s: None, detail: Some(why.word()), ..status };
                    self.could_not_store(&question, why, asked.leader.is_some(), now);
                }
            }
        }
        add_cache_status(exchange, status);
        asked.leader.take().into_iter().for_each(Leader::finish);
        Reaction::Pass
    }

    /// Handles a response to a call made with an account that the cache did not know of when it looked: the
    /// cache searched the wrong partition, and the key of the response would not be found either.
    fn pass_unknown(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut Held,
        mut asked: Box<ForwardedRequest>,
    ) -> Reaction {
        let is_validated = exchange.response().is_some_and(|response| response.status == 304);
        if is_validated && asked.validation.take().is_some() {
            asked.found.clear();
            held.forwarded = Some(asked);
            return Reaction::RepeatClean;
        }
        self.state.counts.count(exchange.worker, CacheEvent::Miss);
        let why = NotStored::Account;
        if let Some(question) = &asked.question {
            self.could_not_store(question, why, asked.leader.is_some(), exchange.now);
        }
        add_cache_status(exchange, CacheStatus { detail: Some(why.word()), ..asked.status });
        asked.leader.into_iter().for_each(Leader::finish);
        Reaction::Pass
    }

    /// Decides about the provider's response, and returns the decision with its cache status.
    fn decide_on_response(
        &self,
        exchange: &Exchange<'_>,
        question: &CacheRequest,
        asked: &ForwardedRequest,
    ) -> Option<(Verdict, CacheStatus)> {
        let changes = exchange.draft.request.first(asked.mark.request_changes());
        let request = exchange.request_at(&asked.mark, &changes);
        let response = exchange.response()?;
        let times = CallTimes { sent: asked.sent, received: exchange.now };
        let known = candidates(&asked.found);
        let judged = (&*known, asked.validation.as_ref());
        let verdict = self.policy.receive(
            question,
            (&request, &key_context_at(exchange, &asked.mark)),
            &response,
            times,
            judged,
        );
        let status = asked.status.responded(response.status, &verdict);
        Some((verdict, status))
    }

    /// Invalidates stored responses after a request that bypassed the cache.
    fn invalidate(&self, exchange: &Exchange<'_>, asked: &ForwardedRequest) {
        let changes = exchange.draft.request.first(asked.mark.request_changes());
        let request = exchange.request_at(&asked.mark, &changes);
        let Some(response) = exchange.response() else { return };
        let groups = self.policy.invalidated(&request, &key_context_at(exchange, &asked.mark), &response);
        let gone: usize = groups.into_iter().map(|group| self.state.entries.remove_group(group)).sum();
        self.state.counts.count_many(exchange.worker, CacheEvent::Invalidated, gone as u64);
    }

    /// Disables coalescing for a key whose next responses probably cannot be stored either.
    fn could_not_store(&self, question: &CacheRequest, why: NotStored, is_awaited: bool, now: Timestamp) {
        if is_awaited && why.is_lasting() {
            self.state.coalescer.note_uncacheable(question.key.id, now);
        }
    }

    /// Starts to store a response; stores all of it if its body is already complete.
    fn begin(
        &self,
        exchange: &Exchange<'_>,
        question: &CacheRequest,
        stored: Stored,
    ) -> Result<Option<BodyWriter<Stored>>, Full> {
        let Outcome::Response(received) = exchange.outcome else { return Ok(None) };
        let whole = exchange.response().and_then(|response| response.body);
        let expected = match (whole, received.head.framing) {
            (Some(body), _) => Some(body.len() as u64),
            (None, ResponseFraming::Length(length)) => Some(length),
            (None, _) => None,
        };
        let place = question.key.into();
        let mut filling = self.state.entries.begin(place, stored, &self.tags, expected, exchange.now)?;
        let Some(body) = whole else { return Ok(Some(filling)) };
        filling.push(body)?;
        filling.finish();
        Ok(None)
    }
}

impl State {
    fn new(
        config: &CacheConfig,
        lasting: CacheConfig,
        (seal, disk, has): (Seal, Option<DiskLocation>, bool),
        workers: usize,
    ) -> Self {
        let limits = EntryLimits {
            bytes: config.memory.bytes(),
            body_bytes: config.max_entry.bytes(),
            ..EntryLimits::default()
        };
        let targets = || config.targets.iter().map(|name| name.to_ascii_lowercase().into()).collect();
        let opened = disk.as_ref().map(|place| place.disk(config, seal, has, targets(), limits.variants));
        let secret = opened.as_ref().map_or(&seal.secret, |disk| disk.secret());
        Self {
            secret: Arc::new(KeySecret::new(secret)),
            entries: Entries::with_disk(limits, opened),
            coalescer: Coalescer::new(),
            counts: CacheCounts::new(workers),
            config: lasting,
            disk,
        }
    }

    /// Returns the part of a config that must stay the same for stored responses to remain usable. A cache
    /// that only reports stores nothing and needs no disk.
    fn lasting(config: &CacheConfig, mode: Mode) -> CacheConfig {
        let one = config.clone();
        let disk = one.disk.filter(|_| mode == Mode::Enforce);
        CacheConfig {
            key: one.key,
            shared: one.shared,
            private: one.private,
            credentials: one.credentials,
            methods: one.methods,
            max_entry: one.max_entry,
            memory: one.memory,
            disk: disk
                .map(|disk| Box::new(DiskConfig { directory: disk.directory, ..DiskConfig::default() })),
            set_cookie: one.set_cookie,
            targets: one.targets,
            ..CacheConfig::default()
        }
    }
}

/// Makes a request wait once, at most [`SETTLE_MAX`], for a response that is still arriving. Ready when the
/// response is complete or gone; `None` if the request may stream it.
fn settle(
    exchange: &mut Exchange<'_>,
    held: &mut Held,
    (entry, reply): (&Arc<Entry<Stored>>, &Reply),
    cx: &Context<'_>,
) -> Option<Poll<()>> {
    let body = &entry.body;
    if body.poll_ended(cx).is_ready() {
        return Some(Poll::Ready(()));
    }
    if entry.value.declared_len.is_some() || !reply.has_body || reply.form == Form::NotModified {
        return None;
    }
    let until = match &held.body_wait {
        BodyWait::None => exchange.now + SETTLE_MAX,
        BodyWait::Waits(known, until) if Arc::ptr_eq(known, body) => *until,
        BodyWait::Waits(..) | BodyWait::Over => return None,
    };
    if exchange.now >= until {
        held.body_wait = BodyWait::Over;
        return None;
    }
    held.body_wait = BodyWait::Waits(Arc::clone(body), until);
    exchange.poll_at(until);
    Some(Poll::Pending)
}

/// Returns `true` if the request waits for the disk.
fn still_loads(exchange: &mut Exchange<'_>, held: &mut Held, cx: &Context<'_>) -> bool {
    let Fetch::UnderWay(loading, until) = &mut held.fetch else { return false };
    held.fetch = match loading.poll(cx) {
        Poll::Ready(()) => Fetch::Done,
        Poll::Pending if exchange.now < *until => {
            exchange.poll_at(*until);
            return true;
        }
        Poll::Pending => Fetch::Abandoned,
    };
    false
}

/// Returns the target of the request and its account, with the remedies' changes so far.
fn key_context<'a>(exchange: &Exchange<'a>) -> KeyContext<'a> {
    key_context_for(exchange, exchange.account())
}

/// Returns the same as it was at `checkpoint`.
fn key_context_at<'a>(exchange: &Exchange<'a>, mark: &Checkpoint) -> KeyContext<'a> {
    key_context_for(exchange, exchange.account_at(mark))
}

fn key_context_for<'a>(exchange: &Exchange<'a>, account: Option<&'a Account>) -> KeyContext<'a> {
    let Destination { base, has_bare_base, kept_host, .. } = exchange.destination;
    let credential = account.map(Account::credential_digest);
    KeyContext { base, has_bare_base, kept_host, account: account.map(Account::name), credential }
}

/// Returns the entries in the form that the policy judges.
fn candidates(found: &Found) -> SmallVec<[Candidate<'_>; 2]> {
    found.iter().map(|entry| Candidate { stored: &entry.value, len: entry.body.len() }).collect()
}

/// Adds the `Cache-Status` field to the response.
fn add_cache_status(exchange: &mut Exchange<'_>, status: CacheStatus) {
    exchange.draft.response.add(b"cache-status", &status.value());
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::thread::JoinHandle;

    use egret_clock::Moment;
    use serde_json::{Value, json};

    use super::{DISK_WAIT_MAX, SETTLE_MAX};
    use egret_fixture::{TestExchange, TestFlows, TestStep, problems};
    use egret_message::FailureKind;
    use egret_store::entries::Stop;

    const GET: &str = "GET https://one.example/a";

    /// A harness with another remedy around the cache that changes the request, so a test sees that only the
    /// cache's own changes are undone.
    fn harness(cache: &Value) -> TestFlows {
        TestFlows::with(
            &json!([{ "transform": { "request": { "headers": { "set": { "x-out": "1" } } } } }, { "cache": cache }]),
        )
    }

    fn store(harness: &TestFlows, request: &str, response: &str) {
        let mut exchange = harness.send(request);
        assert_eq!(exchange.poll(harness), TestStep::Call);
        assert!(matches!(exchange.response_with(harness, response, Some(b"body")), TestStep::Response(200)));
        exchange.end(harness);
    }

    fn is_hit(harness: &TestFlows, request: &str) -> bool {
        let mut exchange = harness.send(request);
        let step = exchange.poll(harness);
        exchange.end(harness);
        matches!(step, TestStep::Stored(_))
    }

    fn sent(exchange: &mut TestExchange, harness: &TestFlows, name: &str) -> Option<String> {
        let (_, fields, _) = exchange.sent(harness);
        let prefix = format!("{name}: ");
        fields.iter().find_map(|field| field.strip_prefix(&prefix).map(str::to_owned))
    }

    #[test]
    fn what_is_stored_is_served_while_it_is_fresh_and_where_the_provider_fails() {
        let mut harness = harness(&json!({ "stale_if_error": "1h" }));
        store(&harness, GET, "200\ncache-control: max-age=60\netag: \"1\"");
        assert!(is_hit(&harness, GET) && !is_hit(&harness, &format!("{GET}\nauthorization: Bearer a")));
        harness.pass_ms(61_000);
        for kind in [FailureKind::Connect, FailureKind::Timeout] {
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(sent(&mut exchange, &harness, "if-none-match").as_deref(), Some("\"1\""));
            assert!(matches!(exchange.failure(&harness, kind), TestStep::Stored(_)));
            exchange.end(&harness);
        }
        harness.pass_ms(3_600_000);
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.failure(&harness, FailureKind::Timeout), TestStep::Failure(FailureKind::Timeout));
        assert_eq!(exchange.added(), [("cache-status".to_owned(), "egret; fwd=stale".to_owned())]);
    }

    #[test]
    fn a_304_about_something_else_has_the_provider_asked_without_conditions() {
        let mut harness = harness(&json!({}));
        store(&harness, GET, "200\ncache-control: max-age=60\netag: \"1\"");
        harness.pass_ms(61_000);
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert!(matches!(exchange.response(&harness, "304\netag: \"2\""), TestStep::Repeat(_)));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(sent(&mut exchange, &harness, "if-none-match"), None);
        assert_eq!(sent(&mut exchange, &harness, "x-out").as_deref(), Some("1"));
        let step = exchange.response_with(&harness, "200\ncache-control: max-age=60", Some(b"new"));
        assert_eq!(step, TestStep::Response(200));
        exchange.end(&harness);
        assert!(is_hit(&harness, GET));
    }

    #[test]
    fn what_only_reports_stores_nothing_and_serves_nothing() {
        let harness = TestFlows::with(&json!([{ "cache": {}, "mode": "report" }]));
        for _ in 0..2 {
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(
                exchange.response(&harness, "200\ncache-control: max-age=60"),
                TestStep::Response(200)
            );
            assert_eq!(exchange.added(), []);
            exchange.end(&harness);
        }
    }

    #[test]
    fn what_another_provider_or_a_remedy_further_in_answers_is_not_stored() {
        let fallback = json!({ "fallback": { "on": ["5xx"], "provider": "two" } });
        let harness = TestFlows::with(&json!([{ "cache": {} }, fallback]));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert!(matches!(exchange.response(&harness, "503"), TestStep::Repeat(_)));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        let step = exchange.response_with(&harness, "200\ncache-control: max-age=60", Some(b"two"));
        assert_eq!(step, TestStep::Response(200));
        exchange.end(&harness);
        assert!(!is_hit(&harness, GET));
        let fixed = json!({ "fixed-response": { "headers": { "cache-control": "max-age=60" } } });
        let harness = TestFlows::with(&json!([{ "cache": {} }, fixed]));
        for _ in 0..2 {
            assert!(matches!(harness.exchange(GET, "200"), TestStep::Fixed(_)));
        }
    }

    #[test]
    fn what_comes_without_a_length_is_waited_for_a_moment_and_left_if_it_is_too_large() {
        let mut harness = harness(&json!({ "max_entry": "1KiB" }));
        let coming = |harness: &TestFlows, fields: &str| {
            let mut first = harness.send(GET);
            assert_eq!(first.poll(harness), TestStep::Call);
            let response = format!("200\ncache-control: max-age=60{fields}");
            assert_eq!(first.response(harness, &response), TestStep::Response(200));
            let mut filling = first.body_writer().unwrap();
            filling.push(b"some").unwrap();
            (first, filling)
        };
        // The response is complete within a second.
        let (first, filling) = coming(&harness, "");
        let mut second = harness.send(GET);
        let until = harness.now + SETTLE_MAX;
        assert_eq!(second.poll(&harness), TestStep::Wait(Some(until)));
        harness.pass_ms(500);
        assert_eq!(second.poll(&harness), TestStep::Wait(Some(until)));
        filling.finish();
        let TestStep::Stored(served) = second.poll(&harness) else { panic!("it is stored") };
        assert_eq!(served.body().len(), Some(4));
        drop((first, second));
        // The response takes longer.
        harness.pass_ms(60_000);
        let (first, mut filling) = coming(&harness, "");
        let mut second = harness.send(GET);
        assert!(matches!(second.poll(&harness), TestStep::Wait(_)));
        harness.pass_ms(1_000);
        assert!(matches!(second.poll(&harness), TestStep::Stored(_)));
        // The response is too large: waiting requests go on without coalescing, and so does the next one.
        let mut third = harness.send(GET);
        assert!(matches!(third.poll(&harness), TestStep::Wait(_)));
        assert!(filling.push(&[0; 2_000]).is_err());
        filling.give_up(&[0; 2_000]);
        let mut fourth = harness.send(GET);
        assert_eq!((third.poll(&harness), fourth.poll(&harness)), (TestStep::Call, TestStep::Call));
        drop((first, second, third, fourth));
        // The response is aborted: one request goes to the provider, the others wait for it.
        harness.pass_ms(31_000);
        let (first, filling) = coming(&harness, "");
        let (mut second, mut third) = (harness.send(GET), harness.send(GET));
        assert!(matches!(
            (second.poll(&harness), third.poll(&harness)),
            (TestStep::Wait(_), TestStep::Wait(_))
        ));
        drop(filling);
        assert_eq!(second.poll(&harness), TestStep::Call);
        assert!(matches!(third.poll(&harness), TestStep::Wait(_)));
        drop((first, second, third));
        // A response with a length is served at once, and so is a response without a body.
        harness.pass_ms(31_000);
        let (first, filling) = coming(&harness, "\ncontent-length: 9\netag: \"1\"");
        assert!(is_hit(&harness, GET));
        drop((first, filling));
        let (_first, _filling) = coming(&harness, "\netag: \"1\"");
        assert!(is_hit(&harness, &format!("{GET}\nif-none-match: \"1\"")));
    }

    #[test]
    fn what_is_stale_stands_in_for_silence_for_a_while_and_for_no_refusal() {
        for (cache, is_served) in [(json!({}), true), (json!({ "stale_if_error": "0s" }), false)] {
            let mut harness = harness(&cache);
            store(&harness, GET, "200\ncache-control: max-age=60\netag: \"1\"");
            harness.pass_ms(359_000);
            for (kind, is_silent) in [
                (FailureKind::Connect, true),
                (FailureKind::Timeout, true),
                (FailureKind::Reset, true),
                (FailureKind::BadResponse, false),
                (FailureKind::Refused, false),
            ] {
                let mut exchange = harness.send(GET);
                assert_eq!(exchange.poll(&harness), TestStep::Call);
                let step = exchange.failure(&harness, kind);
                assert_eq!(matches!(step, TestStep::Stored(_)), is_served && is_silent, "{kind:?}");
            }
            harness.pass_ms(2_000);
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(exchange.failure(&harness, FailureKind::Reset), TestStep::Failure(FailureKind::Reset));
        }
    }

    /// Creates a harness whose disk is in `directory`.
    fn stage_with_disk(directory: &Path) -> TestFlows {
        TestFlows::new(json!({
            "data_dir": directory,
            "flows": [{ "name": "f", "remedies": [{ "cache": { "disk": {} } }] }],
        }))
    }

    /// The thread of a disk. It loads its index and then does nothing until it is released.
    struct Serving {
        thread: JoinHandle<()>,
        go: SyncSender<()>,
    }

    impl Serving {
        fn start(harness: &TestFlows) -> Self {
            let disk = harness.flows.cache_disks().remove(0);
            let ((open, is_open), (go, may_go)) = (sync_channel(1), sync_channel(1));
            let thread = std::thread::spawn(move || {
                let tell = |_| {
                    open.send(()).unwrap();
                    may_go.recv().unwrap();
                };
                disk.serve(&tell).unwrap();
            });
            is_open.recv().unwrap();
            Self { thread, go }
        }

        /// Releases the thread and ends it.
        fn end(self, harness: &TestFlows) {
            self.go.send(()).unwrap();
            harness.flows.cache_disks()[0].stop(Stop::Keep(Moment::NEVER));
            self.thread.join().unwrap();
        }
    }

    /// Creates a directory in which the response to `GET` is stored.
    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let harness = stage_with_disk(directory.path());
        let serving = Serving::start(&harness);
        store(&harness, GET, "200\ncache-control: max-age=60");
        serving.end(&harness);
        directory
    }

    #[test]
    fn a_request_waits_for_the_disk_and_is_answered_from_it() {
        let directory = directory();
        for request in [GET.to_owned(), format!("{GET}\ncache-control: only-if-cached")] {
            let mut harness = stage_with_disk(directory.path());
            let mut serving = Some(Serving::start(&harness));
            let mut exchange = harness.send(&request);
            let until = harness.now + DISK_WAIT_MAX;
            assert_eq!(exchange.poll(&harness), TestStep::Wait(Some(until)));
            harness.pass_ms(999);
            assert_eq!(exchange.poll(&harness), TestStep::Wait(Some(until)));
            serving.as_ref().unwrap().go.send(()).unwrap();
            let step = std::iter::repeat_with(|| exchange.poll(&harness))
                .find(|step| !matches!(step, TestStep::Wait(_)));
            let Some(TestStep::Stored(served)) = step else { panic!("{step:?}") };
            let mut fields = Vec::new();
            served.write_fields(&mut fields);
            assert!(
                String::from_utf8(fields).unwrap().contains("cache-status: egret; hit; ttl=60; detail=disk")
            );
            exchange.end(&harness);
            assert!(is_hit(&harness, GET));
            let Serving { thread, .. } = serving.take().unwrap();
            harness.flows.cache_disks()[0].stop(Stop::Keep(Moment::NEVER));
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_request_that_waits_too_long_goes_on_and_what_it_brings_holds() {
        for (said, is_there) in
            [("200\ncache-control: no-store", false), ("404", false), ("503", true), ("403", true)]
        {
            let directory = directory();
            let mut harness = stage_with_disk(directory.path());
            let serving = Serving::start(&harness);
            let mut exchange = harness.send(GET);
            assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))));
            harness.pass_ms(1_000);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert!(matches!(exchange.response(&harness, said), TestStep::Response(_)));
            exchange.end(&harness);
            serving.end(&harness);
            let harness = stage_with_disk(directory.path());
            let serving = Serving::start(&harness);
            let mut exchange = harness.send(GET);
            assert_eq!(matches!(exchange.poll(&harness), TestStep::Wait(_)), is_there, "{said}");
            drop(exchange);
            serving.end(&harness);
        }
    }

    #[test]
    fn a_request_goes_on_at_once_where_nothing_is_on_the_disk_or_that_is_not_known() {
        let directory = directory();
        let harness = stage_with_disk(directory.path());
        assert_eq!(harness.send(GET).poll(&harness), TestStep::Call, "it is not open");
        let serving = Serving::start(&harness);
        assert_eq!(harness.send("GET https://one.example/b").poll(&harness), TestStep::Call);
        assert_eq!(harness.send(&format!("{GET}\nauthorization: Bearer a")).poll(&harness), TestStep::Call);
        serving.end(&harness);
        assert_eq!(harness.send(GET).poll(&harness), TestStep::Call, "it is closed");
    }

    #[test]
    fn only_what_acts_has_a_disk_and_a_reload_that_keeps_the_keys_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = |cache: Value, mode: &str| {
            let remedy = json!({ "cache": cache, "mode": mode });
            json!({ "data_dir": directory.path(), "flows": [{ "name": "f", "remedies": [remedy] }] })
        };
        let mut harness = TestFlows::new(config(json!({ "disk": {} }), "report"));
        assert!(harness.flows.cache_disks().is_empty());
        let mut reload = |cache: Value| {
            harness.reload(config(cache, "enforce"));
            harness.flows.cache_disks().pop()
        };
        let first = reload(json!({ "disk": {} })).unwrap();
        assert!(reload(json!({ "disk": { "size": "2GiB" }, "stale_if_error": "1h" })).unwrap().is(&first));
        let other = reload(json!({ "disk": {}, "memory": "8MiB" })).unwrap();
        assert!(!other.is(&first) && other.directory() == first.directory());
        assert!(reload(json!({})).is_none());
    }

    #[test]
    fn a_config_is_refused_by_its_key() {
        let of = |cache: &Value| problems(&json!([{ "cache": cache }]));
        let override_alone = of(&json!({ "override": true }));
        assert_eq!(override_alone, ["flows[0].remedies[0].cache.override: requires a `ttl`"]);
        for named in ["428", "429", "431", "511", "511-511"] {
            let told = of(&json!({ "ttl": { named: "5s" } })).concat();
            assert!(told.starts_with("flows[0].remedies[0].cache.ttl: no cache may store 428"), "{told}");
        }
        assert!(of(&json!({ "ttl": { "4xx": "5s", "428-431": "5s", "503": "5s" } })).is_empty());
    }
}
