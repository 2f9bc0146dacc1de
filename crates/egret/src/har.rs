//! `egret har`: obfuscates, verifies, summarizes, merges and splits HAR files.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use egret_config::reason;
use egret_files::private_file;
use egret_har::archive::{self, Stats};
use egret_har::gzip::{self, GzipError};
use egret_har::har::Creator;
use egret_har::validate::validate;
use egret_har::{Exclusions, Har, Key, Obfuscator, scan};
use egret_settings::config_path;
use egret_settings::failure::Failure;
use egret_settings::output::print;

/// Larger files are rejected, because a file is held in memory several times over. The same bound holds for a
/// compressed file once it is decompressed.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The commands of `egret har`.
#[derive(Debug, Subcommand)]
pub enum HarCommand {
    /// Obfuscate HAR files: replace every value with a pseudonym, unless `--exclude` names it.
    ///
    /// Equal values get equal pseudonyms under the same key. Without the key, a pseudonym reveals nothing
    /// about its value. Each result is written beside its file as `NAME.sanitized.har`, readable by its owner
    /// only. An existing file is not overwritten. `docs/reference/har.md` lists what is kept.
    Sanitize {
        /// The HAR files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The key file. It is created if it does not exist.
        #[arg(long, value_name = "FILE", default_value = "egret-data/har.key")]
        key: PathBuf,
        /// Create a new key first. Its pseudonyms cannot be linked to earlier ones.
        #[arg(long)]
        rotate: bool,
        /// A value to keep, like `request.query.page` or `response.body.$.items[*].id`; may be repeated.
        #[arg(long, value_name = "PATH")]
        exclude: Vec<String>,
    },
    /// Check that HAR files are valid HAR 1.2, and that they contain no secrets, by value or by name.
    ///
    /// Prints the position of each problem, never a value. Exits with code 1 if there is a problem.
    Verify {
        /// The HAR files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Summarize HAR files: hosts, methods, status codes, times and bytes over all files.
    Stats {
        /// The HAR files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Merge HAR files into one, with entries ordered by start time.
    Merge {
        /// The HAR files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The file to write, which must not exist.
        #[arg(long, short, value_name = "FILE")]
        out: PathBuf,
    },
    /// Split a HAR file into several: `NAME.1.har`, `NAME.2.har` and so on, in the same directory.
    Split {
        /// The HAR file.
        file: PathBuf,
        /// Maximum number of entries per file.
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
        entries: u32,
    },
}

impl HarCommand {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Sanitize { files, key, rotate, exclude } => sanitize(&files, &key, rotate, &exclude),
            Self::Verify { files } => verify(&files),
            Self::Stats { files } => stats(&files),
            Self::Merge { files, out } => merge(&files, &out),
            Self::Split { file, entries } => split(&file, entries),
        }
    }
}

fn sanitize(files: &[PathBuf], key: &Path, rotate: bool, exclude: &[String]) -> Result<(), Failure> {
    let exclusions = Exclusions::compile(exclude.iter().map(String::as_str)).map_err(|errors| {
        Failure::Misused(
            errors.iter().map(|error| format!("--exclude {error}")).collect::<Vec<_>>().join("\n"),
        )
    })?;
    for file in files {
        // Nobody wants a key for files that are not there.
        open(file)?;
    }
    let obfuscator = Obfuscator::new(load_key(key, rotate)?, exclusions);
    for file in files {
        let mut har = read(file)?;
        obfuscator.har(&mut har);
        let out = beside(file, "sanitized");
        write(&har, &out)?;
        let (entries, id) = (entry_count(har.log.entries.len()), obfuscator.key_id());
        print(&format!("{}: {entries} obfuscated with key {id}\n", out.display()))?;
    }
    Ok(())
}

fn load_key(path: &Path, rotate: bool) -> Result<Key, Failure> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| failed_at(path, &error))?;
    }
    let key = if rotate { Key::rotate(path) } else { Key::load_or_create(path) };
    key.map_err(|error| failed_at(path, &error))
}

fn verify(files: &[PathBuf]) -> Result<(), Failure> {
    let (mut problems, mut secrets, mut report) = (0, 0, String::new());
    for file in files {
        let bytes = read_bytes(file)?;
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        let value = serde_json::from_slice(bytes)
            .map_err(|error| failed_at(file, &format!("not JSON, so it is not a HAR file: {error}")))?;
        let (name, broken, places) = (file.display(), validate(&value), scan::scan(&value));
        problems += broken.len();
        secrets += places.len();
        for line in broken.iter().map(ToString::to_string).chain(places.iter().map(ToString::to_string)) {
            let _ = writeln!(report, "{name}: {line}");
        }
    }
    print(&report)?;
    if problems + secrets > 0 {
        return Err(Failure::Failed(format!(
            "violations of HAR 1.2: {problems}, possible secrets: {secrets}"
        )));
    }
    print("valid HAR 1.2, no possible secrets found\n")
}

