"""The cost of locked layers, compared with one layer for everything: `python -m benchmarks.images`

Three ways to put the same locked distributions on the same base: ours, one layer by uv, and one layer by pip. Each is
built with an empty BuildKit cache from the lock with an earlier TRL, then once more with today's TRL. The order is
reversed from repeat to repeat. Nothing else may run meanwhile. It empties the cache of its BuildKit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pip
from jinja2 import Environment, StrictUndefined

from builder.base import errors, machine, process, project
from builder.base.project import Project, remove
from builder.image import buildx, daemon, oci, render, rootfs, target
from builder.image.buildx import BuildStep
from builder.lock import archives, index, lockfile
from builder.lock.lockfile import Entry, Lock
from builder.pages import evidence, generate, weight

STACK = "trl1.16-cpu"
EARLIER = "1.15.0"  # of TRL: what the bump starts from
BUMPED = "trl"
# At most; where one is missed, the documents say so beside the number.
LIMITS = {"cold_over_pip": 0.6, "cold_over_uv": 1.0, "bump_over_uv": 0.10, "pulled_over_files": 1.5}
FIRST_STEPS = 3  # runs of each image for the time to the first step, after one that only warms the disk's cache

# One layer as people write it, but on our base, and without the host name of an index in it.
LAYER = Path(__file__).with_name("layer.Dockerfile.j2")


@dataclass(frozen=True)
class Way:
    """A way to build: the installer of its one layer (None: ours), and how the image is compressed (None: as ours)."""

    name: str
    installer: Literal["uv", "pip"] | None
    export: str | None = None
    bytecode: bool = True

    @property
    def tag(self) -> str:
        return f"vetted-bench/{self.slug}:it"

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")

    def dockerfile(self, python: str) -> str:
        """The Dockerfile of its one layer."""
        template = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True).from_string(
            LAYER.read_text(encoding="utf-8")
        )
        return template.render(
            installer=self.installer, bytecode=self.bytecode, python=python, cache=f"vetted-bench-{self.slug}"
        )


WAYS = (
    Way("vetted", None),
    Way("uv", "uv"),
    Way("pip", "pip", "compression=gzip,force-compression=true"),  # Docker's default, as in TRL's own image
)
WITHOUT_BYTECODE = Way("uv without bytecode", "uv", bytecode=False)


@dataclass(frozen=True)
class Built:
    seconds: float
    image: oci.Image


class Bench:
    """Builds below one scratch folder. The base and the contexts are made before the clock starts, for all alike."""

    def __init__(self, home: Project, lock: Lock, scratch: Path) -> None:
        self.home, self.scratch = home, scratch
        self.locks = {"earlier": _with(lock, scratch, BUMPED, EARLIER), "today": lock}

    def build(self, way: Way, which: str, earlier: Built | None = None) -> Built:
        """Build it cold, or beside the image of an earlier build."""
        folder = self.scratch / "build"
        remove(folder)
        folder.mkdir()
        lock = self.locks[which]
        ours = target.make(self.home, lock, folder, _quiet, fresh=False)
        context, dockerfile = Path(ours.context), folder / "Dockerfile"
        output, contexts, secrets = ours.output[0], ours.contexts, list[str]()
        if way.installer is None:
            dockerfile.write_text(render.dockerfile(self.home, lock))
        else:
            (context / "requirements" / "all.txt").write_text(lockfile.format_python(lock.python))
            dockerfile.write_text(way.dockerfile(lock.stack.python))
            config, url = folder / "pip.conf", machine.index()
            config.write_text(f"[global]\nindex-url = {url}\n" if url else "")
            uv = folder / "uv.toml"
            uv.write_text(f"index-url = {json.dumps(url)}\n" if url else "")
            secrets = [f"id=pip,src={config}", f"id=uv,src={uv}"]
            if authority := machine.ca_bundle():
                secrets.append(f"id=ca,src={authority}")
            wheels = archives.gather((context / "wheels").rglob("*.*"), folder / "wheels")
            contexts = {**contexts, "wheels": str(wheels), "pip": str(Path(pip.__file__).parent.parent)}
        if way.export:
            output = f"type=oci,tar=false,dest={folder / target.LAYOUT},{way.export}"
        argv = [
            "docker", "buildx", "build", "--progress=rawjson", "--file", str(dockerfile), "--tag", way.tag,
            *(f"--build-arg={name}={value}" for name, value in ours.args.items()),
            *(f"--build-context={name}={path}" for name, path in contexts.items()),
            *(f"--secret={secret}" for secret in secrets),
            *(f"--attest={attest}" for attest in ours.attest),
            f"--output={output}",
            str(context),
        ]  # fmt: skip
        start = time.monotonic()
        if earlier:
            oci.seed(folder / target.LAYOUT, earlier.image)
        buildx.run(way.name, argv, _quiet)
        seconds = time.monotonic() - start
        oci.sweep(oci.read(folder / target.LAYOUT))
        layout = self.scratch / f"{way.name} {which}"
        remove(layout)
        (folder / target.LAYOUT).rename(layout)
        return Built(seconds, oci.read(layout))

    def first_step(self, way: Way) -> float:
        """Seconds from `docker run` to the end of the first GRPO step of the built-in task, in a new container."""
        argv = [
            "docker", "run", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp:exec,mode=1777",
            "--tmpfs", "/runs:mode=1777", "--user", "1000:1000", "--volume", f"{self.home.runtime}:/bench/runtime:ro",
            "--env", "PYTHONPATH=/bench", "--env", "PYTHONDONTWRITEBYTECODE=1", "--env", "HOME=/tmp",
            "--entrypoint", "python", way.tag, "-P", "-m", "runtime", "train", "--max_steps", "1",
        ]  # fmt: skip
        start = time.monotonic()
        with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as child:
            assert child.stderr is not None
            output = []
            for line in child.stderr:
                output.append(line)
                if line.startswith("step 1/1"):
                    seconds = time.monotonic() - start
                    child.communicate()
                    return seconds
        raise errors.from_tool(f"the first step in the image by {way.name}", "".join(output))


def _quiet(_: BuildStep) -> None:
    pass


def _with(lock: Lock, scratch: Path, name: str, version: str) -> Lock:
    """The same lock with another version of one distribution."""
    file = index.offers(lock.stack, scratch, [f"{name}=={version}"])[0][name][0]
    python = tuple(Entry(name, version, file.sha256) if entry.name == name else entry for entry in lock.python)
    return lockfile.assemble(
        lock.name, lock.stack, python, lock.build, lock.debian, lock.epoch, lock.intent, lock.patches
    )  # fmt: skip


def _prune() -> None:
    process.check("emptying BuildKit's cache", ["docker", "buildx", "prune", "--all", "--force"])


def _load(way: Way, image: oci.Image) -> None:
    loading = ["sh", "-c", 'tar -C "$1" -cf - . | docker load', "sh", str(image.layout)]
    process.check(f"loading the image by {way.name}", loading)


def measure(home: Project, lock: Lock, scratch: Path, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    bench = Bench(home, lock, scratch)
    cold: dict[str, list[float]] = {way.name: [] for way in WAYS}
    bump: dict[str, list[float]] = {way.name: [] for way in WAYS}
    images: dict[str, oci.Image] = {}
    pulled: dict[str, int] = {}
    for repeat in range(repeats):
        for way in WAYS if repeat % 2 == 0 else reversed(WAYS):
            _prune()
            earlier = bench.build(way, "earlier")
            today = bench.build(way, "today", earlier)
            cold[way.name].append(earlier.seconds)
            bump[way.name].append(today.seconds)
            say(f"{way.name:<8} cold {earlier.seconds:6.1f} s   one pin changed {today.seconds:6.1f} s")
            present = {layer.digest for layer in earlier.image.layers}
            pulled[way.name] = sum(layer.size for layer in today.image.layers if layer.digest not in present)
            images[way.name] = today.image
    _prune()
    images[WITHOUT_BYTECODE.name] = bench.build(WITHOUT_BYTECODE, "today").image
    steps: dict[str, list[float]] = {WAYS[0].name: [], WITHOUT_BYTECODE.name: []}
    for way in (WAYS[0], WITHOUT_BYTECODE):
        _load(way, images[way.name])
        bench.first_step(way)
    for repeat in range(FIRST_STEPS):
        for way in (WAYS[0], WITHOUT_BYTECODE) if repeat % 2 == 0 else (WITHOUT_BYTECODE, WAYS[0]):
            steps[way.name].append(bench.first_step(way))
            say(f"{way.name:<20} first step after {steps[way.name][-1]:5.1f} s")
    files = weight.locked_files(lock, scratch)[BUMPED]
    return {
        "stack": lock.name,
        "lock": lock.digest,
        "bumped": f"{BUMPED} {EARLIER} to {lock.versions[BUMPED]}",
        "files_bytes": files,
        "ways": {
            way.name: {
                "cold_s": _rounded(cold[way.name]),
                "bump_s": _rounded(bump[way.name]),
                "bytes": images[way.name].size,
                "pulled_bytes": pulled[way.name],
            }
            for way in WAYS
        },
        "limits": LIMITS,
        "first_step_s": {name: _rounded(seconds) for name, seconds in steps.items()},
        "ratios": {
            "cold_over_pip": _ratio(cold, "vetted", "pip"),
            "cold_over_uv": _ratio(cold, "vetted", "uv"),
            "bump_over_uv": _ratio(bump, "vetted", "uv"),
            "pulled_over_files": round(pulled["vetted"] / files, 2),
            "first_step_over_without_bytecode": _ratio(steps, "vetted", WITHOUT_BYTECODE.name),
        },
    }


def _rounded(seconds: Sequence[float]) -> list[float]:
    return [round(second, 1) for second in seconds]


def _ratio(seconds: dict[str, list[float]], name: str, other: str) -> float:
    return round(statistics.median(seconds[name]) / statistics.median(seconds[other]), 3)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.images", description=__doc__)
    parser.add_argument("--stack", default=STACK)
    parser.add_argument("--repeats", type=int, default=2, help="cold builds of each way")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/bench.json")
    options = parser.parse_args(arguments)
    home = project.find()
    lock = lockfile.load(home, options.stack)
    daemon.docker()
    with home.holding("bench") as scratch, home.holding(lock.name):
        rootfs.make(home, lock, scratch, fresh=False)
        measured = measure(home, lock, scratch, options.repeats, lambda line: print(line, file=sys.stderr, flush=True))
        if options.record:
            command = " ".join(["python -m benchmarks.images", *(arguments or sys.argv[1:])])
            evidence.store(home, "bench", {**evidence.head(command), **measured}, scratch)
            generate.refresh(home, scratch)
    good = True
    for name, limit in LIMITS.items():
        ratio = measured["ratios"][name]
        good &= ratio <= limit
        print(f"{name:<34} {ratio:6.2f}   (at most {limit})")
    print(f"{'first_step_over_without_bytecode':<34} {measured['ratios']['first_step_over_without_bytecode']:6.2f}")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"images: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
