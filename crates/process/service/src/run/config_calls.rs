//! Calls from the control port about the config's files. They are handled between events, by the owner of the
//! running parts: a change over the API takes the same way as a reload, and never runs beside one. A text to
//! check alone is checked on another thread, one at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use egret_config::{Document, Loaded, Report, SourceSet, SourceText};
use egret_control::{
    Applied, ChangeRefusal, Checked, ConfigCall, ConfigChanges, ConfigFile, ConfigFiles, ConfigReply,
    ConfigRequest, EntityTags,
};
use egret_settings::config::Config;
use egret_settings::config_draft::Draft;
use egret_settings::config_file::{self, ConfigSources};
use egret_settings::config_versions::VersionOrigin;
use egret_settings::{config_advice, config_rule, fetched_secrets};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{RunningEgret, with_demo};
use crate::events::Events;

/// A valid config that the rules allow.
struct Allowed {
    loaded: Loaded<Config>,
    /// Its texts.
    sources: ConfigSources,
    /// `true` if `tune` would have allowed it too, compared with the config in effect.
    is_tuned: bool,
}

/// A change of the files that is wanted.
struct Change {
    /// The new text of the config file.
    text: String,
    /// New texts of included files, by their paths.
    included: Vec<(PathBuf, String)>,
    /// The tag of the files that the change is based on, if it is known.
    etag: Option<EntityTags>,
    origin: VersionOrigin,
    /// The user whom the trusted proxy named.
    user: Option<String>,
}

/// The measure of a new text.
struct Checker {
    /// The config file, if there is one.
    file: Option<PathBuf>,
    name: String,
    approved: SourceSet,
    in_effect: SourceSet,
    changes: ConfigChanges,
}

impl RunningEgret {
    /// Handles a call. The client may be gone by then.
    pub(super) fn handle(&mut self, call: ConfigCall) {
        let ConfigCall { request, reply } = call;
        // The client may be gone.
        match request {
            ConfigRequest::Validate { text } => match Arc::clone(&self.validations).try_acquire_owned() {
                Ok(turn) => self.validate(text, turn, reply),
                Err(_) => drop(reply.send(Err(ChangeRefusal::Busy))),
            },
            request => drop(reply.send(self.reply(request))),
        }
    }

    /// Checks a text on another thread: a reload does not wait for it.
    fn validate(
        &self,
        text: String,
        turn: OwnedSemaphorePermit,
        reply: oneshot::Sender<Result<ConfigReply, ChangeRefusal>>,
    ) {
        let checker = self.checker();
        tokio::task::spawn_blocking(move || {
            let checked = checked(checker.check(&text, Vec::new()));
            drop(turn);
            drop(reply.send(Ok(ConfigReply::Checked(checked))));
        });
    }

    fn checker(&self) -> Checker {
        let name = self.run.file().map_or_else(|| self.run.name(), name_of);
        let file = self.run.file().map(Path::to_path_buf);
        let changes = self.config.control.config_changes;
        let (approved, in_effect) = (self.approved.clone(), self.in_effect.clone());
        Checker { file, name, approved, in_effect, changes }
    }

    fn reply(&mut self, request: ConfigRequest) -> Result<ConfigReply, ChangeRefusal> {
        match request {
            ConfigRequest::Files => self.files().map(ConfigReply::Files),
            // They are never handled here.
            ConfigRequest::Validate { .. } | ConfigRequest::Reload => Err(ChangeRefusal::Busy),
            ConfigRequest::Replace { name, text, etag, user } => {
                let (_, own) = self.config_file()?;
                if own != name {
                    return Err(self.not_replaceable(&name));
                }
                let (included, etag) = (Vec::new(), Some(etag));
                self.change(Change { text, included, etag, origin: VersionOrigin::Api, user })
            }
            ConfigRequest::Versions => Ok(ConfigReply::Versions(self.versions.list(&self.in_effect))),
            ConfigRequest::Version { number, file } => self.version(number, file).map(ConfigReply::Text),
            ConfigRequest::Rollback { number, etag, user } => {
                let (file, _) = self.config_file()?;
                let set = self.versions.set(number).ok_or(ChangeRefusal::UnknownVersion)?;
                let path = |name: String| file.with_file_name("").join(name);
                let included = set.included.into_iter().map(|file| (path(file.name), file.text)).collect();
                let (text, origin) = (set.main.text, VersionOrigin::Rollback);
                self.change(Change { text, included, etag, origin, user })
            }
        }
    }

