"""The house's rules of imports: arrows between wings, arrows between the rooms of a crate, and circles of files.

Each rule is a function that takes the root of the repository and yields its findings: a path, a line, and what to do.
"""

import tomllib
from pathlib import Path

import rust_source
from rust_source import Finding

# The wings that each wing may depend on, besides itself. A wing is a folder under `crates/`, of one or several crates.
WINGS = {
    "egret": {"process", "control", "gateway", "cluster", "import", "lab", "policy", "records", "wire", "base"},
    "process": {"control", "gateway", "cluster", "policy", "records", "wire", "base", "lab"},
    "control": {"gateway", "cluster", "policy", "records", "wire", "base"},
    "gateway": {"policy", "records", "wire", "base"},
    "cluster": {"policy", "wire", "base"},
    "policy": {"records", "wire", "base"},
    "import": {"process", "base"},
    "lab": {"records", "wire", "base"},
    "records": {"wire", "base"},
    "wire": {"base"},
    "base": set(),
}

# Of some wings only these crates may be used.
ONLY = {
    ("lab", "records"): {"egret-har"},
    ("import", "process"): {"egret-settings"},
    ("process", "lab"): {"egret-measure"},
}

# The rooms of a crate, from the highest to the lowest: a room may import from those after it. A room is a module with
# all that is in it, apart from rooms of their own, such as `downstream/serve` in `downstream`. A module in no room is not judged.
ORDERS = {
    "egret-gateway": (
        "gateway",
        "background",
        "downstream/serve",
        "rehearsal",
        "exchange",
        "recorder",
        "downstream",
        "worker",
        "state",
    ),
}

# A circle of more files than this cannot be read one file at a time.
CIRCLE_FILES_MAX = 3

REMEDY = "move the shared item down, or pass it in"


def wing(root, directory):
    """The wing of the crate in this directory."""
    return directory.relative_to(Path(root, "crates")).parts[0]


def backward_crates(root):
    """Finds dependencies between crates from a lower wing to a higher one, apart from those of tests and benches."""
    crates = rust_source.crates(root)
    wings = {name: wing(root, directory) for name, directory in crates.items()}
    for name, directory in crates.items():
        path = directory / "Cargo.toml"
        text = path.read_text()
        manifest = tomllib.loads(text)
        tables = [manifest, *manifest.get("target", {}).values()]
        wanted = {
            each for table in tables for kind in ("dependencies", "build-dependencies") for each in table.get(kind, {})
        }
        for other in sorted(wanted & wings.keys()):
            own, target = wings[name], wings[other]
            if own not in WINGS:
                message = f"the wing `{own}` is unknown: add it to WINGS in scripts/imports.py"
            elif target != own and target not in WINGS[own]:
                message = f"`{name}` ({own}) depends on `{other}` ({target}), which is above it: {REMEDY}"
            elif other not in ONLY.get((own, target), {other}):
                message = f"`{name}` ({own}) may use {', '.join(ONLY[own, target])} of {target} alone, not `{other}`"
            else:
                continue
            line = next((number for number, line in enumerate(text.splitlines(), 1) if line.startswith(other)), 1)
            yield Finding(path, line, message)


def room(module, order):
    """The innermost room of the order that holds the module, or None."""
    for end in range(len(module), 0, -1):
        if (name := "/".join(module[:end])) in order:
            return name
    return None


def backward_rooms(root):
    """Finds imports from a lower room of a crate to a higher one."""
    for name, directory in rust_source.crates(root).items():
        order = ORDERS.get(name, ())
        graph = rust_source.graph(directory) if order else None
        for module, uses in graph.uses.items() if graph else ():
            for target, (line, used) in uses.items():
                low, high = room(module, order), room(target, order)
                if low is None or high is None or order.index(low) <= order.index(high):
                    continue
                message = f"`{low}` imports `{used}` from `{high}`, which is above it: {REMEDY}"
                yield Finding(graph.files[module].path, line, message)


def circles(root):
    """The circles of too many files: the crate, and the graph's modules in each circle."""
    for name, directory in rust_source.crates(root).items():
        for circle in rust_source.graph(directory).circles():
            if len(circle) > CIRCLE_FILES_MAX:
                yield name, circle


def wide_circles(root):
    """Finds circles of too many files, with an arrow of each of its files."""
    for name, circle in circles(root):
        graph = rust_source.graph(rust_source.crates(root)[name])
        first = graph.files[circle[0]].path
        message = f"{name}: {len(circle)} files form a circle of imports, of at most {CIRCLE_FILES_MAX}: {REMEDY}"
        yield Finding(first, 1, message)
        for module in circle:
            arrows = sorted((line, used) for target, (line, used) in graph.uses[module].items() if target in circle)
            names = ", ".join(f"`{used}`" for _, used in arrows)
            yield Finding(graph.files[module].path, arrows[0][0], f"    imports {names}")


RULES = (backward_crates, backward_rooms, wide_circles)
