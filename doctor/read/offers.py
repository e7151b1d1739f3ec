"""What can be imported from a module of an environment: read from its source, and None wherever that cannot be told.

A module that makes its names when it is imported (compiled, with __getattr__, with globals()) can have any name.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from doctor.read import files, parsing

LARGEST = 4 * 1024 * 1024  # bytes of a source that is searched for a word
MOST_SOURCES = 20_000  # files of one module that are searched for a word
MOST_SEARCHES = 400  # words that are searched for
DEEPEST = 12  # modules that import each other's names with a star
QUICK = re.compile(rb"^(?:class|def|async def)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]{1,200})?=[^=]", re.MULTILINE)
MAKING = re.compile(rb"(?<![.\w])(?:(?:globals|vars|locals|exec|eval)\(|setattr\((?!self\b|cls\b))")
GLOBAL = re.compile(rb"^[ \t]+global[ \t]+([^\n#;]{1,400})", re.MULTILINE)
# Names as words in a table, which a module gives out when they are asked for.
TABLE = re.compile(rb"_LazyModule|_import_structure|_SUBMOD_ATTRS|MODULE_ATTRS|lazy_loader|_lazy_import|_LAZY")
COMPILED = (".so", ".pyd")


class Location(NamedTuple):
    """Where a module is: "source", "compiled", "namespace" (a folder without __init__.py), or "" for nowhere."""

    kind: str
    path: Path | None = None


@dataclass
class Offer:
    """The names of a module. `dynamic`: it makes further names. `table`: these are words in the sources beside it."""

    names: set[str] = field(default_factory=set)
    dynamic: bool = False
    table: bool = False
    stars: list[str] = field(default_factory=list)  # the modules that all names are imported from; "" for unknown


class Modules:
    """The modules in the folders of an environment. Every answer is kept."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders
        self._listed: dict[Path, set[str]] = {}
        self._located: dict[str, Location] = {}
        self._definitions: dict[str, set[str]] = {}
        self._searches = 0
        self._quick: dict[Path, set[str]] = {}
        self._making: set[Path] = set()  # sources that make names when they are imported, as their text says
        self._tables: set[Path] = set()  # those of them that have a table of the names
        self._offers: dict[Path, Offer] = {}

    def locate(self, module: str) -> Location:
        """Where a module is, as Python finds it: the first folder that has it."""
        if module not in self._located:
            self._located[module] = self._locate(module)
        return self._located[module]

    def offers(self, module: str, name: str, depth: int = 0) -> bool | None:
        """Can a name be imported from a module? None where that cannot be told. "" asks for the module alone."""
        location = self.locate(module)
        if location.kind == "":
            return self._absent(module)
        if name == "" or self.locate(f"{module}.{name}").kind:
            return True
        if location.kind != "source" or location.path is None or depth > DEEPEST:
            return None
        if name in self._names(location.path) or name.startswith("__"):
            return True
        top = module.partition(".")[0]
        if location.path in self._making and (location.path not in self._tables or name in self._defined(top)):
            return None  # its text says so; parsing it would say no more
        offer = self._offer(module, location.path)
        if name in offer.names:
            return True
        if offer.table:
            in_a_source = name in self._defined(top) or self._search({top}, name, rb"(?<!\w)%s(?!\w)")
            return None if in_a_source else False
        if offer.dynamic:
            return None
        answers = {self.offers(star, name, depth + 1) if star else None for star in offer.stars}
        return True if True in answers else None if None in answers else False

    def _offer(self, module: str, path: Path) -> Offer:
        if path not in self._offers:
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            try:
                content, more = files.head(path, parsing.LARGEST)
            except OSError:
                content, more = b"", True
            tree = None if more else parsing.tree_of(content)
            self._offers[path] = Offer(dynamic=True) if tree is None else _offer_of(content, tree, package)
        return self._offers[path]

    def _locate(self, module: str) -> Location:
        parent, _, last = module.rpartition(".")
        if parent:
            above = self.locate(parent)
            if above.kind == "compiled":
                return Location("compiled")  # it may have modules of its own
            if above.kind == "" or above.path is None or (above.kind == "source" and above.path.name != "__init__.py"):
                return Location("")
            folders: tuple[Path, ...] = (above.path.parent if above.kind == "source" else above.path,)
        else:
            folders = self.folders
        namespace = Location("")
        for folder in folders:
            entries = self._entries(folder)
            if last in entries and files.is_file(folder / last / "__init__.py"):
                return Location("source", folder / last / "__init__.py")
            if f"{last}.py" in entries:
                return Location("source", folder / f"{last}.py")
            if any(entry.startswith(f"{last}.") and entry.endswith(COMPILED) for entry in entries):
                return Location("compiled")
            if last in entries and files.is_folder(folder / last) and not namespace.kind:
                inner = self._entries(folder / last)
                compiled = any(entry.startswith("__init__.") for entry in inner)
                namespace = Location("compiled") if compiled else Location("namespace", folder / last)
        return namespace

    def _entries(self, folder: Path) -> set[str]:
        if folder not in self._listed:
            try:
                self._listed[folder] = set(files.names(folder)[0])
            except OSError:
                self._listed[folder] = set()
        return self._listed[folder]

    def _absent(self, module: str) -> bool | None:
        """False where no source above a missing module could make it."""
        parent = module.rpartition(".")[0]
        while parent:
            location = self.locate(parent)
            if location.kind in ("compiled", "namespace"):
                return None
            if location.path is not None and location.path.name != "__init__.py":
                return None  # a plain module may set what looks like one of its modules
            if location.path is not None:
                break
            parent = parent.rpartition(".")[0]
        if not parent:
            return None  # its distribution is not in these folders
        return None if self.makes({module.partition(".")[0]}, module.rpartition(".")[2]) else False

    def _names(self, path: Path) -> set[str]:
        """Names that a source surely has, by the beginnings of its lines: fast."""
        if path not in self._quick:
            try:
                content = files.head(path, LARGEST)[0]
            except OSError:
                content = b""
            self._quick[path] = {(match[0] or match[1]).decode() for match in QUICK.findall(content)}
            answers = "__getattr__" in self._quick[path] or b"sys.modules" in content
            if answers or MAKING.search(content) is not None:
                self._making.add(path)
            if answers and TABLE.search(content) is not None:
                self._tables.add(path)
        return self._quick[path]

    def sets(self, tops: set[str], name: str) -> bool:
        """Does a source of these modules set an attribute of this name? True where that was not searched."""
        return self._search(tops, name, rb"\.%s[ \t]*=[^=]|setattr\([^\n]*['\"]%s['\"]")

    def makes(self, tops: set[str], name: str) -> bool:
        """Does a source of these modules that makes modules say this word? True where that was not searched."""
        return self._search(tops, name, rb"(?<!\w)%s(?!\w)", (b"sys.modules", b"__path__"))

    def _defined(self, top: str) -> set[str]:
        """What the sources below a module define at their top: it answers most questions about a lazy module."""
        if top not in self._definitions:
            sources = itertools.islice(self._sources({top}), MOST_SOURCES)
            self._definitions[top] = set().union(*map(self._names, sources))
        return self._definitions[top]

    def _search(self, tops: set[str], word: str, pattern: bytes, with_: tuple[bytes, ...] = (b"",)) -> bool:
        """Is a word in the sources of these modules, as in a pattern? Files without any of `with_` do not count."""
        self._searches += 1
        if self._searches > MOST_SEARCHES:
            return True
        plain = word.encode("utf-8", "replace")
        expression = re.compile(pattern.replace(b"%s", re.escape(plain)))
        for path in itertools.islice(self._sources(tops), MOST_SOURCES):
            try:
                content = files.head(path, LARGEST)[0]
            except OSError:
                return True
            if plain in content and any(text in content for text in with_) and expression.search(content):
                return True
        return False

    def _sources(self, tops: set[str]) -> Iterator[Path]:
        for location in map(self.locate, sorted(tops)):
            if location.path is not None and location.path.name == "__init__.py":
                for place, _, names in os.walk(location.path.parent):
                    yield from (Path(place, name) for name in names if name.endswith(".py"))
            elif location.kind == "source" and location.path is not None:
                yield location.path


