//! Stand-ins for exporters that are not open, with which a config is checked.

use std::sync::Arc;

use egret_diagnosis::Exports;
use egret_export::{ExporterConfig, ExporterConfigs};
use egret_har::sink::{Content, Exported, Sink};

/// Returns placeholders for exporters that are not open, to check a config.
pub fn exports(exporters: &ExporterConfigs) -> Exports {
    let sink = |(name, config): (&String, &ExporterConfig)| -> (String, Arc<dyn Sink>) {
        (name.clone(), Arc::new(Unopened(config.clone())))
    };
    Exports { sinks: exporters.iter().map(sink).collect(), key: None, state_store: None }
}

/// An exporter that is not open.
#[derive(Debug)]
struct Unopened(ExporterConfig);

impl Sink for Unopened {
    fn takes(&self, content: Content) -> bool {
        self.0.takes(content)
    }

    fn put(&self, _: Exported<'_>) {}

    fn tick(&self) {}
}
