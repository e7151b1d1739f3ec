"""Own packages on a stack, in a real image: the parent's layers as they are, one more, and the same bytes twice."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.image import build, daemon, oci, own, render, target
from builder.lock import archives, lockfile
from builder.lock.lockfile import Lock
from builder.publish import attached
from builder.publish.reference import parse_repository
from tests.conftest import make_wheel
from tests.engine.conftest import PLANTED, ROOT, Workshop
from tests.engine.test_docker import holds
from tests.engine.test_prove import SMALL, beside
from tests.engine.test_prove import small as small
from tests.registry.conftest import PASSWORD, make_keys
from tests.registry.server import serving

pytestmark = pytest.mark.usefixtures("docker")
MINE = "mine"
# A wheel of the index with what it needs, one that is published without a wheel, and a Debian package with a library.
LINES = ("nltk", "pylatexenc<3")
DEBIAN = "tree"
# The bytes of the layer, by those of the new wheels, for pure Python: 1.9 was measured, because bytecode is larger than
# compressed source, and imports take two to three times as long without it. The goal of 1.5 is met by packages as they
# come, some of them compiled: docs/reference/extensions.md.
TIMES = 2.0
SOUND = 'title = "sound"\ndevice = "cpu"\npython = "3.11"\ndebian = "bookworm"\nrequires = ["psutil"]\n'
PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "thief"
version = "1.0"
"""
SETUP = """\
from pathlib import Path
from setuptools import setup
Path("psutil").mkdir(exist_ok=True)
Path("psutil/__init__.py").write_text("stolen = 1")
setup(packages=["psutil"])
"""


def extend(workshop: Workshop, parent: str, *options: str, **env: str) -> Any:
    """An extension by packages of the index, and by a wheel that lies beside the requirements."""
    wheel, _ = make_wheel(workshop.root / "dist", "own-rewards", "1.4", {"own_rewards.py": "VERSION = '1.4'\n"})
    lines = (*LINES, f"dist/{wheel.name}")
    (workshop.root / "mine.txt").write_text("".join(f"{line}\n" for line in lines))
    return workshop.json("extend", parent, "mine.txt", "--name", MINE, *options, env=env)


def image_of(workshop: Workshop, name: str, **env: str) -> oci.Image:
    return oci.read(Path(workshop.json("build", name, env=env)["layout"]))


