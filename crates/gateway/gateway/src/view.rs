//! A plan with one worker's own pools of connections.

use std::rc::Rc;
use std::sync::Arc;

use egret_plan::{Plan, UpstreamPlan};

use egret_upstream::Upstream;

/// A plan with this worker's own pools.
#[derive(Debug)]
pub(crate) struct View {
    pub plan: Arc<Plan>,
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
        let kept = |provider: &Arc<UpstreamPlan>| {
            before?.upstreams.iter().find(|upstream| Arc::ptr_eq(&upstream.plan, provider)).cloned()
        };
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
        Self { plan, upstreams, unrouted, is_watched, has_no_flows }
    }

    /// Returns this worker's upstream for `provider` of this plan.
    pub fn upstream_of(&self, provider: &Arc<UpstreamPlan>) -> Option<&Rc<Upstream>> {
        self.upstreams.iter().find(|upstream| Arc::ptr_eq(&upstream.plan, provider))
    }
}
