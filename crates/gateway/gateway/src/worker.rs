//! A worker: one thread with its own event loop, connections, pools, timers and counters.
//!
//! Workers share nothing that the path of a request writes to. Messages between them (a new client, a new
//! plan, a request for an idle connection) go through one inbox per worker.

mod shared;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use egret_clock::{Moment, Random, planted};
use egret_export::access_log::LogLine;
use egret_message::RequestId;
use egret_net::deadline::Timers;
use egret_net::event_loop::now;
use egret_observe::counters::WorkerCounters;
use egret_observe::failure::{ErrorKind, Failure};
use egret_observe::ring::RecordSender;
use egret_plan::{Plan, RequestIds, UpstreamPlan};
use tokio::sync::{Notify, mpsc};

pub(crate) use self::shared::{Backlog, Inbox, Shared, StopAccepting, WorkerMessage};
use crate::state::flow_run::FlowRun;
use crate::state::follow_up::FollowUp;
use crate::state::request::{Pools, RequestState};
use egret_upstream::{Lent, NamedHosts, Upstream, View};

/// Number of spare flow runs that a worker keeps.
const SPARE_FLOW_RUNS: usize = 256;

/// Maximum number of revalidations that one worker runs at once. Above it a stale response is served again,
/// and the next request for it starts one.
const REVALIDATIONS_MAX: usize = 64;

/// Maximum number of responses that one worker reads to their end although their clients have left. Above it,
/// such a call is closed.
const LEFT_RESPONSES_MAX: usize = 256;

/// Number of failed exchanges that a worker records in a second.
const FAILURES_PER_SECOND_MAX: u32 = 50;

/// One worker's state, shared by its tasks.
#[derive(Debug)]
pub(crate) struct Worker {
    pub number: usize,
    pub shared: Arc<Shared>,
    pub timers: Rc<Timers>,
    /// The memory that exchanges share.
    pub pools: Pools,
    /// Spare flow runs.
    #[expect(clippy::vec_box, reason = "a flow run is large and is moved more often than it is created")]
    flow_runs: RefCell<Vec<Box<FlowRun>>>,
    /// Number of revalidations that are ordered or in progress.
    revalidations: Cell<usize>,
    /// Number of responses that are read although their clients have left.
    left_responses: Cell<usize>,
    /// Calls that exchanges have ordered, for the background tasks.
    follow_ups: mpsc::UnboundedSender<FollowUp>,
    /// Hands records of exchanges to the diagnoses.
    pub records: RefCell<RecordSender>,
    /// The second, since the machine's start, in which failed exchanges were recorded last, and their number.
    failures: Cell<(u64, u32)>,
    pub draining: Cell<bool>,
    /// Number of calls of the gateway's own that must end before the worker does.
    pub unfinished: Cell<usize>,
    /// The source of request ids.
    pub random: RefCell<Random>,
    view: RefCell<Rc<View>>,
    /// The hosts that clients have named.
    pub hosts: NamedHosts,
    /// Notified when a client's connection closes while draining.
    closed: Notify,
    /// `true` while the sweeper runs, which it does only if there is something to sweep.
    sweeping: Cell<bool>,
    /// Notified when the sweeper must run again.
    kept: Notify,
}

impl Worker {
    /// Creates a worker that runs `plan`.
    pub fn new(
        number: usize,
        shared: Arc<Shared>,
        plan: Arc<Plan>,
        records: RecordSender,
        follow_ups: mpsc::UnboundedSender<FollowUp>,
    ) -> Rc<Self> {
        let pools = Pools::new(Arc::clone(&shared.gathered));
        Rc::new(Self {
            number,
            shared,
            timers: Rc::default(),
            pools,
            flow_runs: RefCell::default(),
            revalidations: Cell::new(0),
            left_responses: Cell::new(0),
            follow_ups,
            records: RefCell::new(records),
            failures: Cell::default(),
            draining: Cell::new(false),
            unfinished: Cell::new(0),
            random: RefCell::default(),
            view: RefCell::new(Rc::new(View::new(plan, number, false, None))),
            hosts: NamedHosts::default(),
            closed: Notify::new(),
            sweeping: Cell::new(false),
            kept: Notify::new(),
        })
    }

