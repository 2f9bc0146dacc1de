//! The commands of the documentation, run as they stand: README, docs, and the headers of examples.
//!
//! Each page is run from top to bottom in a shell of its own, in a scratch directory, and in namespaces of
//! its own: its ports are those of the documentation, nothing else listens there, and nothing reaches the
//! Internet. A YAML block whose first line is `# NAME.yaml` becomes that file. A command that stays in the
//! foreground gets a terminal of its own, as its reader would give it one.
//!
//! A block after `<!-- not run: REASON -->` is not run. There are few of them, and a test lists them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod docs {
    pub mod blocks;
    pub mod session;
}

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use docs::blocks::{Block, Kind, blocks_of};
use docs::session::run;

/// Pages at once. They wait for processes to start, and for what their blocks show, most of the time.
const AT_ONCE: usize = 8;

/// Number of blocks that may be left out.
const LEFT_OUT_MAX: usize = 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Returns the pages with commands, relative to the root.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    add_pages(Path::new("docs"), "md", &mut pages);
    add_pages(Path::new("examples"), "yaml", &mut pages);
    pages.sort();
    pages
}

fn add_pages(directory: &Path, extension: &str, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(root().join(directory)).unwrap() {
        let path = directory.join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            add_pages(&path, extension, pages);
        } else if path.extension().is_some_and(|found| found == extension) {
            pages.push(path);
        }
    }
}

fn read(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    blocks_of(page, &text).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

#[test]
fn every_command_runs_as_it_stands() {
    let pages: Vec<(PathBuf, Vec<Block>)> =
        pages().into_iter().map(|page| (page.clone(), read(&page))).collect();
    let pages: Vec<_> = pages.into_iter().filter(|(_, blocks)| blocks.iter().any(Block::runs)).collect();
    let only = std::env::var("PAGE").unwrap_or_default();
    let mut pages: Vec<_> = pages.iter().filter(|(page, _)| page.to_string_lossy().contains(&only)).collect();
    let blocks = |(_, blocks): &&(PathBuf, Vec<Block>)| blocks.iter().filter(|block| block.runs()).count();
    let count: usize = pages.iter().map(blocks).sum();
    println!("{count} blocks on {} pages", pages.len());
    // The longest ones first, and none waits at the end for one that has just begun.
    pages.sort_by_key(blocks);
    let (left, failures) = (Mutex::new(pages), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((page, blocks)) = next() {
                    if let Err(failure) = run(&root(), page, blocks) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(!only.is_empty() || count >= 100, "only {count} blocks were found");
}

#[test]
fn few_blocks_are_left_out_and_each_says_why() {
    let mut left_out = Vec::new();
    for page in pages() {
        for block in read(&page) {
            if let Kind::LeftOut(reason) = &block.kind {
                left_out.push(format!("{}:{}: {reason}", page.display(), block.line));
            }
        }
    }
    println!("{}", left_out.join("\n"));
    assert!(
        left_out.len() <= LEFT_OUT_MAX,
        "{} blocks are not run:\n{}",
        left_out.len(),
        left_out.join("\n")
    );
}
