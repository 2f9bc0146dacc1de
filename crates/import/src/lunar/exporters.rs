//! Exporters: files, object stores, and Prometheus, which needs none in Egret.

use crate::draft::SectionKind;
use crate::emit;
use crate::report::ItemOutcome;
use crate::source::{Mapping, cut};

use super::shared::Import;

impl<'a> Import<'a> {
    pub(super) fn read_exporters(&mut self, root: &Mapping<'a>) {
        let Some(exporters) = root.fields("exporters") else { return };
        for entry in exporters.all() {
            let mut fields = Mapping::of(exporters.file, entry.node, self.findings);
            fields.at = entry.key_at;
            let verdict = self.exporter(entry.key, &fields);
            fields.done(format!("exporter `{}`", cut(entry.key)), verdict);
        }
    }

    fn exporter(&mut self, name: &str, fields: &Mapping<'_>) -> ItemOutcome {
        // A named exporter says its kind; otherwise its name is the kind.
        let kind = fields.text("type").unwrap_or_else(|| name.to_owned());
        let (node, note) = match kind.as_str() {
            "file" => {
                fields.ignore(&["file_name"]);
                let node = emit::har_files(&fields.required_text("file_dir"));
                (node, "it writes HAR files that follow one another; `type: ndjson` writes an entry per line")
            }
            "s3" => {
                let bucket = fields.required_text("bucket_name");
                let region = fields.required_text("region");
                let endpoint = fields.text("endpoint");
                let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
                (emit::s3(&endpoint, &bucket, Some(&region)), KEYS)
            }
            "s3_minio" => {
                let (bucket, url) = (fields.required_text("bucket_name"), fields.required_text("url"));
                (emit::s3(&url, &bucket, None), KEYS)
            }
            "prometheus" => {
                self.exporters.buckets_ms =
                    fields.texts("bucket_boundaries").iter().filter_map(|text| text.parse().ok()).collect();
                return ItemOutcome::Translated;
            }
            "otlp" | "otel" | "trace" => (
                emit::otlp(&fields.text("endpoint").unwrap_or_else(|| COLLECTOR.to_owned())),
                "it speaks OTLP over HTTP, not gRPC",
            ),
            other => {
                return ItemOutcome::Lost(format!(
                    "`{}` is no kind of exporter that the importer knows",
                    cut(other)
                ));
            }
        };
        let egret = self.draft.name(SectionKind::Exporter, name);
        self.draft.exporters.push((egret.clone(), node));
        self.exporters.names.insert(name.to_owned(), egret);
        ItemOutcome::Different(note.to_owned())
    }

    /// The exporter for archives that is called so in the original, or one that writes files.
    pub(super) fn archive(&mut self, name: Option<&str>, notes: &mut Vec<String>) -> String {
        if let Some(known) = name.and_then(|name| self.exporters.names.get(name)) {
            return known.clone();
        }
        let key = name.unwrap_or("archive").to_owned();
        notes.push(format!("no exporter `{}` is defined: it writes HAR files to ./har", cut(&key)));
        self.new_exporter(&key, emit::har_files("./har"))
    }

    /// The exporter for spans that is called so in the original, or one to a collector on this machine.
    pub(super) fn collector(&mut self, name: Option<&str>, notes: &mut Vec<String>) -> String {
        if let Some(known) = name.and_then(|name| self.exporters.names.get(name)) {
            return known.clone();
        }
        let key = name.unwrap_or("collector").to_owned();
        notes.push(format!("set the collector's address: spans go to {COLLECTOR}"));
        self.new_exporter(&key, emit::otlp(COLLECTOR))
    }

    fn new_exporter(&mut self, key: &str, node: crate::yaml::Node) -> String {
        let name = self.draft.name(SectionKind::Exporter, key);
        self.draft.exporters.push((name.clone(), node));
        self.exporters.names.insert(key.to_owned(), name.clone());
        name
    }
}

/// The usual address of an OpenTelemetry collector.
const COLLECTOR: &str = "http://127.0.0.1:4318";

/// The note about an object store's credentials.
const KEYS: &str = "its keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which must be set";
