"""Reads Rust source as the checks of the house need it.

It blanks comments and string literals, separates tests from code, and finds out which file of a crate imports which.
Blanked text keeps its length and its line breaks: an offset or a line number is the same in every version of a text.
"""

import re
import subprocess
import tomllib
from bisect import bisect_right
from collections import namedtuple
from functools import cache, cached_property
from pathlib import Path

# A comment, a string or a character, whichever begins first. Lifetimes have no closing quote and match none of these.
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>\b(?:br|cr|r)(?P<hashes>\#*)".*?"(?P=hashes)|(?:\b[bc])?"(?:[^"\\]|\\.)*")
    |(?P<character>'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^\\'\n])')""",
    re.DOTALL | re.VERBOSE,
)
TEST_FILE = re.compile(r"(^|/)(tests?|benches|examples|fuzz)(/|\.rs$)|_tests\.rs$|(^|/)fixture(/|\.rs$)")
TEST_FUNCTION = re.compile(r"#\[(?:\w+::)?test\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")
TEST_ITEM = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*")
USE = re.compile(r"\b(?P<public>pub(?:\([^)]*\))? )?use (?P<tree>[^;]+);")
PATH = re.compile(r"(?<![\w:])((?:\w+::)+\w+)")

Comment = namedtuple("Comment", "line column text mark trails")
Finding = namedtuple("Finding", "path line message")  # what a rule of the house has found, and what to do


def tracked(root, *patterns):
    """The files that git knows or would take up, as paths below `root`."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({Path(root, name) for name in names if name and Path(root, name).is_file()})


def crates(root):
    """The workspace's crates under `crates/`: name to directory."""
    found = {}
    for manifest in sorted(Path(root, "crates").rglob("Cargo.toml")):
        if package := tomllib.loads(manifest.read_text()).get("package"):
            found[package["name"]] = manifest.parent
    return found


def blank(text):
    """Spaces instead of text; line breaks stay."""
    return re.sub(r"[^\n]", " ", text)


def without(text, comments=True, strings=False):
    """The text with comments, and string literals if wanted, blanked."""

    def keep_or_blank(token):
        is_blanked = comments if token["comment"] else strings
        return blank(token[0]) if is_blanked else token[0]

    return TOKEN.sub(keep_or_blank, text)


def comments(text):
    """Every line of the `//` comments: line from 1, column, text after the mark, mark, and whether code precedes it."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    for token in TOKEN.finditer(text):
        if token["comment"] and token[0].startswith("//"):
            line = bisect_right(starts, token.start())
            before = text[starts[line - 1] : token.start()]
            mark = re.match(r"//[/!](?!/)|//", token[0])[0]
            yield Comment(line, len(before), token[0][len(mark) :], mark, bool(before.strip()))


def tests(text):
    """The test functions, those of `proptest!` without an attribute included: name and line."""
    code = without(text, strings=True)
    found = {test.start(1): test[1] for test in TEST_FUNCTION.finditer(code)}
    for block in re.finditer(r"^([ ]*)proptest! \{", code, re.MULTILINE):
        functions = re.compile(rf"^{block[1]}    fn (\w+)", re.MULTILINE)
        end = closing(code, block.end() - 1)
        found |= {test.start(1): test[1] for test in functions.finditer(code, block.end(), end)}
    return [(name, line_at(text, offset)) for offset, name in sorted(found.items())]


def line_at(text, offset):
    """The number, from 1, of the line that has this offset."""
    return text.count("\n", 0, offset) + 1


def closing(text, opening):
    """The offset after the bracket that closes the one at `opening`; an arrow's `>` closes nothing."""
    depth = 0
    pair = {"(": "()", "[": "[]", "{": "{}", "<": "<>"}[text[opening]]
    for found in re.compile("|".join(map(re.escape, pair))).finditer(text, opening):
        if found[0] == ">" and text[found.start() - 1] in "-=":
            continue
        depth += 1 if found[0] == pair[0] else -1
        if depth == 0:
            return found.end()
    return len(text)


