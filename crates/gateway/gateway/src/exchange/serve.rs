//! Serves a request: routes it, responds through flows, straight from the provider, by a tunnel, or with an
//! error, and ends the exchange: its record, its flows, its counters, its line in the access log, and the
//! fate of the client's connection.

use std::mem;
use std::rc::Rc;
use std::time::Duration;

use egret_clock::Moment;
use egret_diagnosis::TalliedCall;
use egret_export::access_log::LogLine;
use egret_message::grpc::{GrpcOutcome, GrpcStatus};
use egret_message::{Fields, Outcome, ReceivedMessage};
use egret_net::event_loop::now;
use egret_observe::counters::is_failed_status;
use egret_observe::failure::{ErrorKind, Failure};
use egret_presets::Preset;
use egret_remedy::AnyRun;
use egret_usage::UsageRecord;

use crate::downstream::connection::{ClientLeg, End, Redirected};
use crate::downstream::{intercept, redirect};
use crate::exchange::call::Call;
use crate::exchange::connect::{connect, refuse, relay};
use crate::exchange::flows::recorded_path;
use crate::exchange::reply::{self, Ended, Then};
use crate::exchange::route::{Route, route};
use crate::exchange::{credentials, flows};
use crate::recorder::{Finished, RecordedRequest, Recording};
use crate::state::flow_run::FlowRun;
use crate::state::request::{RequestState, ResponseState};
use crate::worker::ExchangeSlot;
use egret_body::{Stages, Tap};
use egret_upstream::{CallTarget, Connection, Upstream, View};

/// Serves the request whose head has just been parsed into `state`.
pub(crate) async fn serve_request(client: &mut ClientLeg, state: &mut RequestState) -> End {
    let begun = now::turned();
    client.connection.count_request();
    let view = client.connection.worker.view();
    state.reset_up();
    if let Some(Redirected::Requests(destination)) = client.connection.redirected() {
        redirect::enter(client, destination, &state.request, state.input.filled());
    }
    if let Some(inside) = client.connection.inside() {
        intercept::note_request(client, inside);
    }
    let end = match route(client, state, &view) {
        Ok(Route::Forward(target)) => match admit(client, state, &view, &target) {
            Ok(_slot) => {
                let closing = {
                    let upstream = Rc::clone(&target.upstream);
                    let mut call = Call::new(&mut *client, &mut *state, view, upstream, begun);
                    call.answer_for(&target);
                    if call.client.leg.is_stream() {
                        call.note_grpc();
                    }
                    let records_live = if call.view.has_no_flows { None } else { flows::records_live(&call) };
                    let (run, ended) = match records_live {
                        None => (None, reply::run(&mut call, &target).await),
                        Some(is_watched) => flows::serve(&mut call, &target, is_watched).await,
                    };
                    close(&mut call, Some(&target), run, ended)
                };
                match closing {
                    Closing::End(end) => end,
                    Closing::Relay { connection, upstream, held } => {
                        Box::pin(relay(client, state, connection, upstream, held)).await
                    }
                }
            }
            Err(failure) => Box::pin(refuse(client, state, &view, &failure, Some(&target), begun)).await,
        },
        Ok(Route::Tunnel(_)) if client.connection.pin.is_some() => {
            let detail = "a tunnel is not opened again";
            let failure = Failure::new(ErrorKind::ResendElsewhere, detail);
            Box::pin(refuse(client, state, &view, &failure, None, begun)).await
        }
        Ok(Route::Tunnel(authority)) => Box::pin(connect(client, state, &view, authority, begun)).await,
        Err(failure) => Box::pin(refuse(client, state, &view, &failure, None, begun)).await,
    };
    // The response of a failed exchange must never reach this client.
    state.return_response_state(&client.connection.worker.pools);
    end
}

/// Takes a place for an exchange, whose request asks for no other protocol than its provider may switch to.
#[inline]
fn admit(
    client: &ClientLeg,
    state: &mut RequestState,
    view: &View,
    target: &CallTarget,
) -> Result<ExchangeSlot, Failure> {
    let RequestState { input, request, .. } = state;
    target.upstream.plan.upgrades.settle(request, input.filled());
    if !request.upgrade && client.leg.opens_websocket() {
        let detail = "WebSockets are not allowed here (`gateway.upgrades`, or `upgrades` of the provider)";
        return Err(Failure::new(ErrorKind::NotImplemented, detail));
    }
    ExchangeSlot::take(&client.connection.worker, view.plan.limits.exchanges)
}

/// The fate of the client's connection.
#[derive(Debug)]
pub(crate) enum Closing {
    /// The exchange is over.
    End(End),
    /// Bytes are relayed between the client and this connection of the upstream.
    Relay {
        connection: Box<Connection>,
        upstream: Rc<Upstream>,
        /// Permits and other values that the remedies hold until then.
        held: Vec<AnyRun>,
    },
}

