//! Findings about the parts of Egret itself: config, secrets, issuers, exporters, diagnoses, cluster,
//! certificates.

use egret_cluster::ClusterStatus;
use egret_export::ExporterSnapshot;

use super::sample::{CountersSample, grown};
use super::trouble::{FindingKind, Severity, Trouble, WINDOW_S, number_of, percent};
use crate::observed::Observed;
use crate::source::{ConfigRefusal, FetchStatus};

/// A certificate that expires sooner is a finding: two weeks.
const CERTIFICATE_LEFT_S: u64 = 14 * 86_400;
/// If connections take this percentage of the file descriptors, few are left.
const DESCRIPTORS_PERCENT: u64 = 90;

/// Returns the troubles of the parts.
pub(super) fn troubles(
    observed: &Observed,
    current: &CountersSample,
    before: &CountersSample,
) -> Vec<Trouble> {
    let Observed { stats, exporters, cluster, refusal, issuers, process, .. } = observed;
    let mut troubles: Vec<Trouble> = refusal.iter().map(refused_config).collect();
    troubles.extend(observed.secret_commands.iter().filter_map(stale_command));
    troubles.extend(observed.managed_secrets.iter().filter_map(stale_secret));
    troubles.extend(issuers.iter().filter_map(failing_issuer));
    troubles.extend(exporters.iter().filter_map(|exporter| failing_exporter(exporter, current, before)));
    troubles.extend(cluster.iter().filter_map(away));
    troubles.extend(lost_records(stats.diagnoses_shedding, current, before));
    troubles.extend(stats.interception.ca_expires_s.and_then(expiring));
    let to_providers: u64 = stats.providers.iter().map(|provider| provider.connections_open).sum();
    let open = stats.clients.open + to_providers;
    troubles.extend(process.max_fds.and_then(|max| few_descriptors(open, max)));
    troubles
}

fn refused_config(refusal: &ConfigRefusal) -> Trouble {
    let ConfigRefusal { at, origin, message } = refusal;
    Trouble {
        kind: FindingKind::ConfigRefused,
        severity: Severity::Error,
        subject: origin.clone(),
        summary: format!("{origin} was refused: an older config is in effect"),
        evidence: message.clone(),
        advice: format!("`egret check {origin}` shows all problems; a corrected file is applied at once"),
        since: Some(*at),
    }
}

fn stale_command(command: &FetchStatus) -> Option<Trouble> {
    let advice = "run the command of `secrets.commands` by hand to see why; it is repeated until it succeeds";
    stale(command, format!("the secret of command {}", command.name), advice)
}

fn stale_secret(secret: &FetchStatus) -> Option<Trouble> {
    let advice = "check the secret manager, and its section under `secrets`; it is asked until it succeeds";
    stale(secret, format!("the secret {}", secret.name), advice)
}

/// Returns the trouble of a secret that users know as `shown`, if it was not renewed.
fn stale(secret: &FetchStatus, shown: String, advice: &str) -> Option<Trouble> {
    let failure = secret.failure.as_ref()?;
    Some(Trouble {
        kind: FindingKind::SecretStale,
        severity: Severity::Warning,
        subject: secret.name.clone(),
        summary: shown + " was not renewed: the last one stays in use",
        evidence: failure.error.clone(),
        advice: advice.to_owned(),
        since: Some(failure.since),
    })
}

fn failing_issuer(issuer: &FetchStatus) -> Option<Trouble> {
    let FetchStatus { name, has_last, failure } = issuer;
    let failure = failure.as_ref()?;
    let (severity, effect) = if *has_last {
        (Severity::Warning, "its last ones stay in use")
    } else {
        (Severity::Error, "there are none, so all its tokens are refused")
    };
    Some(Trouble {
        kind: FindingKind::IssuerFailing,
        severity,
        subject: name.clone(),
        summary: format!("the keys of issuer {name} cannot be fetched: {effect}"),
        evidence: failure.error.clone(),
        advice: "check that the issuer runs, and `clients.jwt` of the listener; Egret asks it again at least every minute"
            .to_owned(),
        since: Some(failure.since),
    })
}

