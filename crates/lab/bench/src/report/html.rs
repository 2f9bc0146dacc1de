//! ab's report as an HTML table (`-w`), which shows less than the text report.

use std::fmt::Write;

use super::run_report::{RunReport, ms};
use super::style::Attributes;
use crate::tally::Series;

/// Renders the whole table.
pub(crate) fn render(report: &RunReport<'_>, attributes: &Attributes) -> String {
    let mut table = HtmlTable { attributes, text: format!("\n\n<table {}>\n", attributes.table) };
    let (tally, url) = (&report.outcome.tally, &report.run.url);
    table.pair("Server Software", &report.outcome.server);
    table.pair("Server Hostname", &url.host);
    table.pair("Server Port", &url.port.to_string());
    table.pair("Document Path", &url.path);
    let length = report.document_length();
    let length =
        if report.run.plan.variable_length { "Variable".to_owned() } else { format!("{length} bytes") };
    table.pair("Document Length", &length);
    table.pair("Concurrency Level", &report.run.plan.concurrency.to_string());
    if let Some(streams) = report.run.plan.streams {
        table.pair("Protocol", "HTTP/2");
        table.pair("Streams per Connection", &streams.to_string());
    }
    table.pair("Time taken for tests", &format!("{:.3} seconds", report.outcome.elapsed.as_secs_f64()));
    table.pair("Complete requests", &tally.done.to_string());
    table.pair("Failed requests", &tally.failed.to_string());
    let [connect, receive, length, exceptions] = report.faults();
    if connect + receive + length + exceptions > 0 {
        let cell = &attributes.cell;
        let _ = writeln!(
            table.text,
            "<tr {}><td colspan=4 {cell} >   (Connect: {connect}, Length: {length}, Exceptions: {exceptions})</td></tr>",
            attributes.row
        );
    }
    if tally.non_2xx() > 0 {
        table.pair("Non-2xx responses", &tally.non_2xx().to_string());
    }
    if report.run.plan.keep_alive {
        table.pair("Keep-Alive requests", &tally.keep_alive.to_string());
    }
    table.pair("Total transferred", &format!("{} bytes", tally.bytes_received));
    if report.run.has_body {
        table.pair("Total body sent", &tally.bytes_sent.to_string());
    }
    table.pair("HTML transferred", &format!("{} bytes", tally.bytes_body));
    if tally.done > 0 {
        table.rates(report);
        table.times(report);
    }
    table.text + "</table>\n"
}

struct HtmlTable<'a> {
    attributes: &'a Attributes,
    text: String,
}

impl HtmlTable<'_> {
    fn pair(&mut self, label: &str, value: &str) {
        let Attributes { row, cell, .. } = self.attributes;
        let value = escaped(value);
        let _ = writeln!(
            self.text,
            "<tr {row}><th colspan=2 {cell}>{label}:</th><td colspan=2 {cell}>{value}</td></tr>"
        );
    }

    fn rates(&mut self, report: &RunReport<'_>) {
        let tally = &report.outcome.tally;
        self.pair("Requests per second", &format!("{:.2}", report.outcome.requests_per_second()));
        let received = report.kib_per_second(tally.bytes_received);
        self.pair("Transfer rate", &format!("{received:.2} kb/s received"));
        if !report.run.has_body {
            return;
        }
        let Attributes { row, cell, .. } = self.attributes;
        let sent = report.kib_per_second(tally.bytes_sent);
        for (rate, what) in [(sent, "sent"), (received + sent, "total")] {
            let _ = writeln!(
                self.text,
                "<tr {row}><td colspan=2 {cell}>&nbsp;</td><td colspan=2 {cell}>{rate:.2} kb/s {what}</td></tr>"
            );
        }
    }

    fn times(&mut self, report: &RunReport<'_>) {
        let Attributes { row, cell, .. } = self.attributes;
        let _ = writeln!(self.text, "<tr {row}><th {cell} colspan=4>Connection Times (ms)</th></tr>");
        let _ = writeln!(
            self.text,
            "<tr {row}><th {cell}>&nbsp;</th> <th {cell}>min</th>   <th {cell}>avg</th>   <th {cell}>max</th></tr>"
        );
        let tally = &report.outcome.tally;
        self.series("Connect", &tally.connect_with_zeros());
        self.series("Processing", &tally.processing());
        self.series("Total", &tally.total());
    }

    fn series(&mut self, label: &str, series: &Series) {
        let Attributes { row, cell, .. } = self.attributes;
        let [min, max] = [series.min(), series.max()].map(ms);
        let mean = series.mean() / 1_000.0;
        let _ = writeln!(
            self.text,
            "<tr {row}><th {cell}>{label}:</th><td {cell}>{min:>5}</td><td {cell}>{mean:>5.0}</td><td {cell}>{max:>5}</td></tr>"
        );
    }
}

/// Escapes text from a server, so a page displays it and does not interpret it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_escaped() {
        assert_eq!(escaped("<script>&"), "&lt;script&gt;&amp;");
    }
}