    /// Applies the files as they are, and returns what that has changed.
    pub(super) async fn reload_as_asked(
        &mut self,
        events: &mut Events,
    ) -> Result<ConfigReply, ChangeRefusal> {
        self.config_file()?;
        let before = self.config.clone();
        self.reload_with_notice(events).await;
        if let Some(messages) = &self.rejected {
            return Err(ChangeRefusal::Rejected(messages.join("\n")));
        }
        let sources = self.last_read.clone().map_err(|error| ChangeRefusal::Failed(error.to_string()))?;
        let loaded =
            self.load_again(&sources).map_err(|messages| ChangeRefusal::Rejected(messages.join("\n")))?;
        Ok(ConfigReply::Applied(Applied {
            etag: etag(&config_files(&sources.set)),
            version: None,
            applied: changed_sections(&before, &self.config),
            restart: self.fixed_changes(&loaded.config),
            warnings: loaded.warnings.problems(),
        }))
    }

    /// Returns the config file and its name.
    fn config_file(&self) -> Result<(PathBuf, String), ChangeRefusal> {
        let file = self.run.file().ok_or(ChangeRefusal::NoFile)?;
        Ok((file.to_owned(), name_of(file)))
    }

    fn not_replaceable(&self, name: &str) -> ChangeRefusal {
        let is_included = self.files().is_ok_and(|files| files.files.iter().any(|file| file.name == name));
        if is_included {
            let message = "included files cannot be replaced over the API: change the file itself";
            return ChangeRefusal::ReadOnly(message.to_owned());
        }
        ChangeRefusal::UnknownFile
    }

    fn version(&self, number: u64, file: Option<String>) -> Result<String, ChangeRefusal> {
        let set = self.versions.set(number).ok_or(ChangeRefusal::UnknownVersion)?;
        let Some(name) = file.filter(|name| self.config_file().is_ok_and(|(_, own)| own != *name)) else {
            return Ok(set.main.text);
        };
        let file = set.included.into_iter().find(|file| file.name == name);
        file.map(|file| file.text).ok_or(ChangeRefusal::UnknownFile)
    }

    fn files(&self) -> Result<ConfigFiles, ChangeRefusal> {
        let Some(file) = self.run.file() else {
            return Ok(ConfigFiles { etag: etag(&[]), files: Vec::new() });
        };
        let sources =
            config_file::read_again(file).map_err(|error| ChangeRefusal::Failed(error.to_string()))?;
        let files = config_files(&sources.set);
        Ok(ConfigFiles { etag: etag(&files), files })
    }

    /// Applies a change and writes it to the files, or does neither.
    fn change(&mut self, change: Change) -> Result<ConfigReply, ChangeRefusal> {
        if self.config.control.config_changes == ConfigChanges::Off {
            return Err(ChangeRefusal::Off);
        }
        let (file, name) = self.config_file()?;
        let before = self.files()?;
        if change.etag.as_ref().is_some_and(|etag| !etag.contains(&before.etag)) {
            return Err(ChangeRefusal::Stale);
        }
        let Change { text, included, origin, user, .. } = change;
        let Allowed { mut loaded, sources, is_tuned } = self.checker().check(&text, included.clone())?;
        loaded.config = self.run.overrides.apply(with_demo(loaded.config, self.demo.as_ref()));
        let warnings = loaded.warnings.problems();
        let read_only = |error| ChangeRefusal::ReadOnly(format!("{name} cannot be replaced: {error}"));
        let drafts = drafts(&file, &text, &included)?;
        let old = self.config.clone();
        let restart = self.fixed_changes(&loaded.config);
        if !is_tuned {
            // A request that clients sent before must not be shown to a flow that came over the API.
            self.gateway.begin_generation();
        }
        self.apply(loaded).map_err(|messages| ChangeRefusal::Failed(messages.join("; ")))?;
        if let Err(refusal) = self.commit(drafts, &before.etag, read_only) {
            self.restore(old);
            return Err(refusal);
        }
        let applied = changed_sections(&old, &self.config);
        let version = self.versions.record(&sources.set, origin, user.as_deref());
        self.rejected = None;
        let etag = etag(&config_files(&sources.set));
        self.in_effect = sources.set.clone();
        self.last_read = Ok(sources);
        tracing::info!(?applied, version, user, "the config was changed over the API");
        Ok(ConfigReply::Applied(Applied { etag, version, applied, restart, warnings }))
    }

