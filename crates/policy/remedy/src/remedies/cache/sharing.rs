//! The caches of the same name in the other gateways of a cluster.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use egret_store::entries::Removal;
use egret_store::shared::{PurgeTold, PurgedCache, SharedPurges};

use super::state::CacheState;
use crate::remedy::CompileContext;

/// Tells them what to remove.
#[derive(Debug)]
pub(super) struct Sharing {
    purges: Arc<dyn SharedPurges>,
    /// Name of the flow, and of the cache in it.
    name: String,
}

impl Sharing {
    /// Connects `state` with the caches of the other gateways, if there are any.
    pub fn new(context: &CompileContext<'_>, state: &Arc<CacheState>) -> Option<Self> {
        let purges = Arc::clone(context.shared.purges?);
        let identity = context.states.identity();
        let name = format!("{}/{identity}", identity.flow);
        if !state.is_shared.swap(true, Relaxed) {
            let cache: Weak<dyn PurgedCache> = Arc::<CacheState>::downgrade(state);
            purges.open(&name, cache);
        }
        Some(Self { purges, name })
    }

    /// Tells the other gateways what to remove.
    pub fn tell(&self, removal: Removal) -> PurgeTold {
        self.purges.tell(&self.name, removal)
    }
}
