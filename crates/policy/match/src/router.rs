//! Finds the flows that match an exchange, at a cost that does not grow with the number of flows.
//!
//! Flows are indexed by provider, by host, or under neither, and there by path in a tree of segments. A
//! search follows the few branches that match and checks the rest of the match only for the flows found
//! there. Only regular expressions, and hosts that end in a parameter, are asked one after the other.

mod tree;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use egret_config::Problem;
use tree::{Forest, IndexEntry, Root, ShortHasher};

use crate::expression::EvaluationError;
use crate::matching::{HostPattern, MatchConfig, MatchInput, Matcher, Readings, bare};
use crate::parameters::Parameters;

pub use crate::matching::Mismatch;

/// The match of a flow, for the router to compile.
#[derive(Debug, Clone, Copy)]
pub struct MatchRule<'a> {
    /// The name of the flow.
    pub name: &'a str,
    /// The exchanges that the flow applies to.
    pub matching: &'a MatchConfig,
}

/// All flows, compiled for search.
#[derive(Debug, Default)]
pub struct Router {
    flows: Box<[Matcher]>,
    forest: Forest,
    /// Root of the flows that name neither a provider nor a host.
    everywhere: Option<Root>,
    by_provider: Index,
    by_host: Index,
    /// Indexed by the part after `*.`, or after the last parameter.
    by_parent_host: Index,
    /// Hosts that no index can find.
    by_host_pattern: Vec<(HostPattern, Root)>,
    reads_bodies: bool,
    /// `true` if the host of any flow has a parameter.
    captures_hosts: bool,
}

type Index = HashMap<Box<str>, Root, BuildHasherDefault<ShortHasher>>;

/// Maximum number of index entries of all flows: providers or hosts, times paths.
const INDEX_ENTRIES_MAX: usize = 200_000;

/// Maximum number of patterns of all flows that no index can find. Each may be asked for every request.
const UNINDEXED_MAX: usize = 256;

