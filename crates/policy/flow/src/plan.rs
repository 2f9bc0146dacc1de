//! All flows of a config, compiled: the router, and the remedies in one list.
//!
//! A reload compiles new flows beside those in force. A remedy that exists in both configs keeps its state
//! and its counters.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use egret_accounts::{AccountConfig, AccountConfigs, AccountSnapshot, Accounts, HandedAccount};
use egret_cache::{CacheDisk, CacheSnapshot};
use egret_clock::Timestamp;
use egret_config::Problem;
use egret_config::reload::{Identities, Identity, KeptStates, StateKeeper};
use egret_diagnosis::{Diagnoses, DiagnosesContext, DiagnosisStats, Exports, ResponseCondition, Spend};
use egret_har::Key;
use egret_match::matching::MatchInput;
use egret_match::router::{Matches, Router};
use egret_message::KnownProvider;
use egret_presets::PresetName;
use egret_prices::Prices;
use egret_quota::{Inheritance, QuotaConfigs, QuotaSnapshot, QuotaState, Quotas, Stores};
use egret_remedy::{
    AnyRemedy, Cache, CompileContext, DecisionCounts, DecisionSums, Exchange, FaultSwitch, HandedRemedy,
    Mode, Needs, OnError, Params, ProviderConventions, RemedyConfig, RemedyState, Script, ScriptSnapshot,
};
use egret_store::SharedState;
use egret_store::entries::Purge;
use egret_store::shared::Purged;
use serde::{Deserialize, Serialize};

use crate::causes::LoggedCauses;
use crate::condition::check_grpc;
use crate::config::{FlowConfig, match_rules, too_many};
use crate::explain::{self, ExplainedFlow};

/// The compiled flows of a config.
#[derive(Debug, Default)]
pub struct Flows {
    pub(crate) router: Router,
    /// The remedies of all flows, in order.
    pub(crate) slots: Vec<RemedySlot>,
    /// The flows themselves, by number.
    by_number: Vec<CompiledFlow>,
    /// The quotas that remedies draw from.
    pub quotas: Quotas,
    /// The accounts that calls are made with.
    pub accounts: Accounts,
    /// The facts about the providers.
    pub conventions: ProviderConventions,
    /// The diagnoses of finished exchanges.
    pub diagnoses: Arc<Diagnoses>,
    states: KeptStates,
}

/// No flow of the given name has a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFlow {
    /// The flows that have one.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.known[..] {
            [] => f.write_str("no flow has a cache"),
            known => {
                write!(f, "no flow of this name has a cache; those with one are `{}`", known.join("`, `"))
            }
        }
    }
}

impl std::error::Error for UnknownFlow {}

/// No `fault` of the given flow and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFault {
    /// The faults that there are, as flow and remedy.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.known[..] {
            [] => f.write_str("no flow has a `fault`"),
            known => write!(f, "there is no such `fault`; there are `{}`", known.join("`, `")),
        }
    }
}

impl std::error::Error for UnknownFault {}

/// A compiled flow, apart from its match, its remedies and its diagnoses.
#[derive(Debug)]
struct CompiledFlow {
    name: String,
    /// Its remedies in `slots`.
    slots: Range<usize>,
    /// The needs of all its remedies.
    needs: Needs,
    /// Failures are rare enough for all workers to share one counter.
    match_failures: Arc<AtomicU64>,
    /// `when_response`, if the flow has one.
    condition: Option<ResponseCondition>,
}