fn failing_exporter(
    exporter: &ExporterSnapshot,
    current: &CountersSample,
    before: &CountersSample,
) -> Option<Trouble> {
    let name = &exporter.name;
    let lost = |sample: &CountersSample| sample.exporters_dropped.get(name).copied().unwrap_or_default();
    let lost_now = grown(lost(current), lost(before));
    if exporter.up && lost_now == 0 {
        return None;
    }
    let error = exporter.last_error.as_deref().unwrap_or("no error was recorded");
    let lost_text = format!("entries lost in the last {WINDOW_S} s: {lost_now}");
    Some(Trouble {
        kind: FindingKind::ExporterFailing,
        severity: if lost_now > 0 { Severity::Error } else { Severity::Warning },
        subject: name.clone(),
        summary: if exporter.up {
            format!("exporter {name} loses entries")
        } else {
            format!("exporter {name} fails")
        },
        evidence: if exporter.up { lost_text } else { format!("{error}; {lost_text}") },
        advice: "check its destination; exporters with a `spool` keep entries on disk until it works again"
            .to_owned(),
        since: None,
    })
}

fn away(cluster: &ClusterStatus) -> Option<Trouble> {
    let down = cluster.shards.iter().find(|shard| !shard.is_up)?;
    Some(Trouble {
        kind: FindingKind::StoreAway,
        severity: Severity::Error,
        subject: format!("cluster {}", cluster.cluster),
        summary: format!("the store of cluster {} does not respond", cluster.cluster),
        evidence: down.error.clone().unwrap_or_else(|| "it has not responded yet".to_owned()),
        advice: "check Redis or Valkey; `on_store_error` decides how quotas go on meanwhile".to_owned(),
        since: None,
    })
}

fn lost_records(is_shedding: bool, current: &CountersSample, before: &CountersSample) -> Option<Trouble> {
    let lost = |sample: &CountersSample| sample.diagnoses_lost.values().sum::<u64>();
    let lost_now = grown(lost(current), lost(before));
    let lines = grown(current.access_log_dropped, before.access_log_dropped);
    if !is_shedding && lost_now == 0 && lines == 0 {
        return None;
    }
    let suspended = if is_shedding { "; diagnoses are suspended" } else { "" };
    Some(Trouble {
        kind: FindingKind::DiagnosesBehind,
        severity: Severity::Warning,
        subject: "diagnoses".to_owned(),
        summary: "diagnoses cannot keep up with the traffic, so records are incomplete".to_owned(),
        evidence: format!(
            "{} and {} of the access log lost in the last {WINDOW_S} s{suspended}",
            number_of(lost_now, "record"),
            number_of(lines, "line")
        ),
        advice: "record fewer calls (`sample`, `when_response`) or less of each (`bodies`); traffic is not affected".to_owned(),
        since: None,
    })
}

fn expiring(left_s: u64) -> Option<Trouble> {
    (left_s < CERTIFICATE_LEFT_S).then(|| Trouble {
        kind: FindingKind::CertificateExpiring,
        severity: if left_s == 0 { Severity::Error } else { Severity::Warning },
        subject: "authority".to_owned(),
        summary: if left_s == 0 {
            "the certificate of Egret's authority has expired".to_owned()
        } else {
            "the certificate of Egret's authority expires soon".to_owned()
        },
        evidence: match left_s {
            0 => "it is no longer valid".to_owned(),
            _ => format!("it is valid for another {} h", left_s / 3_600),
        },
        advice: "create a new authority with `egret ca init --force`, and install it in the clients"
            .to_owned(),
        since: None,
    })
}

fn few_descriptors(open: u64, max: u64) -> Option<Trouble> {
    (percent(open, max) >= DESCRIPTORS_PERCENT).then(|| Trouble {
        kind: FindingKind::DescriptorsNearEnd,
        severity: Severity::Error,
        subject: "process".to_owned(),
        summary: "few file descriptors are left, so connections may fail".to_owned(),
        evidence: format!("{open} connections are open, and the process may open {max} files"),
        advice: "raise the limit of open files (`ulimit -n`, `LimitNOFILE=`)".to_owned(),
        since: None,
    })
}
