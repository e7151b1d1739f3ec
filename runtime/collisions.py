"""Name collisions: modules in the user's folder with the name of a module of the stack or of Python."""

from __future__ import annotations

import sys
from pathlib import Path

OURS = ("runtime",)
CODE = (".py", ".pyc", ".so")


def find(folder: Path, site: Path) -> tuple[list[str], list[str]]:
    """Names that `folder` shares with the stack: those whose stack module is imported, and those whose user module is.

    The user's folder is last on the import path, so the stack's modules win. But a stack folder without `__init__.py`
    is only a namespace: any module of that name wins over it, wherever it is.
    """
    stack = _modules(site)
    # A data folder such as `datasets` is not meant to be imported.
    mine = [name for name, regular in _modules(folder).items() if regular and not _is_clone(folder / name)]
    winners = {*sys.stdlib_module_names, *OURS, *(name for name, regular in stack.items() if regular)}
    hidden = sorted(winners.intersection(mine))
    hiding = sorted((stack.keys() - winners).intersection(mine))
    return hidden, hiding


def _is_clone(folder: Path) -> bool:
    """Whether this is the runtime package itself, in a clone of the project."""
    return folder.name in OURS and (folder / Path(__file__).name).is_file()


def _modules(folder: Path) -> dict[str, bool]:
    """The modules that can be imported from a folder, by name; False for a folder without `__init__.py`."""
    modules: dict[str, bool] = {}
    try:
        entries = list(folder.iterdir())
    except OSError:
        return modules
    for path in entries:
        name = path.name.partition(".")[0]
        if not name.isidentifier():
            continue
        if path.suffix in CODE:
            modules[name] = True
        elif path.name == name and path.is_dir():
            modules[name] = modules.get(name, False) or any((path / f"__init__{suffix}").exists() for suffix in CODE)
    return modules
