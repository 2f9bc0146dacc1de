//! Providers that have a preset which the config does not use.

use egret_match::providers::ProviderUrl;
use egret_presets::PresetName;

use crate::config::Config;

/// Returns a sentence for each provider whose URL is that of a preset. It is no mistake to have none.
pub fn advise(config: &Config) -> Vec<String> {
    let mut advice = Vec::new();
    for (name, provider) in config.providers.iter().filter(|(_, provider)| provider.preset.is_none()) {
        let Ok(url) = ProviderUrl::parse(&provider.url) else { continue };
        let host = url.origin.authority.host.to_string();
        if let Some(preset) = PresetName::of_host(&host) {
            let title = &preset.preset().title;
            advice.push(format!(
                "providers.{name}: Egret knows the limits, the refusals and the timeouts of {title}: add `preset: {preset}`"
            ));
        }
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_has_a_preset_is_named() {
        let text = "providers:\n  ai: { url: 'https://api.openai.com' }\n  \
                    mine: { preset: openai }\n  set: { url: 'https://api.openai.com', preset: openai }\n  \
                    other: { url: 'https://api.example.com' }\n  shop: https://one.myshopify.com\n";
        let config = Config::parse("egret.yaml", text).unwrap();
        let advice = advise(&config);
        let names: Vec<&str> = advice.iter().filter_map(|advice| Some(advice.split_once(':')?.0)).collect();
        assert_eq!(names, ["providers.ai", "providers.shop"]);
        assert!(advice[0].ends_with("add `preset: openai`"), "{}", advice[0]);
    }
}
