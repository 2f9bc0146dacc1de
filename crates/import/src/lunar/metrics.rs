//! `metrics.yaml` and `path_params/*.yaml`: figures, and names for paths.

use crate::draft::{Flow, SectionKind};
use crate::emit;
use crate::report::ItemOutcome;
use crate::source::{Mapping, YamlFile};

use super::shared::Import;
use super::url::{HostAndPath, matches};

impl<'a> Import<'a> {
    pub(super) fn path_files(&mut self, files: &'a [YamlFile]) {
        let mut targets = Vec::new();
        for file in files {
            let root = Mapping::of(&file.name, &file.root, self.findings);
            for entry in root.each("path_params") {
                targets.push(HostAndPath::parse(&entry.required_text("url")));
                entry.done("path", ItemOutcome::Translated);
            }
            root.unread();
        }
        self.endpoints("paths", &targets);
    }

    /// Flows with metrics by endpoint, one for each host.
    fn endpoints(&mut self, name: &str, targets: &[HostAndPath]) {
        if targets.is_empty() {
            return;
        }
        for matching in matches(targets) {
            let name = self.draft.name(SectionKind::Flow, name);
            let node = emit::Metrics::default().node();
            self.draft.flows.push(Flow { name, matching, diagnoses: vec![node], ..Flow::default() });
        }
    }

    pub(super) fn metrics_file(&mut self, file: &'a YamlFile) {
        let root = Mapping::of(&file.name, &file.root, self.findings);
        let targets: Vec<HostAndPath> =
            root.texts("labeled_endpoints").iter().map(|url| HostAndPath::parse(url)).collect();
        self.endpoints("labeled", &targets);
        root.ignore(&["general_metrics", "system_metrics"]);
        let _ = root.all();
        let verdict = ItemOutcome::Different(
            "Egret has its own metrics for calls, durations, flows and remedies (docs/reference/metrics.md); each call \
             counts by itself"
                .to_owned(),
        );
        root.done("metrics", verdict);
    }
}
