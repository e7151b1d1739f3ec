"""Which names of other packages a package stopped using, and with which release.

    python -m scripts.use_history --fetch CACHE
    python -m scripts.use_history CACHE
    python -m scripts.use_history --check

Reads published wheels with `ast`, importing nothing. A name counts as used where it is imported, or passed as a keyword
to something imported, without a way out: not below a `try` that catches the ImportError, not below an `if` that asks
for a version. So does a distribution that is required. One file a package is written into doctor/know/uses/. `vetted
doctor` looks up there what an error misses: a later release of its caller does without it.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.version import Version

from doctor.base import aliases
from doctor.know import data
from scripts import api_facts, api_history

# Packages that call others, and the first release to read: the first one of every minor version.
CALLERS = {
    "trl": "0.7.0",
    "peft": "0.9.0",
    "accelerate": "0.27.0",
    "transformers": "4.38.0",
    "liger-kernel": "0.3.0",
    "deepspeed": "0.6.0",
    "verl": "0.2",
    "openrlhf": "0.5",
    "llamafactory": "0.8",
    "ms-swift": "2.4",
    "sglang": "0.3.0",
    "unsloth": "2024.11",
    "unsloth-zoo": "2024.11",
    "autoawq": "0.2.0",
    "optimum": "1.17",
    "outlines": "0.0.34",
}
PATCHES = ("sglang", "autoawq", "outlines")  # whose minor versions are years: every patch release is read
# Modules whose names are worth a look: those of packages that change under their callers.
WATCHED = (
    "trl", "peft", "accelerate", "transformers", "torch", "vllm", "deepspeed", "datasets", "huggingface_hub", "numpy",
    "bitsandbytes", "triton", "flash_attn", "flashinfer", "liger_kernel", "tokenizers", "outlines", "ray", "sglang",
    "sgl_kernel", "diffusers", "unsloth", "unsloth_zoo", "xformers", "awq", "mistral_common", "xgrammar", "torchao",
)  # fmt: skip
FOLDER = Path(__file__).resolve().parents[1] / "doctor" / "know" / "uses"
INDEX = "index.json"
USE = re.compile(r"[\w.]+:\w*|[\w.]+\(\w+|requires [a-z0-9-]+")
SKIPPED = ("/tests/", "/test_", "/examples/", "/benchmarks/", "/docs/", "/setup.py")
ASKS = ("version", "greater_or_equal", "hasattr", "type_checking", "signature")
CAUGHT = ("ImportError", "ModuleNotFoundError", "Exception", "AttributeError", "BaseException")


def uses_of(source: str) -> set[str]:
    """What a module uses of the watched packages, as `module:name`, `module:` and `callee(keyword`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    uses: set[str] = set()
    imported: set[str] = set()
    for node in _unguarded(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _watched(node.module or ""):
            uses.add(f"{node.module}:")
            uses |= {f"{node.module}:{alias.name}" for alias in node.names if alias.name != "*"}
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            uses |= {f"{alias.name}:" for alias in node.names if _watched(alias.name)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
            uses |= {f"{node.func.id}({keyword.arg}" for keyword in node.keywords if keyword.arg}
    return uses


def _watched(module: str) -> bool:
    return module.partition(".")[0] in WATCHED


def _unguarded(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs whatever is installed, in the order of the source."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Try) and any(_catches(handler) for handler in child.handlers):
            continue
        if isinstance(child, ast.If) and _asks(ast.unparse(child.test).lower()):
            continue
        yield child
        yield from _unguarded(child)


def _asks(test: str) -> bool:
    """Does a condition ask for a release? "Is it available" is no way out: the name is missing in what is there."""
    return any(word in test for word in ASKS)


def _catches(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(name in ast.unparse(handler.type) for name in CAUGHT)


def scan(file: Path, package: str) -> list[str]:
    """What the modules of a wheel or source distribution use of the watched packages, without its own."""
    uses: set[str] = set()
    for name, source in api_facts.files(file):
        if name.endswith(("METADATA", "PKG-INFO")):
            needs = re.findall(r"^Requires-Dist: ([\w.-]+)", source.partition("\n\n")[0], re.MULTILINE)
            uses |= {f"requires {aliases.normalise(need)}" for need in needs}
        elif name.endswith(".py") and not any(part in f"/{name}" for part in SKIPPED):
            uses |= uses_of(source)
    return sorted(use for use in uses if ":" not in use or aliases.of_module(use.partition(":")[0]) != package)


def chosen(package: str) -> list[Version]:
    """The first release of every minor version."""
    first: dict[tuple[int, ...], Version] = {}
    for version in api_history.releases(package):
        if version >= Version(CALLERS[package]):
            first.setdefault((*version.release, 0)[: 3 if package in PATCHES else 2], version)
    return list(first.values())


def fetch(package: str, cache: Path) -> None:
    """Read every chosen release that the folder lacks."""
    for version in chosen(package):
        path = cache / f"{package}=={version}.uses.json"
        if path.is_file():
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = api_history.download(package, version, folder)
            if file is not None:
                path.write_text(json.dumps(scan(file, package)))
            print(path.name, "read" if file is not None else "CANNOT BE DOWNLOADED", file=sys.stderr, flush=True)


def dropped(package: str, cache: Path) -> dict[str, str]:
    """The first release that does without each name that an earlier release used, and every later one does without."""
    paths = {Version(path.name.split("==")[1][: -len(".uses.json")]): path for path in cache.glob(f"{package}==*.json")}
    last: dict[str, int] = {}
    order = sorted(paths)
    for place, version in enumerate(order):
        for use in json.loads(paths[version].read_text()):
            last[use] = place
    return {use: str(order[place + 1]) for use, place in sorted(last.items()) if place + 1 < len(order)}


def told(uses: dict[str, str]) -> dict[str, str]:
    """The names that an error can miss: every import, and those parameters that came or went."""
    changed = {fact for api in data.load().apis.values() for fact in api.changes if "(" in fact}
    return {use: release for use, release in uses.items() if "(" not in use or use in changed}


def write(packages: Iterable[str], cache: Path, folder: Path, today: str) -> None:
    """Write one file a package, and the list of them. One whose releases are not in the cache stays as it is."""
    folder.mkdir(exist_ok=True)
    for package in packages:
        path, uses = folder / f"{package}.json", told(dropped(package, cache))
        if uses and (not path.is_file() or json.loads(path.read_text())["uses"] != uses):
            path.write_text(text({"date": today, "uses": uses}))
    names = sorted(path.stem for path in folder.glob("*.json") if path.name != INDEX)
    (folder / INDEX).write_text(json.dumps({"packages": names}, indent=0) + "\n")


def text(entry: dict[str, object]) -> str:
    """The content of a file."""
    return json.dumps(entry, indent=0, separators=(",", ":")) + "\n"


def wrong(folder: Path) -> list[str]:
    """What is wrong with the files: not as they are written, without a date, not in order, or not in the list."""
    names = sorted(path.stem for path in folder.glob("*.json") if path.name != INDEX)
    listed = json.loads((folder / INDEX).read_text())["packages"] == names
    faults = [] if listed else [f"{INDEX} does not list the files beside it"]
    for name in names:
        content = (folder / f"{name}.json").read_text()
        entry = json.loads(content)
        if content != text(entry) or list(entry["uses"]) != sorted(entry["uses"]) or name not in CALLERS:
            faults.append(f"{name}: not as the generator writes it")
        if not api_history.is_date(entry["date"]):
            faults.append(f"{name}: it has no date")
        for use, release in entry["uses"].items():
            if not USE.fullmatch(use) or not release[:1].isdigit():
                faults.append(f"{name}: {use} is no use, or {release} no release")
    return faults


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cache", type=Path, nargs="?", help="a folder for the uses of each release")
    parser.add_argument("--check", action="store_true", help="check the files in doctor/know/uses and write nothing")
    parser.add_argument("--fetch", action="store_true", help="download and read what the folder lacks")
    parser.add_argument("--package", action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    if options.check:
        faults = wrong(FOLDER)
        print("\n".join(faults), file=sys.stderr)
        return 1 if faults else 0
    if options.cache is None:
        parser.error("a folder for the uses of each release is needed")
    packages = options.package or list(CALLERS)
    if options.fetch:
        options.cache.mkdir(parents=True, exist_ok=True)
        for package in packages:
            fetch(package, options.cache)
        return 0
    write(packages, options.cache, FOLDER, datetime.datetime.now(datetime.UTC).date().isoformat())
    return 0


if __name__ == "__main__":
    sys.exit(main())
