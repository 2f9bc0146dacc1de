//! The counts of pairs of peers, their cases, and the settings of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::generate::Message;
use super::verdict::{Part, Verdict};
use super::{clients, servers};

/// Messages that are played together.
const BATCH: u64 = 500;

/// Messages of each seed for a peer, if neither their number nor a time is set: in a whole run, and in a
/// quick one.
const MESSAGES: u64 = 1_000;
const QUICK_MESSAGES: u64 = 120;

/// The peers of a quick run: those that are soon installed and started.
const QUICK: [&str; 9] =
    ["nginx", "haproxy", "node", "go", "hyper", "curl", "undici", "go-client", "net-http"];

/// Cases of a peer that are made smaller and written to files. More of them are rarely of another kind.
const CASES: usize = 3;

/// The counts of one peer.
#[derive(Debug)]
pub(crate) struct Counts {
    peer: String,
    by_verdict: BTreeMap<Verdict, usize>,
    /// Messages whose ways differed beside many others, and not alone.
    unsteady: usize,
    cases: usize,
}

/// The messages and outcomes of one peer.
pub(crate) trait Pair {
    /// Judges messages that are played together, in the same order.
    fn judge_all(&self, messages: &[Message]) -> Vec<Verdict>;

    /// Judges one message alone, with time for machines that are busy.
    fn judge_again(&self, message: &Message) -> Verdict;

    /// Makes a message smaller and shows it: its bytes, and what became of it.
    fn show(&self, message: &Message, verdict: Verdict) -> String;
}

impl Counts {
    /// Plays all messages of the settings for a peer. `make` makes a message from a seed and a number.
    pub(crate) fn of(peer: &str, pair: &impl Pair, make: fn(u64, u64) -> Message) -> Self {
        let mut counts = Self { peer: peer.to_owned(), by_verdict: BTreeMap::new(), unsteady: 0, cases: 0 };
        let time = setting("SECONDS").map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
        let begun = Instant::now();
        let number = numbers("NUMBER").first().copied();
        let bound = numbers("MESSAGES").first().copied().unwrap_or(match (time, is_quick()) {
            (Some(_), _) => u64::MAX,
            (None, false) => MESSAGES,
            (None, true) => QUICK_MESSAGES,
        });
        let seeds = Some(numbers("SEEDS")).filter(|seeds| !seeds.is_empty()).unwrap_or_else(|| vec![1]);
        let mut first = number.unwrap_or(1);
        let last = number.unwrap_or(bound);
        while first <= last && time.is_none_or(|time| begun.elapsed() < time) {
            let end = last.min(first + BATCH - 1);
            for seed in &seeds {
                let messages: Vec<Message> = (first..=end).map(|number| make(*seed, number)).collect();
                counts.play(pair, &messages);
            }
            first = end + 1;
        }
        counts
    }

    fn play(&mut self, pair: &impl Pair, messages: &[Message]) {
        for (message, mut verdict) in messages.iter().zip(pair.judge_all(messages)) {
            // A peer that is late looks silent, which is no answer to a well-formed message.
            if verdict == Verdict::RefusedByBoth && message.mutations.is_empty() {
                verdict = pair.judge_again(message);
            }
            if let Verdict::Unexplained(difference) = verdict {
                if !difference.is_certain() {
                    verdict = pair.judge_again(message);
                }
                if let Verdict::Unexplained(_) = verdict {
                    self.keep(pair, message, verdict);
                } else {
                    self.unsteady += 1;
                }
            }
            *self.by_verdict.entry(verdict).or_default() += 1;
        }
    }

    /// Writes a case to a file.
    fn keep(&mut self, pair: &impl Pair, message: &Message, verdict: Verdict) {
        self.cases += 1;
        if self.cases > CASES {
            return;
        }
        let (peer, seed, number) = (&self.peer, message.seed, message.number);
        let shown = pair.show(message, verdict);
        let text = format!(
            "{peer}: {verdict:?}\nmake garden SERVERS={peer} SEEDS={seed} NUMBER={number}\n\n{shown}\n"
        );
        let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/garden"));
        std::fs::create_dir_all(directory).unwrap();
        let file = directory.join(format!("{peer}-{seed}-{number}.txt"));
        std::fs::write(&file, &text).unwrap();
        println!("{text}\nwritten to {}\n", file.display());
    }

