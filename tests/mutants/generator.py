"""Small wrong changes made by rule, as a list for tests.mutants.

    python -m tests.mutants.generator EXECUTED --site-packages FOLDER --number 64 > list.toml

Every place in the given lines of a library's files where a rule applies is a candidate; of them a seeded draw is taken,
in turn from every file and every rule, so that no long file and no common rule fills the list.

EXECUTED is a JSON object, file in site-packages to the numbers of its lines that training executes: what is never
executed cannot be noticed by anybody.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, NamedTuple

import typer

CONTEXT = 4  # lines before a place that are added until it stands only once in its file
FLIPPED: dict[type[ast.AST], str] = {
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
DROPPABLE = ("zero_", "copy_", "mul_", "add_", "div_", "step", "backward", "append", "extend", "update", "load", "clip")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


class Change(NamedTuple):
    """A span of a file's text by offsets, what takes its place, and the rule that made it."""

    begin: int
    end: int
    replace: str
    rule: str


class Source:
    """A file's text, and where its nodes lie in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        # Python ends a line at \n alone; str.splitlines also does at a form feed.
        self._lines = [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n"))]

    def offset(self, line: int, column: int) -> int:
        """Offset in characters of a node's position, whose column counts bytes."""
        begin = self._lines[line - 1]
        content = self.text[begin : self._lines[line]].encode()
        return begin + len(content[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self.span(node)
        return self.text[begin:end]

    def line(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1


def changes(source: Source, executed: Collection[int]) -> Iterator[Change]:
    """Every change that a rule makes where a line is executed."""
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.expr, ast.stmt)) and node.lineno in executed:
            yield from _flipped(source, node)
            yield from _moved(source, node)


def _flipped(source: Source, node: ast.expr | ast.stmt) -> Iterator[Change]:
    """The opposite of a comparison, an operation, a condition or a flag."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in FLIPPED:
            yield Change(source.span(left)[1], source.span(right)[0], f" {FLIPPED[type(operator)]} ", "flip")
        case ast.BinOp(left=left, op=operator, right=right) | ast.BoolOp(op=operator, values=[left, right]) if type(
            operator
        ) in FLIPPED and not _is_text(node):
            between = source.text[source.span(left)[1] : source.span(right)[0]]
            if "(" not in between and ")" not in between:
                yield Change(source.span(left)[1], source.span(right)[0], f" {FLIPPED[type(operator)]} ", "flip")
        case ast.If(test=test) | ast.IfExp(test=test):
            yield Change(*source.span(test), f"(not ({source.code(test)}))", "flip")
        case ast.Constant(value=bool(value)):
            yield Change(*source.span(node), str(not value), "flip")


def _moved(source: Source, node: ast.expr | ast.stmt) -> Iterator[Change]:
    """A number or a bound that is one higher, arguments in another order, a statement that is gone."""
    match node:
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int(value)) if abs(value) < 1000:
            yield Change(*source.span(node), str(value + 1), "off-by-one")
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)):
            for bound in (lower, upper):
                if bound is not None:
                    yield Change(*source.span(bound), f"({source.code(bound)}) + 1", "shift")
        case ast.Call(func=func, args=[first, second, *_]) if not (_is_builtin(func) or _is_starred(first, second)):
            left, right = source.span(first), source.span(second)
            middle = source.text[left[1] : right[0]]
            yield Change(left[0], right[1], f"{source.code(second)}{middle}{source.code(first)}", "swap")
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name.startswith(DROPPABLE):
            yield Change(*source.span(node), "pass", "drop")
        case ast.AugAssign():
            yield Change(*source.span(node), "pass", "drop")
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _mentions(value, name):
            yield Change(*source.span(node), "pass", "drop")


def _is_builtin(function: ast.expr) -> bool:
    """One of Python's own, such as isinstance: its swapped arguments are an error at once."""
    return isinstance(function, ast.Name) and hasattr(builtins, function.id)


def _is_starred(*arguments: ast.expr) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in arguments)


def _is_text(node: ast.expr) -> bool:
    """Is it a sum of strings or lists, where another operator is an error at once?"""
    return isinstance(node, ast.BinOp) and any(
        isinstance(part, (ast.JoinedStr, ast.List)) or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )


