//! The hosts that one worker reaches: those of its plan's providers, and those without a provider, which are
//! found as clients name them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

use egret_clock::Moment;
use egret_message::Origin;
use egret_message::authority::Authority;
use egret_plan::{Plan, UpstreamPlan};

use crate::{Lent, Upstream};

/// A plan with one worker's own pools of connections.
#[derive(Debug)]
pub struct View {
    /// The plan.
    pub plan: Arc<Plan>,
    worker: usize,
    /// The plan's providers in order, then its certified ones.
    pub upstreams: Vec<Rc<Upstream>>,
    /// The placeholder upstream of requests that reach no provider.
    pub unrouted: Rc<Upstream>,
    /// `true` if some exchanges are recorded for the readers of live traffic.
    pub is_watched: bool,
    /// `true` if exchanges go straight to their provider: there are no flows, no provider has several
    /// endpoints, and nobody reads live traffic.
    pub has_no_flows: bool,
}

impl View {
    /// Creates the view of `plan` for `worker`. Upstreams that `before` has too keep their connections.
    pub fn new(plan: Arc<Plan>, worker: usize, is_watched: bool, before: Option<&Self>) -> Self {
        let kept = |provider: &Arc<UpstreamPlan>| before?.upstream_of(provider).cloned();
        let upstreams: Vec<_> = plan
            .providers
            .iter()
            .chain(plan.certified.iter().map(|certified| &certified.upstream))
            .map(|provider| {
                kept(provider).unwrap_or_else(|| Rc::new(Upstream::new(Arc::clone(provider), worker)))
            })
            .collect();
        let unrouted = Rc::new(Upstream::new(Arc::new(plan.other_hosts.unrouted()), worker));
        let has_endpoints = upstreams.iter().any(|upstream| upstream.has_endpoints());
        let has_no_flows = plan.flows.is_empty() && !is_watched && !has_endpoints;
        Self { plan, worker, upstreams, unrouted, is_watched, has_no_flows }
    }

    /// Returns this worker's upstream for `provider` of this plan.
    pub fn upstream_of(&self, provider: &Arc<UpstreamPlan>) -> Option<&Rc<Upstream>> {
        self.upstreams.iter().find(|upstream| Arc::ptr_eq(&upstream.plan, provider))
    }
}

/// The owner of a host.
#[derive(Debug, Clone)]
pub enum HostOwner {
    /// Configured providers, by the number of their origin in the plan.
    Providers(usize),
    /// A host that the config does not name.
    Other(Rc<Upstream>),
}

impl HostOwner {
    fn is(&self, upstream: &Rc<Upstream>) -> bool {
        matches!(self, Self::Other(other) if Rc::ptr_eq(other, upstream))
    }
}

/// The hosts that clients have named, of which those without a provider have upstreams here. There are at
/// most `limits.dynamic_upstreams`.
#[derive(Debug, Default)]
pub struct NamedHosts(RefCell<Hosts>);

#[derive(Debug, Default)]
struct Hosts {
    /// By the authority as the client wrote it, so a known one need not be parsed.
    by_text: [HashMap<Box<[u8]>, HostOwner>; 2],
    by_origin: HashMap<Origin, Rc<Upstream>>,
}

impl NamedHosts {
    /// Returns the owner of the host that a client wrote as `text`. `parse` reads it if it is not known yet.
    pub fn owner<E>(
        &self,
        view: &View,
        tls: bool,
        text: &[u8],
        parse: impl FnOnce() -> Result<Authority, E>,
    ) -> Result<HostOwner, E> {
        if let Some(known) = self.0.borrow().by_text[usize::from(tls)].get(text) {
            return Ok(known.clone());
        }
        let origin = Origin { tls, authority: parse()? };
        let owner = match view.plan.table.origin_number(&origin) {
            Some(number) => HostOwner::Providers(number),
            None => HostOwner::Other(self.other(view, origin)),
        };
        let by_text = &mut self.0.borrow_mut().by_text[usize::from(tls)];
        evict_arbitrary(by_text, hosts_max(view));
        by_text.insert(text.into(), owner.clone());
        Ok(owner)
    }

    /// Returns the upstream for an `origin` without a provider, or for a target outside the base paths of the
    /// providers there.
    pub fn other(&self, view: &View, origin: Origin) -> Rc<Upstream> {
        let Hosts { by_text, by_origin } = &mut *self.0.borrow_mut();
        if let Some(known) = by_origin.get(&origin) {
            return Rc::clone(known);
        }
        if let Some(evicted) = evict_arbitrary(by_origin, hosts_max(view)) {
            for by_text in by_text {
                by_text.retain(|_, owner| !owner.is(&evicted));
            }
        }
        let plan = Arc::new(view.plan.other_hosts.upstream(origin.clone()));
        let upstream = Rc::new(Upstream::new(plan, view.worker));
        by_origin.insert(origin, Rc::clone(&upstream));
        upstream
    }

    /// Closes idle connections that have expired. Returns `true` if some remain.
    pub fn sweep(&self, now: Moment) -> bool {
        self.0.borrow().by_origin.values().fold(false, |remain, upstream| remain | upstream.sweep(now))
    }

    /// Returns an idle connection to the host of `plan`, which another worker has made.
    pub fn lend(&self, plan: &UpstreamPlan, now: Moment) -> Option<Lent> {
        let hosts = self.0.borrow();
        let upstream = hosts.by_origin.get(&plan.origin)?;
        // The requesting worker may have a newer or an older plan.
        if Arc::ptr_eq(&upstream.plan.policy, &plan.policy) { upstream.lend(now) } else { None }
    }

    /// Forgets what another plan may have changed: with it, providers may have been added or removed. The
    /// connections are kept if hosts without a provider are treated as before.
    pub fn apply(&self, before: &Plan, plan: &Plan) {
        let mut hosts = self.0.borrow_mut();
        if Arc::ptr_eq(&before.other_hosts, &plan.other_hosts) {
            hosts.by_text = Default::default();
        } else {
            *hosts = Hosts::default();
        }
    }
}

fn hosts_max(view: &View) -> usize {
    usize::try_from(view.plan.limits.dynamic_upstreams).unwrap_or(usize::MAX)
}

/// Evicts an arbitrary entry if the map is full: the first that it iterates over. The next user of that entry
/// pays one look-up or one connection.
fn evict_arbitrary<K: Clone + Eq + Hash, V>(map: &mut HashMap<K, V>, max: usize) -> Option<V> {
    if map.len() < max {
        return None;
    }
    let first = map.keys().next().cloned()?;
    map.remove(&first)
}