    /// The number of messages whose verdict is like this.
    fn count(&self, like: impl Fn(&Verdict) -> bool) -> usize {
        self.by_verdict.iter().filter(|(verdict, _)| like(verdict)).map(|(_, count)| count).sum()
    }

    fn unexplained(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Unexplained(_)))
    }

    /// A row of the table.
    fn row(&self) -> String {
        let cells = [
            self.by_verdict.values().sum(),
            self.count(|verdict| *verdict == Verdict::Equal),
            self.count(|verdict| *verdict == Verdict::RefusedByBoth),
            self.count(|verdict| matches!(verdict, Verdict::RefusedByEgret(..))),
            self.count(|verdict| matches!(verdict, Verdict::RefusedByEgret(Part::Framing, _))),
            self.count(|verdict| matches!(verdict, Verdict::RefusedByPeer(_))),
            self.unexplained(),
            self.unsteady,
        ];
        format!("| {} | {} |", self.peer, cells.map(|cell| cell.to_string()).join(" | "))
    }
}

/// Prints the counts of all peers as tables in Markdown, and returns the number of unexplained messages.
pub(crate) fn print(all: &[Counts]) -> usize {
    if all.is_empty() {
        return 0;
    }
    println!(
        "| peer | messages | equal | refused by both | by Egret alone | of these framing | by the peer alone | unexplained | unsteady |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for counts in all {
        println!("{}", counts.row());
    }
    let names: Vec<&str> = all.iter().map(|counts| &*counts.peer).collect();
    let mut verdicts: Vec<&Verdict> = all.iter().flat_map(|counts| counts.by_verdict.keys()).collect();
    verdicts.sort_unstable();
    verdicts.dedup();
    println!("\n| reason | {} |\n| --- |{}", names.join(" | "), " --- |".repeat(all.len()));
    for verdict in verdicts {
        let reason = match verdict {
            Verdict::Equal | Verdict::RefusedByBoth => continue,
            Verdict::RefusedByEgret(part, reason) => format!("Egret, {}: {reason}", part.name()),
            Verdict::RefusedByPeer(reason) => format!("the peer: {reason}"),
            Verdict::Unexplained(difference) => format!("unexplained: {difference:?}"),
        };
        let cells: Vec<String> = all
            .iter()
            .map(|counts| counts.by_verdict.get(verdict).map_or_else(String::new, ToString::to_string))
            .collect();
        println!("| {reason} | {} |", cells.join(" | "));
    }
    all.iter().map(Counts::unexplained).sum()
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Framing => "framing",
            Self::Other => "other",
        }
    }
}

/// Returns a setting of the environment: `GARDEN_SEEDS`.
pub(crate) fn setting(name: &str) -> Option<String> {
    std::env::var(format!("GARDEN_{name}")).ok().filter(|value| !value.is_empty())
}

/// The numbers in a setting.
fn numbers(name: &str) -> Vec<u64> {
    let text = setting(name).unwrap_or_default();
    text.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// `true` if few peers get few messages.
fn is_quick() -> bool {
    setting("QUICK").is_some()
}

/// The peers of a kind to visit: those of the setting, those of a quick run, or all.
pub(crate) fn chosen(kind: &[&'static str]) -> Vec<&'static str> {
    let wanted = setting("SERVERS").or_else(|| is_quick().then(|| QUICK.join(" ")));
    let Some(wanted) = wanted else { return kind.to_vec() };
    let wanted: Vec<&str> = wanted.split_ascii_whitespace().collect();
    let all = [&servers::NAMES[..], &clients::NAMES].concat();
    let unknown = wanted.iter().find(|name| !all.contains(name));
    assert!(unknown.is_none(), "{unknown:?} is no peer; there are: {}", all.join(" "));
    kind.iter().copied().filter(|name| wanted.contains(name)).collect()
}