/// The parts of a config that flows are compiled from.
#[derive(Debug, Clone, Copy)]
pub struct FlowParts<'a> {
    /// `flows:`
    pub flows: &'a [FlowConfig],
    /// `quotas:`
    pub quotas: &'a QuotaConfigs,
    /// `accounts:`
    pub accounts: &'a AccountConfigs,
    /// The providers, in the order of their numbers.
    pub providers: &'a [KnownProvider<'a>],
    /// Their presets, in the same order.
    pub presets: &'a [Option<PresetName>],
    /// The prices of language models.
    pub prices: &'a Arc<Prices>,
    /// The stores of quotas; none while a config is only checked.
    pub stores: Stores<'a>,
    /// State that the gateway shares with the others of its cluster; nothing while a config is only checked.
    pub shared: SharedState<'a>,
    /// Directory for data that outlives the process; `None` while a config is only checked.
    pub data_dir: Option<&'a Path>,
    /// External resources of diagnoses, such as exporters.
    pub exports: &'a Exports,
}

/// The inputs for compiling the remedies of one flow.
struct FlowSource<'a> {
    /// Number of the flow.
    number: usize,
    config: &'a FlowConfig,
    /// The parameters that the flow's match captures.
    parameters: &'a [&'a str],
    /// The names of the providers.
    providers: &'a [&'a str],
    prices: &'a Arc<Prices>,
    workers: usize,
    shared: SharedState<'a>,
    data_dir: Option<&'a Path>,
    /// Key of the pseudonyms.
    key: Option<&'a Arc<Key>>,
    before: Option<&'a Flows>,
}

/// A compiled remedy with its settings and counters.
#[derive(Debug)]
pub(crate) struct RemedySlot {
    pub remedy: AnyRemedy,
    pub mode: Mode,
    pub on_error: OnError,
    pub needs: Needs,
    /// `flow/remedy`, with a number if the flow has several remedies of that kind.
    pub label: Box<str>,
    pub counts: Arc<DecisionCounts>,
    /// Causes already logged for letting exchanges go on without a decision.
    pub causes: LoggedCauses,
    /// `when_response` of its flow. Without it, the remedy sees every response.
    condition: Option<ResponseCondition>,
    identity: Identity,
    /// `true` makes every call of the remedy panic, for tests.
    #[cfg(test)]
    pub panics: bool,
}

/// Counters of the flows, and the state of their quotas and accounts.
#[derive(Debug, Clone, Default)]
pub struct FlowsSnapshot {
    /// The flows, in order.
    pub flows: Vec<FlowStats>,
    /// The quotas, by name.
    pub quotas: Vec<QuotaSnapshot>,
    /// The accounts, by name, at most [`ACCOUNTS_SHOWN_MAX`] of them.
    pub accounts: Vec<AccountSnapshot>,
    /// Number of all accounts, including those not shown.
    pub accounts_count: usize,
    /// The sums of what calls have cost.
    pub spend: Arc<Spend>,
}

/// The state of flows as one process hands it over to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct HandedFlows {
    quotas: Vec<QuotaState>,
    accounts: Vec<HandedAccount>,
    /// By label.
    remedies: Vec<(String, HandedRemedy)>,
}

/// Maximum number of accounts in a [`FlowsSnapshot`].
pub const ACCOUNTS_SHOWN_MAX: usize = 1_000;

/// Counters of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowStats {
    /// Name.
    pub name: String,
    /// Number of times that `when` or `when_response` had no value, so the flow did not apply.
    pub match_failures: u64,
    /// Its remedies, outermost first.
    pub remedies: Vec<RemedyStats>,
    /// Its diagnoses, in order.
    pub diagnoses: Vec<DiagnosisStats>,
}

/// Counters of a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemedyStats {
    /// Key of the remedy in the config, with a number if the flow has several of that kind.
    pub remedy: String,
    /// Description for people.
    pub description: String,
    /// Mode.
    pub mode: Mode,
    /// Decisions by kind.
    pub decisions: DecisionSums,
    /// Counters of the cache, if the remedy is one.
    pub cache: Option<CacheSnapshot>,
    /// Counters of the script, if the remedy is one.
    pub script: Option<ScriptSnapshot>,
    /// Its quota, queue and circuits.
    pub state: RemedyState,
}

