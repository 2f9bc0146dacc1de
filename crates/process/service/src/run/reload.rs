//! Changes of the config while Egret runs: applied whole, or not at all.

use egret_config::{Loaded, Report, SourceSet};
use egret_settings::config::Config;
use egret_settings::config_file::ConfigSources;
use egret_settings::config_versions::VersionOrigin;

use super::config_calls::changed_sections;
use super::switch::ProcessParts;
use super::{Origin, RunningEgret, log_listeners, log_warnings, read_authorities};
use crate::events::Events;

impl RunningEgret {
    /// Applies the current config file, or changes nothing and logs the errors. An unchanged file is applied
    /// again only if `forced`, for example to reopen the access log.
    pub(super) async fn reload(&mut self, events: &mut Events, forced: bool) {
        let file = match &self.run.origin {
            Origin::File(_) if self.run.is_isolated() => {
                // The command can write the file, and would allow itself what the policy denies.
                if forced {
                    tracing::info!(
                        "nothing is reloaded: the gateway of an isolated command keeps its config"
                    );
                }
                return;
            }
            Origin::File(file) => file.clone(),
            Origin::Translated(config) if forced => {
                // Rereads its certificates and reopens the access log.
                let config = (**config).clone();
                let warnings = Report::unplaced("command line", Vec::new());
                let applied = self.apply(Loaded { config, warnings });
                return self.log_rejected(applied, "command line");
            }
            Origin::Default if forced => {
                tracing::info!("nothing to reload: Egret runs without a config file");
                return;
            }
            Origin::Default | Origin::Translated(_) => return,
        };
        if forced {
            // They are fetched afterwards, so that a slow one holds up neither this reload nor a signal.
            self.source.secret_sources().expire();
        }
        events.refresh();
        let read = events.read_settled(&file).await;
        let is_known = read == self.last_read;
        self.last_read.clone_from(&read);
        if let Ok(sources) = &read {
            events.watch_others(&file, sources);
        }
        let loaded = read.clone().map_err(messages).and_then(|sources| self.load_again(&sources));
        // The same text may refer to secrets that have changed.
        let is_repeat = !forced && is_known;
        let is_same = |loaded: &Loaded<Config>| self.with_fixed(loaded.config.clone()) == self.config;
        if is_repeat && loaded.as_ref().is_ok_and(is_same) {
            return;
        }
        let applied = loaded.and_then(|loaded| self.apply(loaded));
        if let (Ok(()), Ok(sources)) = (&applied, read) {
            self.approve(sources.set);
        }
        let rejected = applied.clone().err();
        let is_logged = rejected.is_some() && rejected == self.rejected;
        self.rejected = rejected;
        if !(is_repeat && is_logged) {
            self.log_rejected(applied, &file.display().to_string());
        }
    }

    /// Applies the texts in effect again, with the secrets that were renewed. The file may be wrong
    /// meanwhile.
    pub(super) fn use_renewed_secrets(&mut self) {
        let SourceSet { main, included } = self.in_effect.clone();
        let sources = ConfigSources::single(&main.name, &main.text).with_included(included);
        let applied = match self.load_again(&sources) {
            Ok(loaded) if self.with_fixed(loaded.config.clone()) == self.config => return,
            loaded => loaded.and_then(|loaded| self.apply(loaded)),
        };
        if let Err(messages) = applied {
            tracing::warn!("renewed secrets are not in use: {}", messages.join("; "));
        } else if let Some(messages) = &self.rejected {
            // The file is refused as before.
            self.source.set_refusal(&self.run.name(), messages.first().map_or("", String::as_str));
        }
    }

    /// Applies the current config file, changed or not, and tells the service manager.
    pub(super) async fn reload_with_notice(&mut self, events: &mut Events) {
        self.supervisor.reloading();
        self.reload(events, true).await;
        self.supervisor.reloaded(self.rejected.is_none());
    }

