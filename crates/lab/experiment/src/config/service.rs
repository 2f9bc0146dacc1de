//! Programs that proxies need, such as a store that they share.

use std::collections::BTreeMap;

use egret_config::Problem;
use serde::{Deserialize, Serialize};

use super::{invalid_name, words};
use crate::template::{self, Additional};

/// Names that would collide with those of parts and placeholders.
const TAKEN: [&str; 4] = ["client", "proxy", "provider", "control"];

/// Maximum number of services.
const SERVICES_MAX: usize = 8;

/// A program that runs beside the proxies of the scenarios that name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceConfig {
    /// The kind of program.
    pub kind: ServiceKind,
    /// For `command`: the program and its arguments; placeholders are filled in. It must listen on `@{port}`.
    pub command: Vec<String>,
    /// For `command`: environment variables; placeholders are filled in.
    pub environment: BTreeMap<String, String>,
}

/// The kind of program that serves the proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceKind {
    /// Any program.
    #[default]
    Command,
    /// `redis-server`, which stores nothing on disk. The calls that it receives are counted.
    Redis,
}

impl ServiceConfig {
    /// The program and its arguments.
    pub(crate) fn command(&self) -> Vec<String> {
        let redis = "redis-server --bind @{listen} --port @{port} --dir @{directory} --appendonly no --save";
        match self.kind {
            ServiceKind::Command => self.command.clone(),
            ServiceKind::Redis => redis.split(' ').chain([""]).map(str::to_owned).collect(),
        }
    }

    fn problems(&self, path: &str, additional: Additional<'_>) -> Vec<Problem> {
        let mut problems = words(&format!("{path}.command"), &self.command, false, additional);
        let is_command = self.kind == ServiceKind::Command;
        if is_command && self.command.is_empty() {
            problems
                .push(Problem::new(format!("{path}.command"), "a program and its arguments are required"));
        }
        if !(is_command || self.command.is_empty() && self.environment.is_empty()) {
            problems.push(Problem::new(path, "`command` and `environment` require `kind: command`"));
        }
        for (name, value) in &self.environment {
            let path = format!("{path}.environment.{name}");
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                problems.push(Problem::new(path, "this is not an environment variable"));
            } else if let Err(unknown) = template::check(value, additional) {
                problems.push(unknown.problem(path));
            }
        }
        problems
    }
}

/// Finds mistakes in the services of an experiment.
pub(super) fn problems(services: &BTreeMap<String, ServiceConfig>) -> Vec<Problem> {
    let names: Vec<String> = services.keys().cloned().collect();
    let mut problems = Vec::new();
    if names.len() > SERVICES_MAX {
        problems.push(Problem::new("services", format!("more than {SERVICES_MAX} entries")));
    }
    for (name, service) in services {
        let path = format!("services.{name}");
        if TAKEN.contains(&name.as_str()) {
            problems.push(Problem::new(&path, format!("a service cannot be called `{name}`")));
        }
        problems.extend(invalid_name(name).map(|message| Problem::new(&path, message)));
        problems.extend(service.problems(&path, Additional { services: &names, instances: 0 }));
    }
    problems
}