fn stats(files: &[PathBuf]) -> Result<(), Failure> {
    let mut stats = Stats::default();
    for file in files {
        stats.add(&read(file)?);
    }
    print(&stats.to_string())
}

fn merge(files: &[PathBuf], out: &Path) -> Result<(), Failure> {
    let read = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let merged = archive::merge(read, Creator { name: "egret".to_owned(), version, ..Creator::default() });
    write(&merged, out)?;
    let (merged, files) = (entry_count(merged.log.entries.len()), files.len());
    let of = if files == 1 { "file" } else { "files" };
    print(&format!("{}: {merged} of {files} {of}\n", out.display()))
}

/// Counts entries in words.
fn entry_count(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn split(file: &Path, entries: u32) -> Result<(), Failure> {
    let parts = archive::split(read(file)?, usize::try_from(entries).unwrap_or(usize::MAX));
    for (index, part) in parts.iter().enumerate() {
        let out = beside(file, &(index + 1).to_string());
        write(part, &out)?;
        print(&format!("{}: {}\n", out.display(), entry_count(part.log.entries.len())))?;
    }
    Ok(())
}

/// Turns `a/b.har` or `a/b.har.gz` into `a/b.WORD.har`.
fn beside(file: &Path, word: &str) -> PathBuf {
    let is_compressed = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let plain = if is_compressed { file.with_extension("") } else { file.to_owned() };
    let mut name = plain.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{word}.har"));
    file.with_file_name(name)
}

fn failed_at(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("{}: {error}", file.display()))
}

fn open(file: &Path) -> Result<File, Failure> {
    File::open(file).map_err(|error| unread(file, &error))
}

/// Says why a file cannot be read, and what to do.
fn unread(file: &Path, error: &io::Error) -> Failure {
    let why = match error.kind() {
        ErrorKind::NotFound => match config_path::similar(file, is_archive) {
            Some(similar) => format!("no such file; did you mean `{similar}`?"),
            None => "no such file; the diagnosis `har` of a flow records archives in the directory of its exporter"
                .to_owned(),
        },
        ErrorKind::IsADirectory => {
            format!("it is a directory: name the files in it, as in `{}/*.har`", file.display())
        }
        _ => reason(error),
    };
    failed_at(file, &why)
}

fn is_archive(name: &str) -> bool {
    [".har", ".har.gz"].iter().any(|end| name.ends_with(end))
}

fn read_bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let opened = open(file)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unread(file, &error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed_at(file, &format!("larger than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    gzip::decompressed(bytes, FILE_BYTES_MAX).map_err(|error| match error {
        GzipError::TooLarge => {
            failed_at(file, &format!("larger than {} MiB once it is decompressed", FILE_BYTES_MAX >> 20))
        }
        GzipError::Damaged(_) => failed_at(file, &error),
    })
}

fn read(file: &Path) -> Result<Har, Failure> {
    Har::read(&read_bytes(file)?).map_err(|error| failed_at(file, &error))
}

