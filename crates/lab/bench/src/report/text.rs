//! The report as text: ab's report line by line, then the details that ab does not show.

use std::fmt::Write;

use super::run_report::{RunReport, ms};
use crate::tally::{Fault, Series};

/// Percentiles of ab's table.
const AB_PERCENTS: [u64; 8] = [50, 66, 75, 80, 90, 95, 98, 99];

/// Percentiles of the table in microseconds.
const PERCENTS: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// The whole report.
pub(crate) fn render(report: &RunReport<'_>) -> String {
    let mut text = "\n\n".to_owned();
    heading(report, &mut text);
    counts(report, &mut text);
    rates(report, &mut text);
    let timed = report.outcome.tally.total().count() > 0;
    if timed {
        times(report, &mut text);
    }
    if !report.style.ab_compat {
        if timed {
            precise(report, &mut text);
        }
        targets(report, &mut text);
        statuses(report, &mut text);
    }
    text
}

fn line(text: &mut String, label: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{:<24}{value}", format!("{label}:"));
}

fn heading(report: &RunReport<'_>, text: &mut String) {
    let url = &report.run.url;
    line(text, "Server Software", &report.outcome.server);
    line(text, "Server Hostname", &url.host);
    line(text, "Server Port", url.port);
    if let Some(tls) = &report.outcome.tls {
        line(text, "SSL/TLS Protocol", &tls.protocol);
        if let Some(exchange) = &tls.exchange {
            line(text, "Server Temp Key", exchange);
        }
        if url.host.parse::<std::net::IpAddr>().is_err() {
            line(text, "TLS Server Name", &url.host);
        }
    }
    *text += "\n";
    line(text, "Document Path", &url.path);
    if report.run.plan.variable_length {
        line(text, "Document Length", "Variable");
    } else {
        line(text, "Document Length", format_args!("{} bytes", report.document_length()));
    }
    *text += "\n";
}

fn counts(report: &RunReport<'_>, text: &mut String) {
    let tally = &report.outcome.tally;
    line(text, "Concurrency Level", report.run.plan.concurrency);
    if let Some(streams) = report.run.plan.streams {
        line(text, "Protocol", "HTTP/2");
        line(text, "Streams per Connection", streams);
    }
    line(text, "Time taken for tests", format_args!("{:.3} seconds", report.outcome.elapsed.as_secs_f64()));
    line(text, "Complete requests", tally.done);
    line(text, "Failed requests", tally.failed);
    let [connect, receive, length, exceptions] = report.faults();
    if connect + receive + length + exceptions > 0 {
        let _ = writeln!(
            text,
            "   (Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})"
        );
    }
    if tally.faults(Fault::Send) > 0 {
        line(text, "Write errors", tally.faults(Fault::Send));
    }
    if tally.non_2xx() > 0 {
        line(text, "Non-2xx responses", tally.non_2xx());
    }
    if report.run.plan.keep_alive {
        line(text, "Keep-Alive requests", tally.keep_alive);
    }
    if tally.resumed > 0 {
        line(text, "TLS sessions resumed", tally.resumed);
    }
    line(text, "Total transferred", format_args!("{} bytes", tally.bytes_received));
    if report.run.has_body {
        line(text, "Total body sent", tally.bytes_sent);
    }
    line(text, "HTML transferred", format_args!("{} bytes", tally.bytes_body));
}

#[expect(clippy::cast_precision_loss, reason = "concurrency is at most 20000")]
fn rates(report: &RunReport<'_>, text: &mut String) {
    let (tally, rate) = (&report.outcome.tally, report.outcome.requests_per_second());
    if rate <= 0.0 {
        return;
    }
    let each_ms = 1_000.0 / rate;
    let concurrency = report.run.plan.concurrency as f64;
    line(text, "Requests per second", format_args!("{rate:.2} [#/sec] (mean)"));
    line(text, "Time per request", format_args!("{:.3} [ms] (mean)", each_ms * concurrency));
    line(text, "Time per request", format_args!("{each_ms:.3} [ms] (mean, across all concurrent requests)"));
    let received = report.kib_per_second(tally.bytes_received);
    line(text, "Transfer rate", format_args!("{received:.2} [Kbytes/sec] received"));
    if report.run.has_body {
        let sent = report.kib_per_second(tally.bytes_sent);
        let _ = writeln!(text, "{:24}{sent:.2} kb/s sent", "");
        let _ = writeln!(text, "{:24}{:.2} kb/s total", "", received + sent);
    }
}

