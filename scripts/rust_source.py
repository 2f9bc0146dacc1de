"""Reads Rust source as the checks of the house need it: code apart from comments, tests apart from code, and which file uses which."""

import re
from functools import lru_cache
from pathlib import Path

STRING = re.compile(r'(?:br|cr|r)(#*)"|[bc]?"')
CHARACTER = re.compile(r"'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^\\'\n])'")
TEST_FILE = re.compile(r"(^|/)(tests?|benches|examples|fuzz)(/|\.rs$)|_tests\.rs$|(^|/)fixture(/|\.rs$)")


def crates(root):
    """The workspace's crates under `crates/`: name to directory."""
    found = {}
    for manifest in sorted(Path(root, "crates").rglob("Cargo.toml")):
        name = re.search(r'^name = "([^"]+)"', manifest.read_text(), re.MULTILINE)
        if name:
            found[name[1]] = manifest.parent
    return found


def without(text, comments=True, strings=False):
    """The text with comments, and string literals if wanted, blanked out; line breaks stay."""
    kept, at, length = [], 0, len(text)

    def blank(start, end):
        kept.append(re.sub(r"[^\n]", " ", text[start:end]))
        return end

    def keep(start, end):
        kept.append(text[start:end])
        return end

    while at < length:
        if text.startswith("//", at):
            end = text.find("\n", at)
            at = (blank if comments else keep)(at, length if end < 0 else end)
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            at = (blank if comments else keep)(at, length if end < 0 else end + 2)
        elif (text[at] in 'brc"') and not (at and (text[at - 1].isalnum() or text[at - 1] == "_") and text[at] != '"'):
            found = STRING.match(text, at)
            if not found:
                at = keep(at, at + 1)
                continue
            if "r" in found[0].split('"')[0]:
                end = text.find('"' + (found[1] or ""), found.end()) + 1 + len(found[1] or "")
            else:
                end = found.end()
                while end < length and text[end] != '"':
                    end += 2 if text[end] == "\\" else 1
                end += 1
            at = (blank if strings else keep)(at, end)
        elif text[at] == "'" and (found := CHARACTER.match(text, at)):
            at = (blank if strings else keep)(at, found.end())
        else:
            at = keep(at, at + 1)
    return "".join(kept)


def block_end(text, opening):
    """The offset after the brace that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


class File:
    """One source file of a crate: its code, without comments and strings, with the inline tests cut out."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_text()
        bare = without(self.text, strings=True)
        self.tests = TEST_FILE.search(str(path)) is not None
        self.test_lines = bare.count("\n") if self.tests else 0
        self.test_modules = set()
        if not self.tests:
            bare = self._cut_tests(bare)
        self.code = bare

    def _cut_tests(self, bare):
        while found := re.search(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*", bare):
            rest = bare[found.end() :]
            self.test_modules.update(re.findall(r"\A(?:pub(?:\([^)]*\))? )?mod (\w+);", rest))
            opening, semicolon = rest.find("{"), rest.find(";")
            end = semicolon + 1 if 0 <= semicolon and not 0 <= opening < semicolon else block_end(rest, opening)
            self.test_lines += rest[:end].count("\n") + 1
            bare = bare[: found.start()] + "\n" + rest[end:]
        return bare

    @property
    def code_lines(self):
        """Lines with code on them: neither blank, nor comments, nor tests."""
        return 0 if self.tests else sum(1 for line in self.code.splitlines() if line.strip())


@lru_cache
def files(directory):
    """The crate's files, those that only tests compile marked as such."""
    found = [File(path) for path in sorted(Path(directory).rglob("*.rs")) if "target" not in path.parts]
    test_only = {file.path.parent / stem / name for file in found for name in file.test_modules for stem in ("", file.path.stem)}
    for file in found:
        bases = {file.path.with_suffix(""), *file.path.parents}
        if not file.tests and bases & test_only:
            file.tests, file.test_lines = True, file.text.count("\n")
    return found


class Graph:
    """Which file of a crate uses items of which other: from `use` trees and from paths in the code."""

    def __init__(self, directory):
        self.source = Path(directory, "src")
        self.files = {self._module(f.path): f for f in files(directory) if self.source in f.path.parents and not f.tests}
        self.reexports = {module: self._reexports(module) for module in self.files}
        self.uses = {module: self._uses(module) for module in self.files}

    def _module(self, path):
        parts = path.relative_to(self.source).with_suffix("").parts
        return () if parts in (("lib",), ("main",)) else parts

    def _children(self, module):
        return set(re.findall(r"\bmod (\w+);", self.files[module].code))

    def _absolute(self, module, path):
        """The path from the crate's root, or None where it leaves the crate."""
        head, rest = path[0], path[1:]
        if head == "crate":
            return rest
        if head == "self":
            return module + rest
        if head == "super":
            base = module
            while path and path[0] == "super":
                base, path = base[:-1], path[1:]
            return base + path
        return module + path if head in self._children(module) else None

    def _reexports(self, module):
        found = {}
        for tree in re.findall(r"\bpub(?:\([^)]*\))? use ([^;]+);", self.files[module].code):
            for path, name in leaves(tree):
                if target := self._absolute(module, path):
                    found[name] = target
        return found

    def _resolve(self, path, depth=0):
        """The module that defines the item which the path names."""
        for end in range(len(path), -1, -1):
            if (module := path[:end]) in self.files:
                break
        else:
            return None
        if end < len(path) and depth < 8 and (target := self.reexports[module].get(path[end])):
            return self._resolve(target + path[end + 1 :], depth + 1)
        return module

    def _uses(self, module):
        code = self.files[module].code
        wanted = set()
        trees = re.findall(r"\b(?:pub(?:\([^)]*\))? )?use ([^;]+);", code)
        paths = [path for tree in trees for path, _ in leaves(tree)]
        bare = re.sub(r"\buse [^;]+;", "", code)
        paths += [tuple(p.split("::")) for p in re.findall(r"(?<![\w:])((?:\w+::)+\w+)", bare)]
        for path in paths:
            absolute = self._absolute(module, path)
            target = self._resolve(absolute) if absolute is not None else None
            if target is not None and target != module:
                wanted.add(target)
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
                    found.append(circle)

        for node in sorted(self.files):
            if node not in index:
                visit(node)
        return sorted(found, key=len, reverse=True)


def leaves(tree):
    """Each path of a `use` tree, and the name it gets: `a::{b, c as d}` is `(a, b) b` and `(a, c) d`."""
    tree = " ".join(tree.split())
    opening = tree.find("{")
    if opening < 0:
        path, _, name = tree.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::") if part.strip() not in ("", "*"))
        if parts and parts[-1] == "self":
            parts = parts[:-1]
        if parts:
            yield parts, (name or parts[-1]).strip()
        return
    prefix = tuple(part.strip() for part in tree[:opening].split("::") if part.strip())
    inner, depth, start = tree[opening + 1 : tree.rfind("}")], 0, 0
    for at, character in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if inner[start:at].strip():
                for path, name in leaves(inner[start:at]):
                    yield prefix + path, name if path else prefix[-1]
            start = at + 1
