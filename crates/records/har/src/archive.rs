//! Merges, splits and summarizes HAR files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::SystemTime;

use egret_clock::rfc3339;

use crate::har::{Creator, Har, Page};

/// Merges the entries of several files into one file, in the order of their start times. Entries without a
/// readable time come last. If two files have pages with the same id, the ids of the later file get a number
/// as prefix.
pub fn merge(files: Vec<Har>, creator: Creator) -> Har {
    let mut merged = Har::new(creator);
    let (mut pages, mut ids): (Vec<Page>, HashSet<String>) = (Vec::new(), HashSet::new());
    for file in files {
        let mut renamed = HashMap::new();
        for mut page in file.log.pages.into_iter().flatten() {
            let id = free_id(&page.id, &ids);
            renamed.entry(std::mem::replace(&mut page.id, id.clone())).or_insert(id.clone());
            ids.insert(id);
            pages.push(page);
        }
        for mut entry in file.log.entries {
            entry.pageref = entry.pageref.and_then(|page| renamed.get(&page).cloned());
            merged.log.entries.push(entry);
        }
    }
    let started =
        |text: &str| (rfc3339::read(text).is_none(), rfc3339::read(text).unwrap_or(SystemTime::UNIX_EPOCH));
    merged.log.entries.sort_by_cached_key(|entry| started(&entry.started_date_time));
    merged.log.pages = Some(pages).filter(|pages| !pages.is_empty());
    merged
}

fn free_id(id: &str, taken: &HashSet<String>) -> String {
    let numbered = (2..).map(|number: u64| format!("{number}_{id}"));
    std::iter::once(id.to_owned()).chain(numbered).find(|id| !taken.contains(id)).unwrap_or_default()
}

/// Splits a file into files of at most `entries_max` entries each (0 counts as 1). Order is kept, and each
/// file gets the pages that its entries belong to. Returns at least one file.
pub fn split(har: Har, entries_max: usize) -> Vec<Har> {
    let Har { mut log, extra } = har;
    let entries = std::mem::take(&mut log.entries);
    let pages = log.pages.take();
    let empty = Har { log, extra };
    if entries.is_empty() {
        return vec![Har { log: crate::har::Log { pages, ..empty.log }, extra: empty.extra }];
    }
    let mut entries = entries.into_iter().peekable();
    let mut files = Vec::new();
    while entries.peek().is_some() {
        let mut file = empty.clone();
        file.log.entries = entries.by_ref().take(entries_max.max(1)).collect();
        let named: HashSet<&str> =
            file.log.entries.iter().filter_map(|entry| entry.pageref.as_deref()).collect();
        let own =
            |pages: &Vec<Page>| pages.iter().filter(|page| named.contains(&*page.id)).cloned().collect();
        file.log.pages = pages.as_ref().map(own);
        files.push(file);
    }
    files
}

/// Statistics of one or more files.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    entries: usize,
    hosts: BTreeMap<String, usize>,
    methods: BTreeMap<String, usize>,
    statuses: BTreeMap<i64, usize>,
    /// Time of each entry, in milliseconds.
    times: Vec<f64>,
    sent_bytes: i64,
    received_bytes: i64,
    obfuscated: usize,
}

impl Stats {
    /// Adds the entries of a file.
    pub fn add(&mut self, har: &Har) {
        for entry in &har.log.entries {
            let (request, response) = (&entry.request, &entry.response);
            self.entries += 1;
            *self.hosts.entry(host(&request.url).to_owned()).or_default() += 1;
            *self.methods.entry(request.method.clone()).or_default() += 1;
            *self.statuses.entry(response.status).or_default() += 1;
            self.times.push(entry.time);
            let sum =
                |sizes: [i64; 2]| sizes.into_iter().map(|size| size.max(0)).fold(0, i64::saturating_add);
            self.sent_bytes = self.sent_bytes.saturating_add(sum([request.headers_size, request.body_size]));
            self.received_bytes =
                self.received_bytes.saturating_add(sum([response.headers_size, response.body_size]));
            self.obfuscated += usize::from(entry.extra.contains_key(crate::obfuscate::MARK));
        }
    }