/// Ends an exchange with `target`, which ran through the flows of `run` if there is one.
pub(crate) fn close(
    call: &mut Call<'_>,
    target: Option<&CallTarget>,
    run: Option<Box<FlowRun>>,
    ended: Ended,
) -> Closing {
    let Ended { status, at, then } = ended;
    if call.client.has_closed() {
        let is_cancelled = matches!(then, Then::Close | Then::Abort);
        call.client.connection.worker.counters().client_gone(is_cancelled);
    }
    let down = &mut call.state.response_state.down;
    let is_cut = !down.is_complete();
    let mut usage = down.stages_mut().and_then(|stages| stages.take_usage(!is_cut));
    if let Some(usage) = &mut usage {
        let preset = call.upstream.plan.preset();
        call.view.plan.prices.price(usage, preset.and_then(Preset::family));
        usage.provider = preset.and_then(Preset::gen_ai_name);
        call.note_usage(Some(usage));
    }
    if call.grpc.is_some() {
        call.note_grpc_trailers();
    }
    finish_recording(call, target, run.as_deref(), status, at);
    let down = &mut call.state.response_state.down;
    let tap = down.stages_mut().and_then(Stages::take_tap);
    down.clear_stages();
    let seen = Seen { tap, usage, is_cut, is_relayed: matches!(then, Then::Relay(_)) };
    let held = run.map_or_else(Vec::new, |run| end_run(call, run, seen, at));
    let latency_us = at.nanos_since(call.clock.begun) / 1000;
    count(call, status, latency_us);
    if let Some(target) = target.filter(|_| call.view.plan.discovers) {
        tally(call, target, status, latency_us, at);
    }
    log(call, status, at);
    let end = match then {
        Then::Next { persistent } => {
            call.client.last_active = at;
            call.drop_request();
            let is_drained = call.state.up.is_complete() && call.state.input.filled().is_empty();
            match (persistent, is_drained) {
                (true, _) => End::Persist,
                (false, true) => End::Close,
                (false, false) => End::Linger,
            }
        }
        Then::Persist => {
            call.client.last_active = at;
            call.drop_request();
            End::Persist
        }
        Then::Close => End::Close,
        Then::Linger => End::Linger,
        Then::Abort => {
            call.client.leg.abort();
            End::Close
        }
        Then::Relay(connection) => {
            call.drop_request();
            return Closing::Relay { connection, upstream: Rc::clone(&call.upstream), held };
        }
    };
    Closing::End(end)
}

/// Hands over the record of the exchange, if there is one. `status` is that of the response that the client
/// received, or 0.
pub(crate) fn finish_recording(
    call: &mut Call<'_>,
    target: Option<&CallTarget>,
    run: Option<&FlowRun>,
    status: u16,
    ended: Moment,
) {
    let Some(mut recording) = call.take_recording() else { return };
    let grpc_status = call.grpc_outcome().status();
    let is_failed =
        call.failed.is_some() || is_failed_status(status) || grpc_status.is_some_and(GrpcStatus::is_failure);
    let worker = &call.client.connection.worker;
    if !recording.judge(is_failed, &worker.shared.failures) {
        return recording.discard(&worker.records);
    }
    add_request(call, target, run, &mut recording);
    let calls = run.map(|run| run.draft.calls);
    let account = run.filter(|run| run.draft.calls > 0).and_then(|run| credentials::account(call, run));
    let account = account.map(|account| account.name().to_owned());
    let attempts = calls.unwrap_or_else(|| u32::from(is_called(call)));
    let RequestState { input, request_id, up, response_state, .. } = &mut *call.state;
    let finished = Finished {
        has_response: status != 0,
        ended,
        started: call.client.request_since(call.clock.begun),
        clock: &call.clock,
        wall_clock: &worker.shared.clock,
        replaced_body: run.and_then(|run| run.body.whole(input.filled())),
        provider: call.upstream.plan.provider(),
        decisions: run.map(FlowRun::decisions),
        account: account.as_deref(),
        client: call.client.peer_address(),
        listener: call.client.connection.listener,
        attempts,
        request_id: request_id.bytes(),
        trace_seed: run.map_or(0, |run| run.draft.trace_seed),
        informational: call.informational,
        error: call.failed.map(ErrorKind::slug),
        grpc_status,
        is_intercepted: call.client.connection.inside().is_some(),
        is_http2: call.client.leg.is_stream(),
        resend: call.client.connection.pin.as_ref().map(|pin| pin.number),
        client_closed: call.client.closed,
    };
    recording.finish(&finished, up, &mut response_state.down, &worker.records);
}

/// Adds the request to a recording that began when a call failed.
fn add_request(
    call: &Call<'_>,
    target: Option<&CallTarget>,
    run: Option<&FlowRun>,
    recording: &mut Recording,
) {
    let state = &*call.state;
    let bytes = state.input.filled();
    let request = RecordedRequest {
        head: &state.request,
        bytes,
        call: target,
        target: recorded_path(&state.request, target).of(bytes),
        generation: call.view.plan.generation,
    };
    let records = &call.client.connection.worker.records;
    let flows = run.into_iter().flat_map(|run| call.view.plan.flows.names(&run.matches));
    recording.add_request(request, call.upload.kept_body(state), flows, records);
}

