"""Names in the user's folder that the stack has as well: whose module is imported under them."""

from __future__ import annotations

import sys
from pathlib import Path

OURS = ("runtime",)
CODE = (".py", ".pyc", ".so")


def shared(folder: Path, site: Path) -> tuple[list[str], list[str]]:
    """The names in `folder` for which the stack's module is imported, and those for which the user's one is.

    The user's folder comes last on the path of imports, so the stack's modules win. A folder of the stack without
    `__init__.py` is no module: any module of that name wins over it, wherever it lies.
    """
    stack = _modules(site)
    # A folder of data such as `datasets` is not meant to be imported.
    mine = [name for name, whole in _modules(folder).items() if whole and not _own(folder / name)]
    known = {*sys.stdlib_module_names, *OURS, *(name for name, whole in stack.items() if whole)}
    hidden = sorted(known.intersection(mine))
    winning = sorted((stack.keys() - known).intersection(mine))
    return hidden, winning


def _own(folder: Path) -> bool:
    """Is that this package itself, in a clone of the project?"""
    return folder.name in OURS and (folder / Path(__file__).name).is_file()


def _modules(folder: Path) -> dict[str, bool]:
    """What can be imported from a folder; False for a folder without `__init__.py`."""
    found: dict[str, bool] = {}
    try:
        entries = list(folder.iterdir())
    except OSError:
        return found
    for path in entries:
        name = path.name.partition(".")[0]
        if not name.isidentifier():
            continue
        if path.suffix in CODE:
            found[name] = True
        elif path.name == name and path.is_dir():
            found[name] = found.get(name, False) or any((path / f"__init__{suffix}").exists() for suffix in CODE)
    return found