def _mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def found_once(source: Source, change: Change) -> tuple[str, str] | None:
    """The lines of a change before and after it, with enough lines above to stand once; None where CONTEXT is not."""
    begin = source.text.rfind("\n", 0, change.begin) + 1
    end = source.text.find("\n", change.end)
    end = len(source.text) if end < 0 else end
    for _ in range(CONTEXT + 1):
        find = source.text[begin:end]
        if source.text.count(find) == 1:
            before, after = source.text[begin : change.begin], source.text[change.end : end]
            return find, f"{before}{change.replace}{after}"
        begin = source.text.rfind("\n", 0, max(begin - 1, 0)) + 1
    return None


def draw(
    candidates: Mapping[tuple[str, str], Sequence[Change]],
    number: int,
    seed: int,
    usable: Callable[[str, Change], bool],
) -> list[tuple[str, Change]]:
    """That many usable changes, in turn from every file and rule. The same seed draws the same."""
    generator = random.Random(seed)
    piles = {key: generator.sample(pile, len(pile)) for key, pile in sorted(candidates.items())}
    order = generator.sample(list(piles), len(piles))
    drawn: list[tuple[str, Change]] = []
    while len(drawn) < number and any(piles.values()):
        for key in order:
            while piles[key] and len(drawn) < number:
                change = piles[key].pop()
                if usable(key[0], change):
                    drawn.append((key[0], change))
                    break
    return drawn


@app.command()
def main(
    executed: Annotated[Path, typer.Argument(help="JSON: file in site-packages to the lines that are executed.")],
    site_packages: Annotated[Path, typer.Option(help="The environment's packages.")],
    number: Annotated[int, typer.Option(min=1, help="How many.")] = 60,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 1,
) -> None:
    """Print mutants as TOML, for a list that tests.mutants runs."""
    lines: dict[str, list[int]] = json.loads(executed.read_text(encoding="utf-8"))
    sources = {file: Source((site_packages / file).read_text(encoding="utf-8")) for file in sorted(lines)}
    candidates: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for file, source in sources.items():
        for change in changes(source, set(lines[file])):
            candidates[file, change.rule].append(change)

    def usable(file: str, change: Change) -> bool:
        source = sources[file]
        changed = source.text[change.begin : change.end] != change.replace
        return changed and found_once(source, change) is not None and _parses(source, change)

    names: Counter[str] = Counter()
    for file, change in draw(candidates, number, seed, usable):
        name = _name(PurePosixPath(file), sources[file].line(change.begin), change)
        names[name] += 1
        print(_toml(f"{name}-{names[name]}" if names[name] > 1 else name, file, sources[file], change))


def _parses(source: Source, change: Change) -> bool:
    try:
        ast.parse(source.text[: change.begin] + change.replace + source.text[change.end :])
    except SyntaxError:
        return False
    return True


def _name(path: PurePosixPath, line: int, change: Change) -> str:
    return f"{path.parts[0]}-{path.stem}-{line}-{change.rule}"


def _toml(name: str, file: str, source: Source, change: Change) -> str:
    path = PurePosixPath(file)
    unique = found_once(source, change)
    assert unique is not None
    was, now = source.text[change.begin : change.end].strip(), change.replace.strip()
    why = f"{change.rule}: {' '.join(was.split())} became {' '.join(now.split())}"
    fields: Sequence[tuple[str, str]] = (
        ("id", name),
        ("package", path.parts[0]),
        ("file", str(PurePosixPath(*path.parts[1:]))),
        ("find", unique[0]),
        ("replace", unique[1]),
        ("why", why),
    )
    return "[[mutant]]\n" + "".join(f"{key} = {_quoted(value)}\n" for key, value in fields)


def _quoted(value: str) -> str:
    """A TOML string as people would write it."""
    if "\n" in value and "'''" not in value and not value.startswith("\n"):
        return f"'''{value}'''" if not value.endswith("'") else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)  # TOML takes what JSON does


if __name__ == "__main__":
    app()