/// Writes ab's two tables, in whole milliseconds.
fn times(report: &RunReport<'_>, text: &mut String) {
    let tally = &report.outcome.tally;
    let total = tally.total();
    let rows = [
        ("Connect", "initial connection time", &tally.connect_with_zeros()),
        ("Processing", "processing time", &tally.processing()),
        ("Waiting", "waiting time", tally.waiting()),
        ("Total", "total time", &total),
    ];
    *text += "\nConnection Times (ms)\n";
    if report.style.no_confidence {
        *text += "              min   avg   max\n";
        for (label, _, series) in rows {
            let [min, mean, max] = [ms(series.min()), whole_ms(series.mean()), ms(series.max())];
            let _ = writeln!(text, "{:<12}{min:>5} {mean:>5}{max:>5}", format!("{label}:"));
        }
    } else {
        *text += "              min  mean[+/-sd] median   max\n";
        for (label, _, series) in rows {
            let _ = writeln!(
                text,
                "{:<12}{:>5} {:>4} {:>5.1} {:>6} {:>7}",
                format!("{label}:"),
                ms(series.min()),
                whole_ms(series.mean()),
                series.deviation() / 1_000.0,
                whole_ms(report.median(series)),
                ms(series.max())
            );
        }
        for (_, what, series) in rows {
            doubt(report, what, series, text);
        }
    }
    if report.style.no_percentiles || total.count() < 2 {
        return;
    }
    *text += "\nPercentage of the requests served within a certain time (ms)\n";
    for percent in AB_PERCENTS {
        let _ = writeln!(text, "{percent:>4}%  {:>5}", ms(report.percentile(&total, percent)));
    }
    let _ = writeln!(text, " 100%  {:>5} (longest request)", ms(total.max()));
}

/// Warns if mean and median are so far apart that neither is representative.
fn doubt(report: &RunReport<'_>, what: &str, series: &Series, text: &mut String) {
    let (median, deviation) = (report.median(series), series.deviation());
    // The median has three digits, so in a steady run rounding may exceed the deviation.
    let apart = (series.mean() - median).abs() - median / 1_000.0;
    if apart > 2.0 * deviation {
        let _ = writeln!(
            text,
            "ERROR: The median and mean for the {what} are more than twice the standard deviation apart:\n       \
             do not rely on these results."
        );
    } else if apart > deviation {
        let _ = writeln!(
            text,
            "WARNING: The median and mean for the {what} are not within a normal deviation:\n        \
             be careful with these results."
        );
    }
}

fn whole_ms(us: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are not negative, and short"
    )]
    let us = us.max(0.0) as u64;
    ms(us)
}

/// Writes the same times in microseconds, including the high percentiles that ab does not show. The labels
/// differ from ab's, so parsers of ab's report ignore this part.
fn precise(report: &RunReport<'_>, text: &mut String) {
    let tally = &report.outcome.tally;
    *text += "\nPrecise times (us)   ";
    for percent in PERCENTS {
        let _ = write!(text, "{:>9}", format!("p{percent}"));
    }
    *text += "      max\n";
    for (label, series) in
        [("response", &tally.total()), ("first byte", tally.waiting()), ("connecting", tally.connect())]
    {
        if series.count() > 0 {
            row(text, label, series);
        }
    }
    if tally.lateness.count() > 0 {
        row(text, "sent late", &tally.lateness);
    }
    if tally.event_delays.count() > 0 {
        row(text, "event delay", &tally.event_delays);
    }
}

fn row(text: &mut String, label: &str, series: &Series) {
    let _ = write!(text, "  {label:<19}");
    for percent in PERCENTS {
        let _ = write!(text, "{:>9}", series.percentile(percent));
    }
    let _ = writeln!(text, "{:>9}", series.max());
}

fn targets(report: &RunReport<'_>, text: &mut String) {
    let series = report.outcome.tally.by_target();
    if series.is_empty() {
        return;
    }
    *text += "\nTargets (us)            requests      p50      p99      max\n";
    for (name, series) in report.run.names.iter().zip(series) {
        let _ = writeln!(
            text,
            "{:22}{:>10}{:>9}{:>9}{:>9}  {name}",
            "",
            series.count(),
            series.percentile(50.0),
            series.percentile(99.0),
            series.max()
        );
    }
}

fn statuses(report: &RunReport<'_>, text: &mut String) {
    let tally = &report.outcome.tally;
    *text += "\nStatus codes:";
    for (status, count) in tally.statuses() {
        let _ = write!(text, "  {status} x {count}");
    }
    *text += "\n";
    let faults: Vec<_> = Fault::ALL.into_iter().filter(|fault| tally.faults(*fault) > 0).collect();
    if !faults.is_empty() {
        *text += "Failures:";
        for fault in faults {
            let _ = write!(text, "  {} x {}", fault.name(), tally.faults(fault));
        }
        *text += "\n";
        for (cause, count) in tally.causes() {
            let _ = writeln!(text, "  {cause} x {count}");
        }
    }
    let sent_again = if report.run.plan.streams.is_some() {
        "requests were sent again because the target had refused or not processed their streams"
    } else {
        "requests were sent again because their kept connection had been closed"
    };
    for (count, what) in [
        (tally.retried, sent_again),
        (tally.unfinished, "requests were in progress when the time was over and are not counted"),
        (
            tally.unsent,
            "requests were due but never sent because no connection was free: raise -c, or lower --rate",
        ),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
}
