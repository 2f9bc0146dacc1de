//! The names of the presets, and their files.

use std::fmt;
use std::str::FromStr;
use std::sync::{LazyLock, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::Preset;

/// Defines the names, each with its file.
macro_rules! presets {
    ($($variant:ident $word:literal $about:literal,)+) => {
        /// A well-known provider.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
        pub enum PresetName {
            $(
                #[doc = $about]
                #[serde(rename = $word)]
                $variant,
            )+
        }

        impl PresetName {
            /// All names.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word in the config.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The text of the file.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("data/", $word, ".yaml")),)+
                }
            }
        }
    };
}

presets! {
    Openai "openai" "OpenAI.",
    Anthropic "anthropic" "Anthropic.",
    Gemini "gemini" "Google's Gemini API.",
    Bedrock "bedrock" "Amazon Bedrock.",
    AzureOpenai "azure-openai" "Azure OpenAI.",
    Mistral "mistral" "Mistral.",
    Groq "groq" "Groq.",
    Cohere "cohere" "Cohere.",
    Deepseek "deepseek" "`DeepSeek`.",
    Openrouter "openrouter" "`OpenRouter`.",
    Stripe "stripe" "Stripe.",
    Github "github" "GitHub's REST API.",
    Twilio "twilio" "Twilio.",
    Shopify "shopify" "Shopify's Admin API.",
    Slack "slack" "Slack's Web API.",
    Hubspot "hubspot" "`HubSpot`.",
}

/// The presets in the order of their names, each read when it is first asked for.
static PRESETS: [OnceLock<Option<Preset>>; PresetName::ALL.len()] =
    [const { OnceLock::new() }; PresetName::ALL.len()];

/// A preset that knows nothing.
static UNKNOWN: LazyLock<Preset> = LazyLock::new(Preset::default);

/// A text that is not the name of a preset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPreset;

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such preset; those there are: ")?;
        f.write_str(&PresetName::ALL.map(PresetName::word).join(", "))
    }
}

impl std::error::Error for UnknownPreset {}

impl FromStr for PresetName {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        Self::ALL.into_iter().find(|name| name.word() == text).ok_or(UnknownPreset)
    }
}

impl fmt::Display for PresetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl PresetName {
    /// The facts. A file that cannot be read would have none; a test reads them all.
    pub fn preset(self) -> &'static Preset {
        let read = || serde_saphyr::from_str(self.text()).ok();
        PRESETS[self as usize].get_or_init(read).as_ref().unwrap_or(&UNKNOWN)
    }

    /// Returns the preset of the provider at this host, in lower case.
    pub fn of_host(host: &str) -> Option<Self> {
        // The last two labels of its hosts are in the file: to read all files takes most of a check's time.
        let domain = host.rmatch_indices('.').nth(1).map_or(host, |(dot, _)| &host[dot + 1..]);
        let mut named = Self::ALL.into_iter().filter(|name| name.text().contains(domain));
        named.find(|name| name.preset().is_at(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_read_and_has_its_sources() {
        for name in PresetName::ALL {
            let read: Result<Preset, _> = serde_saphyr::from_str(name.text());
            let preset = read.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!preset.sources.is_empty() && !preset.title.is_empty(), "{name}");
            assert_eq!(preset.checked.len(), "2026-11-28".len(), "{name}");
            assert_eq!(preset.url.is_none(), preset.url_example.is_some(), "{name}: one of both");
            assert_eq!(name.word().parse(), Ok(name));
            assert_eq!(PresetName::ALL[name as usize], name);
            // Hosts are found by their last two labels.
            let ends = preset.hosts.iter().filter_map(|pattern| pattern.rsplit('*').next());
            assert!(ends.map(|end| end.matches('.').count()).all(|labels| labels >= 2), "{name}");
            assert!(
                preset.url.iter().all(|url| url.starts_with("https://") && !url.ends_with('/')),
                "{name}"
            );
        }
        assert!("openal".parse::<PresetName>().is_err());
    }

    #[test]
    fn a_host_has_the_preset_of_its_provider() {
        for (host, expected) in [
            ("api.openai.com", Some(PresetName::Openai)),
            ("openrouter.ai", Some(PresetName::Openrouter)),
            ("bedrock-runtime.eu-west-1.amazonaws.com", Some(PresetName::Bedrock)),
            ("my.openai.azure.com", Some(PresetName::AzureOpenai)),
            ("one.myshopify.com", Some(PresetName::Shopify)),
            ("bedrock-runtime.evil.example", None),
            ("api.example.com", None),
            ("evil-api.openai.com", None),
        ] {
            assert_eq!(PresetName::of_host(host), expected, "{host}");
        }
    }
}
