//! Calls from the control port about the config's files. They are handled between events, by the owner of the
//! running parts: a change over the API takes the same way as a reload, and never runs beside one.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use egret_config::{Document, LocatedProblem, Report};
use egret_control::{
    Applied, Checked, ConfigCall, ConfigChanges, ConfigFile, ConfigFiles, ConfigReply, ConfigRequest,
    EntityTags, Refusal,
};

use super::{RunningEgret, with_demo};
use crate::config::Config;
use crate::config_draft::Draft;
use crate::config_versions::VersionOrigin;
use crate::{config_file, config_rule};

/// A valid config that the rules allow.
struct Allowed {
    config: Config,
    warnings: Vec<LocatedProblem>,
}

/// A change of the file that is wanted.
struct Change {
    text: String,
    /// The tag of the files that the change is based on, if it is known.
    etag: Option<EntityTags>,
    origin: VersionOrigin,
}

impl RunningEgret {
    /// Handles a call. The client may be gone by then.
    pub(super) fn handle(&mut self, call: ConfigCall) {
        let _ = call.reply.send(self.reply(call.request));
    }

    fn reply(&mut self, request: ConfigRequest) -> Result<ConfigReply, Refusal> {
        match request {
            ConfigRequest::Files => self.files().map(ConfigReply::Files),
            ConfigRequest::Validate { text } => Ok(ConfigReply::Checked(checked(self.check(&text)))),
            ConfigRequest::Replace { name, text, etag } => {
                if self.config_file()?.1 != name {
                    return Err(Refusal::UnknownFile);
                }
                self.change(Change { text, etag: Some(etag), origin: VersionOrigin::Api })
            }
            ConfigRequest::Versions => Ok(ConfigReply::Versions(self.versions.list(&self.in_effect))),
            ConfigRequest::Version(number) => {
                self.versions.text(number).map(ConfigReply::Text).ok_or(Refusal::UnknownVersion)
            }
            ConfigRequest::Rollback { number, etag } => {
                self.config_file()?;
                let text = self.versions.text(number).ok_or(Refusal::UnknownVersion)?;
                self.change(Change { text, etag, origin: VersionOrigin::Rollback })
            }
        }
    }

    /// Returns the config file and its name.
    fn config_file(&self) -> Result<(PathBuf, String), Refusal> {
        let file = self.run.file().ok_or(Refusal::NoFile)?;
        Ok((file.to_owned(), name_of(file)))
    }

    fn files(&self) -> Result<ConfigFiles, Refusal> {
        let Some(file) = self.run.file() else {
            return Ok(ConfigFiles { etag: etag(&[]), files: Vec::new() });
        };
        let text = config_file::read_again(file).map_err(|error| Refusal::Failed(error.to_string()))?;
        let files = vec![ConfigFile { name: name_of(file), text }];
        Ok(ConfigFiles { etag: etag(&files), files })
    }

