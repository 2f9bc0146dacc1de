"""Finds the items of Rust code that the checks of the house count: types, `impl` blocks, parameters and errors.

All take code as `rust_source.File.code` has it, without comments, strings and tests.
"""

import re

from rust_source import closing, line_at, parts

# A type anywhere; an alias at the margin alone, since in a trait it is an associated type.
TYPE = re.compile(
    r"^(?:[ \t]*(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|union|trait)|(?:pub(?:\([^)]*\))? )?type) (\w+)",
    re.MULTILINE,
)
IMPL = re.compile(r"^[ \t]*(?:unsafe )?impl\b", re.MULTILINE)
FUNCTION = re.compile(r"\bfn (\w+)\s*")
RESULT = re.compile(r"\bResult(?=<)")
STRING_ALIAS = re.compile(r"\btype (\w+) = String;")
SELF_TYPE = re.compile(r"(?:&\s*(?:'\w+ )?(?:mut )?|dyn )*(\w+(?:::\w+)*)")
CHANGED = re.compile(r"&\s*mut\s+((?:\w+::)*\w+)")
REFERENCE = re.compile(r"(?:&\s*(?:'\w+\s+)?(?:mut\s+)?)*")


def types(code):
    """The names of the types, traits and aliases that are defined here, each with its line."""
    for found in TYPE.finditer(code):
        yield found[1], line_at(code, found.start(1))


def impls(code):
    """The `impl` blocks: path of the type, whether it is of a trait, start and end."""
    for found in IMPL.finditer(code):
        opening = code.find("{", found.end())
        if opening < 0:
            continue
        header = code[found.end() : opening].strip()
        if header.startswith("<"):
            header = header[closing(header, 0) :].strip()
        header = re.split(r"\bwhere\b", header)[0]
        names = re.split(r"\bfor\b(?!\s*<)", header)
        if name := SELF_TYPE.match(names[-1].strip()):
            yield tuple(name[1].split("::")), len(names) > 1, found.start(), closing(code, opening)


def signatures(code):
    """The functions: name, parameters as text, and start."""
    for found in FUNCTION.finditer(code):
        opening = found.end()
        if code[opening] == "<":
            opening = code.find("(", closing(code, opening))
        if opening >= 0 and code[opening] == "(":
            yield found[1], parts(code[opening + 1 : closing(code, opening) - 1]), found.start()


def type_of(parameter):
    """The type of a parameter."""
    # A `:` separates pattern and type; those of `a::B` are hidden meanwhile.
    return "".join(parts(parameter.replace("::", "\0"), ":")[1:]).replace("\0", "::")


def changers(code):
    """The types that functions change in the place of methods, because their first parameter is `&mut T`: paths.

    One with a lifetime is kept by what the function returns.
    """
    for _, parameters, _ in signatures(code):
        if parameters and (changed := CHANGED.match(type_of(parameters[0]))):
            yield tuple(changed[1].split("::"))


def tuple_parameters(code):
    """The parameters of functions that are tuples of several types: function, type, line.

    Implementations of traits are left out: the trait has the same parameter, or is another crate's.
    """
    of_traits = [(start, end) for _, is_of_trait, start, end in impls(code) if is_of_trait]
    for name, parameters, at in signatures(code):
        if any(start < at < end for start, end in of_traits):
            continue
        for parameter in parameters:
            type_ = type_of(parameter)
            type_ = type_[REFERENCE.match(type_).end() :]
            if type_.startswith("(") and closing(type_, 0) == len(type_) and len(parts(type_[1:-1])) > 1:
                yield name, " ".join(type_.split()), line_at(code, at)


def string_errors(code, aliases=()):
    """The lines with a `Result` whose error is a `String`, or an alias of it."""
    for found in RESULT.finditer(code):
        types_ = parts(code[found.end() + 1 : closing(code, found.end()) - 1])
        if len(types_) == 2 and types_[1] in {"String", *aliases}:
            yield line_at(code, found.start())