impl Router {
    /// Compiles the matches of `flows`.
    pub fn compile(flows: &[MatchRule<'_>]) -> Result<Self, Vec<Problem>> {
        let mut matchers = Vec::with_capacity(flows.len());
        let mut problems = Vec::new();
        let (mut indexed, mut unindexed) = (0_usize, 0_usize);
        for (number, flow) in flows.iter().enumerate() {
            let at = format!("flows[{number}].match");
            match Matcher::compile(flow.matching, flow.name, &at) {
                Ok(matcher) => {
                    indexed += origins(&matcher) * matcher.paths.len().max(1);
                    unindexed += matcher.unindexed();
                    matchers.push(matcher);
                }
                Err(found) => problems.extend(found),
            }
            if indexed > INDEX_ENTRIES_MAX {
                let message =
                    format!("providers (or hosts) times paths of all flows exceed {INDEX_ENTRIES_MAX}");
                problems.push(Problem::new(at, message));
                break;
            }
            if unindexed > UNINDEXED_MAX {
                let message = format!(
                    "all flows together have more than {UNINDEXED_MAX} regular expressions for hosts, paths and values: join some with `|`"
                );
                problems.push(Problem::new(at, message));
                break;
            }
        }
        if problems.is_empty() { Ok(Self::of(matchers)) } else { Err(problems) }
    }

    fn of(flows: Vec<Matcher>) -> Self {
        let mut router = Self::default();
        for (flow, matcher) in (0..).zip(&flows) {
            router.file(flow, matcher);
        }
        router.reads_bodies = flows.iter().any(Matcher::reads_body);
        router.captures_hosts = flows.iter().any(|flow| flow.captures_host);
        router.flows = flows.into();
        router
    }

    /// Indexes a flow by the providers it names, otherwise by its hosts, otherwise under neither.
    fn file(&mut self, flow: u32, matcher: &Matcher) {
        let forest = &mut self.forest;
        for name in &matcher.providers {
            let root = self.by_provider.entry(name.clone()).or_default();
            forest.file(root, flow, &matcher.paths);
        }
        if !matcher.providers.is_empty() {
            return;
        }
        for host in &matcher.hosts {
            let root = match host {
                HostPattern::Exactly(name) => self.by_host.entry(name.clone()).or_default(),
                HostPattern::Below(name) => self.by_parent_host.entry(name.clone()).or_default(),
                HostPattern::Labels(labels) if !labels.tail().is_empty() => {
                    self.by_parent_host.entry(labels.tail().into()).or_default()
                }
                HostPattern::Labels(_) | HostPattern::Regex(_) => root_of(&mut self.by_host_pattern, host),
            };
            forest.file(root, flow, &matcher.paths);
        }
        if matcher.hosts.is_empty() {
            let root = self.everywhere.get_or_insert_default();
            forest.file(root, flow, &matcher.paths);
        }
    }

    /// Returns `true` if there are no flows.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Finds all flows that match, in the order of the config. Reuses the memory of `matches`, so repeated
    /// calls do not allocate.
    pub fn find(&self, question: MatchInput<'_>, matches: &mut Matches) {
        matches.clear();
        if self.flows.is_empty() {
            return;
        }
        self.gather(question, matches);
        if self.captures_hosts {
            matches.host.push_str(question.request.host);
        }
        let Matches { found, readings, failures, is_undecided, .. } = matches;
        // A flow with several index entries may be found more than once; its first pattern counts.
        found.sort_unstable();
        found.dedup_by_key(|found| found.flow);
        found.retain(|found| match self.mismatch_of_rest(*found, question, readings) {
            None => true,
            Some(Mismatch::Failed(error)) => {
                failures.push((found.flow, error));
                false
            }
            Some(Mismatch::Undecided) => {
                *is_undecided = true;
                false
            }
            Some(_) => false,
        });
    }

    /// Checks the predicates of a flow that the index does not cover.
    fn mismatch_of_rest(
        &self,
        found: IndexEntry,
        question: MatchInput<'_>,
        readings: &Readings,
    ) -> Option<Mismatch<'_>> {
        let IndexEntry { flow, pattern, reading } = found;
        let matcher = &self.flows[flow as usize];
        // A flow that is indexed by its whole host already matches the host.
        if matcher.rechecks_host && !matcher.has_host(question.request) {
            return Some(Mismatch::Host);
        }
        let host = question.request.host;
        let parameters = || matcher.parameters(pattern as usize, reading as usize, readings, host);
        matcher.mismatch_of_rest(question, parameters)
    }

    /// Returns `true` if the match of any flow reads request bodies.
    pub fn reads_bodies(&self) -> bool {
        self.reads_bodies
    }

    /// Finds the flows whose provider or host, and path, match.
    fn gather(&self, question: MatchInput<'_>, matches: &mut Matches) {
        let request = question.request;
        let Matches { readings, found, .. } = matches;
        let mut visit = |root: &Root| {
            found.extend(root.pathless.iter().map(|flow| IndexEntry { flow: *flow, pattern: 0, reading: 0 }));
            if let Some(root_node) = root.tree {
                if readings.count() == 0 {
                    readings.read(request.path);
                }
                for reading in 0..readings.count() {
                    self.forest.search(root_node, readings, reading, found);
                }
            }
            if !root.regexes.is_empty() {
                if readings.count() == 0 {
                    readings.read(request.path);
                }
                self.search_regexes(&root.regexes, readings, found);
            }
        };
        if let Some(root) = &self.everywhere {
            visit(root);
        }
        if let Some(root) = get(&self.by_provider, request.provider) {
            visit(root);
        }
        if self.by_host.is_empty() && self.by_parent_host.is_empty() && self.by_host_pattern.is_empty() {
            return;
        }
        let host = bare(request.host);
        for (_, root) in self.by_host_pattern.iter().filter(|(pattern, _)| pattern.matches(host)) {
            visit(root);
        }
        if let Some(root) = get(&self.by_host, host) {
            visit(root);
        }
        if self.by_parent_host.is_empty() {
            return;
        }
        for (dot, _) in host.match_indices('.').filter(|(dot, _)| *dot > 0) {
            if let Some(root) = get(&self.by_parent_host, &host[dot + 1..]) {
                visit(root);
            }
        }
    }

