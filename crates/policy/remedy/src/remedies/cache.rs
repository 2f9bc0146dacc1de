//! `cache`: serves stored responses, and stores responses of the provider. [`Policy`] decides what may be
//! stored and served. Stored responses are partitioned by credential. They are kept in memory, optionally
//! also on a disk, and survive a reload.

mod held;
mod sharing;
mod state;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::rand;
use egret_accounts::Account;
use egret_cache::{
    Action, CacheConfig, CacheDisk, CacheEvent, CacheRequest, CacheSnapshot, CacheStatus, CallTimes,
    Candidate, Decision, DiskLocation, FwdReason, KeyContext, Lookup, NotStored, Policy, ProviderFailure,
    Reply, SECRET_BYTES, Served, Stored, TimedResponse, Validation, Verdict, fingerprint, problems,
};
use egret_clock::Timestamp;
use egret_http1::{Method, ResponseFraming};
use egret_match::expression::EXPRESSION_BODY_BYTES_MAX;
use egret_message::{
    CallFailure, ClientAddress, Destination, ErrorKind, FailureKind, Outcome, Refused, Request,
};
use egret_store::coalescer::{Background, CoalescedRole, Ending, Leader};
use egret_store::entries::{BodyWriter, DiskLookup, Full, Purge, Removal, Seal, StoredEntry};
use egret_store::shared::Purged;
use held::{DiskFetch, ForwardedRequest, Found};
use sharing::Sharing;
use smallvec::SmallVec;
use state::{CacheState, DiskSource};

use crate::exchange::{Checkpoint, Exchange};
use crate::local_response::{LocalKind, LocalResponse};
use crate::remedy::{CompileContext, InnerRemedy, Needs, Reaction, Remedy, Step};
pub use held::CacheRun;

/// Maximum wait for the disk. After it, the request goes on as if nothing were stored there. A working disk
/// never takes this long.
const DISK_WAIT_MAX: Duration = Duration::from_secs(1);

/// Serves stored responses, and stores responses.
#[derive(Debug)]
pub struct Cache {
    policy: Policy,
    state: Arc<CacheState>,
    tags: Arc<[Box<str>]>,
    /// The same cache in the other gateways of a cluster.
    sharing: Option<Sharing>,
}

/// A request to forward to the provider, and the reason.
struct Forwarding {
    cache_request: CacheRequest,
    why: FwdReason,
    found: Found,
    validation: Option<Validation>,
    leader: Option<Leader>,
}

impl Remedy for Cache {
    type Config = CacheConfig;
    type Run = CacheRun;

    fn conflict_with_grpc(_config: &CacheConfig) -> Option<(&'static str, &'static str)> {
        Some(("", "every call is a POST, whose message decides about the response"))
    }

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
        let lasting = CacheState::lasting(config, context.mode);
        let seal = Seal { fingerprint: fingerprint(&lasting, context.flow()), secret };
        let (workers, location) = (context.workers, disk_location(&lasting, context));
        // Exchanges that still run under the old config may know of changes that the new state does not
        // receive.
        let is_in_use = context
            .states
            .before()
            .is_some_and(|before: Arc<CacheState>| before.disk.is_some() && before.disk == location);
        let state = context.states.keep(
            |state: &CacheState| state.config == lasting,
            || CacheState::new(config, lasting.clone(), DiskSource { seal, location, is_in_use }, workers),
        );
        let policy = Policy::new(config, context.flow(), Arc::clone(&state.secret));
        let tags = config.tags.iter().map(|tag| tag.as_str().into()).collect();
        let sharing = Sharing::new(context, &state);
        Some(Self { policy, state, tags, sharing })
    }

    fn describe(&self) -> String {
        let CacheConfig { shared, memory, max_entry, disk, .. } = self.policy.config();
        let whose = if *shared { "shared by all clients" } else { "per credential" };
        let on_disk = disk.as_ref().map_or_else(String::new, |disk| format!(", {} on disk", disk.size));
        format!("serves stored responses, {whose}: up to {max_entry} each and {memory} in total{on_disk}")
    }

    fn needs(&self) -> Needs {
        let is_for_bodies = self.policy.config().methods.contains("POST");
        let max = if is_for_bodies { EXPRESSION_BODY_BYTES_MAX } else { 0 };
        Needs { request_body: max, replay: max, ..Needs::default() }
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut CacheRun, cx: &mut Context<'_>) -> Poll<Step> {
        let context = key_context(exchange);
        if is_elsewhere(exchange) {
            // The request asks for a response of the original provider, not of another one.
            self.bypass(exchange, held, FwdReason::Bypass);
            return Poll::Ready(Step::Next);
        }
        match self.policy.look_up(&exchange.request(), &context) {
            Lookup::Look(cache_request) => self.look(exchange, held, &cache_request, cx),
            Lookup::Forward(why) => {
                self.bypass(exchange, held, why);
                Poll::Ready(Step::Next)
            }
            Lookup::OnlyIfCached => Poll::Ready(self.refuse(exchange, FwdReason::Bypass)),
        }
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut CacheRun) -> Reaction {
        let Some(forwarded) = held.forwarded.take() else { return Reaction::Pass };
        match (exchange.outcome, exchange.local_kind) {
            (Outcome::Response(_), None) => self.received(exchange, held, forwarded),
            (Outcome::Failure(_), _) | (_, Some(LocalKind::Refused(_) | LocalKind::Injected)) => {
                self.failed(exchange, forwarded)
            }
            (Outcome::None | Outcome::Response(_), _) => {
                add_cache_status(exchange, forwarded.status);
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
        context.states.identity().ordinal,
    ))
}