    /// Puts the drafts in place, the config file last, unless someone has changed the files meanwhile. If one
    /// cannot be replaced, those before get their old texts again.
    fn commit(
        &self,
        drafts: Vec<Planned>,
        etag: &str,
        read_only: impl Fn(std::io::Error) -> ChangeRefusal,
    ) -> Result<(), ChangeRefusal> {
        if self.files()?.etag != etag {
            return Err(ChangeRefusal::Stale);
        }
        let mut undo: Vec<(PathBuf, Option<String>)> = Vec::new();
        for Planned { draft, file, before } in drafts {
            if let Err(error) = draft.commit() {
                undo.into_iter().rev().for_each(|(file, before)| put_back(&file, before));
                return Err(read_only(error));
            }
            undo.push((file, before));
        }
        Ok(())
    }

    /// Applies the old config again after its file could not be replaced.
    fn restore(&mut self, old: Config) {
        let warnings = Report::unplaced("previous config", Vec::new());
        for message in self.apply(Loaded { config: old, warnings }).err().unwrap_or_default() {
            tracing::error!(
                "the config could not be written, and the previous one not be applied: {message}"
            );
        }
    }
}

impl Checker {
    /// Checks a text of the config file, and the texts of included files that it comes with. Nothing that
    /// they refer to is read before the rules have allowed it.
    fn check(&self, text: &str, included: Vec<(PathBuf, String)>) -> Result<Allowed, ChangeRefusal> {
        let name = &self.name;
        let invalid = |report: Report| ChangeRefusal::Invalid(config_advice::complete(report).problems());
        if text.trim().is_empty() {
            return Err(invalid(Report::whole(name, "the config is empty")));
        }
        let approved = Document::parse(name, &self.approved.main.text).map_err(invalid)?;
        let new = Document::parse(name, text).map_err(invalid)?;
        // The rules decide which files may be included, and so read, before they are.
        self.check_rules(&approved, &new)?;
        let sources = self.sources(name, text, included)?;
        let set = relative(sources.complete().map_err(invalid)?);
        // Included files come from their owner, also those that have just changed.
        let unchanged =
            SourceSet { main: self.approved.main.clone(), included: self.approved.included.clone() };
        let unchanged = relative(&unchanged);
        let approved = Document::parse_set(&unchanged).map_err(invalid)?;
        let directory =
            self.file.as_deref().and_then(Path::parent).map(Path::to_path_buf).unwrap_or_default();
        let document = || Config::document(&set).map(|document| document.in_directory(directory.clone()));
        self.check_rules(&approved, &document().map_err(invalid)?)?;
        // The rules have allowed the commands that this runs, and the secret managers that it calls.
        let mut new = fetched_secrets::supply(&set, document).map_err(invalid)?;
        let config: Config = new.read().map_err(invalid)?;
        // Now that the text has been read, all paths in it are known.
        self.check_rules(&approved, &new)?;
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(invalid(new.locate(problems)));
        }
        let warnings = new.locate(egret_settings::advice::advise(&config)).into_warnings();
        let is_tuned = Document::parse_set(&relative(&self.in_effect))
            .is_ok_and(|in_effect| config_rule::tune(in_effect.root(), new.root()).is_empty());
        Ok(Allowed { loaded: Loaded { config, warnings }, sources, is_tuned })
    }

    /// Returns the texts of a config: those that it comes with, and files that it includes besides.
    fn sources(
        &self,
        name: &str,
        text: &str,
        included: Vec<(PathBuf, String)>,
    ) -> Result<ConfigSources, ChangeRefusal> {
        let Some(file) = &self.file else { return Ok(ConfigSources::single(name, text)) };
        let sources = ConfigSources::of(file, text.to_owned());
        if included.is_empty() {
            return Ok(sources);
        }
        let is_known = |path: &&PathBuf| included.iter().any(|(known, _)| known == *path);
        if let Some(other) = sources.paths.iter().find(|path| !is_known(path)) {
            let message = format!(
                "{} is included today, but was not part of this version: move it away first",
                other.display()
            );
            return Err(ChangeRefusal::ReadOnly(message));
        }
        let text = |(path, text): (PathBuf, String)| SourceText { name: path.display().to_string(), text };
        Ok(sources.with_included(included.into_iter().map(text).collect()))
    }

    /// Refuses a change that the rules do not allow.
    fn check_rules(&self, approved: &Document<'_>, new: &Document<'_>) -> Result<(), ChangeRefusal> {
        let problems = match self.changes.current() {
            ConfigChanges::All => config_rule::all(approved.root(), new.root()),
            _ => config_rule::tune(approved.root(), new.root()),
        };
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ChangeRefusal::Forbidden(new.locate(problems).problems()))
        }
    }
}