impl Flows {
    /// Compiles `parts` for `workers` workers. State is carried over from `before`. Returns all problems if
    /// there are any.
    pub fn compile(
        parts: FlowParts<'_>,
        workers: usize,
        before: Option<&Self>,
    ) -> Result<Self, Vec<Problem>> {
        let FlowParts {
            flows: config,
            quotas,
            accounts,
            providers,
            presets,
            prices,
            stores,
            shared,
            data_dir,
            exports,
        } = parts;
        if let Some(problem) = too_many(config) {
            return Err(vec![problem]);
        }
        let mut problems = crate::config::problems(config, providers);
        let router = Router::compile(&match_rules(config)).unwrap_or_else(|found| {
            problems.extend(found);
            Router::default()
        });
        let names: Vec<&str> = providers.iter().map(|provider| provider.name).collect();
        let parameters: Vec<Vec<String>> = config.iter().map(|flow| flow.matching.parameters()).collect();
        let quotas_before = before.map(|before| &before.quotas);
        let every_parameter: BTreeSet<&str> = parameters.iter().flatten().map(String::as_str).collect();
        let every_parameter: Vec<&str> = every_parameter.into_iter().collect();
        let quotas = Quotas::compile(quotas, quotas_before, stores, &every_parameter, &mut problems);
        let secret_names: Arc<[Box<str>]> =
            accounts.values().filter_map(AccountConfig::secret_name).map(Box::from).collect();
        let accounts_before = before.map(|before| &before.accounts);
        let accounts = Accounts::compile(accounts, providers, shared, accounts_before, &mut problems);
        let conventions = ProviderConventions::new(names.iter().copied().zip(presets.iter().copied()));
        let mut compiled = Self { router, quotas, accounts, conventions, ..Self::default() };
        for (number, flow) in config.iter().enumerate() {
            let parameters: Vec<&str> = parameters[number].iter().map(String::as_str).collect();
            let flow = FlowSource {
                number,
                config: flow,
                parameters: &parameters,
                providers: &names,
                prices,
                workers,
                shared,
                data_dir,
                key: exports.key.as_ref(),
                before,
            };
            compiled.add_flow(&flow, &mut problems);
        }
        let diagnoses_before = before.map(|before| &*before.diagnoses);
        let conditions = compiled.by_number.iter().map(|flow| flow.condition.as_ref());
        let diagnosed: Vec<_> =
            config.iter().zip(conditions).map(|(flow, condition)| flow.diagnosed(condition)).collect();
        let context =
            DiagnosesContext { exports, secret_names: &secret_names, in_force: compiled.accounts.in_force() };
        let diagnoses = Diagnoses::compile(&diagnosed, context, workers, diagnoses_before, &mut problems);
        compiled.diagnoses = Arc::new(diagnoses);
        if problems.is_empty() { Ok(compiled) } else { Err(problems) }
    }

    /// Compiles the remedies of one flow.
    fn add_flow(&mut self, flow: &FlowSource<'_>, problems: &mut Vec<Problem>) {
        let FlowSource {
            number,
            config,
            parameters,
            providers,
            prices,
            workers,
            shared,
            data_dir,
            key: pseudonym_key,
            before,
        } = *flow;
        let start = self.slots.len();
        let match_failures =
            before.and_then(|before| before.match_failures(&config.name)).unwrap_or_default();
        check_grpc(config, number, problems);
        let condition = config
            .condition(number, parameters, problems)
            .map(|expression| ResponseCondition::new(expression, Arc::clone(&match_failures)));
        let mut identities = Identities::new(&config.name);
        let remedies = config.remedies.iter().enumerate();
        let mut switched_provider = None;
        let inner: Vec<_> = remedies.clone().filter_map(|(number, remedy)| remedy.as_inner(number)).collect();
        for (at, remedy) in remedies {
            let path = format!("flows[{number}].remedies[{at}]");
            let Some(key) = remedy.only_key(&path, problems) else { continue };
            let identity = identities.next(key);
            let context = CompileContext {
                providers,
                switched_provider,
                key: pseudonym_key,
                matching: &config.matching,
                parameters,
                inner: &inner[inner.partition_point(|inner| inner.number <= at)..],
                quotas: &self.quotas,
                accounts: &self.accounts,
                conventions: &self.conventions,
                prices,
                shared,
                mode: remedy.mode,
                workers,
                data_dir,
                path: format!("{path}.{key}"),
                problems,
                states: StateKeeper::new(
                    identity.clone(),
                    before.map(|before| &before.states),
                    &mut self.states,
                ),
            };
            if remedy.mode == Mode::Enforce {
                switched_provider = remedy.switched_provider().or(switched_provider);
            }
            let condition = condition.clone();
            self.slots.extend(RemedySlot::compile(remedy, condition, context, identity, workers, before));
        }
        let needs = self.slots[start..].iter().fold(Needs::default(), |all, slot| all.and(slot.needs));
        let (name, slots) = (config.name.clone(), start..self.slots.len());
        self.by_number.push(CompiledFlow { name, slots, needs, match_failures, condition });
    }