    /// Remembers texts of the files that are now in effect. The API's own text is in effect already.
    pub(super) fn approve(&mut self, set: SourceSet) {
        if set != self.in_effect {
            self.versions.record(&set, VersionOrigin::File, None);
            self.approved.clone_from(&set);
            self.in_effect = set;
        }
    }

    pub(super) fn log_rejected(&self, applied: Result<(), Vec<String>>, origin: &str) {
        let Err(messages) = applied else { return };
        self.gateway.count_refused_reload();
        self.source.set_refusal(origin, messages.first().map_or("", String::as_str));
        for message in messages {
            tracing::error!("config refused: {message}");
        }
        tracing::error!(file = origin, "the previous config stays in effect");
    }

    pub(super) fn load_again(&self, sources: &ConfigSources) -> Result<Loaded<Config>, Vec<String>> {
        // A file being written is briefly empty, and an empty config would be valid.
        if sources.set.main.text.trim().is_empty() {
            return Err(vec![format!(
                "{}: the file is empty, which a reload treats as a mistake",
                self.run.name()
            )]);
        }
        self.run.load(sources, self.demo.as_ref()).map_err(|report| report.summaries())
    }

    /// Applies the whole config or nothing. The messages say why it was rejected.
    pub(super) fn apply(&mut self, loaded: Loaded<Config>) -> Result<(), Vec<String>> {
        let new = self.keep_fixed(loaded.config);
        let listened = self.gateway.addresses();
        let process = ProcessParts {
            own: &[self.control.address()],
            inherited: &self.inherited,
            is_isolated: self.run.is_isolated(),
            source: &self.source,
        };
        self.parts.switch(&new, process).map_err(messages)?;
        if self.released.is_none() {
            self.disks.apply(self.gateway.cache_disks());
        }
        log_listeners(&listened, &self.gateway.addresses());
        log_warnings(&new, &loaded.warnings);
        read_authorities(&new);
        self.logging.set_level(new.log.level);
        let changed = changed_sections(&self.config, &new);
        self.config = new;
        self.source.clear_refusal();
        tracing::info!(changed = changed.join(", "), "config reloaded");
        Ok(())
    }

    /// Returns the new config with the old values of keys that cannot change while Egret runs, and logs which
    /// have changed.
    fn keep_fixed(&self, new: Config) -> Config {
        for key in self.fixed_changes(&new) {
            tracing::warn!(key, "this key has changed, but only a restart applies it");
        }
        self.with_fixed(new)
    }

    /// Returns the keys that have changed in the new config, but cannot change while Egret runs.
    pub(super) fn fixed_changes(&self, new: &Config) -> Vec<&'static str> {
        let old = &self.config;
        let fixed = [
            ("control", old.control != new.control),
            ("data_dir", old.data_dir != new.data_dir),
            ("cluster", !is_cluster_kept(old, new)),
            ("log.format", old.log.format != new.log.format),
            ("gateway.workers", old.gateway.workers != new.gateway.workers),
        ];
        fixed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }

    /// Does the same without logging.
    pub(super) fn with_fixed(&self, new: Config) -> Config {
        let old = &self.config;
        let mut kept = Config { control: old.control.clone(), data_dir: old.data_dir.clone(), ..new };
        if !is_cluster_kept(old, &kept) {
            kept.cluster.clone_from(&old.cluster);
        }
        kept.log.format = old.log.format;
        kept.gateway.workers = old.gateway.workers;
        kept
    }
}

/// Returns `true` if the gateway need not leave its cluster.
fn is_cluster_kept(old: &Config, new: &Config) -> bool {
    match (&old.cluster, &new.cluster) {
        (Some(old), Some(new)) => old.is_same_cluster(new),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// Returns the message of an error as the only reason for rejecting a config.
fn messages(error: impl std::fmt::Display) -> Vec<String> {
    vec![error.to_string()]
}
