//! Providers, as flows and accounts refer to them.

use std::collections::HashMap;

/// A provider that flows may name.
#[derive(Debug, Clone, Copy)]
pub struct KnownProvider<'a> {
    /// The name.
    pub name: &'a str,
    /// Host of the provider's URL, in lower case; `None` if the URL is invalid.
    pub host: Option<&'a str>,
    /// `true` if the provider is called over TLS.
    pub tls: bool,
}

/// Provider name of requests to hosts without a configured provider.
pub const OTHER_HOSTS: &str = "-";

/// All providers of a config. Look-ups take the same time however many there are.
#[derive(Debug)]
pub struct KnownProviders<'a> {
    list: &'a [KnownProvider<'a>],
    numbers: HashMap<&'a str, usize>,
}

impl<'a> KnownProviders<'a> {
    /// Finds the names of a list, which are unique.
    pub fn new(list: &'a [KnownProvider<'a>]) -> Self {
        let numbers = list.iter().enumerate().map(|(number, provider)| (provider.name, number)).collect();
        Self { list, numbers }
    }

    /// Returns the provider of this name.
    pub fn get(&self, name: &str) -> Option<&'a KnownProvider<'a>> {
        self.list.get(self.number(name)?)
    }

    /// Returns the place of the provider of this name in the config, from 0.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// Returns all names, in the order of the config.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.list.iter().map(|provider| provider.name)
    }
}