    /// The accounts.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Returns `true` if there are no flows.
    pub fn is_empty(&self) -> bool {
        self.router.is_empty()
    }

    /// Returns the names and descriptions of a flow's remedies, followed by those of its diagnoses.
    pub fn describe(&self, flow: usize) -> impl Iterator<Item = (&str, String)> {
        let remedies = self.slots_of(flow).iter();
        let remedies = remedies.map(|slot| (slot.remedy_name(), slot.remedy.describe()));
        remedies.chain(self.diagnoses.describe(flow))
    }

    /// Returns the names of the matching flows, in order.
    pub fn names<'a>(&'a self, matches: &'a Matches) -> impl Iterator<Item = &'a str> {
        matches.iter().filter_map(|found| self.by_number.get(found.flow())).map(|flow| &*flow.name)
    }

    /// Returns the description of a remedy, by the name of its flow and its own within the flow.
    pub fn describe_remedy(&self, flow: &str, remedy: &str) -> Option<String> {
        let is_it = |slot: &&RemedySlot| slot.flow() == flow && slot.remedy_name() == remedy;
        self.slots.iter().find(is_it).map(|slot| slot.remedy.describe())
    }

    /// Rehearses the remedies of a flow on the request of `exchange`, in order, and tells what each does with
    /// it. See [`Remedy::rehearse`](egret_remedy::Remedy::rehearse).
    pub fn rehearse(&self, flow: usize, exchange: &mut Exchange<'_>) -> Vec<String> {
        self.slots_of(flow).iter().map(|slot| slot.remedy.rehearse(exchange)).collect()
    }

    /// Returns a snapshot of all flows, quotas and accounts, with at most `groups_max` groups per quota. The
    /// quota of a remedy's own is named after it, like `charges/concurrency`.
    pub fn snapshot(&self, now: Timestamp, groups_max: usize) -> FlowsSnapshot {
        let flows = self.by_number.iter().enumerate().map(|(number, flow)| FlowStats {
            name: flow.name.clone(),
            match_failures: flow.match_failures.load(Relaxed),
            remedies: self.slots_of(number).iter().map(|slot| slot.stats(now)).collect(),
            diagnoses: self.diagnoses.stats(number),
        });
        let quotas = self.quotas.iter().map(|quota| quota.snapshot(now, groups_max));
        let own = self.slots.iter().filter_map(|slot| {
            let quota = slot.remedy.own_quota()?;
            Some(QuotaSnapshot { name: slot.label.to_string(), ..quota.snapshot(now, groups_max) })
        });
        let accounts = self.accounts.iter().take(ACCOUNTS_SHOWN_MAX).map(|account| account.snapshot(now));
        FlowsSnapshot {
            flows: flows.collect(),
            quotas: quotas.chain(own).collect(),
            accounts: accounts.collect(),
            accounts_count: self.accounts.iter().count(),
            spend: Arc::clone(self.diagnoses.spend()),
        }
    }

