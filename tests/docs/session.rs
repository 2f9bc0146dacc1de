//! The session of one page: a shell that runs its blocks one after the other.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use egret_tests::egret::binary;
use egret_tests::process::Directory;

use super::blocks::{Block, Kind};

/// Seconds after which a page is stopped. Generous, because two cores run many pages at once.
const PAGE_SECONDS_MAX: &str = "300";

/// Functions of the session. `egret` and `make` stand before the real ones in PATH.
///
/// A gateway or provider takes the place of an earlier one, whose terminal its reader would have closed. The
/// demo runs before the first block, and is a gateway and a provider.
const PRELUDE: &str = r#"
set -e -o pipefail
ip link set lo up
export PATH="$STATE/bin:$PATH" HOME="$PWD/home" NO_COLOR=1 XDG_DATA_HOME="$PWD/home/.local/share"
trap 'code=$?; [ $code -eq 0 ] || echo "exit code $code" >&2; kill $(jobs -p) 2>/dev/null || true' EXIT

# Counts the ports that the process of a role listens on.
ports() { ss -Hltnp | grep -c "pid=$(<"$STATE/$1")," || true; }
alive() { [ -e "$STATE/$1" ] && kill -0 "$(<"$STATE/$1")" 2>/dev/null; }

# A job that is still this shell, or the script in front of `egret`, is about to start something. Between two
# programs it has no command line, like a job that has ended.
starting() {
  local job words stat
  for job in $(jobs -p); do
    words=()
    mapfile -d '' words 2>/dev/null <"/proc/$job/cmdline" || continue
    case "${words[*]}" in
      *bash*"$STATE"*) return 0 ;;
      '')
        read -r stat 2>/dev/null <"/proc/$job/stat" || continue
        case "${stat##*) }" in [XZ]*) ;; *) return 0 ;; esac
        ;;
    esac
  done
  return 1
}

# Waits until what was started listens, as a reader waits for its first lines. `pause` waits without a program.
settle() {
  local end=$((SECONDS + 60)) ready role least
  while [ $SECONDS -lt $end ]; do
    ready=yes
    if starting; then ready=; fi
    for role in "$STATE"/started.*; do
      if [ -z "$ready" ] || [ ! -e "$role" ]; then break; fi
      role=role.${role##*/started.role.}
      least=1
      case $role in role.gateway*) least=2 ;; esac
      if alive "$role" && [ "$(ports "$role")" -lt $least ]; then ready=; else rm -f "$STATE/started.$role"; fi
    done
    [ -z "$ready" ] || return 0
    pause
  done
  echo 'nothing listens after a minute' >&2
  return 1
}

mkfifo "$STATE/never"
exec {never}<>"$STATE/never"
pause() { read -rt 0.05 -u $never || true; }

at() { echo "$1" >"$STATE/at"; }

# Whether the gateway that runs was started with this config file.
reads() {
  alive role.gateway || return 1
  case "$(tr '\0' ' ' <"/proc/$(cat "$STATE/role.gateway")/cmdline") " in
    *--demo*) return 1 ;;
    *.yaml*) grep -Fxqz -- "$1" "/proc/$(cat "$STATE/role.gateway")/cmdline" ;;
    *) [ "$1" = egret.yaml ] ;;
  esac
}

# Counts the configs that the gateway has read, if it says.
reloads() {
  curl -sf http://127.0.0.1:8001/metrics | awk '/^egret_config_reloads_total/ { n += $2; told = 1 } END { if (told) print n }'
}

# Saves a file. The gateway reads its config again, and a reader waits for the line that says so.
save() {
  local before= end=$((SECONDS + 60))
  cat >"$STATE/text"
  if ! cmp -s "$STATE/text" "$1" && reads "$1"; then before=$(reloads || true); fi
  mkdir -p "$(dirname "$1")"
  cat "$STATE/text" >"$1"
  [ -n "$before" ] || return 0
  while [ $SECONDS -lt $end ]; do
    [ "$(reloads || true)" = "$before" ] || return 0
    pause
  done
  echo "the gateway has not read $1 after a minute" >&2
  return 1
}

egret run --demo >"$STATE/demo.log" 2>&1 &
settle
"#;

