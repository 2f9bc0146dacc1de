//! The conventions of the providers: what their presets know, by provider.

use std::collections::HashMap;

use egret_presets::{Preset, PresetName, REFUSAL_BYTES_MAX};
use egret_quota::ProviderReaders;

/// The facts about a provider.
#[derive(Debug)]
pub struct Conventions {
    /// The facts.
    pub preset: &'static Preset,
    /// The fields in which it states its limits.
    pub readers: ProviderReaders,
}

/// The conventions of all providers of a config.
#[derive(Debug, Default)]
pub struct ProviderConventions {
    /// By number; `None` for a provider without a preset.
    conventions: Vec<Option<Conventions>>,
    numbers: HashMap<Box<str>, usize>,
}

impl ProviderConventions {
    /// Creates the conventions of these providers, in the order of their numbers.
    pub fn new<'a>(providers: impl Iterator<Item = (&'a str, Option<PresetName>)>) -> Self {
        let mut all = Self::default();
        for (number, (name, preset)) in providers.enumerate() {
            let conventions = preset
                .map(PresetName::preset)
                .map(|preset| Conventions { preset, readers: ProviderReaders::new(preset) });
            if conventions.is_some() {
                all.numbers.insert(name.into(), number);
            }
            all.conventions.push(conventions);
        }
        all
    }

    /// Returns the conventions of the provider with that number.
    pub fn numbered(&self, number: usize) -> Option<&Conventions> {
        self.conventions.get(number)?.as_ref()
    }

    /// Returns the conventions of the provider of that name.
    pub fn named(&self, name: &str) -> Option<&Conventions> {
        self.numbered(*self.numbers.get(name)?)
    }

    /// Returns the conventions of the called provider: of the one with that number if a remedy calls another
    /// one, else of the one of that name.
    pub fn called(&self, alternate: Option<usize>, name: &str) -> Option<&Conventions> {
        alternate.map_or_else(|| self.named(name), |number| self.numbered(number))
    }

    /// Number of bytes of a refusal that remedies need to know what it means.
    pub fn refusal_bytes(&self) -> usize {
        let reads = self.conventions.iter().flatten().any(|conventions| conventions.preset.reads_refusals());
        if reads { REFUSAL_BYTES_MAX } else { 0 }
    }
}