impl Cache {
    /// Returns the counters of the cache and the size of its content.
    pub fn snapshot(&self) -> CacheSnapshot {
        let CacheState { entries, counts, .. } = &*self.state;
        let disk = entries.disk().map(|disk| disk.stats());
        CacheSnapshot { disk, ..counts.snapshot(entries.stats()) }
    }

    /// Removes the entries that `purge` selects, and tells the other gateways of a cluster.
    pub fn purge(&self, purge: Purge<'_>) -> Purged {
        let told = self.sharing.iter().map(|sharing| sharing.tell(Removal::from(purge)));
        Purged { told: told.collect(), removed: self.state.entries.purge(purge) }
    }

    /// Returns its disk, if it has one.
    pub fn disk(&self) -> Option<CacheDisk> {
        CacheDisk::of(&self.state.entries, self.policy.config())
    }

    /// Looks up stored responses and makes the request wait, go on, or get a response.
    fn look(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut CacheRun,
        cache_request: &CacheRequest,
        cx: &Context<'_>,
    ) -> Poll<Step> {
        let CacheState { entries, coalescer, .. } = &*self.state;
        let (id, now) = (cache_request.key.id, exchange.now);
        if self.still_waits(exchange, held, cx) || held.still_loads(exchange, cx) {
            return Poll::Pending;
        }
        if let Some(body) = held.awaited_body.take_if(|body| body.poll_ended(cx).is_ready())
            && body.lacks_room()
        {
            // The body is gone. All waiting requests go on at once, and so do later ones.
            coalescer.note_uncacheable(id, now);
        }
        let background = exchange.draft.background.take();
        let is_background = background.is_some();
        let mut leader = background.map(|background| background.leader);
        loop {
            let mut found = Found::new();
            entries.find(cache_request.key.into(), &mut found);
            let decision = self.policy.decide(cache_request, &exchange.request(), &candidates(&found), now);
            // A leader does not let its waiters wait for the disk.
            if !decision.is_served() && leader.is_none() && self.fetch(held, cache_request, &found, now) {
                if held.still_loads(exchange, cx) {
                    return Poll::Pending;
                }
                continue;
            }
            if let Decision::Serve(reply) | Decision::ServeStale(reply, _) = &decision
                && !is_background
                && found[reply.candidate].body.len().is_none()
            {
                match held.wait_for_body(exchange, &found[reply.candidate], reply, cx) {
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
            if leader.is_none()
                && !held.has_waited
                && self.may_collapse(cache_request, &exchange.request(), why)
            {
                match coalescer.join(id, now) {
                    CoalescedRole::Leader(first) => {
                        // Another request may have stored the response since the look-up.
                        leader = Some(first);
                        continue;
                    }
                    CoalescedRole::Wait(waiting) => {
                        held.waiting = Some(waiting);
                        held.waited.get_or_insert((now, why));
                        if self.still_waits(exchange, held, cx) {
                            return Poll::Pending;
                        }
                        continue;
                    }
                    CoalescedRole::Alone => {}
                }
            }
            let forwarding = Forwarding { cache_request: *cache_request, why, found, validation, leader };
            self.forward(exchange, held, forwarding);
            return Poll::Ready(Step::Next);
        }
    }

    /// Starts loading entries from the disk, once per request. Returns `true` if loading is in progress, or
    /// if an entry has come into memory since `found` was looked up.
    fn fetch(
        &self,
        held: &mut CacheRun,
        cache_request: &CacheRequest,
        found: &Found,
        now: Timestamp,
    ) -> bool {
        if !matches!(held.disk_fetch, DiskFetch::None) {
            return false;
        }
        held.disk_fetch = match self.state.entries.look_up(cache_request.key.into(), found) {
            DiskLookup::InMemory => return true,
            DiskLookup::Nothing => DiskFetch::None,
            DiskLookup::Loading(loading) => DiskFetch::InProgress(loading, now + DISK_WAIT_MAX),
            DiskLookup::Unknown => DiskFetch::Abandoned,
        };
        matches!(held.disk_fetch, DiskFetch::InProgress(..))
    }

    /// Returns `true` if the request waits for the response to another one.
    fn still_waits(&self, exchange: &mut Exchange<'_>, held: &mut CacheRun, cx: &Context<'_>) -> bool {
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
    fn may_collapse(&self, cache_request: &CacheRequest, request: &Request<'_>, why: FwdReason) -> bool {
        const OF_ITS_OWN: [&[u8]; 3] = [b"range", b"if-none-match", b"if-modified-since"];
        self.policy.config().collapse.is_some()
            && cache_request.method != Method::Head
            && !cache_request.wants.no_store
            && matches!(why, FwdReason::UriMiss | FwdReason::VaryMiss | FwdReason::Stale)
            && OF_ITS_OWN.iter().all(|name| request.fields.get(name).is_none())
    }

    /// Forwards the request to the provider, with the validators if there are any.
    fn forward(&self, exchange: &mut Exchange<'_>, held: &mut CacheRun, forwarding: Forwarding) {
        let Forwarding { cache_request, why, found, validation, leader } = forwarding;
        held.awaited_body = None;
        if let Some(leader) = &leader {
            exchange.draft.followers = Some(leader.followers());
        }
        let checkpoint = exchange.draft.checkpoint();
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
        held.forwarded = Some(Box::new(ForwardedRequest {
            cache_request: Some(cache_request),
            status: CacheStatus::forwarded(why),
            validation,
            found,
            sent: exchange.now,
            leader,
            checkpoint,
            is_blind: matches!(held.disk_fetch, DiskFetch::Abandoned),
        }));
    }

    /// Lets a request bypass the cache. It may only invalidate stored responses.
    fn bypass(&self, exchange: &Exchange<'_>, held: &mut CacheRun, why: FwdReason) {
        self.state.counts.count(exchange.worker, CacheEvent::Bypass);
        held.forwarded = Some(Box::new(ForwardedRequest {
            cache_request: None,
            status: CacheStatus::forwarded(why),
            validation: None,
            found: Found::new(),
            sent: exchange.now,
            leader: None,
            checkpoint: exchange.draft.checkpoint(),
            is_blind: false,
        }));
    }

    /// Refuses an `only-if-cached` request for which there is no suitable stored response.
    fn refuse(&self, exchange: &Exchange<'_>, why: FwdReason) -> Step {
        self.state.counts.count(exchange.worker, CacheEvent::Bypass);
        let mut refused = Refused::new(
            ErrorKind::NotCached,
            "the request has `only-if-cached`, and there is no suitable stored response",
        );
        let status = CacheStatus::forwarded(why).value();
        refused.fields.push(("Cache-Status".into(), status));
        refused.into()
    }

    /// Returns a stored response for the client.
    fn hit(&self, exchange: &Exchange<'_>, held: &CacheRun, found: &Found, reply: Reply) -> Step {
        let CacheState { counts, .. } = &*self.state;
        let is_fresh = reply.freshness.is_fresh();
        counts.count(exchange.worker, if is_fresh { CacheEvent::Hit } else { CacheEvent::Stale });
        let mut status = CacheStatus::hit(&reply);
        if let Some((_, why)) = held.waited {
            counts.count(exchange.worker, CacheEvent::Collapsed);
            (status.forward, status.collapsed) = (Some(why), true);
        }
        status.detail = matches!(held.disk_fetch, DiskFetch::Done).then_some("disk");
        Step::LocalResponse(Box::new(self.served(exchange, &found[reply.candidate], reply, status)))
    }

    fn served(
        &self,
        exchange: &Exchange<'_>,
        entry: &Arc<StoredEntry<Stored>>,
        reply: Reply,
        status: CacheStatus,
    ) -> LocalResponse {
        entry.touch();
        self.state.counts.served(exchange.worker, reply.freshness.age);
        LocalResponse::Stored(Served::new(Arc::clone(entry), reply, status))
    }

    /// Handles a failed call. A stored response may be used instead.
    fn failed(&self, exchange: &mut Exchange<'_>, forwarded: Box<ForwardedRequest>) -> Reaction {
        let Some(cache_request) = forwarded.cache_request else {
            add_cache_status(exchange, forwarded.status);
            return Reaction::Pass;
        };
        let changes = exchange.draft.request.first(forwarded.checkpoint.request_changes());
        let is_silent = |failure: CallFailure| {
            matches!(failure.kind, FailureKind::Connect | FailureKind::Timeout | FailureKind::Reset)
        };
        let failure = match exchange.outcome {
            Outcome::Failure(failure) if is_silent(failure) => ProviderFailure::Silence,
            _ => ProviderFailure::Error,
        };
        let reply = self.policy.fail(
            &cache_request,
            &exchange.request_at(&forwarded.checkpoint, &changes),
            &candidates(&forwarded.found),
            failure,
            exchange.now,
        );
        forwarded.leader.into_iter().for_each(Leader::finish);
        let Some(reply) = reply else {
            self.state.counts.count(exchange.worker, CacheEvent::Miss);
            add_cache_status(exchange, forwarded.status);
            return Reaction::Pass;
        };
        self.state.counts.count(exchange.worker, CacheEvent::Stale);
        let status = forwarded.status.failed(&reply);
        Reaction::LocalResponse(Box::new(self.served(
            exchange,
            &forwarded.found[reply.candidate],
            reply,
            status,
        )))
    }

    /// Handles the provider's response.
    fn received(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut CacheRun,
        mut forwarded: Box<ForwardedRequest>,
    ) -> Reaction {
        let CacheState { entries, counts, .. } = &*self.state;
        let worker = exchange.worker;
        if is_elsewhere(exchange) {
            // Another provider has responded, on behalf of an inner remedy.
            add_cache_status(exchange, forwarded.status);
            return Reaction::Pass;
        }
        let Some(cache_request) = forwarded.cache_request else {
            self.invalidate(exchange, &forwarded);
            add_cache_status(exchange, forwarded.status);
            return Reaction::Pass;
        };
        if exchange.draft.call.account != forwarded.checkpoint.account() && !self.policy.config().shared {
            return self.pass_unknown(exchange, held, forwarded);
        }
        let decided = self.decide_on_response(exchange, &cache_request, &forwarded);
        let Some((verdict, mut status)) = decided else { return Reaction::Pass };
        if forwarded.is_blind && exchange.response().is_some_and(|response| verdict.is_newer(response.status))
        {
            entries.remove_unloaded(cache_request.key.into());
        }
        let Verdict { action, removed } = verdict;
        let is_awaited = forwarded.leader.is_some();
        match action {
            Action::Again => {
                forwarded.validation = None;
                held.forwarded = Some(forwarded);
                return Reaction::RepeatClean;
            }
            Action::Update(stored, reply) => {
                counts.count(worker, CacheEvent::Revalidated);
                let updated = self.update(exchange, &forwarded.found, *stored, &reply, &removed);
                finish(&mut forwarded.leader);
                return Reaction::LocalResponse(Box::new(self.served(exchange, &updated, reply, status)));
            }
            Action::ServeStale(reply) => {
                counts.count(worker, CacheEvent::Stale);
                finish(&mut forwarded.leader);
                let entry = &forwarded.found[reply.candidate];
                return Reaction::LocalResponse(Box::new(self.served(exchange, entry, reply, status)));
            }
            Action::PassAndUpdate(candidate, stored) => {
                entries.update(&forwarded.found[candidate], *stored, exchange.now);
                self.remove(&forwarded.found, &removed);
            }
            Action::Pass(why) => {
                self.remove(&forwarded.found, &removed);
                self.could_not_store(&cache_request, why, is_awaited, exchange.now);
            }
            Action::Store(stored, _) => {
                self.remove(&forwarded.found, &removed);
                status = self.store(exchange, &cache_request, *stored, status, is_awaited);
            }
        }
        counts.count(worker, CacheEvent::Miss);
        add_cache_status(exchange, status);
        finish(&mut forwarded.leader);
        Reaction::Pass
    }

    /// Replaces the value of a stored response that the provider has confirmed. Returns it, even if it is not
    /// kept, or was removed meanwhile.
    fn update(
        &self,
        exchange: &Exchange<'_>,
        found: &Found,
        stored: Stored,
        reply: &Reply,
        removed: &[usize],
    ) -> Arc<StoredEntry<Stored>> {
        let entry = &found[reply.candidate];
        let updated = (!removed.contains(&reply.candidate))
            .then(|| self.state.entries.update(entry, stored.clone(), exchange.now))
            .flatten()
            .unwrap_or_else(|| entry.with(stored));
        self.remove(found, removed);
        updated
    }

    /// Removes some of the entries that were found.
    fn remove(&self, found: &Found, removed: &[usize]) {
        for at in removed {
            self.state.entries.remove(&found[*at]);
        }
    }

    /// Starts to store a response that the client receives. Returns its cache status.
    fn store(
        &self,
        exchange: &mut Exchange<'_>,
        cache_request: &CacheRequest,
        stored: Stored,
        status: CacheStatus,
        is_awaited: bool,
    ) -> CacheStatus {
        if let Ok(body_writer) = self.begin(exchange, cache_request, stored) {
            self.state.counts.count(exchange.worker, CacheEvent::Stored);
            self.state.coalescer.note_cacheable(cache_request.key.id);
            exchange.draft.body_writer = body_writer;
            return status;
        }
        let why = NotStored::TooLarge;
        self.could_not_store(cache_request, why, is_awaited, exchange.now);
        CacheStatus { stored: false, ttl_s: None, detail: Some(why.word()), ..status }
    }

    /// Handles a response to a call made with an account that the cache did not know of when it looked: the
    /// cache searched the wrong partition, and the key of the response would not be found either.
    fn pass_unknown(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut CacheRun,
        mut forwarded: Box<ForwardedRequest>,
    ) -> Reaction {
        let is_validated = exchange.response().is_some_and(|response| response.status == 304);
        if is_validated && forwarded.validation.take().is_some() {
            forwarded.found.clear();
            held.forwarded = Some(forwarded);
            return Reaction::RepeatClean;
        }
        self.state.counts.count(exchange.worker, CacheEvent::Miss);
        let why = NotStored::Account;
        if let Some(cache_request) = &forwarded.cache_request {
            self.could_not_store(cache_request, why, forwarded.leader.is_some(), exchange.now);
        }
        add_cache_status(exchange, CacheStatus { detail: Some(why.word()), ..forwarded.status });
        forwarded.leader.into_iter().for_each(Leader::finish);
        Reaction::Pass
    }

    /// Decides about the provider's response, and returns the decision with its cache status.
    fn decide_on_response(
        &self,
        exchange: &Exchange<'_>,
        cache_request: &CacheRequest,
        forwarded: &ForwardedRequest,
    ) -> Option<(Verdict, CacheStatus)> {
        let changes = exchange.draft.request.first(forwarded.checkpoint.request_changes());
        let request = exchange.request_at(&forwarded.checkpoint, &changes);
        let response = exchange.response()?;
        let times = CallTimes { sent: forwarded.sent, received: exchange.now };
        let verdict = self.policy.receive(
            cache_request,
            &request,
            &key_context_at(exchange, &forwarded.checkpoint),
            TimedResponse { response: &response, times },
            &candidates(&forwarded.found),
            forwarded.validation.as_ref(),
        );
        let status = forwarded.status.responded(response.status, &verdict);
        Some((verdict, status))
    }

    /// Invalidates stored responses after a request that bypassed the cache.
    fn invalidate(&self, exchange: &Exchange<'_>, forwarded: &ForwardedRequest) {
        let changes = exchange.draft.request.first(forwarded.checkpoint.request_changes());
        let request = exchange.request_at(&forwarded.checkpoint, &changes);
        let Some(response) = exchange.response() else { return };
        let context = key_context_at(exchange, &forwarded.checkpoint);
        let groups = self.policy.invalidated(&request, &context, &response);
        if let Some(sharing) = &self.sharing
            && !groups.is_empty()
        {
            for url in self.policy.changed_urls(&request, &context, &response) {
                // Nobody waits for it: RFC 9111 asks this cache alone to invalidate.
                drop(sharing.tell(Removal::Changed(url.into())));
            }
        }
        let removed: usize = groups.into_iter().map(|group| self.state.entries.remove_group(group)).sum();
        self.state.counts.count_many(exchange.worker, CacheEvent::Invalidated, removed as u64);
    }

    /// Disables coalescing for a key whose next responses probably cannot be stored either.
    fn could_not_store(
        &self,
        cache_request: &CacheRequest,
        why: NotStored,
        is_awaited: bool,
        now: Timestamp,
    ) {
        if is_awaited && why.is_lasting() {
            self.state.coalescer.note_uncacheable(cache_request.key.id, now);
        }
    }

    /// Starts to store a response; stores all of it if its body is already complete.
    fn begin(
        &self,
        exchange: &Exchange<'_>,
        cache_request: &CacheRequest,
        stored: Stored,
    ) -> Result<Option<BodyWriter<Stored>>, Full> {
        let Outcome::Response(received) = exchange.outcome else { return Ok(None) };
        let whole = exchange.response().and_then(|response| response.body);
        let expected = match (whole, received.head.framing) {
            (Some(body), _) => Some(body.len() as u64),
            (None, ResponseFraming::Length(length)) => Some(length),
            (None, _) => None,
        };
        let key = cache_request.key.into();
        let mut body_writer = self.state.entries.begin(key, stored, &self.tags, expected, exchange.now)?;
        let Some(body) = whole else { return Ok(Some(body_writer)) };
        body_writer.push(body)?;
        body_writer.finish();
        Ok(None)
    }
}

/// Returns the target of the request and its account, with the remedies' changes so far.
/// Returns `true` if the call goes to another provider than the request's.
fn is_elsewhere(exchange: &Exchange<'_>) -> bool {
    exchange.draft.call.is_alternate || exchange.draft.call.provider.is_some()
}

fn key_context<'a>(exchange: &Exchange<'a>) -> KeyContext<'a> {
    key_context_for(exchange, exchange.account())
}

/// Returns the same as it was at `checkpoint`.
fn key_context_at<'a>(exchange: &Exchange<'a>, checkpoint: &Checkpoint) -> KeyContext<'a> {
    key_context_for(exchange, exchange.account_at(checkpoint))
}

fn key_context_for<'a>(exchange: &Exchange<'a>, account: Option<&'a Account>) -> KeyContext<'a> {
    let Destination { base, has_bare_base, kept_host, .. } = exchange.destination;
    let credential = account.map(Account::credential_digest);
    KeyContext {
        base,
        has_bare_base,
        kept_host,
        account: account.map(Account::name),
        credential,
        client: exchange.draft.client.and_then(ClientAddress::ip).map(|ip| ip.to_canonical()),
    }
}

/// Returns the entries in the form that the policy judges.
fn candidates(found: &Found) -> SmallVec<[Candidate<'_>; 2]> {
    found.iter().map(|entry| Candidate { stored: &entry.value, len: entry.body.len() }).collect()
}

/// Ends the wait of the requests behind `leader`, if there is one.
fn finish(leader: &mut Option<Leader>) {
    leader.take().into_iter().for_each(Leader::finish);
}

/// Adds the `Cache-Status` field to the response.
fn add_cache_status(exchange: &mut Exchange<'_>, status: CacheStatus) {
    exchange.draft.response.add(b"cache-status", &status.value());
}

#[cfg(test)]
mod tests;