    /// Returns the given percentile of the entry times in milliseconds, by the nearest-rank method. Returns 0
    /// if there are no entries.
    pub fn percentile_ms(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let rank = (times.len() * percent.min(100)).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or(0.0)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "entries     {} ({} obfuscated)", self.entries, self.obfuscated)?;
        writeln!(f, "hosts       {}", counts(&self.hosts))?;
        writeln!(f, "methods     {}", counts(&self.methods))?;
        writeln!(f, "statuses    {}", counts(&self.statuses))?;
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| self.percentile_ms(percent));
        writeln!(f, "time        p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")?;
        writeln!(f, "bytes       {} sent, {} received, as far as known", self.sent_bytes, self.received_bytes)
    }
}

/// Formats counts, the most frequent first.
fn counts<T: fmt::Display>(counts: &BTreeMap<T, usize>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let texts = counts.iter().map(|(what, count)| format!("{} {count}", what.to_string().escape_debug()));
    texts.collect::<Vec<_>>().join(", ")
}

/// Returns the authority of a URL without user and password.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::validate::validate;

    fn file(started: &[&str]) -> Har {
        let mut har = Har::read(fixture::FULL.as_bytes()).unwrap();
        let entry = har.log.entries.remove(0);
        har.log.entries = started
            .iter()
            .map(|started| crate::har::HarEntry { started_date_time: (*started).to_owned(), ..entry.clone() })
            .collect();
        har
    }

    fn starts(har: &Har) -> Vec<&str> {
        har.log.entries.iter().map(|entry| &entry.started_date_time[11..13]).collect()
    }

    #[test]
    fn merged_entries_are_in_order_and_find_their_pages() {
        let one = file(&["2026-01-02T01:00:00Z", "2026-01-02T05:00:00Z"]);
        let other = file(&["2026-01-02T04:00:00+02:00", "2026-01-02T03:00:00Z"]);
        let merged = merge(vec![one, other], Creator::default());
        assert_eq!(starts(&merged), ["01", "04", "03", "05"]);
        let pages: Vec<_> = merged.log.pages.iter().flatten().map(|page| page.id.as_str()).collect();
        assert_eq!(pages, ["page_1", "2_page_1"]);
        assert_eq!(merged.log.entries[1].pageref.as_deref(), Some("2_page_1"));
        assert_eq!(validate(&serde_json::to_value(&merged).unwrap()), []);
    }

    #[test]
    fn merging_split_files_restores_all_entries() {
        let har = file(&["2026-01-02T01:00:00Z", "2026-01-02T02:00:00Z", "2026-01-02T03:00:00Z"]);
        let files = split(har.clone(), 2);
        assert_eq!(files.iter().map(|file| file.log.entries.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(files.iter().all(|file| validate(&serde_json::to_value(file).unwrap()).is_empty()));
        assert_eq!(starts(&merge(files, Creator::default())), starts(&har));
        assert_eq!(split(file(&[]), 0).len(), 1);
    }

    #[test]
    fn stats_count() {
        let mut stats = Stats::default();
        stats.add(&file(&["2026-01-02T01:00:00Z"; 3]));
        let text = stats.to_string();
        for expected in [
            "entries     3 (0 obfuscated)",
            "api.example.com 3",
            "POST 3",
            "201 3",
            "p50 125.5 ms",
            "762 sent, 1032 received",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        stats.times = vec![4.0, 1.0, 3.0, 2.0];
        assert_eq!(
            [50, 75, 76, 100].map(|percent| stats.percentile_ms(percent).to_string()),
            ["2", "3", "4", "4"]
        );
        assert!(Stats::default().to_string().contains("max 0.0 ms"));
    }
}
