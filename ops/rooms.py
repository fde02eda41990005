"""The rooms of the code and the arrows between them, as its own imports say: the drawing in docs/architecture.md.

    python -m ops.rooms                               the drawing, in Mermaid
    python -m ops.rooms --into docs/architecture.md   the same, in place of the page's
    python -m ops.rooms --counts                      files, lines, and how much one reads to follow a tick or a message

A room is a folder, or a module that stands in none. An arrow says "imports". It is left out where a longer way leads
to the same room: what the pacer stands on, everybody who imports the pacer stands on.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

HERE: Final = Path(__file__).resolve().parents[1]
TOPS: Final = ("ops", "app", "infra", "functions", "shared")
"""All that ships or is run, from the top of the drawing to its ground."""
UNDIVIDED: Final = ("functions", "infra")
"""Drawn as one room each: entries and constructs, which all import the same."""
STARTED: Final = ("ops.__main__", "ops.audit", "ops.reference", "ops.rooms")
"""Not drawn: what a person starts by its name, and nothing imports."""
ADAPTERS: Final = ("shared.aws.", "shared.memory.")
FOLLOWED: Final = ("shared.pacer.tick", "shared.worker.message")
"""Where a maintainer begins to read: a tick, and a message."""
MARK: Final = "%% drawn by: python -m ops.rooms --into docs/architecture.md"

Arrows: TypeAlias = Mapping[str, frozenset[str]]


def files_in(root: Path) -> dict[str, Path]:
    """Every file of ours, by its dotted name."""
    paths = [path for top in TOPS for path in (root / f"{top}.py", *sorted((root / top).rglob("*.py")))]
    return {".".join(path.relative_to(root).with_suffix("").parts): path for path in paths if path.exists()}


def imports_in(root: Path) -> dict[str, frozenset[str]]:
    """Module -> those of ours that it imports, inside functions as well. An `__init__` holds no code: left out."""
    paths = {name: path for name, path in files_in(root).items() if not name.endswith(".__init__")}
    return {
        name: frozenset(module for imported in _names(path) if (module := _module(imported, paths)))
        for name, path in paths.items()
    }


def _names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module(name: str, paths: Mapping[str, Path]) -> str:
    """The module that a name is, or is in; nothing for a name of somebody else's."""
    while name and name not in paths:
        name = name.rpartition(".")[0]
    return name


def room_of(module: str) -> str:
    names = module.split(".")
    return names[0] if names[0] in UNDIVIDED else ".".join(names[:2])


def rooms(imports: Arrows) -> dict[str, frozenset[str]]:
    """Room -> the other rooms that its modules import."""
    arrows: dict[str, set[str]] = {}
    for module, targets in imports.items():
        if module not in STARTED:
            arrows.setdefault(room_of(module), set()).update(room_of(target) for target in targets)
    return {room: frozenset(targets - {room}) for room, targets in sorted(arrows.items())}


def reached(starts: Iterable[str], arrows: Arrows) -> frozenset[str]:
    """Everything that the arrows lead to from here, the starts included."""
    known = frozenset(starts)
    while (further := known.union(*(arrows.get(here, ()) for here in known))) != known:
        known = further
    return known


def necessary(arrows: Arrows) -> dict[str, frozenset[str]]:
    """Without the arrows for which there is a longer way. Rooms form no circle: a law of its own says so."""
    return {
        room: frozenset(target for target in targets if target not in reached(targets - {target}, arrows))
        for room, targets in arrows.items()
    }


def drawing(root: Path = HERE) -> str:
    """The rooms as Mermaid draws them. It changes with the code alone: everything stands in the order of its name."""
    arrows = necessary(rooms(imports_in(root)))
    lines = [MARK, "flowchart TD"]
    for top in TOPS:
        inside = [f"    {_node(room, root)}" for room in arrows if room.startswith(f"{top}.")]
        lines += [f"  subgraph {top}", *inside, "  end"] if inside else [f"  {_node(top, root)}"]
    lines += [f"  {room} --> {target}" for room in arrows for target in sorted(arrows[room])]
    return "\n".join(lines)


def _node(room: str, root: Path) -> str:
    path = room.replace(".", "/")
    return f"{room}[{path}]" if (root / path).is_dir() else f"{room}([{path}.py])"


def replaced(page: str, drawn: str) -> str:
    """The page with this drawing in place of its own, which begins with the mark."""
    before, _, after = page.partition(MARK)
    return before + drawn + after[after.index("\n```") :]


def followed(module: str, imports: Arrows) -> frozenset[str]:
    """The modules of `shared` that one meets on the way from this one, itself included, adapters apart."""
    met = {name for name in imports if name.startswith("shared.") and not name.startswith(ADAPTERS)}
    return reached([module], {name: imports[name] & met for name in met})


def counts(root: Path, starts: Iterable[str]) -> Iterator[str]:
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in files_in(root).items()}
    for title, tops in (*((top, (top,)) for top in TOPS), ("together", TOPS)):
        of_top = {name: number for name, number in lines.items() if name.partition(".")[0] in tops}
        files = sum(not name.endswith(".__init__") for name in of_top)
        yield f"{title}: {files} files beside __init__, {sum(of_top.values()):,} lines"
    imports = imports_in(root)
    for start in starts:
        yield f"{start}: {len(followed(start, imports))} modules of shared, itself included, adapters apart"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.rooms", description="The rooms and their arrows.")
    parser.add_argument("--root", type=Path, default=HERE, help="another checkout")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="replace the drawing in this page")
    parser.add_argument("--counts", action="store_true", help="print figures instead of the drawing")
    parser.add_argument("--follow", action="append", metavar="MODULE", help=f"by default {' and '.join(FOLLOWED)}")
    options = parser.parse_args()
    if options.into:
        options.into.write_text(replaced(options.into.read_text(encoding="utf-8"), drawing()), encoding="utf-8")
    elif options.counts:
        print("\n".join(counts(options.root, options.follow or FOLLOWED)))
    else:
        print(drawing(options.root))


if __name__ == "__main__":
    main()
