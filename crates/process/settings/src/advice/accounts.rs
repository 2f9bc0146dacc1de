//! Accounts of one flow for different providers.

use egret_config::Problem;

use crate::config::Config;

/// Returns a warning for each `authenticate` of a flow with an earlier one whose account is for other
/// providers: both apply, but never to the same call.
pub fn advise(config: &Config) -> Vec<Problem> {
    let mut advice = Vec::new();
    for (number, flow) in config.flows.iter().enumerate() {
        let chosen = flow.remedies.iter().enumerate().filter_map(|(place, remedy)| {
            let name = &remedy.authenticate.as_ref()?.account;
            Some((place, name, &config.accounts.get(name)?.provider))
        });
        let mut first = None;
        for (place, name, providers) in chosen {
            let Some((other, others)) = first.replace((name, providers)) else { continue };
            if providers.iter().any(|provider| others.iter().any(|other| other == provider)) {
                continue;
            }
            let path = format!("flows[{number}].remedies[{place}].authenticate.account");
            let message = format!(
                "the accounts `{other}` and `{name}` are for different providers: each call uses the one for its provider; write a flow for each provider"
            );
            advice.push(Problem::new(path, message));
        }
    }
    advice
}