/// Writes a new file that only its owner can read, because recordings are private.
fn write(har: &Har, out: &Path) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    har.write(&mut bytes).map_err(|error| failed_at(out, &error))?;
    let file = private_file().write(true).create_new(true).open(out);
    file.and_then(|mut file| file.write_all(&bytes)).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => failed_at(
            out,
            &"the file exists already: remove it, or write to another one; nothing is overwritten",
        ),
        _ => failed_at(out, &error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"{"log": {"version": "1.2", "creator": {"name": "r", "version": "1"}, "entries": [{
        "startedDateTime": "2026-01-02T03:04:05.250Z", "time": 3.5,
        "request": {"method": "GET", "url": "https://api.example.com/v1/users?email=ada%40example.com", "httpVersion": "HTTP/1.1",
            "cookies": [], "headers": [{"name": "Authorization", "value": "Bearer tok-987-654"}],
            "queryString": [{"name": "email", "value": "ada@example.com"}], "headersSize": 90, "bodySize": 0},
        "response": {"status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
            "content": {"size": 17, "mimeType": "application/json", "text": "{\"name\": \"Lovelace\"}"},
            "redirectURL": "", "headersSize": 60, "bodySize": 17},
        "cache": {}, "timings": {"send": 0.5, "wait": 2.0, "receive": 1.0}}]}}"#;

    fn failed(result: Result<(), Failure>) -> String {
        match result {
            Err(Failure::Failed(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn verify_accepts_a_file_after_sanitize() {
        let directory = tempfile::tempdir().unwrap();
        let (file, key) = (directory.path().join("a.har"), directory.path().join("data/har.key"));
        fs::write(&file, RECORDED).unwrap();
        assert_eq!(
            failed(verify(std::slice::from_ref(&file))),
            "violations of HAR 1.2: 0, possible secrets: 3"
        );
        sanitize(std::slice::from_ref(&file), &key, false, &[]).unwrap();
        let sanitized = directory.path().join("a.sanitized.har");
        verify(std::slice::from_ref(&sanitized)).unwrap();
        let text = fs::read_to_string(&sanitized).unwrap();
        // Pseudonyms never contain these by chance.
        let secrets = ["ada@", "ada%40", "tok-987", "Lovelace"];
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
        assert!(
            failed(sanitize(std::slice::from_ref(&file), &key, false, &[])).contains("exists"),
            "nothing is overwritten"
        );
        fs::remove_file(&sanitized).unwrap();
        sanitize(std::slice::from_ref(&file), &key, false, &[]).unwrap();
        assert_eq!(fs::read_to_string(&sanitized).unwrap(), text, "the key is kept");
        fs::remove_file(&sanitized).unwrap();
        sanitize(&[file], &key, true, &["response.body.$.name".to_owned()]).unwrap();
        let other = fs::read_to_string(&sanitized).unwrap();
        assert!(other.contains("Lovelace") && other != text);
    }

    #[test]
    fn a_problem_names_the_option_or_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.har");
        let key = directory.path().join("har.key");
        let exclude = ["request.pth[0]".to_owned()];
        let misused = sanitize(std::slice::from_ref(&file), &key, false, &exclude);
        assert!(
            matches!(misused, Err(Failure::Misused(message)) if message.starts_with("--exclude `request.pth[0]`: unknown part `pth`"))
        );
        let missing = sanitize(&[directory.path().join("b.har")], &key, false, &[]);
        assert!(failed(missing).ends_with("its exporter"));
        assert!(!key.exists(), "a wrong command creates no file");
        fs::write(&file, RECORDED.replace("\"GET\"", "1")).unwrap();
        assert!(
            failed(sanitize(std::slice::from_ref(&file), &key, false, &[])).contains("a.har: not a HAR file")
        );
        let misspelt = failed(verify(&[directory.path().join("aa.har")]));
        assert!(
            misspelt.ends_with(&format!("aa.har: no such file; did you mean `{}`?", file.display())),
            "{misspelt}"
        );
        let of_directory = failed(stats(&[directory.path().to_owned()]));
        assert!(of_directory.contains("it is a directory: name the files in it, as in `"), "{of_directory}");
        assert_eq!(failed(verify(&[file])), "violations of HAR 1.2: 1, possible secrets: 3");
    }

    #[test]
    fn archives_are_split_and_merged() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a.har"), RECORDED).unwrap();
        merge(&[path("a.har"), path("a.har"), path("a.har")], &path("all.har")).unwrap();
        split(&path("all.har"), 2).unwrap();
        let entries = |name: &str| read(&path(name)).unwrap().log.entries.len();
        assert_eq!((entries("all.har"), entries("all.1.har"), entries("all.2.har")), (3, 2, 1));
        stats(&[path("all.1.har"), path("all.2.har")]).unwrap();
        assert!(failed(merge(&[path("a.har")], &path("all.har"))).contains("exists"));
    }

    #[test]
    fn a_compressed_archive_is_read_and_its_results_are_not_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (start, end) = RECORDED.as_bytes().split_at(100);
        fs::write(path("a.har.gz"), [stored(start), stored(end)].concat()).unwrap();
        assert!(failed(verify(&[path("a.har.gz")])).contains("possible secrets: 3"));
        sanitize(&[path("a.har.gz")], &path("har.key"), false, &[]).unwrap();
        verify(&[path("a.sanitized.har")]).unwrap();
        stats(&[path("a.har.gz")]).unwrap();
        merge(&[path("a.har.gz"), path("a.sanitized.har")], &path("all.har")).unwrap();
        split(&path("a.har.gz"), 1).unwrap();
        assert_eq!(read(&path("all.har")).unwrap().log.entries.len(), 2);
        assert_eq!(read(&path("a.1.har")).unwrap().log.entries.len(), 1);
        fs::write(path("cut.har.gz"), &stored(RECORDED.as_bytes())[..200]).unwrap();
        let message = failed(verify(&[path("cut.har.gz")]));
        assert!(message.contains("cut.har.gz: the gzip data is damaged or incomplete"), "{message}");
    }

    /// Returns a gzip member with `bytes` in a stored block (RFC 1951 §3.2.4).
    fn stored(bytes: &[u8]) -> Vec<u8> {
        let len = u16::try_from(bytes.len()).unwrap();
        let crc = bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
        });
        let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
        let ends = [&(!crc).to_le_bytes()[..], &u32::from(len).to_le_bytes()].concat();
        [&head[..], &len.to_le_bytes(), &(!len).to_le_bytes(), bytes, &ends].concat()
    }
}
