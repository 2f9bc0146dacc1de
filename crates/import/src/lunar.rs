//! Lunar's configs: `policies.yaml` of its first generation; flows, quotas and path parameters of its second;
//! and the settings of its gateway.

mod accounts;
mod diagnoses;
mod exporters;
mod filter;
mod flow;
mod gateway;
mod graph;
mod json_path;
mod metrics;
mod policies;
mod processors;
mod quotas;
mod remedies;
mod response_side;
mod shared;
mod url;

use std::path::Path;

use crate::draft::Draft;
use crate::report::Translation;
use crate::source::{Findings, Folder, ImportError, YamlFile};

use shared::{Accounts, Exporters, Import, Quotas};

/// Translates the directory of a config.
///
/// # Errors
///
/// Fails if a file cannot be read or has mistakes, and if there is nothing to translate.
pub fn import(directory: &Path) -> Result<Translation, ImportError> {
    let mut folder = Folder::new(directory);
    if !directory.is_dir() {
        return Err(ImportError::Unreadable(directory.to_owned(), "it is not a directory".to_owned()));
    }
    let findings = Findings::default();
    let mut one = |name: &str| -> Result<Option<YamlFile>, ImportError> {
        Ok(folder.file(name)?.and_then(|file| findings.parse(&file)))
    };
    let policies = one("policies.yaml")?;
    let gateway = one("gateway_config.yaml")?;
    let metrics = one("metrics.yaml")?;
    let plugins = one("user_processors/processors_config.yaml")?;
    let environment = folder.file(".env")?;
    let mut many = |name: &str| -> Result<Vec<YamlFile>, ImportError> {
        Ok(folder.yaml_files(name)?.iter().filter_map(|file| findings.parse(file)).collect())
    };
    let (quotas, flows, paths) = (many("quotas")?, many("flows")?, many("path_params")?);
    let is_empty = policies.is_none() && gateway.is_none() && metrics.is_none() && environment.is_none();
    if is_empty && quotas.is_empty() && flows.is_empty() && paths.is_empty() {
        // A file that cannot be parsed is a mistake in a file, not the absence of one.
        findings.finish()?;
        return Err(ImportError::Nothing(directory.to_owned()));
    }
    let mut import = Import {
        findings: &findings,
        draft: Draft::default(),
        accounts: Accounts::default(),
        exporters: Exporters::default(),
        quotas: Quotas::default(),
    };
    if let Some(file) = &gateway {
        import.gateway(file);
    }
    if let Some(file) = &policies {
        import.policies(file);
    }
    import.quota_files(&quotas);
    import.flow_files(&flows);
    import.unused_quotas();
    import.path_files(&paths);
    if let Some(file) = &metrics {
        import.metrics_file(file);
    }
    if let Some(file) = &plugins {
        import.plugins(file);
    }
    if let Some(file) = &environment {
        import.environment(file);
    }
    import.finish_accounts();
    let draft = import.draft;
    let items = findings.finish()?;
    let head = [
        "Translated from Lunar's config by `egret import lunar`. Check it with `egret check`.".to_owned(),
        "Comments in this file name what differs.".to_owned(),
    ];
    Ok(Translation { config: draft.yaml(&head), items })
}

#[cfg(test)]
mod tests;