def bound(tree: ast.Module) -> set[str]:
    """The names that a module binds when it is imported, in every branch."""
    names: set[str] = set()
    for node in parsing.statements(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        else:
            names |= _stored(node)
    return names


def absolute(package: str, node: ast.ImportFrom) -> str:
    """The module that an import names, from a module of a package; "" where it leaves the package."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    if node.level > len(parts):
        return ""
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def _stored(node: ast.AST) -> set[str]:
    """The names that one statement stores, not those of the statements inside it."""
    names: set[str] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, ast.Name) and isinstance(current.ctx, ast.Store):
            names.add(current.id)
        captured = getattr(current, "name", None) if type(current).__name__ in ("MatchAs", "MatchStar") else None
        if isinstance(captured, str):
            names.add(captured)
        alias = current.name if type(current).__name__ == "TypeAlias" else None  # type: ignore[attr-defined]
        waiting += [alias] if alias is not None else []
        for child in ast.iter_child_nodes(current):
            if not isinstance(child, (ast.stmt, *parsing.SCOPES)):
                waiting.append(child)
    return names


def _offer_of(content: bytes, tree: ast.Module, package: str) -> Offer:
    names = bound(tree)
    for match in GLOBAL.findall(content):
        names |= {name.strip() for name in match.decode("utf-8", "replace").split(",")}
    getter = "__getattr__" in names or re.search(rb"sys\.modules", content) is not None
    stars = [
        absolute(package, node)
        for node in parsing.statements(tree)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]
    return Offer(
        names, getter or MAKING.search(content) is not None, getter and TABLE.search(content) is not None, stars
    )
