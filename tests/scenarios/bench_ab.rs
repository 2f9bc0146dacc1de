//! Compares `egret bench` with the real ab: the same labels in the same lines, and equal figures where
//! possible.

use std::process::Command;

use egret_tests::bench::{Ran, bench, shape};
use egret_tests::peers::{Nginx, ab};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run};

const LOCATIONS: &str = "location / { return 200 \"0123456789\"; }
    location /missing { return 404 \"gone\"; }
    location /empty { return 204; }";

fn nginx() -> Nginx {
    Nginx::start(&Authority::default(), LOCATIONS)
}

fn abbed(arguments: &[&str]) -> Ran {
    run(ab().args(arguments)).into()
}

/// Runs both with the same arguments.
fn both(arguments: &[&str]) -> [Ran; 2] {
    [abbed(arguments).well(), bench(arguments).well()]
}

/// Removes warnings about means and medians, which depend on the machine.
fn without_warnings(report: &str) -> Vec<String> {
    let warns =
        |line: &String| line.starts_with("WARNING") || line.starts_with("ERROR") || line.contains("reli");
    shape(report).into_iter().filter(|line| !warns(line) && !line.contains("careful with these")).collect()
}

#[test]
fn reports_have_the_same_lines_whatever_the_options() {
    let nginx = nginx();
    let (url, missing) = (format!("{}/x?y=1", nginx.url()), format!("{}/missing", nginx.url()));
    let proxy = nginx.address().to_string();
    let directory = Directory::default();
    let body = directory.write("body", "some words");
    let body = body.to_str().unwrap();
    let rows: &[&[&str]] = &[
        &["-n", "200", "-c", "10"],
        &["-n", "200", "-c", "10", "-q"],
        &["-k", "-n", "200", "-c", "10"],
        &["-n", "20"],
        &["-n", "1"],
        &["-S", "-n", "20"],
        &["-d", "-n", "20"],
        &["-l", "-n", "20"],
        &["-i", "-n", "20"],
        &["-q", "-n", "20", "-p", body, "-T", "text/x"],
        &["-q", "-k", "-n", "20", "-u", body],
        &["-q", "-n", "20", "-p", body, "-m", "PATCH"],
        &["-n", "20", "-X", &proxy, "-P", "user:word"],
        &["-n", "20", "-A", "user:word", "-C", "a=b", "-H", "X-A: b"],
        &["-w", "-n", "20"],
        &["-w", "-k", "-n", "20", "-p", body],
        &["-x", "border=1", "-y", "class=row", "-z", "class=cell", "-n", "20"],
    ];
    for options in rows {
        for url in [&url, &missing] {
            let [ab, own] = both(&[options, &[url.as_str()][..]].concat());
            assert_eq!(without_warnings(&ab.printed), without_warnings(&own.printed), "{options:?} {url}");
            let opening =
                |ran: &Ran| ran.printed.lines().find(|line| line.starts_with("Bench")).map(str::to_owned);
            assert_eq!(opening(&ab), opening(&own), "{options:?}");
        }
    }
}

#[test]
fn figures_independent_of_time_equal_those_of_ab() {
    let nginx = nginx();
    let url = format!("{}/x", nginx.url());
    for options in [
        &["-n", "50", "-c", "5"][..],
        &["-k", "-n", "50"],
        &["-i", "-n", "7"],
        &["-C", "a=1", "-C", "b=2", "-n", "3"],
    ] {
        let arguments = [options, &["-q", "-v", "2", url.as_str()]].concat();
        let ab = abbed(&arguments).well();
        let own = bench(&[&["--ab-compat"], &arguments[..]].concat()).well();
        for label in [
            "Server Software:",
            "Server Hostname:",
            "Server Port:",
            "Document Path:",
            "Document Length:",
            "Concurrency Level:",
            "Complete requests:",
            "Failed requests:",
            "Total transferred:",
            "HTML transferred:",
        ] {
            assert_eq!(ab.value(label), own.value(label), "{options:?} {label}");
        }
        let head = |ran: &Ran| {
            let start = ran.printed.find("---\n").unwrap();
            let end = ran.printed[start..].find("\n---").unwrap();
            let mut lines: Vec<_> =
                ran.printed[start..start + end].lines().map(|line| line.trim_end().to_owned()).collect();
            lines.sort();
            lines
        };
        assert_eq!(head(&ab), head(&own), "the same request except for the order of its fields: {options:?}");
    }
}

#[test]
fn tls_is_told_in_ab_s_words() {
    let nginx = nginx();
    let url = format!("{}/x", nginx.tls_url());
    for protocol in ["TLS1.2", "TLS1.3"] {
        let arguments = ["-q", "-n", "5", "-f", protocol, &url];
        let ab = abbed(&arguments).well();
        let own = bench(&[&["--insecure"], &arguments[..]].concat()).well();
        for label in ["SSL/TLS Protocol:", "Server Temp Key:", "TLS Server Name:"] {
            assert_eq!(ab.value(label), own.value(label), "{protocol}");
        }
        assert_eq!(without_warnings(&ab.printed), without_warnings(&own.printed), "{protocol}");
    }
}

/// Returns the heading of a file and the cells of its rows.
fn table(file: &std::path::Path, separator: char) -> (String, Vec<Vec<String>>) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines().map(str::to_owned);
    let heading = lines.next().unwrap();
    (heading, lines.map(|line| line.split(separator).map(str::to_owned).collect()).collect())
}

#[test]
fn files_have_the_same_columns() {
    let nginx = nginx();
    let directory = Directory::default();
    let url = format!("{}/x", nginx.url());
    let files = |command: &mut Command, name: &str| {
        let paths = ["csv", "tsv"].map(|kind| directory.join(&format!("{name}.{kind}")));
        let [csv, tsv] = &paths;
        let ran: Ran =
            run(command.args(["-q", "-n", "120", "-c", "7", "-e"]).arg(csv).arg("-g").arg(tsv).arg(&url))
                .into();
        ran.well();
        (table(csv, ','), table(tsv, '\t'))
    };
    let (ab_csv, ab_tsv) = files(&mut ab(), "ab");
    for (name, extra) in [("own", None), ("compat", Some("--ab-compat"))] {
        let (csv, tsv) = files(egret_tests::bench::command().args(extra), name);
        assert_eq!((&csv.0, csv.1.len()), (&ab_csv.0, ab_csv.1.len()));
        let percents = |rows: &[Vec<String>]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
        assert_eq!(percents(&csv.1), percents(&ab_csv.1));
        let times: Vec<f64> = csv.1.iter().map(|row| row[1].parse().unwrap()).collect();
        assert!(times.is_sorted() && times[0] > 0.0, "{times:?}");
        assert_eq!((&tsv.0, tsv.1.len()), (&ab_tsv.0, ab_tsv.1.len()));
        for row in &tsv.1 {
            assert_eq!((row.len(), row[0].split(' ').count()), (6, 5), "{row:?}");
            let numbers: Vec<u64> = row[1..].iter().map(|cell| cell.parse().unwrap()).collect();
            assert_eq!(numbers[1] + numbers[2], numbers[3], "connect and processing make the total: {row:?}");
        }
        let column = |at: usize| tsv.1.iter().map(|row| row[at].parse::<u64>().unwrap()).collect::<Vec<_>>();
        // ab sorts by latency; readers often assume it sorts by time.
        assert!(if extra.is_some() { column(4).is_sorted() } else { column(1).is_sorted() });
    }
}
