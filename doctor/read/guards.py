"""Whether an import is sure to run: not under a condition, a try, or a check of what is installed.

Whatever might keep Python from running it counts as a guard, so that nothing is reported which cannot happen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from doctor.read import offers, parsing

# Conditions and calls that look at what is installed. Also functions that a decorator or an earlier line keeps apart.
CHECKS = re.compile(
    r"version|availab|compat|support|hasattr|find_spec|TYPE_CHECKING|requires?_|require\b|skip|importorskip|installed"
    r"|check_|ensure|assert_|_HAS|HAS_|platform|sys\.|is_torch|deprecat|IS_|USE_|ENABLE|environ|getenv",
    re.IGNORECASE,
)
# with suppress(ImportError), with optional_import_block() …
CATCHING = re.compile(r"suppress|import|optional|raises|warns|attempt|try", re.IGNORECASE)
AVAILABLE = re.compile(r"(?:is_|has_)(\w+?)(?:_available|_installed)|(?:is|has)_(\w+)")
HARMLESS = {"AttributeError", "KeyError", "ValueError", "TypeError", "IndexError", "StopIteration", "FileNotFoundError"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Statement:
    """An import that runs whenever its place is reached: when the module is imported, or a function is called."""

    module: str
    names: tuple[str, ...]  # "" for the module alone
    line: int
    function: str = ""  # the function or method; "" where importing the module runs it


def certain(tree: ast.Module, package: str, installed: str = "") -> list[Statement]:
    """Every import of a module that has no guard.

    `package`: of the module, for relative imports. `installed`: a top-level module that is there, so that
    `if is_<installed>_available()` holds.
    """
    try:
        return list(_in_block(tree.body, package, installed, ""))
    except RecursionError:  # nested deeper than anybody writes
        return []


def _in_block(body: list[ast.stmt], package: str, installed: str, function: str) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _of_import(node, package, function)
        elif isinstance(node, FUNCTIONS):
            if not any(CHECKS.search(ast.unparse(decorator)) for decorator in node.decorator_list):
                yield from _in_block(node.body, package, installed, f"{function}.{node.name}".lstrip("."))
        elif isinstance(node, ast.ClassDef):
            if not any(CHECKS.search(ast.unparse(decorator)) for decorator in node.decorator_list):
                # The body of a class runs with its module; its methods do not.
                yield from _in_class(node, package, installed, function)
        else:
            yield from _in_compound(node, package, installed, function)
        if _ends(node, installed):
            return


def _in_class(node: ast.ClassDef, package: str, installed: str, function: str) -> Iterator[Statement]:
    for statement in _in_block(node.body, package, installed, function):
        inside = statement.function[len(function) :].lstrip(".")
        name = f"{function}.{node.name}.{inside}".strip(".") if inside else function
        yield Statement(statement.module, statement.names, statement.line, name)


def _in_compound(node: ast.stmt, package: str, installed: str, function: str) -> Iterator[Statement]:
    if isinstance(node, ast.If):
        holds = _holds(node.test, installed)
        if holds is not None:
            yield from _in_block(node.body if holds else node.orelse, package, installed, function)
    elif isinstance(node, ast.Try):
        if not any(map(_catches, node.handlers)):
            yield from _in_block(node.body, package, installed, function)
            yield from _in_block(node.orelse, package, installed, function)
        yield from _in_block(node.finalbody, package, installed, function)
    elif isinstance(node, (ast.With, ast.AsyncWith)) and not any(
        CATCHING.search(ast.unparse(item.context_expr)) for item in node.items
    ):
        yield from _in_block(node.body, package, installed, function)


def _of_import(node: ast.Import | ast.ImportFrom, package: str, function: str) -> Iterator[Statement]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Statement(alias.name, ("",), node.lineno, function)
        return
    module = offers.absolute(package, node)
    if module:
        names = tuple("" if alias.name == "*" else alias.name for alias in node.names)
        yield Statement(module, names, node.lineno, function)


def _holds(test: ast.expr, installed: str) -> bool | None:
    """Is a condition true? None where that cannot be told."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand, installed)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        values = [_holds(value, installed) for value in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    if name == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Call) and not test.args and not test.keywords:
        callee = test.func.id if isinstance(test.func, ast.Name) else getattr(test.func, "attr", "")
        match = AVAILABLE.fullmatch(callee)
        if match and installed and (match[1] or match[2]) == installed:
            return True
    return None


def _catches(handler: ast.ExceptHandler) -> bool:
    """May a handler catch an ImportError?"""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return not all(isinstance(kind, ast.Name) and kind.id in HARMLESS for kind in kinds)


def _ends(node: ast.stmt, installed: str) -> bool:
    """May what follows in the block not run, or only where something was checked?"""
    if isinstance(node, ast.If) and _holds(node.test, installed) is False:
        return any(map(_leaves, node.orelse))
    if isinstance(node, ast.Assert):
        return bool(CHECKS.search(ast.unparse(node)))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return bool(CHECKS.search(ast.unparse(node.value.func)))
    return _leaves(node)


def _leaves(node: ast.AST) -> bool:
    """Is there a way out of the block in a statement, not in a function that it defines?"""
    if isinstance(node, LEAVING):
        return True
    return not isinstance(node, parsing.SCOPES) and any(map(_leaves, ast.iter_child_nodes(node)))


def module_of(file: str) -> tuple[str, str]:
    """The module of a file of a distribution, and the package that its relative imports start from."""
    parts = file[: -len(".py")].split("/")
    if parts[-1] == "__init__":
        return ".".join(parts[:-1]), ".".join(parts[:-1])
    return ".".join(parts), ".".join(parts[:-1])


def reached(modules: offers.Modules, roots: list[str], most: int = 600) -> dict[str, str]:
    """The modules of a distribution that importing one of its roots is sure to import, each with what imports it."""
    came: dict[str, str] = {}
    tops = {root.partition(".")[0] for root in roots}
    waiting = [(root, "") for root in roots]
    while waiting and len(came) < most:
        module, importer = waiting.pop(0)
        if module in came or module.partition(".")[0] not in tops:
            continue
        location = modules.locate(module)
        if location.kind != "source" or location.path is None:
            continue
        came[module] = importer
        parent = module.rpartition(".")[0]
        if parent:
            waiting.append((parent, importer or module))
        tree = parsing.tree(location.path)
        if tree is None:
            continue
        package = module if location.path.name == "__init__.py" else parent
        for statement in certain(tree, package):
            if not statement.function:
                inner = [f"{statement.module}.{name}" for name in statement.names if name]
                waiting += [(name, module) for name in (statement.module, *inner)]
    return came