/// Stands for `egret`: keeps one gateway and one provider at a time.
const EGRET: &str = r#"#!/bin/bash
take() {
  for role in "$@"; do
    if [ -e "$STATE/$role" ]; then
      kill "$(cat "$STATE/$role")" 2>/dev/null
      while kill -0 "$(cat "$STATE/$role")" 2>/dev/null; do sleep 0.02; done
    fi
    echo $$ >"$STATE/$role"
    : >"$STATE/started.$role"
  done
}
case "$1 $* " in
  'run '*' --demo '*) take role.gateway role.provider ;;
  'run '*' --listen '*) take "role.gateway-${*##*--listen }" ;;
  'run '* | 'archiver '*) take role.gateway ;;
  'provider '*' --listen '*) take "role.provider-${*##*--listen }" ;;
  'provider '*) take role.provider ;;
esac
exec "$EGRET" "$@"
"#;

/// Stands for `make`: the demo runs, and all other targets, which build for minutes, are only looked up.
const MAKE: &str = r#"#!/bin/bash
if [ "$1" = run ]; then exec egret run --demo; fi
exec /usr/bin/make --silent --dry-run --directory "$ROOT" "$@" >/dev/null
"#;

/// Runs the blocks of a page.
///
/// # Errors
///
/// Fails with the place, the commands and their output if a command fails.
pub fn run(root: &Path, page: &Path, blocks: &[Block]) -> Result<(), String> {
    let scratch = Directory::default();
    let (work, state) = (scratch.path().join("work"), scratch.path().join("state"));
    prepare(root, &work, &state);
    let script = state.join("script");
    fs::write(&script, script_of(page, blocks)).unwrap();
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        PAGE_SECONDS_MAX,
        "unshare",
        "--map-root-user",
        "--net",
        "--pid",
        "--fork",
    ]);
    command.args(["--mount-proc", "--kill-child", "bash"]).arg(&script).current_dir(&work);
    command.env("STATE", &state).env("ROOT", root).env("EGRET", binary().canonicalize().unwrap());
    let log = fs::File::create(state.join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let status = command.status().unwrap();
    if status.success() {
        return Ok(());
    }
    let at = fs::read_to_string(state.join("at")).unwrap_or_default();
    let log = fs::read(state.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(25)..].join("\n");
    Err(format!("{}: {status}\n{tail}", at.trim()))
}

/// Fills the directory with what a clone has, and the one before PATH.
fn prepare(root: &Path, work: &Path, state: &Path) {
    fs::create_dir_all(work.join("home")).unwrap();
    fs::create_dir_all(state.join("bin")).unwrap();
    for directory in ["examples", "experiments"] {
        let status = Command::new("cp").arg("-r").arg(root.join(directory)).arg(work).status().unwrap();
        assert!(status.success());
    }
    for (name, text) in [("egret", EGRET), ("make", MAKE)] {
        let file = state.join("bin").join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn script_of(page: &Path, blocks: &[Block]) -> String {
    let mut script = PRELUDE.to_owned();
    for (number, Block { line, kind }) in blocks.iter().enumerate() {
        match kind {
            Kind::Commands(text) => {
                let _ = writeln!(script, "\nat '{}:{line}'\n{}settle", page.display(), in_terminals(text));
            }
            Kind::File(name, text) => {
                let end = format!("END_OF_BLOCK_{number}");
                let _ = writeln!(
                    script,
                    "\nat '{}:{line}'\nsave {name} <<'{end}'\n{text}{end}\nsettle",
                    page.display()
                );
            }
            Kind::LeftOut(_) => {}
        }
    }
    script
}

/// Commands that stay in the foreground until their reader stops them.
const FOREGROUND: [&str; 6] =
    ["egret run", "egret provider", "egret tail", "egret archiver", "make run", "curl -N"];

/// Puts each command that stays in the foreground into a terminal of its own.
fn in_terminals(text: &str) -> String {
    text.lines().fold(String::new(), |mut script, line| {
        let (command, comment) = line.split_once(" #").unwrap_or((line, ""));
        let words: Vec<&str> =
            command.split_whitespace().skip_while(|word| is_assignment(word)).take(2).collect();
        let stays =
            FOREGROUND.contains(&words.join(" ").as_str()) && !command.trim_end().ends_with(['&', '\\']);
        if stays && !command.contains(['|', '>', '<']) {
            let _ = writeln!(script, "{} & #{comment}", command.trim_end());
        } else {
            let _ = writeln!(script, "{line}");
        }
        script
    })
}

/// Returns `true` for `NAME=value` before a command.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreground_commands_get_a_terminal() {
        assert_eq!(in_terminals("A_B=c egret run x.yaml   # why\n"), "A_B=c egret run x.yaml & # why\n");
        for same in ["egret run &\n", "egret check a\n", "egret run --help | cat\n", "# egret run\n"] {
            assert_eq!(in_terminals(same), same);
        }
    }
}