    /// Checks a text. Nothing that it refers to is read before the rules have allowed it.
    fn check(&self, text: &str) -> Result<Allowed, Refusal> {
        let name = self.run.file().map_or_else(|| self.run.name(), name_of);
        let invalid = |report: Report| Refusal::Invalid(report.problems());
        if text.trim().is_empty() {
            return Err(invalid(Report::whole(&name, "the config is empty")));
        }
        let approved = Document::parse(&name, &self.approved).map_err(invalid)?;
        let mut new = Document::parse(&name, text).map_err(invalid)?;
        self.check_rules(&approved, &new)?;
        let config: Config = new.read().map_err(invalid)?;
        // Now that the text has been read, all paths in it are known.
        self.check_rules(&approved, &new)?;
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(invalid(new.locate(problems)));
        }
        let warnings = new.locate(config.warnings()).problems();
        Ok(Allowed { config: with_demo(config, self.demo.as_ref()), warnings })
    }

    fn check_rules(&self, approved: &Document<'_>, new: &Document<'_>) -> Result<(), Refusal> {
        let rules = match self.config.control.config_changes {
            ConfigChanges::Off | ConfigChanges::Restricted => config_rule::restricted,
            ConfigChanges::Unrestricted => config_rule::unrestricted,
        };
        let problems = rules(approved.root(), new.root());
        if problems.is_empty() { Ok(()) } else { Err(Refusal::Forbidden(new.locate(problems).problems())) }
    }

    /// Applies a change and writes it to the file, or does neither.
    fn change(&mut self, change: Change) -> Result<ConfigReply, Refusal> {
        if self.config.control.config_changes == ConfigChanges::Off {
            return Err(Refusal::Off);
        }
        let (file, name) = self.config_file()?;
        let before = self.files()?;
        if change.etag.as_ref().is_some_and(|etag| !etag.contains(&before.etag)) {
            return Err(Refusal::Stale);
        }
        let Change { text, origin, .. } = change;
        let Allowed { config, warnings } = self.check(&text)?;
        let read_only = |error| Refusal::ReadOnly(format!("{name} cannot be replaced: {error}"));
        let draft = Draft::write(&file, &text).map_err(read_only)?;
        let old = self.config.clone();
        let restart = self.fixed_changes(&config);
        self.apply(config).map_err(|messages| Refusal::Failed(messages.join("; ")))?;
        if let Err(refusal) = self.commit(draft, &before.etag, read_only) {
            self.restore(old);
            return Err(refusal);
        }
        let applied = changed_sections(&old, &self.config);
        let version = self.versions.record(&text, origin);
        self.last_read = Ok(text.clone());
        self.rejected = None;
        let files = [ConfigFile { name, text }];
        let etag = etag(&files);
        self.in_effect = files.into_iter().next().map(|file| file.text).unwrap_or_default();
        tracing::info!(?applied, version, "the config was changed over the API");
        Ok(ConfigReply::Applied(Applied { etag, version, applied, restart, warnings }))
    }

    /// Puts the draft in place, unless someone has changed the file meanwhile.
    fn commit(
        &self,
        draft: Draft,
        etag: &str,
        read_only: impl FnOnce(std::io::Error) -> Refusal,
    ) -> Result<(), Refusal> {
        if self.files()?.etag != etag {
            return Err(Refusal::Stale);
        }
        draft.commit().map_err(read_only)
    }

    /// Applies the old config again after its file could not be replaced.
    fn restore(&mut self, old: Config) {
        for message in self.apply(old).err().unwrap_or_default() {
            tracing::error!(
                "the config could not be written, and the previous one not be applied: {message}"
            );
        }
    }
}

/// Returns the result of a check as the API shows it.
fn checked(result: Result<Allowed, Refusal>) -> Checked {
    match result {
        Ok(Allowed { warnings, .. }) => Checked { valid: true, problems: Vec::new(), warnings },
        Err(Refusal::Forbidden(problems) | Refusal::Invalid(problems)) => {
            Checked { valid: false, problems, warnings: Vec::new() }
        }
        Err(_) => Checked { valid: false, problems: Vec::new(), warnings: Vec::new() },
    }
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns a strong tag over the names and texts of files.
fn etag(files: &[ConfigFile]) -> String {
    let mut bytes = Vec::new();
    for part in files.iter().flat_map(|file| [&file.name, &file.text]) {
        // The length keeps a text that moves from one part to the next from giving the same tag.
        bytes.extend_from_slice(&part.len().to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    format!("\"{}\"", data_encoding::HEXLOWER.encode(digest(&SHA256, &bytes).as_ref()))
}

/// Returns the top-level sections in which the configs differ.
fn changed_sections(old: &Config, new: &Config) -> Vec<String> {
    let [old, new] = [old, new].map(|config| serde_json::to_value(config).unwrap_or_default());
    let sections = new.as_object().into_iter().flatten();
    sections.filter(|(name, value)| old.get(name) != Some(value)).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_covers_names_and_texts() {
        let tag = |files: &[(&str, &str)]| {
            let file =
                |(name, text): &(&str, &str)| ConfigFile { name: (*name).into(), text: (*text).into() };
            etag(&files.iter().map(file).collect::<Vec<_>>())
        };
        let tags = [
            tag(&[]),
            tag(&[("a", "bc")]),
            tag(&[("ab", "c")]),
            tag(&[("a", "b"), ("c", "")]),
            tag(&[("a", "bd")]),
        ];
        for (index, one) in tags.iter().enumerate() {
            assert!(one.starts_with('"') && one.ends_with('"') && one.len() == 66, "{one}");
            assert!(!tags[index + 1..].contains(one));
        }
    }
}