    /// Adds the flows whose regular expression matches a reading of the path to `found`.
    fn search_regexes(&self, regexes: &[(u32, u32)], readings: &mut Readings, found: &mut Vec<IndexEntry>) {
        readings.join();
        for (flow, pattern) in regexes {
            let regex = self.flows[*flow as usize].paths.get(*pattern as usize);
            let fits =
                |reading: &u32| regex.is_some_and(|regex| readings.is_new_match(regex, *reading as usize));
            let count = u32::try_from(readings.count()).unwrap_or(u32::MAX);
            if let Some(reading) = (0..count).find(fits) {
                found.push(IndexEntry { flow: *flow, pattern: *pattern, reading });
            }
        }
    }

    /// Explains why the flow with that number does not match. Returns `None` if it matches or does not exist.
    /// Checks only this flow.
    pub fn mismatch(&self, flow: usize, question: MatchInput<'_>) -> Option<Mismatch<'_>> {
        let mut readings = Readings::default();
        readings.read(question.request.path);
        readings.join();
        self.flows.get(flow)?.mismatch(question, &readings)
    }

    /// Returns the parameters captured by the path and the host of a match.
    pub fn parameters<'a>(&'a self, found: Match, matches: &'a Matches) -> Parameters<'a> {
        let IndexEntry { flow, pattern, reading } = found.0;
        match self.flows.get(flow as usize) {
            Some(flow) => {
                flow.parameters(pattern as usize, reading as usize, &matches.readings, &matches.host)
            }
            None => Parameters::default(),
        }
    }
}

fn origins(matcher: &Matcher) -> usize {
    let origins = if matcher.providers.is_empty() { matcher.hosts.len() } else { matcher.providers.len() };
    origins.max(1)
}

/// Returns the root of the flows with that host, which no index can find.
fn root_of<'a>(roots: &'a mut Vec<(HostPattern, Root)>, host: &HostPattern) -> &'a mut Root {
    let known = roots.iter().position(|(pattern, _)| pattern == host);
    let at = known.unwrap_or_else(|| {
        roots.push((host.clone(), Root::default()));
        roots.len() - 1
    });
    &mut roots[at].1
}

fn get<'a>(index: &'a Index, name: &str) -> Option<&'a Root> {
    if index.is_empty() { None } else { index.get(name) }
}

/// The flows that match one exchange, and the parameters of their paths. Reused between exchanges to avoid
/// allocation.
#[derive(Debug, Clone, Default)]
pub struct Matches {
    found: Vec<IndexEntry>,
    readings: Readings,
    /// The host of the request, if the host of any flow has a parameter.
    host: String,
    failures: Vec<(u32, EvaluationError)>,
    is_undecided: bool,
}

/// A flow that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match(IndexEntry);

impl Match {
    /// Number of the flow in the config, from 0.
    pub fn flow(self) -> usize {
        self.0.flow as usize
    }

    /// Number of the path that matched, among the paths of the flow's match.
    pub fn pattern(self) -> u32 {
        self.0.pattern
    }
}

impl Matches {
    /// Removes the exchange's matches and keeps the memory, within bounds.
    pub fn clear(&mut self) {
        self.found.clear();
        self.readings.clear();
        self.host.clear();
        self.failures.clear();
        self.is_undecided = false;
    }

    /// Returns `true` if some flows may match once the body is present. The caller then buffers the body and
    /// searches again.
    pub fn is_undecided(&self) -> bool {
        self.is_undecided
    }

    /// Returns the flows that do not match because their `when` failed, to be counted.
    pub fn failures(&self) -> impl Iterator<Item = (usize, EvaluationError)> + '_ {
        self.failures.iter().map(|(flow, error)| (*flow as usize, *error))
    }

    /// Returns `true` if no flow matches.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the flows that match, in the order of the config.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Match> + ExactSizeIterator + '_ {
        self.found.iter().map(|found| Match(*found))
    }
}

#[cfg(test)]
mod tests;