    /// Returns a request state to the spare ones.
    pub fn return_state(&self, state: Box<RequestState>) {
        self.pools.return_state(state);
        if self.pools.buffers.has_freed() {
            self.has_kept();
        }
    }

    /// Takes a spare flow run, or creates one.
    pub fn take_flow_run(&self) -> Box<FlowRun> {
        self.flow_runs.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a flow run to the spare ones.
    pub fn return_flow_run(&self, mut run: Box<FlowRun>) {
        let mut runs = self.flow_runs.borrow_mut();
        if runs.len() < SPARE_FLOW_RUNS {
            run.forget_bodies();
            runs.push(run);
        }
    }

    /// Returns `true` if another revalidation may be ordered.
    pub fn has_room_for_revalidation(&self) -> bool {
        self.revalidations.get() < REVALIDATIONS_MAX
    }

    /// Orders a call that nobody waits for.
    pub fn follow_up(&self, order: FollowUp) {
        if matches!(order, FollowUp::Revalidation(_)) {
            self.revalidations.set(self.revalidations.get() + 1);
        }
        // The background tasks run as long as the worker.
        let _ = self.follow_ups.send(order);
    }

    /// Notes that a revalidation has ended.
    pub fn has_revalidated(&self) {
        self.revalidations.set(self.revalidations.get() - 1);
    }

    /// Takes a place for a response that is read although its client has left, if there is one.
    pub fn take_left_response(&self) -> bool {
        let count = self.left_responses.get();
        let has_room = count < LEFT_RESPONSES_MAX;
        self.left_responses.set(count + usize::from(has_room));
        has_room
    }

    /// Notes that such a response has ended.
    pub fn has_read_left_response(&self) {
        self.left_responses.set(self.left_responses.get() - 1);
    }

    /// Notes that a client's connection has closed.
    pub fn has_closed(&self) {
        if self.draining.get() {
            self.closed.notify_one();
        }
    }

    /// Writes a line to the access log if it is on. A dropped line is counted.
    pub fn log_access<'a>(&self, line: impl FnOnce() -> LogLine<'a>) {
        if !self.shared.access_log.write_if_on(line) {
            self.counters().access_log_dropped.add(1);
        }
    }

    /// Gives a request its id if requests have ids: `received`, the client's own, or a new one.
    pub fn identify(&self, plan: &Plan, received: Option<&[u8]>, id: &mut RequestId) {
        match received {
            _ if matches!(plan.request_ids, RequestIds::Off) => id.clear(),
            Some(received) => id.set(received),
            None => id.make(self.shared.clock.timestamp(now::turned()), &mut self.random.borrow_mut()),
        }
    }

    /// Returns the counters of this worker that do not belong to a provider.
    pub fn counters(&self) -> &WorkerCounters {
        &self.shared.network.counters[self.number]
    }

    /// Returns the plan in force.
    pub fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// Starts the sweeper, which closes idle connections and releases freed memory, if it is not running.
    pub fn has_kept(&self) {
        // Called after every exchange, so it only sets a flag while the sweeper runs.
        if !self.sweeping.replace(true) {
            self.kept.notify_one();
        }
    }

    /// Waits until the last connection of a draining worker has closed.
    pub async fn wait_for_close(&self) {
        self.closed.notified().await;
    }

    /// Waits until there is something to sweep.
    pub async fn wait_for_kept(&self) {
        self.kept.notified().await;
    }