/// A file that is about to be replaced.
struct Planned {
    draft: Draft,
    file: PathBuf,
    /// Its old text; `None` if it is new.
    before: Option<String>,
}

/// Writes drafts of all files that change, the config file last.
fn drafts(file: &Path, text: &str, included: &[(PathBuf, String)]) -> Result<Vec<Planned>, ChangeRefusal> {
    let mut drafts = Vec::new();
    let own = (file.to_owned(), text.to_owned());
    for (path, text) in included.iter().chain([&own]) {
        let before = std::fs::read_to_string(path).ok();
        if path != file && before.as_ref() == Some(text) {
            continue;
        }
        let read_only =
            |error| ChangeRefusal::ReadOnly(format!("{} cannot be replaced: {error}", name_of(path)));
        let draft = if path == file { Draft::write(file, text) } else { Draft::write_like(path, file, text) };
        drafts.push(Planned { draft: draft.map_err(read_only)?, file: path.clone(), before });
    }
    Ok(drafts)
}

/// Restores the old text of a file.
fn put_back(file: &Path, before: Option<String>) {
    let restored = match before {
        Some(text) => Draft::write(file, &text).and_then(Draft::commit),
        None => std::fs::remove_file(file),
    };
    if let Err(error) = restored {
        tracing::error!(file = %file.display(), "the previous text cannot be restored: {error}");
    }
}

/// Returns the texts with names relative to the directory of the config file.
fn relative(set: &SourceSet) -> SourceSet {
    let name = |name: &str| name_of(Path::new(name));
    let main = SourceText { name: name(&set.main.name), text: set.main.text.clone() };
    let included = set.included.iter();
    let included = included
        .map(|file| SourceText { name: set.relative_name(file).to_owned(), text: file.text.clone() })
        .collect();
    SourceSet { main, included }
}

/// Returns the files as the API shows them.
fn config_files(set: &SourceSet) -> Vec<ConfigFile> {
    let SourceSet { main, included } = relative(set);
    let file = |SourceText { name, text }| ConfigFile { name, text };
    std::iter::once(main).chain(included).map(file).collect()
}

/// Returns the result of a check as the API shows it.
fn checked(result: Result<Allowed, ChangeRefusal>) -> Checked {
    match result {
        Ok(Allowed { loaded, .. }) => {
            Checked { valid: true, problems: Vec::new(), warnings: loaded.warnings.problems() }
        }
        Err(ChangeRefusal::Forbidden(problems) | ChangeRefusal::Invalid(problems)) => {
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
pub(super) fn changed_sections(old: &Config, new: &Config) -> Vec<String> {
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