/// The response as it was seen.
struct Seen {
    tap: Option<Tap>,
    /// The usage that it has reported, if it was read.
    usage: Option<Box<UsageRecord>>,
    /// `true` if some of it is missing.
    is_cut: bool,
    /// `true` if other bytes follow it, so the call goes on.
    is_relayed: bool,
}

/// Ends the exchange for its remedies, with what was `seen` of its response. Returns what they hold until the
/// call is over, if bytes are relayed. If the response is still being stored, the task that does that has it.
fn end_run(call: &mut Call<'_>, mut run: Box<FlowRun>, seen: Seen, at: Moment) -> Vec<AnyRun> {
    let Seen { tap, usage, is_cut, is_relayed } = seen;
    let mut tap = tap.filter(Tap::wants_end);
    let mut inbound = call.take_inbound();
    let lead = inbound.as_mut().and_then(|inbound| inbound.lead.take());
    let tail = inbound.and_then(|inbound| run.take_back_inbound(inbound));
    let worker = &call.client.connection.worker;
    let head = &call.state.response_state.response;
    let head_bytes = tail.as_ref().map_or(&[][..], |tail| &tail.head);
    let has_response = !head_bytes.is_empty();
    let body = tap.as_mut().and_then(|tap| tap.seen_body(Fields::received(&head.fields, head_bytes)));
    let received = has_response.then_some(ReceivedMessage { head, bytes: head_bytes, body: body.as_deref() });
    let mut view = call.exchange_at(at);
    view.outcome = received.as_ref().map_or(Outcome::None, Outcome::Response);
    view.usage = usage.as_deref();
    if call.failed.is_some() {
        // The gateway's own error is no outcome of a call.
        view.grpc = GrpcOutcome::Pending;
    }
    let flows = &call.view.plan.flows;
    let mut held = run.with_exchange(flows, view, |chain, exchange| {
        exchange.is_cut = is_cut;
        let held = chain.end(flows, exchange);
        if is_relayed || lead.is_some() { held.collect() } else { Vec::new() }
    });
    if let Some(lead) = lead {
        // The client has all it gets, and the provider may still send.
        lead.hold(Box::new(mem::take(&mut held)));
    }
    drop(body);
    if let Some(mut tail) = tail {
        if let Some(tap) = tap {
            tail.memory = tap.into_end();
        }
        run.keep_tail(tail);
    }
    worker.return_flow_run(run);
    held
}

/// Returns `true` if the request was routed.
fn is_called(call: &Call<'_>) -> bool {
    !Rc::ptr_eq(&call.upstream, &call.view.unrouted)
}

fn count(call: &Call<'_>, status: u16, latency_us: u64) {
    let counters = call.upstream.counters();
    counters.exchange(call.state.request.method, status);
    if status != 0 {
        counters.latency.record(latency_us);
        counters.footprint.record(call.clock.footprint_nanos() / 1000);
    }
    counters.sent_bytes.add(call.upload.sent_bytes(call.state));
    counters.received_bytes.add(call.received_bytes + call.state.response_state.down.read_bytes);
}

/// Adds the exchange to the list of called endpoints, unless the gateway has refused it.
fn tally(call: &Call<'_>, target: &CallTarget, status: u16, time_us: u64, ended: Moment) {
    let status = match call.failed {
        Some(kind) if !kind.is_of_provider() => return,
        Some(_) => 0,
        None => status,
    };
    let RequestState { input, request, consumer, .. } = &*call.state;
    let bytes = input.filled();
    let tallied = TalliedCall {
        origin: target.upstream.plan.tally_number,
        method: request.method,
        target: target.target.of(bytes),
        status,
        has_retry_after: call.has_retry_after,
        consumer: consumer.of(bytes),
        time_us,
        ended,
    };
    let shared = &call.client.connection.worker.shared;
    let origin = || target.upstream.plan.tallied_origin();
    shared.tallies.count(call.client.connection.worker.number, &tallied, &shared.clock, origin);
}

fn log(call: &Call<'_>, status: u16, ended: Moment) {
    let RequestState { input, request, request_id, consumer, response_state, .. } = &*call.state;
    let ResponseState { down, .. } = &**response_state;
    call.client.connection.worker.log_access(|| LogLine {
        client: call.client.peer_address(),
        provider: call.upstream.plan.stats.name(),
        host: if is_called(call) { &call.upstream.plan.host_field } else { b"" },
        consumer: Some(consumer.of(input.filled())).filter(|consumer| !consumer.is_empty()),
        request_id: request_id.text(),
        method: request.method_text.of(input.filled()),
        target: request.target.of(input.filled()),
        status,
        duration: ended.since(call.clock.begun),
        footprint: Duration::from_nanos(call.clock.footprint_nanos()),
        sent_bytes: down.moved_bytes,
        upstream_sent_bytes: call.upload.sent_bytes(call.state),
        upstream_received_bytes: call.received_bytes + down.read_bytes,
        error: call.failed.map(ErrorKind::slug),
        grpc_status: call.grpc_outcome().status().map(GrpcStatus::name),
        client_closed: call.client.has_closed().then(|| call.client.closed.since(call.clock.begun)),
        is_intercepted: call.client.connection.inside().is_some(),
    });
}