    /// Closes idle connections that have expired and releases freed memory. Runs again if some remain.
    pub fn sweep(&self) {
        let (now, view) = (Moment::now(), self.view());
        let mut remain = self.hosts.sweep(now);
        for upstream in &view.upstreams {
            remain |= upstream.sweep(now);
        }
        remain |= self.pools.buffers.give_memory_back();
        self.sweeping.set(remain);
        if remain {
            self.kept.notify_one();
        }
    }

    /// Puts `plan` in force, from the next exchange on.
    pub fn apply(&self, plan: Arc<Plan>) {
        let before = self.view();
        self.hosts.apply(&before.plan, &plan);
        self.records.borrow_mut().forget_spare();
        let is_watched = self.shared.traffic.is_open();
        *self.view.borrow_mut() = Rc::new(View::new(plan, self.number, is_watched, Some(&before)));
    }

    /// Records exchanges for the readers of live traffic, from the next one on, while there are any.
    pub fn apply_traffic_state(&self) {
        let (before, is_watched) = (self.view(), self.shared.traffic.is_open());
        let view = View::new(Arc::clone(&before.plan), self.number, is_watched, Some(&before));
        *self.view.borrow_mut() = Rc::new(view);
        self.records.borrow_mut().forget_spare();
    }

    /// Returns `true` if the next exchange is to be recorded for the readers of live traffic.
    pub fn is_sampled(&self, view: &View) -> bool {
        view.is_watched && self.shared.traffic.takes(self.number, &mut self.random.borrow_mut())
    }

    /// Returns `true` if one more failed exchange is to be recorded. If very many fail, some are enough.
    pub fn takes_failure(&self) -> bool {
        if !self.shared.failures.is_open() {
            return false;
        }
        let second = Moment::now().as_nanos() / 1_000_000_000;
        let (last, count) = self.failures.get();
        let count = if last == second { count } else { 0 };
        self.failures.set((second, count + 1));
        count < FAILURES_PER_SECOND_MAX
    }

    /// Returns an idle connection to the provider of `plan`, if there is one.
    pub fn lend(&self, plan: &Arc<UpstreamPlan>) -> Option<Lent> {
        let now = Moment::now();
        if !plan.configured {
            return self.hosts.lend(plan, now);
        }
        let view = self.view();
        let mut all = view.upstreams.iter().flat_map(Upstream::at_all_endpoints);
        all.find(|upstream| Arc::ptr_eq(&upstream.plan, plan))?.lend(now)
    }
}

/// A slot among the exchanges and tunnels that may run at once. It is released on drop. `None` if their
/// number is unlimited.
pub(crate) struct ExchangeSlot(Option<Rc<Worker>>);

impl ExchangeSlot {
    /// Takes a slot of at most `max`; 0 means that their number is unlimited.
    pub fn take(worker: &Rc<Worker>, max: u32) -> Result<Self, Failure> {
        if max == 0 {
            return Ok(Self(None));
        }
        let place = Self(Some(Rc::clone(worker)));
        let before = worker.shared.exchanges.fetch_add(1, Relaxed);
        if before < max {
            return Ok(place);
        }
        let detail = "the limit of concurrent exchanges and tunnels is reached (`gateway.limits.exchanges`)";
        Err(Failure::new(ErrorKind::TooManyInFlight, detail))
    }
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        if let Some(worker) = &self.0
            && !planted!(ExchangeKept)
        {
            worker.shared.exchanges.fetch_sub(1, Relaxed);
        }
    }
}

/// A call of the gateway's own that must end before its worker does.
pub(crate) struct UnfinishedCall(Rc<Worker>);

impl UnfinishedCall {
    /// Makes the worker wait.
    pub fn new(worker: Rc<Worker>) -> Self {
        worker.unfinished.set(worker.unfinished.get() + 1);
        Self(worker)
    }
}

impl Drop for UnfinishedCall {
    fn drop(&mut self) {
        self.0.unfinished.set(self.0.unfinished.get() - 1);
        self.0.has_closed();
    }
}
