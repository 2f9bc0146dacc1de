//! The view of a run of `egret bench` in a terminal, and where it must not appear.

use egret_tests::egret::binary;
use egret_tests::process::{self, Directory, run};
use egret_tests::provider::Provider;

/// A text of every picture that no report has.
const MARK: &str = " requests/s now, ";

/// Pictures that a run shows if nothing else takes the processors: one each half second.
const PICTURES: usize = 2;

/// Runs `egret bench` for this many milliseconds in a terminal of this size. Returns everything that the
/// terminal got.
fn in_terminal_for(time_ms: u32, columns: u32, rows: u32, environment: &str, arguments: &str) -> String {
    let line = format!(
        "stty cols {columns} rows {rows}; {environment} exec {} bench -k -c 2 -t {time_ms}ms {arguments}",
        binary().display()
    );
    // A run in which every request fails has the exit code 1.
    let output = run(&mut process::in_terminal(&line));
    String::from_utf8(output.stdout).unwrap()
}

/// Does the same for a second and a half; `part` is in a picture. On a busy machine this can be too short for
/// pictures, or for responses that they show: then it runs longer.
fn in_terminal(columns: u32, rows: u32, environment: &str, arguments: &str, part: &str) -> String {
    let run = |factor: u32| in_terminal_for(1_500 * factor, columns, rows, environment, arguments);
    let has_pictures = |printed: &String| {
        let pictures = printed.split("Server Software:").next().unwrap_or_default();
        pictures.matches(MARK).count() >= PICTURES && pictures.contains(part)
    };
    [1, 4, 16].into_iter().map(run).find(has_pictures).unwrap_or_else(|| panic!("no pictures: {arguments}"))
}

/// Removes escape sequences.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        plain + &part[end..]
    })
}

#[test]
fn a_terminal_shows_rate_percentiles_and_a_histogram() {
    let provider = Provider::plain();
    let printed = in_terminal(80, 40, "TERM=xterm", &provider.url(), "p50 ");
    let (pictures, report) = printed.split_once("Server Software:").unwrap();
    assert!(report.contains("Complete requests:") && !report.contains(MARK), "{report}");
    let lines = plain(pictures);
    // A class of times may be one of milliseconds on a busy machine.
    for part in [" s, ", ", 0 failed", "p50 ", "  p99 ", "  max ", "s – ", " % █"] {
        assert!(lines.contains(part), "{part:?} is not in {lines}");
    }
    assert!(pictures.contains("\x1b[36m█"), "bars have a colour: {pictures:?}");
    // Each picture is drawn over the one before, and the report over the last one.
    let rows = pictures.split("\x1b[J").nth(1).unwrap();
    assert!(rows.starts_with("\r\x1b["), "{rows:?}");
    assert!(pictures.trim_end().ends_with("\x1b[J"), "{pictures:?}");
}

#[test]
fn a_small_terminal_gets_lines_that_fit() {
    let provider = Provider::plain();
    let printed = in_terminal(30, 8, "TERM=xterm", &provider.url(), "p50 ");
    let (pictures, _) = printed.split_once("Server Software:").unwrap();
    let (_, pictures) = pictures.split_once("(be patient)").unwrap();
    assert!(pictures.contains("requests/s now"), "{pictures:?}");
    for picture in pictures.split("\x1b[J").filter(|picture| picture.contains("p50")) {
        let lines: Vec<String> = picture.split("\r\n").map(|line| plain(line).trim().to_owned()).collect();
        assert!(lines.iter().all(|line| line.chars().count() < 30), "{lines:?}");
        assert!(picture.matches("\x1b[K").count() <= 7, "{picture:?}");
    }
}

#[test]
fn errors_are_shown_with_their_cause() {
    let provider = Provider::scripted(|peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort");
    });
    let cause = "closed: the connection was closed before the response was complete";
    let printed = in_terminal(100, 40, "TERM=xterm", &provider.url(), cause);
    let (pictures, report) = printed.split_once("Server Software:").unwrap_or((&printed, ""));
    assert!(plain(pictures).contains(cause) && pictures.contains("\x1b[31m"), "{pictures:?}");
    assert!(report.contains(&format!("  {cause} x ")), "{report}");
    let busy = Provider::scripted(|peer| {
        while peer.request().is_some() && peer.send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n") {}
    });
    let cause = "responses with status 503";
    let printed = in_terminal(100, 40, "TERM=xterm", &busy.url(), cause);
    assert!(plain(&printed).contains(cause), "{printed:?}");
}

#[test]
fn colours_can_be_turned_off() {
    let provider = Provider::plain();
    let printed = in_terminal(80, 40, "TERM=xterm NO_COLOR=1", &provider.url(), "p50 ");
    assert!(printed.contains(MARK) && printed.contains('█'), "{printed:?}");
    assert!(!printed.contains("\x1b[3") && !printed.contains("\x1b[2m"), "{printed:?}");
}

#[test]
fn programs_never_get_the_view() {
    let provider = Provider::plain();
    let directory = Directory::default();
    let json = format!("--json {} {}", directory.join("result.json").display(), provider.url());
    let url = format!("{}/", provider.url());
    for (environment, arguments) in [
        ("TERM=xterm", json.as_str()),
        ("TERM=xterm", &format!("--ab-compat {url}")),
        ("TERM=xterm", &format!("-w {url}")),
        ("TERM=xterm", &format!("-q {url}")),
        ("TERM=dumb", &url),
    ] {
        let printed = in_terminal_for(1_000, 80, 40, environment, arguments);
        assert!(!printed.contains(MARK), "{environment} {arguments}: {printed:?}");
    }
    let piped = format!("{url} | cat");
    assert!(!in_terminal_for(1_000, 80, 40, "TERM=xterm", &piped).contains(MARK));
}
