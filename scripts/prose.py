"""The house's rules of prose: widths of comments and Markdown, first words of documentation, names of tests, coined words,
and files that are named and do not exist.

Each rule is a function that takes the root of the repository and yields its findings: path, line, and what to write.
"""

import re
from pathlib import Path

import rust_source
from rust_source import Finding

COMMENT_COLUMNS = 110
MARKDOWN_COLUMNS = 140

# A file of the repository, as users read it in help and messages.
NAMED_FILE = re.compile(r"\b(?:docs|examples|experiments|packaging|scripts)/[\w./-]*\w\.[a-z]+\b")

# Written by `egret reference`, one line for each key or option.
GENERATED = (
    "docs/reference/config.md",
    "docs/reference/config-everyday.md",
    "docs/reference/cli.md",
    "docs/reference/presets.md",
)

# A line of documentation begins with none of these: its sentence would be a clause without a subject.
OPENINGS = {
    "What": "name the thing: a noun phrase, or a verb such as `Returns`",
    "Whether": "write `Returns true if ...`, or `True if ...` for a field",
    "Who": "name the actor: the client, the provider, the caller",
    "Whose": "name the owner",
    "How": "write `Number of ...`, `Duration of ...` or a verb",
    "Where": "write `Path of ...`, `Position of ...` or `If ...`",
    "Those": "repeat the noun",
    "That": "repeat the noun",
    "Of": "begin with the noun that it belongs to",
}
OPENING = re.compile(rf"({'|'.join(OPENINGS)})\b")

# The name of a test is a sentence of subject, verb and condition, as in `retry_stops_at_the_budget`.
TEST_OPENING = re.compile(r"(what|who|whose|nobody|nothing)(?=_|$)")
TEST_WORDS = 12

# Words of a private language, with those of the field. Each is a regular expression for whole words, in any case.
COINED = {
    "desks?": "request state",
    "trays?": "response state",
    "guide": "flow run; of documentation: page",
    "course": "remedy chain; leave out `of course`",
    "errands?": "background revalidation, internal call",
    "veils?": "redaction",
    "seers?": "observer, thread of diagnoses",
    "crowd": "overflow group; in tests: clients",
    "inlets?": "consumer",
    "outbox(?:es)?": "producer",
    "lanes?": "ring",
    "detours?": "alternate call",
    "harvest(?:s|ed)?": "collect",
    "workshops?": "scratch directory, parts of a turn",
}
PHRASES = {
    "anew": "again",
    "but for": "except, apart from",
    "for which reason": "so",
    "by promise": "guaranteed",
    "slowest hundredth": "p99",
    "mend(?:s|ed|ing)?": "fix",
    "whoever": "name the actor: the client, the provider, the caller",
    "further (?:in|out)": "inner, outer",
    "(?:the )?how manieth": "ordinal",
    "what is due": "name what is due",
    "(?:is|are|was|were|be) of use": "is useful",
    "puts? aside": "set apart, store",
    "lets? go": "release",
    "(?:come|comes|came) free": "become available",
    "at a look": "at a glance",
    "amid": "during, in the middle of",
    "ere": "before",
    "whither": "where to",
}
REPLACEMENTS = COINED | PHRASES
WORDS = re.compile(rf"\b(?:{'|'.join(REPLACEMENTS)})\b", re.IGNORECASE)
# Folders and files that are searched for them; not the list itself, and not what npm and `make ui` write.
WORDS_IN = ("crates", "tests", "docs", "scripts", "examples", "experiments", "fuzz/*.rs", "*.md", "Makefile", "make")
WORDS_NOT_IN = (":!scripts/prose.py", ":!*package-lock.json", ":!crates/control/src/page/page.js", ":!crates/control/src/page/editor.js")

CODE_SPAN = re.compile(r"(`+).+?\1")
LIST_MARK = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
DRAWING = re.compile(r"\S {3,}\S|[│─┌└├┬┐┘▲▼◄►]")
LINK_DEFINITION = re.compile(r"\s*\[[^\]]+\]: ")
FENCE = re.compile(r"\s*(?:```|~~~)")


def can_break(text, columns):
    """Returns true if the text has a space before this column where a line could end."""
    mark = LIST_MARK.match(text)
    start = mark.end() if mark else len(text) - len(text.lstrip())
    spans = CODE_SPAN.sub(lambda span: "x" * len(span[0]), text)
    return " " in spans[start : columns + 1]


