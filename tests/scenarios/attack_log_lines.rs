//! Texts of clients that would be read as other fields of a log line, or as a line of their own.

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::wait;

/// Returns the fields of a line as readers of logfmt do: a value in quotes ends at the next one that is not
/// escaped, and any other with the next space.
fn fields(line: &str) -> Vec<(String, String)> {
    let (mut fields, mut rest) = (Vec::new(), line);
    while let Some((key, after)) = rest.trim_start().split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let mut is_escaped = false;
                let end = quoted.find(|letter| {
                    let is_end = letter == '"' && !is_escaped;
                    is_escaped = letter == '\\' && !is_escaped;
                    is_end
                });
                let end = end.unwrap_or(quoted.len());
                (&quoted[..end], quoted.get(end + 1..).unwrap_or_default())
            }
            None => after.split_at(after.find(' ').unwrap_or(after.len())),
        };
        let key = key.rsplit(' ').next().unwrap_or_default();
        fields.push((key.to_owned(), value.to_owned()));
        rest = after;
    }
    fields
}

/// Sends a request with these fields and returns the line of the access log.
fn logged(egret: &Egret, fields: &str) -> String {
    egret.get_with("/origin/real", fields).assert_forwarded(200);
    let log = egret.directory().join("access.log");
    wait::until("the line is written", || {
        let log = std::fs::read_to_string(&log).ok()?;
        log.lines().last().map(str::to_owned)
    })
}

#[test]
fn a_client_cannot_forge_fields_of_the_access_log() {
    let origin = Provider::plain();
    for (id, consumer) in [
        ("\"", "a status=999 path=/forged x"),
        ("id", "a status=999 path=/forged x"),
        ("\\", "\" status=999 path=/forged"),
        ("x\"status=999\"", "y"),
    ] {
        let egret = Config::with_origin(origin.url()).gateway("access_log: { output: access.log }").start();
        let line = logged(&egret, &format!("X-Request-Id: {id}\r\nX-Egret-Consumer: {consumer}\r\n"));
        let fields = fields(&line);
        let values = |name: &str| -> Vec<&str> {
            fields.iter().filter(|(key, _)| key == name).map(|(_, value)| &**value).collect()
        };
        assert_eq!(values("status"), ["200"], "{line}");
        assert_eq!(values("path"), ["/origin/real"], "{line}");
    }
}
