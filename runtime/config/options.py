"""The options of TRL's scripts, read from the installed source: importing them takes 20 seconds.

A script parses the fields of some dataclasses: its own arguments, the trainer's config, the model's, the data's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

UNKNOWN = object()  # the default of a field whose default is computed
SCRIPTS = "trl/scripts"
# Where Transformers keeps the classes that TRL's build on; below trl/ every file may.
TRANSFORMERS = ("training_args.py", "trainer_utils.py", "generation/configuration_utils.py")
TRL = ("scripts/*.py", "trainer/*.py", "*.py")


@dataclass(frozen=True)
class Option:
    """A field: its annotation as it is written, its default, and the values that it takes (empty: any)."""

    name: str
    annotation: str
    default: Any = UNKNOWN
    choices: tuple[str, ...] = ()

    def takes(self, kind: str) -> bool:
        """Whether the annotation names this type, such as "int"."""
        return re.search(rf"(?<![\w.]){kind}\b", self.annotation) is not None


class UnreadableError(Exception):
    """The source is not there, or has another form than every release that was read."""


def read(site: Path, script: str) -> dict[str, Option]:
    """The options of `trl <script>`, by name. `site` is a site-packages folder. Raises UnreadableError."""
    path = site / SCRIPTS / f"{script}.py"
    classes = list(_parsed_classes(_tree(path)))
    if not classes:
        raise UnreadableError(f"{path} names no dataclasses")
    options: dict[str, Option] = {}
    for name in classes:
        options |= _fields(site, name, path)
    return options


def names_in(site: Path, script: str, variable: str) -> tuple[str, ...]:
    """The text keys of a dictionary of this name in `trl <script>`. Empty where there is none."""
    try:
        tree = _tree(site / SCRIPTS / f"{script}.py")
    except UnreadableError:
        return ()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if variable in targets:
                keys = (key.value for key in node.value.keys if isinstance(key, ast.Constant))
                return tuple(key for key in keys if isinstance(key, str))
    return ()


def reward_arguments(site: Path, script: str) -> frozenset[str]:
    """The keywords that the trainer always passes to a reward function, besides the columns of the dataset."""
    try:
        tree = _tree(site / f"trl/trainer/{script}_trainer.py")
    except UnreadableError:
        return frozenset()
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reward_func":
            named = {keyword.arg for keyword in node.keywords if keyword.arg}
            words |= named if "completions" in named else set()
        if isinstance(node, ast.FunctionDef):
            # At the top of a function, so always.
            for statement in node.body:
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "reward_kwargs":
                    words |= {str(target.slice.value)} if isinstance(target.slice, ast.Constant) else set()
    return frozenset(words)


def launcher(site: Path) -> dict[str, bool]:
    """The options of `accelerate launch`, with underscores, and whether each is a flag. Empty if it is unreadable."""
    try:
        tree = _tree(site / "accelerate/commands/launch.py")
    except UnreadableError:
        return {}
    options: dict[str, bool] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            flag = any(ast.unparse(keyword.value) == "'store_true'" for keyword in call.keywords)
            words = [str(argument.value) for argument in call.args if isinstance(argument, ast.Constant)]
            options |= {word[2:].replace("-", "_"): flag for word in words if word.startswith("--")}
    return options


@lru_cache(maxsize=64)
def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from error


def _parsed_classes(tree: ast.Module) -> Iterator[str]:
    """The names in `TrlParser((A, B))`, or in `dataclass_types = (A, B)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "dataclass_types" for target in node.targets
        ):
            yield from _names(node.value)
            return
        arguments = node.args[:1] if isinstance(node, ast.Call) and ast.unparse(node.func) == "TrlParser" else []
        if names := [name for argument in arguments for name in _names(argument)]:
            yield from names
            return


def _names(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from _names(element)
    elif isinstance(node, ast.Name):
        yield node.id


def _fields(site: Path, name: str, beside: Path) -> dict[str, Option]:
    """The fields of a class and of its bases. `beside` is the file that names it. Raises UnreadableError."""
    for path in (beside, *_homes(site)):
        if (node := _class(path, name)) is not None:
            break
    else:
        raise UnreadableError(f"there is no class {name}, so its options are not known")
    options: dict[str, Option] = {}
    for base in reversed([ast.unparse(base) for base in node.bases]):
        options |= _fields(site, base, path)
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            annotation = ast.unparse(field.annotation)
            if not annotation.startswith("ClassVar"):
                choices = _choices(site, field.annotation, annotation)
                options[field.target.id] = Option(field.target.id, annotation, _default(field.value), choices)
    return options


def _homes(site: Path) -> Iterator[Path]:
    for pattern in TRL:
        yield from sorted((site / "trl").glob(pattern))
    for name in TRANSFORMERS:
        yield site / "transformers" / name


def _class(path: Path, name: str) -> ast.ClassDef | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    # A search in the text is a hundred times faster than to parse every file.
    if re.search(rf"^class {re.escape(name)}\b", text, re.MULTILINE) is None:
        return None
    return next(node for node in _tree(path).body if isinstance(node, ast.ClassDef) and node.name == name)


def _default(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call):
        value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
    try:
        return UNKNOWN if value is None else ast.literal_eval(value)
    except ValueError:
        return UNKNOWN


def _choices(site: Path, annotation: ast.expr, text: str) -> tuple[str, ...]:
    """The values of an enumeration, or of a Literal that stands alone; empty where other values are allowed too."""
    if re.search(r"\b(dict|list|List|Dict)\b", text):
        return ()
    names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    # "SaveStrategy | str": the text is converted, and must be a member.
    if members := [member for name in names for member in _enumeration(site, name)]:
        return tuple(members)
    if "Literal" not in names or {"str", "int", "float", "bool"} & set(names):
        return ()
    constants = (node.value for node in ast.walk(annotation) if isinstance(node, ast.Constant))
    return tuple(constant for constant in constants if isinstance(constant, str))


def compared(site: Path, script: str) -> dict[str, frozenset[str]]:
    """The texts with which the trainer compares its attributes: the values that it knows, by the attribute's name."""
    values: dict[str, set[str]] = {}
    try:
        tree = _tree(site / f"trl/trainer/{script}_trainer.py")
    except UnreadableError:
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and len(node.ops) == 1:
            constants = (inner.value for inner in ast.walk(node.comparators[0]) if isinstance(inner, ast.Constant))
            values.setdefault(node.left.attr, set()).update(
                constant for constant in constants if isinstance(constant, str)
            )
    return {name: frozenset(texts) for name, texts in values.items() if len(texts) > 1}


@lru_cache(maxsize=64)
def _enumeration(site: Path, name: str) -> tuple[str, ...]:
    if not name[:1].isupper():
        return ()
    for home in TRANSFORMERS:
        node = _class(site / "transformers" / home, name)
        if node is not None and any("Enum" in ast.unparse(base) for base in node.bases):
            values = (item.value for item in node.body if isinstance(item, ast.Assign))
            return tuple(str(value.value) for value in values if isinstance(value, ast.Constant))
    return ()