    /// Returns the state for the next process, which counts from now on. See [`Quotas::hand_over`] for the
    /// units that `calls` of this process may still use.
    pub fn hand_over(&self, now: Timestamp, calls: u64) -> HandedFlows {
        let handed = |slot: &RemedySlot| Some((slot.label.to_string(), slot.remedy.hand_over()?));
        HandedFlows {
            quotas: self.quotas.hand_over(now, calls),
            accounts: self.accounts.hand_over(now),
            remedies: self.slots.iter().filter_map(handed).collect(),
        }
    }

    /// Takes over the state of an earlier process, as far as these flows have such quotas, accounts and
    /// remedies. Returns the units that the earlier process may still use.
    pub fn inherit(&self, now: Timestamp, handed: &HandedFlows) -> Inheritance {
        for (label, state) in &handed.remedies {
            if let Some(slot) = self.slots.iter().find(|slot| *slot.label == **label) {
                slot.remedy.inherit(now, state);
            }
        }
        self.accounts.inherit(now, &handed.accounts);
        self.quotas.inherit(now, &handed.quotas)
    }

    /// Purges responses from all caches, or from those of `flow`, and tells the other gateways of a cluster.
    ///
    /// # Errors
    ///
    /// Fails if there is no flow of that name, or if it has no cache.
    pub fn purge(&self, flow: Option<&str>, purge: Purge<'_>) -> Result<Purged, UnknownFlow> {
        let caching = self.slots.iter().filter(|slot| slot.remedy.as_cache().is_some());
        if let Some(flow) = flow
            && !caching.clone().any(|slot| slot.identity.flow == flow)
        {
            let names: BTreeSet<&str> = caching.map(|slot| &*slot.identity.flow).collect();
            return Err(UnknownFlow { known: names.into_iter().map(str::to_owned).collect() });
        }
        let slots = self.slots.iter().filter(|slot| flow.is_none_or(|flow| slot.identity.flow == flow));
        let mut sum = Purged::default();
        for purged in slots.filter_map(|slot| slot.remedy.as_cache()).map(|cache| cache.purge(purge)) {
            sum.removed += purged.removed;
            sum.told.extend(purged.told);
        }
        Ok(sum)
    }

    /// Switches the faults of all flows or of `flow`, and there all or the one called `remedy`. Returns their
    /// number.
    ///
    /// # Errors
    ///
    /// Fails if there is no such fault.
    pub fn switch_faults(
        &self,
        flow: Option<&str>,
        remedy: Option<&str>,
        now: Timestamp,
        switch: FaultSwitch,
    ) -> Result<usize, UnknownFault> {
        let faults = self.slots.iter().filter_map(|slot| Some((slot, slot.remedy.as_fault()?)));
        let is_chosen = |slot: &RemedySlot| {
            flow.is_none_or(|flow| slot.flow() == flow)
                && remedy.is_none_or(|remedy| slot.remedy_name() == remedy)
        };
        let mut switched = 0;
        for (_, fault) in faults.clone().filter(|(slot, _)| is_chosen(slot)) {
            fault.switch(now, switch);
            switched += 1;
        }
        if switched == 0 && (flow.is_some() || remedy.is_some()) {
            return Err(UnknownFault { known: faults.map(|(slot, _)| slot.label.to_string()).collect() });
        }
        Ok(switched)
    }

    /// Returns the disks of all caches that have one.
    pub fn cache_disks(&self) -> Vec<CacheDisk> {
        self.slots.iter().filter_map(|slot| slot.remedy.as_cache()?.disk()).collect()
    }

    /// Counts the flows of `matches` whose `when` had no value.
    pub(crate) fn count_match_failures(&self, matches: &Matches) {
        for flow in matches.failures().filter_map(|(flow, _)| self.by_number.get(flow)) {
            flow.match_failures.fetch_add(1, Relaxed);
        }
    }

