//! Listeners that believe every name, beside others that ask for a proof of it.

use egret_config::Problem;

use crate::config::Config;

/// Returns a warning for each listener without `clients`, if another one has it.
pub fn advise(config: &Config) -> Vec<Problem> {
    let listeners = &config.gateway.listen;
    if listeners.iter().all(|listener| listener.clients.is_none()) {
        return Vec::new();
    }
    let open = listeners.iter().enumerate().filter(|(_, listener)| listener.clients.is_none());
    open.map(|(number, _)| {
        let message = "this listener has no `clients`, but another has: who reaches it can name any consumer, and use its \
                       accounts and quotas";
        Problem::new(format!("gateway.listen[{number}]"), message)
    })
    .collect()
}
