"""Reward functions: do they exist, and do they take what the trainer passes?"""

from __future__ import annotations

import ast
import importlib.machinery
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.check import Check
from runtime.config.names import nearest
from runtime.config.source import Config, Setting

SCRIPTS = ("grpo", "rloo")  # the scripts that take reward functions
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Call:
    """The keywords of a call: those that TRL always passes, and the columns of the data; empty where not known."""

    passed: frozenset[str]
    columns: frozenset[str]


def look(config: Config, site: Path, here: Path, known: Collection[str], call: Call) -> Iterator[Check]:
    """Checks of `reward_funcs`. `known` are TRL's own."""
    setting = config.find("reward_funcs")
    if setting is None or not setting.value:
        if not config.get("reward_model_name_or_path"):
            message = "there is no reward: neither reward_funcs nor reward_model_name_or_path is set"
            yield Check(
                "stop", message, "name a function, such as reward_funcs: [rewards.accuracy] for rewards.py here"
            )
        return
    if isinstance(setting.value, str) and setting.line is not None:
        message = f"{config.place(setting)}: reward_funcs is a text, and TRL would take it letter by letter"
        yield Check("stop", message, f"give a list: [{setting.value}]")
        return
    names = setting.value if isinstance(setting.value, list) else [setting.value]
    for name in map(str, names):
        if "." in name:
            yield from _dotted(config, setting, name, site, here, call)
        elif name not in known:
            close = nearest(name, known)
            message = f"{config.place(setting)}: there is no reward function {name} in TRL"
            others = f"give one of {', '.join(known)}, or" if known else "give"
            yield Check(
                "stop", message, f"did you mean {close}?" if close else f"{others} module.function for your own"
            )
    weights = config.find("reward_weights")
    if weights is not None and isinstance(weights.value, list) and len(weights.value) != len(names):
        message = f"{config.place(weights)}: {len(weights.value)} reward_weights for {len(names)} reward_funcs"
        yield Check("stop", message, "give one weight for each function")


def _dotted(config: Config, setting: Setting, name: str, site: Path, here: Path, call: Call) -> Iterator[Check]:
    module, _, function = name.rpartition(".")
    place = config.place(setting)
    folders = (site, Path(__file__).parents[2], here)
    path = _module(module, folders)
    if path is None and _unreadable(module, folders):
        return
    if path is None:
        files = [file.stem for file in here.glob("*.py")]
        close = nearest(module, files)
        message = f"{place}: there is no module {module} for the reward function {name}"
        yield Check(
            "stop", message, f"did you mean {close}.{function}?" if close else f"put {module}.py beside the config"
        )
        return
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        yield Check("stop", f"{path.name}:{error.lineno}: Python does not read this: {error.msg}", "fix that line")
        return
    except (OSError, ValueError) as error:
        yield Check("stop", f"{place}: {path.name} cannot be read: {error}", f"chmod a+r {path.name}")
        return
    bound = _bound(tree)
    if bound is not None and function not in bound:
        close = nearest(function, bound)
        functions = sorted(name for name, node in bound.items() if isinstance(node, FUNCTIONS) and name[0] != "_")
        advice = f"it has {', '.join(functions)}" if functions else f"write def {function}(completions, **kwargs)"
        message = f"{place}: {path.name} has no function {function}"
        yield Check("stop", message, f"did you mean {module}.{close}?" if close else advice)
        return
    definition = (bound or {}).get(function)
    if isinstance(definition, FUNCTIONS) and not definition.decorator_list:
        yield from _signature(definition, path.name, call)


def _module(name: str, folders: tuple[Path, ...]) -> Path | None:
    """The file of a module, looked for as the run does: the stack, Vetted's own, then beside the config."""
    relative = name.replace(".", "/")
    for folder in folders:
        for path in (folder / f"{relative}.py", folder / relative / "__init__.py"):
            if path.is_file():
                return path
    return None


def _unreadable(name: str, folders: tuple[Path, ...]) -> bool:
    """Whether a module may be there without a source to read: of Python's own, or compiled."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    endings = (*importlib.machinery.EXTENSION_SUFFIXES, *importlib.machinery.BYTECODE_SUFFIXES)
    files = (folder / (name.replace(".", "/") + ending) for folder in folders for ending in endings)
    return any(file.is_file() for file in files)


def _bound(tree: ast.Module) -> dict[str, ast.AST] | None:
    """What a module binds at its top level, by name; None if that cannot be known without running it."""
    names: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return None
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            return None
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0]: node for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, node)
    # The last definition wins, so these come after what is nested.
    names |= {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return names | {node.name: node for node in tree.body if isinstance(node, FUNCTIONS)}


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef, file: str, call: Call) -> Iterator[Check]:
    arguments = function.args
    takes = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
    passed = call.passed | call.columns
    place = f"{file}:{function.lineno}"
    if arguments.kwarg is None and (missing := sorted(passed - set(takes))):
        message = f"{place}: {function.name} does not take {', '.join(missing)}, which TRL passes"
        yield Check("stop", message, f"add **kwargs: def {function.name}({', '.join([*takes, '**kwargs'])})")
        return
    optional = {argument.arg for argument in arguments.args[len(arguments.args) - len(arguments.defaults) :]}
    optional |= {
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    required = {argument.arg for argument in arguments.posonlyargs} | set(takes) - optional
    if call.passed and call.columns and (extra := sorted(required - passed)):
        close = nearest(extra[0], passed)
        message = f"{place}: {function.name} needs {', '.join(extra)}, which is neither passed by TRL nor a column"
        yield Check("stop", message, f"did you mean {close}?" if close else "add that column to the data, or a default")