def inside(workshop: Workshop, *argv: str) -> str:
    """What a program prints in the image of the extension, as a container runs it."""
    home = workshop.project
    lock = lockfile.load(home, MINE)
    loaded = daemon.load(build.needed(home, lock).image, target.reference(home, lock))
    command = ["docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL"]
    done = subprocess.run([*command, loaded.reference, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def packages_bytes(workshop: Workshop, lock: Lock) -> int:
    """The bytes of the wheels, source archives and Debian packages that an extension adds."""
    home = workshop.project
    entries = [entry for entry in lock.python if entry.name in lock.own.python]
    with home.holding(MINE) as scratch:
        files = list(archives.fetch(home, lock.stack, entries, scratch, lambda _: None).values())
        files += [home.state / "debs" / f"{entry.sha256}.deb" for entry in lock.debian if entry.name in lock.own.debian]
        return sum(file.stat().st_size for file in files)


@pytest.fixture(autouse=True)
def images() -> Iterator[None]:
    yield
    listed = subprocess.run(
        ["docker", "images", "--quiet", f"vetted/{MINE}"], capture_output=True, text=True, check=True
    )
    subprocess.run(["docker", "image", "rm", "--force", *listed.stdout.split()], capture_output=True, check=False)


def test_the_parents_layers_stay_and_one_is_added_that_is_the_same_twice(
    small: Workshop, planted: dict[str, str], tmp_path: Path
) -> None:
    """The proof builds every kind of layer twice without any cache: those of the parent, and the one more."""
    parent = image_of(small, SMALL)
    answer = extend(small, SMALL, "--debian", DEBIAN, **planted)
    assert answer["extends"]["digest"] == lockfile.load(small.project, SMALL).digest
    assert DEBIAN in answer["debian"] and set(answer["own"]) >= {"nltk", "own-rewards", "pylatexenc"}
    proof = small.json("build", MINE, "--prove", env=planted)
    mine = image_of(small, MINE)  # the one that was proven
    kept = small.json("build", MINE, "--output", str(tmp_path / "kept"))
    assert proof["identical"] is True
    assert proof["first"] == proof["second"] == mine.manifest == kept["manifest"]
    assert not any(oci.damaged(oci.read(tmp_path / "kept")))
    assert [layer.digest for layer in mine.layers[:-1]] == [layer.digest for layer in parent.layers]
    lock = lockfile.load(small.project, MINE)
    assert len(mine.layers) == len(render.layers(lock)) == len(parent.layers) + 1
    packages = packages_bytes(small, lock)
    assert mine.layers[-1].size <= TIMES * packages, f"{mine.layers[-1].size} bytes of {packages}"

    # What is own is there and works; what the parent had is what it was.
    assert "usr/bin" in inside(small, "tree", "-fi", "/usr", "-L", "1")
    code = "import nltk, own_rewards, pylatexenc; print(own_rewards.VERSION)"
    assert inside(small, "python", "-c", code) == "1.4\n"
    stack_json = json.loads(inside(small, "cat", "/etc/vetted/stack.json"))
    assert (stack_json["stack"], stack_json["lock"], stack_json["extends"]["stack"]) == (MINE, lock.digest, SMALL)
    constraints = inside(small, "cat", f"/{own.CONSTRAINTS}").splitlines()
    assert constraints == [f"{name}=={version}" for name, version in lock.versions.items()]
    environment = inside(small, "env").splitlines()
    for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"):
        assert f"{name}=/{own.CONSTRAINTS}" in environment
    assert inside(small, "find", "/opt", "/usr", "/etc/vetted", "-newermt", f"@{lock.epoch}") == ""
    assert (
        inside(small, "stat", "--format=%a %U", "/tmp", "/usr/bin", "/home/vetted")
        == "1777 root\n755 root\n755 vetted\n"
    )

    # No password of the machine went anywhere.
    needle = PLANTED.encode()
    assert [path for path in (mine.layout / "blobs").rglob("*") if path.is_file() and holds(path, needle)] == []
    folder = small.project.stack_dir(MINE)
    assert [path for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()] == []


def test_it_is_certified_published_verified_and_chosen_as_any_stack(
    depot: Workshop, planted: dict[str, str], tmp_path: Path
) -> None:
    """By a suite of one small probe, because the parent has no torch: it is sound, and as small as can be."""
    small = beside(depot, tmp_path / "project", SOUND, {"psutil"})
    small.keep_probes()
    shutil.copy(ROOT / "tests" / "smoke" / "faulty" / "good.py", small.project.smoke / "probes")
    extend(small, SMALL, "--debian", DEBIAN, **planted)
    assert small.json("certify", MINE, "--engine", "docker", env=planted)["result"] == "PASSED"
    lock, keys = lockfile.load(small.project, MINE), make_keys(tmp_path / "keys")
    with serving(tmp_path / "store") as host:
        where, password = f"{host}/images", {"COSIGN_PASSWORD": PASSWORD}
        mine = ("--registry", where, "--key", str(keys.private))
        published = small.json("publish", MINE, *mine, env=password)
        assert published["image"] == image_of(small, MINE).manifest
        theirs = ("--key", str(keys.public))
        verdict = small.json("verify", f"{where}:{MINE}", *theirs)
        assert (verdict["good"], verdict["stack"], verdict["lock"]) == (True, MINE, lock.digest)
        assert [each["passed"] for each in verdict["certificates"]] == [["good"]]
        chosen = small.json("use", MINE, "--registry", where, *theirs)
        assert (chosen["stack"], chosen["image"]) == (MINE, f"{where}@{published['image']}")
        envelopes = attached.fetch(parse_repository(where, insecure=False), published["image"])
        (bill,) = [each.statement["predicate"] for each in envelopes if each.predicate_type == attached.BILL]
        other = make_keys(tmp_path / "others")
        assert small.json("verify", f"{where}:{MINE}", "--key", str(other.public), code=1)["good"] is False
    listed = {component["purl"]: component for component in bill["components"]}
    own = [entry for entry in lock.python if entry.name in lock.own.python]
    assert {"nltk", "own-rewards", "pylatexenc"} <= {entry.name for entry in own}
    for entry in own:
        (hash_,) = listed[f"pkg:pypi/{entry.name}@{entry.version}"]["hashes"]
        assert hash_["content"] == entry.sha256
    assert any(url.startswith(f"pkg:deb/debian/{DEBIAN}@") for url in listed)


def test_a_source_distribution_that_brings_a_file_of_the_parents_stops_the_build(small: Workshop) -> None:
    """Only the image build sees what it makes: the file is not in its archive, and no wheel is there to be read."""
    project = small.root / "thief"
    project.mkdir()
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "setup.py").write_text(SETUP)
    git = ["git", "-C", str(project), "-c", "user.name=me", "-c", "user.email=me@host.test"]
    for argv in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *argv], check=True)
    at = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    (small.root / "mine.txt").write_text(f"thief @ git+file://{project}@{at}\n")
    small.json("extend", SMALL, "mine.txt", "--name", MINE)
    done = small.vetted("build", MINE)
    assert done.returncode == 1
    assert "brings another psutil/__init__.py than psutil-" in done.stderr