def parts(text, separator=","):
    """Splits at separators that are in no brackets."""
    depth, start, found = 0, 0, []
    for at, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and text[at - 1] not in "-="):
            depth -= 1
        elif character == separator and depth == 0:
            found.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*found, text[start:]] if part.strip()]


class File:
    """One source file: its text, its code without comments, strings and inline tests, and its tests."""

    def __init__(self, path, directory):
        self.path = path
        self.text = path.read_text()
        self.bare = without(self.text, strings=True)
        self.test_modules = set()  # declared here, compiled for tests alone
        self.tests = bool(TEST_FILE.search(str(path.relative_to(directory)))) or self.bare.lstrip().startswith(
            "#![cfg(test)]"
        )
        self._tests = [(0, len(self.bare))] if self.tests else list(self._inline_tests())

    def _inline_tests(self):
        end = 0
        while found := TEST_ITEM.search(self.bare, end):
            rest = self.bare[found.end() :]
            self.test_modules.update(re.findall(r"\A(?:pub(?:\([^)]*\))? )?mod (\w+);", rest))
            opening, semicolon = rest.find("{"), rest.find(";")
            if 0 <= semicolon and not 0 <= opening < semicolon:
                end = found.end() + semicolon + 1
            else:
                end = closing(self.bare, found.end() + opening) if opening >= 0 else len(self.bare)
            yield found.start(), end

    def mark_as_test(self):
        """For a file that only a test module leads to."""
        self.tests, self._tests = True, [(0, len(self.bare))]

    @cached_property
    def code(self):
        """The text without comments, strings and tests."""
        return self._without_tests(self.bare)

    @cached_property
    def code_with_strings(self):
        """The text without comments and tests."""
        return self._without_tests(without(self.text))

    def _without_tests(self, text):
        for start, end in self._tests:
            text = text[:start] + blank(text[start:end]) + text[end:]
        return text

    @property
    def lines(self):
        """The number of lines apart from tests, comments and blank lines included."""
        return self.text.count("\n") - sum(self.text.count("\n", start, end) for start, end in self._tests)

    @property
    def code_lines(self):
        """The number of lines that are neither blank nor comment, without tests. Those of a long text count."""
        return _filled(self.code_with_strings)

    @property
    def test_lines(self):
        """The number of lines with code that is a test."""
        return sum(_filled(self.bare[start:end]) for start, end in self._tests)


def _filled(text):
    return sum(1 for line in text.splitlines() if line.strip())


@cache
def files(directory):
    """The crate's files."""
    found = [File(path, directory) for path in sorted(Path(directory).rglob("*.rs")) if "target" not in path.parts]
    test_only = {
        file.path.parent / stem / name for file in found for name in file.test_modules for stem in ("", file.path.stem)
    }
    for file in found:
        if not file.tests and {file.path.with_suffix(""), *file.path.parents} & test_only:
            file.mark_as_test()
    return found