def is_raw(text):
    """Returns true for a table, a drawing or a link's definition, which are laid out by hand."""
    return bool(text.lstrip().startswith("|") or DRAWING.search(text) or LINK_DEFINITION.match(text))


def doc_lines(root):
    """Each line of documentation in Rust with text on it: path, comment, and whether it is the first of its block."""
    for path in rust_source.tracked(root, "*.rs"):
        last = None
        for comment in rust_source.comments(path.read_text()):
            if comment.mark == "//":
                continue
            here = (comment.line, comment.mark)
            if comment.text.strip():
                yield path, comment, last != (comment.line - 1, comment.mark)
            last = here


def openings(root):
    """Finds lines of documentation that begin with a word of `OPENINGS`."""
    for path, comment, _ in doc_lines(root):
        if found := OPENING.match(comment.text.removeprefix(" ")):
            yield Finding(path, comment.line, f"documentation begins with `{found[1]}`: {OPENINGS[found[1]]}")


def long_comments(root):
    """Finds comment lines that are too wide and could be broken."""
    for path in rust_source.tracked(root, "*.rs"):
        in_fence, last_line = False, 0
        for comment in rust_source.comments(path.read_text()):
            if comment.line != last_line + 1:
                in_fence = False
            last_line = comment.line
            if FENCE.match(comment.text):
                in_fence = not in_fence
            start = comment.column + len(comment.mark)
            width = start + len(comment.text)
            if width <= COMMENT_COLUMNS or in_fence or is_raw(comment.text):
                continue
            if comment.trails:
                yield Finding(path, comment.line, f"comment ends at column {width}: put it above its line")
            elif can_break(comment.text, COMMENT_COLUMNS - start):
                yield Finding(path, comment.line, f"comment is {width} columns wide: wrap it at {COMMENT_COLUMNS}")


def long_markdown(root):
    """Finds lines of prose in Markdown that are too wide and could be broken."""
    for path in rust_source.tracked(root, "*.md"):
        if str(path.relative_to(root)) in GENERATED:
            continue
        in_fence = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if FENCE.match(line):
                in_fence = not in_fence
            is_code = in_fence or (line.startswith("    ") and not LIST_MARK.match(line))
            is_html = line.lstrip().startswith("<") and not line.lstrip().startswith("<http")
            if len(line) <= MARKDOWN_COLUMNS or is_code or is_html or is_raw(line):
                continue
            # A link alone on its line stays in one piece, though its text has spaces.
            alone = re.fullmatch(r"!?\[[^\]]*\]\([^)]*\)[.,;:]?", LIST_MARK.sub("", line, count=1).strip())
            if not alone and can_break(line, MARKDOWN_COLUMNS):
                yield Finding(
                    path, number, f"line is {len(line)} columns wide: wrap it at {MARKDOWN_COLUMNS} or before"
                )


def test_names(root):
    """Finds tests whose names have no subject, or too many words."""
    for path in rust_source.tracked(root, "*.rs"):
        for name, line in rust_source.tests(path.read_text()):
            if found := TEST_OPENING.match(name):
                yield Finding(path, line, f"test `{name}` begins with `{found[1]}`: name subject, verb and condition")
            elif (count := len(name.split("_"))) > TEST_WORDS:
                yield Finding(path, line, f"test `{name}` has {count} words: at most {TEST_WORDS}, better nine")


def coined_words(root):
    """Finds coined words and phrases, in prose and in names."""
    for path in rust_source.tracked(root, *WORDS_IN, *WORDS_NOT_IN):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # an image, or bytes for a test
        words = {(rust_source.line_at(text, found.start()), found[0]) for found in WORDS.finditer(text)}
        for line, found in sorted(words):
            said = next(said for coined, said in REPLACEMENTS.items() if re.fullmatch(coined, found, re.IGNORECASE))
            yield Finding(path, line, f"`{found}`: write {said}")


def missing_files(root):
    """Finds files of the repository that help, messages or comments of the code name, and that do not exist."""
    for path in rust_source.tracked(root, "crates/*.rs"):
        text = path.read_text()
        for found in NAMED_FILE.finditer(text):
            if not Path(root, found[0]).exists():
                line = rust_source.line_at(text, found.start())
                yield Finding(path, line, f"`{found[0]}` does not exist: name the file as it is called now")


RULES = (openings, test_names, long_comments, long_markdown, coined_words, missing_files)
