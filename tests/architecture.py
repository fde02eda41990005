"""Checkers for `test_architecture`: each reads syntax trees and names every line that breaks its law."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = ("shared", "functions", "infra", "ops", "tests", "app")
NOT_OURS = ("node_modules", "build", "cdk.out")
MAX_FUNCTION_LINES, MAX_HANDLER_LINES = 50, 40
ENVIRONMENT = ("os.environ", "os.environb", "os.getenv")
IMPURE = (
    *("asyncio", "io", "logging", "os", "pathlib", "random", "secrets", "shutil"),
    *("socket", "subprocess", "tempfile", "threading", "time", "uuid"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: its path from the root and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parse(self.text)

    def within(self, *rooms: str) -> bool:
        return any(self.path == room or self.path.startswith(f"{room}/") for room in rooms)

    @property
    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, full dotted name) of all imports, those inside functions included."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)

    @property
    def runtime_imports(self) -> Iterator[str]:
        """Full dotted names of what is imported when this module is, or when it runs: not for annotations alone."""
        annotations = [
            statement
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for statement in node.body
        ]
        skipped = {statement.lineno for statement in annotations}
        return (name for line, name in self.imports if line not in skipped)

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def our_sources() -> tuple[Source, ...]:
    paths = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py")))
    ours = (path for path in paths if not any(part.startswith(".") or part in NOT_OURS for part in path.parts))
    return tuple(Source(path.as_posix(), (ROOT / path).read_text(encoding="utf-8")) for path in ours)


def is_under(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


Checker = Callable[[Iterable[Source]], list[str]]


def only(room: str, *allowed: str, stdlib_only: bool = True) -> Checker:
    """Modules of the room import the allowed names and, `stdlib_only`, of other packages the standard library alone."""

    def breaks(name: str) -> bool:
        if is_under(name, allowed):
            return False
        package = name.partition(".")[0]
        return package in OURS or (stdlib_only and package not in sys.stdlib_module_names)

    return _imports(lambda source: source.within(room), breaks)


def never(rooms: tuple[str, ...], *banned: str, but: tuple[str, ...] = ()) -> Checker:
    return _imports(
        lambda source: source.within(*rooms) and not source.within(*but), lambda name: is_under(name, banned)
    )


def _imports(applies: Callable[[Source], bool], breaks: Callable[[str], bool]) -> Checker:
    def check(sources: Iterable[Source]) -> list[str]:
        return [
            f"{source.path}:{line} imports {name}"
            for source in sources
            if applies(source)
            for line, name in source.imports
            if breaks(name)
        ]

    return check


def pure(modules: Iterable[str], *libraries: str) -> Checker:
    """The named modules import the standard library without its impure parts, the libraries, and one another."""
    named = frozenset(modules)

    def breaks(name: str) -> bool:
        if is_under(name, (*named, *libraries)):
            return False
        if any(module.startswith(f"{name}.") for module in named):  # `from shared.domain import stats` names a package
            return False
        return is_under(name, IMPURE) or name.partition(".")[0] not in sys.stdlib_module_names

    return _imports(lambda source: source.module in named, breaks)


def circles(sources: Iterable[Source]) -> list[str]:
    """Rooms, and modules, that reach themselves through what they import."""
    shipped = [source for source in sources if not source.within("tests")]
    modules = {source.module for source in shipped if not source.path.endswith("__init__.py")}
    between_modules: dict[str, set[str]] = {}
    between_rooms: dict[str, set[str]] = {}
    for source in shipped:
        needed = {_nearest(name, modules) for name in source.runtime_imports}
        named = {_nearest(name, modules) for _, name in source.imports}
        between_modules[source.module] = {module for module in needed if module} - {source.module}
        room = room_of(source.module)
        between_rooms.setdefault(room, set()).update({room_of(module) for module in named if module} - {room})
    return [
        f"{name} reaches itself"
        for arrows in (between_rooms, between_modules)
        for name in sorted(arrows)
        if name in _reached(name, arrows)
    ]


def room_of(module: str) -> str:
    """The room of a module: two names at most. A module that stands in no room is one itself (`shared.ports`)."""
    return ".".join(module.split(".")[:2])


def _nearest(name: str, modules: set[str]) -> str | None:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def _reached(package: str, arrows: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = list(arrows.get(package, ()))
    while ahead:
        following = ahead.pop()
        if following not in reached:
            reached.add(following)
            ahead += arrows.get(following, ())
    return reached


def shells_of_others(rooms: Iterable[str], pure_modules: Iterable[str]) -> Checker:
    """A concept room imports pure modules of another one at most."""
    names, allowed = frozenset(rooms), frozenset(pure_modules)

    def check(sources: Iterable[Source]) -> list[str]:
        found = []
        for source in sources:
            room = source.module.rpartition(".")[0]
            if room not in names:
                continue
            for line, name in source.imports:
                foreign = is_under(name, names - {room})
                if foreign and not is_under(name, allowed):
                    found.append(f"{source.path}:{line} imports {name}, the shell of another room")
        return found

    return check


def long_handlers(sources: Iterable[Source]) -> list[str]:
    return [
        f"{source.path} has {lines} lines, more than {MAX_HANDLER_LINES}"
        for source in sources
        if source.within("functions") and source.path.endswith("/handler.py")
        if (lines := len(source.text.splitlines())) > MAX_HANDLER_LINES
    ]


def long_functions(sources: Iterable[Source]) -> list[str]:
    return [
        f"{source.path}:{node.lineno} {node.name} is longer than {MAX_FUNCTION_LINES} lines"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]


def bare_reads(sources: Iterable[Source]) -> list[str]:
    return [
        f"{source.path}:{node.lineno} {ast.unparse(node)[:60]} reads DynamoDB itself and could stop at one page"
        for source in sources
        if source.within("shared", "functions", "infra", "ops") and source.path != "shared/aws/table.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_read(node, node.func.attr)
    ]


def _is_read(call: ast.Call, method: str) -> bool:
    paginated = [each.value for each in call.args if isinstance(each, ast.Constant)] if "paginator" in method else []
    return any(name in ("query", "scan") for name in (method, *paginated))


def work_at_import(sources: Iterable[Source]) -> list[str]:
    return [
        f"{source.path}:{node.lineno} does {ast.unparse(node)} when it is imported"
        for source in sources
        if not source.within("tests")
        for node in _runs_at_import(source.tree)
        if isinstance(node, ast.expr)
        and re.match(r"(os\.)?(environ|getenv)\b|boto3\.\w+\(|(\w+\.)*Session\(", ast.unparse(node))
    ]


def _runs_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes outside function bodies and outside `if __name__ == "__main__"`; defaults and decorators do run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "__name__" in ast.unparse(child.test):
            continue
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (child.args, *child.decorator_list):
                yield part
                yield from _runs_at_import(part)
        elif not isinstance(child, ast.Lambda):
            yield from _runs_at_import(child)


def stray_environment(sources: Iterable[Source]) -> list[str]:
    found = []
    for source in sources:
        if not source.within("shared", "functions"):
            continue
        handed_on = {
            argument
            for call in ast.walk(source.tree)
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("read_environment")
            for argument in call.args
        }
        found += [f"{source.path}:{line} imports {name}" for line, name in source.imports if name in ENVIRONMENT]
        found += [
            f"{source.path}:{node.lineno} reads the environment"
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Attribute) and node not in handed_on
            if ast.unparse(node) in ENVIRONMENT
        ]
    return found


def dead_modules(sources: Iterable[Source]) -> list[str]:
    """Modules that no production code imports and no one starts. A module that only tests import is dead as well."""
    shipped = [source for source in sources if not source.within("tests")]
    used = {(name, source.module) for source in shipped for _, name in source.imports}
    return [
        f"{source.path} is imported by nothing"
        for source in shipped
        if source.within("shared", "functions", "infra", "ops")
        and not _is_started(source)
        and not any(is_under(name, [source.module]) and user != source.module for name, user in used)
    ]


def _is_started(source: Source) -> bool:
    """By Lambda, by `python -m`, by name (a job's kind), or by being a package."""
    by_name = source.within("functions/worker/kinds")
    return (
        by_name
        or Path(source.path).name in ("__init__.py", "__main__.py", "handler.py")
        or ('if __name__ == "__main__"' in source.text)
    )


def unfinished(sources: Iterable[Source]) -> list[str]:
    mark = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X])\b")  # in brackets, or this line would find itself
    return [
        f"{source.path}:{number} leaves work behind"
        for source in sources
        for number, line in enumerate(source.text.splitlines(), 1)
        if mark.search(line)
    ]