class Graph:
    """Which file of a crate uses items of which other: from `use` trees and from paths in the code.

    A module is a tuple of names; the crate's root is the empty one. A re-exported name leads to its defining file; a
    `pub use` is a use only if the file itself needs the name.
    """

    def __init__(self, directory):
        self.source = Path(directory, "src")
        self.files = {
            self._module(f.path): f for f in files(directory) if self.source in f.path.parents and not f.tests
        }
        self._children = {module: set(re.findall(r"\bmod (\w+);", file.code)) for module, file in self.files.items()}
        self._reexports = {module: self._reexports_of(module) for module in self.files}

    def _module(self, path):
        names = path.relative_to(self.source).with_suffix("").parts
        is_root = names == ("lib",) or (names == ("main",) and not (self.source / "lib.rs").exists())
        return () if is_root else names

    def _absolute(self, module, path):
        """The path from the crate's root, or None where it leaves the crate."""
        head, rest = path[0], path[1:]
        if head == "crate":
            return rest
        if head == "self":
            return module + rest
        if head == "super":
            while path and path[0] == "super":
                module, path = module[:-1], path[1:]
            return module + path
        return module + path if head in self._children[module] else None

    def _reexports_of(self, module):
        found = {}
        for use in USE.finditer(self.files[module].code):
            for path, name in leaves(use["tree"]) if use["public"] else ():
                if target := self._absolute(module, path):
                    found[name] = target
        return found

    def defining(self, path, depth=0):
        """The module that defines the item with this path from the crate's root."""
        for end in range(len(path), -1, -1):
            if (module := path[:end]) in self.files:
                break
        else:
            return None
        if end < len(path) and depth < 8 and (target := self._reexports[module].get(path[end])):
            return self.defining(target + path[end + 1 :], depth + 1)
        return module

    def imports(self, module):
        """Each import of a name from the crate: name, path, defining module, line, and whether it is a `pub use`."""
        code = self.files[module].code
        for use in USE.finditer(code):
            for path, name in leaves(use["tree"]):
                if (target := self.target(module, path)) is not None:
                    yield name, path, target, line_at(code, use.start()), bool(use["public"])

    def target(self, module, path):
        """The module that defines what this path means in the module, or None if it is not the crate's."""
        absolute = self._absolute(module, path)
        return None if absolute is None else self.defining(absolute)

    @cached_property
    def uses(self):
        """For each module those that it uses, each with the line and the path of the first use."""
        return {module: self._uses(module) for module in self.files}

    def _uses(self, module):
        code = self.files[module].code
        bare = USE.sub(lambda use: blank(use[0]), code)
        found = []
        for name, path, target, line, is_public in self.imports(module):
            if not is_public or re.search(rf"\b{name}\b", bare):
                found.append((line, target, path))
        for use in PATH.finditer(bare):
            path = tuple(use[1].split("::"))
            found.append((line_at(bare, use.start()), self.target(module, path), path))
        wanted = {}
        for line, target, path in sorted(found, key=lambda use: use[0]):
            if target is not None and target != module:
                wanted.setdefault(target, (line, "::".join(path)))
        return wanted

    def circles(self):
        """The sets of files each of which leads to each other, biggest first (Tarjan)."""
        index, low, stack, found = {}, {}, [], []

        def visit(node):
            index[node] = low[node] = len(index)
            stack.append(node)
            for after in self.uses[node]:
                if after not in index:
                    visit(after)
                    low[node] = min(low[node], low[after])
                elif after in stack:
                    low[node] = min(low[node], index[after])
            if low[node] == index[node]:
                circle = stack[stack.index(node) :]
                del stack[stack.index(node) :]
                if len(circle) > 1:
                    found.append(sorted(circle))

        for node in sorted(self.files):
            if node not in index:
                visit(node)
        return sorted(found, key=len, reverse=True)


@cache
def graph(directory):
    """The graph of the crate in this directory."""
    return Graph(directory)


def leaves(tree):
    """Each path of a `use` tree, and the name it gets: `a::{b, c as d}` is `(a, b) b` and `(a, c) d`."""
    tree = " ".join(tree.split())
    opening = tree.find("{")
    if opening >= 0:
        prefix = tuple(part.strip() for part in tree[:opening].split("::") if part.strip())
        for part in parts(tree[opening + 1 : tree.rfind("}")]):
            for path, name in leaves(part):
                yield prefix + path, name or prefix[-1]
        return
    path, _, name = tree.partition(" as ")
    names = tuple(part.strip() for part in path.split("::") if part.strip() not in ("", "*"))
    if names[-1:] == ("self",) and len(names) == 1:
        yield (), name  # `a::{self}`: the prefix itself
    elif names:
        yield names, (name or names[-1]).strip()