    /// Returns the counter of the flow with that name, so the new config continues it.
    fn match_failures(&self, name: &str) -> Option<Arc<AtomicU64>> {
        let flow = self.by_number.iter().find(|flow| flow.name == name)?;
        Some(Arc::clone(&flow.match_failures))
    }

    /// Returns the decisions counted so far of the remedy with this number, among those of all flows.
    pub fn decisions(&self, remedy: usize) -> Option<DecisionSums> {
        Some(self.slots.get(remedy)?.counts.snapshot())
    }

    /// Returns a view of the parameters that the matching flows have captured, of the accounts and of what
    /// is known of the providers.
    pub fn params<'a>(&'a self, matches: &'a Matches) -> Params<'a> {
        Params::new(&self.router, &self.accounts, &self.conventions, matches)
    }

    /// Evaluates each flow against a request. `config` is the one that the flows were compiled from. A flow
    /// that samples exchanges is evaluated as if this one were sampled.
    pub fn explain(&self, config: &[FlowConfig], question: MatchInput<'_>) -> Vec<ExplainedFlow> {
        explain::explain(config, &self.router, question)
    }

    /// Finds the flows that match a request.
    pub fn find(&self, question: MatchInput<'_>, matches: &mut Matches) {
        self.router.find(question, matches);
    }

    /// Returns the range of a flow's remedies in `slots`, and what they need together.
    pub(crate) fn remedies_of(&self, flow: usize) -> (Range<usize>, Needs) {
        self.by_number.get(flow).map_or_else(Default::default, |flow| (flow.slots.clone(), flow.needs))
    }

    fn slots_of(&self, flow: usize) -> &[RemedySlot] {
        &self.slots[self.remedies_of(flow).0]
    }

    fn slot_before(&self, identity: &Identity) -> Option<&RemedySlot> {
        self.slots.iter().find(|slot| slot.identity == *identity)
    }
}

impl RemedySlot {
    fn compile(
        config: &RemedyConfig,
        condition: Option<ResponseCondition>,
        mut context: CompileContext<'_>,
        identity: Identity,
        workers: usize,
        before: Option<&Flows>,
    ) -> Option<Self> {
        let remedy = AnyRemedy::compile(config, &mut context)?;
        let label = format!("{}/{identity}", identity.flow);
        let before = before.and_then(|before| before.slot_before(&identity));
        let counts = before
            .map_or_else(|| Arc::new(DecisionCounts::new(workers)), |before| Arc::clone(&before.counts));
        let (mode, on_error, needs) = (config.mode, config.on_error, remedy.needs());
        Some(Self {
            remedy,
            mode,
            on_error,
            needs,
            label: label.into(),
            counts,
            causes: LoggedCauses::default(),
            condition,
            identity,
            #[cfg(test)]
            panics: false,
        })
    }

    fn stats(&self, now: Timestamp) -> RemedyStats {
        RemedyStats {
            remedy: self.remedy_name().to_owned(),
            description: self.remedy.describe(),
            mode: self.mode,
            decisions: self.counts.snapshot(),
            cache: self.remedy.as_cache().map(Cache::snapshot),
            script: self.remedy.as_script().map(Script::snapshot),
            state: self.remedy.state(now),
        }
    }

    /// Returns `true` if the response of `exchange` meets `when_response` of the flow. A failure without a
    /// response does not meet it.
    pub fn is_for_response(&self, exchange: &Exchange<'_>) -> bool {
        let Some(condition) = &self.condition else { return true };
        exchange.response().is_some()
            && exchange.evaluate(condition.expression()).unwrap_or_else(|_| {
                condition.count_failure();
                false
            })
    }

    /// Name of the flow.
    pub fn flow(&self) -> &str {
        &self.identity.flow
    }

    /// Name within the flow: `limit`, `limit-2`.
    pub fn remedy_name(&self) -> &str {
        &self.label[self.identity.flow.len() + 1..]
    }
}
