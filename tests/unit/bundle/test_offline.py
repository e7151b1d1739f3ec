"""On the host: a certificate only for exactly the lock, and every difference is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.base import errors, machine
from builder.base.project import Project
from builder.bundle import host, offline
from builder.bundle.contents import CarriedFile, Contents, read_unpacked
from builder.bundle.host import HostDistribution
from builder.bundle.offline import Installed
from builder.certify import certificate
from builder.certify.certify import Certification, Options
from builder.lock import lockfile
from tests.conftest import BAD_RUN, GOOD_RUN, PYTHON, TINY, Small, make_wheel
from tests.unit.bundle.conftest import make, unpacked

HOST = Options("cpu", "host")


EXACT = [Installed("tiny-lib", "1.0", of_host=False)]


def contents_of(small: Small, python: str = PYTHON, sha256: str = "") -> Contents:
    (entry,) = small.lock.python
    carried = CarriedFile(
        name=entry.name, version=entry.version, file="tiny_lib-1.0-py3-none-any.whl", sha256=sha256 or entry.sha256
    )
    return Contents(
        stack=TINY, lock=small.lock.digest, suite="", python=python, distributions=[carried], build=[], left_out=[]
    )


def test_an_environment_that_is_exactly_the_lock_has_no_differences(small: Small) -> None:
    assert offline.differences(small.lock, contents_of(small), f"{PYTHON}.7", EXACT) == {}
    # What builds the source distributions is no part of it, even where it has the name of one that is.
    small.edit("build.txt", "setuptools==80.0", "tiny-lib==0.9")
    assert offline.differences(small.lock, contents_of(small), f"{PYTHON}.7", EXACT) == {}


@pytest.mark.parametrize(
    ("python", "distributions", "sha256", "expected"),
    [
        ("3.99.1", EXACT, "", {"python": f"3.99.1, not {PYTHON}"}),
        (f"{PYTHON}9.1", EXACT, "", {"python": f"{PYTHON}9.1, not {PYTHON}"}),
        (f"{PYTHON}.7", [], "", {"distributions": ["tiny-lib missing: 1.0"]}),
        (f"{PYTHON}.7", [Installed("tiny-lib", "1.0+cu130", False)], "",
         {"distributions": ["tiny-lib 1.0+cu130, not 1.0"]}),
        (f"{PYTHON}.7", [*EXACT, Installed("tiny-lib", "0.9", False)], "",
         {"distributions": ["tiny-lib 1.0 and 0.9, not 1.0"]}),
        (f"{PYTHON}.7", [*EXACT, Installed("more", "2", False)], "", {"distributions": ["more 2, not in the lock"]}),
        (f"{PYTHON}.7", [Installed("tiny-lib", "1.0", True)], "", {"files of the host": ["tiny-lib 1.0"]}),
        (f"{PYTHON}.7", EXACT, "0" * 64, {"files not of the lock": ["tiny-lib"]}),
    ],
)  # fmt: skip
def test_every_difference_is_named(
    small: Small, python: str, distributions: list[Installed], sha256: str, expected: dict[str, object]
) -> None:
    assert offline.differences(small.lock, contents_of(small, sha256=sha256), python, distributions) == expected


def test_long_lists_are_cut_for_people() -> None:
    lines = offline.summary({"python": "3.12.3, not 3.11", "files of the host": [f"a{n} 1" for n in range(20)]})
    assert lines[0] == "python: 3.12.3, not 3.11"
    assert lines[1].endswith("a7 1 and 12 more")


Host = Callable[..., Certification]


@pytest.fixture
def on_host(bare: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Bundle, unpack, and run; this Python is the host's."""

    def run(versions: dict[str, str] | None = None, python: Path | None = None) -> Certification:
        folder, to = tmp_path / "carried", tmp_path / "to"
        make(bare, folder, versions)
        project = Project(unpacked(folder, to))
        monkeypatch.setenv("VETTED_STATE", str(to))
        monkeypatch.delenv("VETTED_WHEELHOUSE")  # from the bundle only
        lock, contents = read_unpacked(project)
        with project.holding(TINY) as scratch:
            return offline.run(
                project, lock, contents, HOST, python or Path(sys.executable), scratch, lambda _: None, lambda _: None
            )

    return run


def test_exactly_the_lock_and_a_suite_that_passes_earn_a_certificate(on_host: Host, bare: Small) -> None:
    bare.suite(
        'import sys, tiny_lib\nassert tiny_lib.greeting == "somebody"\n' + GOOD_RUN  # patched
    )
    outcome = on_host()
    statement, path = outcome.statement, outcome.certificate
    assert path is not None
    assert path.parts[-2:] == ("certificates", "cpu-host.json")
    assert certificate.read(path) == statement
    assert statement.subject[0].digest == certificate.bare(bare.lock.digest)
    engine = statement.resource("engine").annotations or {}
    assert engine["name"] == "host" and str(engine["bundle"]).startswith("sha256:")
    assert certificate.DIFFERENCES not in {resource.name for resource in statement.predicate.configuration}
    # Copied back, it is found there.
    back = certificate.path(bare.project, TINY, "cpu", "host")
    back.parent.mkdir()
    shutil.copy(path, back)
    assert certificate.of_stack(bare.project, TINY) == {"cpu-host": statement}


def test_a_suite_that_fails_writes_a_report(on_host: Host, bare: Small) -> None:
    bare.suite(BAD_RUN)
    outcome = on_host()
    assert (outcome.statement.predicate.result, outcome.certificate) == ("FAILED", None)
    path = outcome.report
    assert path is not None
    assert path.parts[-2:] == ("reports", "cpu-host.json")


@pytest.fixture
def host_python(tmp_path: Path) -> Path:
    """The interpreter of a host that has a distribution at another version than its freeze says."""
    uv = [machine.uv_binary(), "--quiet"]
    root = tmp_path / "host"
    subprocess.run([*uv, "venv", "--no-project", "--python", sys.executable, str(root)], check=True)
    wheel, _ = make_wheel(tmp_path / "own", "more-lib", "0.9", {"more_lib/__init__.py": "", "more_lib/x.py": ""})
    install = [*uv, "pip", "install", "--no-index", "--python", str(root / "bin" / "python"), str(wheel)]
    subprocess.run(install, check=True)
    return root / "bin" / "python"


def test_a_host_with_another_version_ends_in_a_report_that_names_it(
    on_host: Host, bare: Small, host_python: Path
) -> None:
    """Even when all passes; and a report that was copied back all the same is no certificate."""
    _, sha256 = make_wheel(bare.wheelhouse, "more-lib", "1.0", {"more_lib/__init__.py": ""})
    bare.edit("stack.toml", '["tiny-lib==1.0"]', '["tiny-lib==1.0", "more-lib==1.0"]')
    requirements = bare.file("requirements.txt")
    requirements.write_text(f"{requirements.read_text()}more-lib==1.0 --hash=sha256:{sha256}\n")
    bare.file("lock.toml").write_text(
        lockfile.header(TINY) + lockfile.format_meta(lockfile.intent(bare.lock.stack), 1_700_000_000)
    )
    bare.suite("import sys, more_lib.x\n" + GOOD_RUN)
    outcome = on_host({"more-lib": "1.0", "tiny-lib": "1.0"}, host_python)
    statement, path = outcome.statement, outcome.report
    assert (statement.predicate.result, outcome.certificate) == ("PASSED", None)
    assert path is not None
    assert path.parts[-2:] == ("reports", "cpu-host.json")
    differences = statement.resource(certificate.DIFFERENCES).annotations
    assert differences == {
        "distributions": ["more-lib 0.9, not 1.0"], "files of the host": ["more-lib 0.9"],
    }  # fmt: skip
    back = certificate.path(bare.project, TINY, "cpu", "host")
    back.parent.mkdir()
    shutil.copy(path, back)
    with pytest.raises(errors.BadInputError, match="is a report"):
        certificate.of_stack(bare.project, TINY)


def test_a_host_without_what_was_left_out_is_told_before_any_work(
    bare: Small, tmp_path: Path, host_python: Path
) -> None:
    contents = contents_of(bare).model_copy(update={"left_out": ["more-lib", "gone"]})
    with pytest.raises(errors.BadInputError, match="does not have: gone") as caught:
        offline.prepare(bare.project, bare.lock, contents, host_python, tmp_path, lambda _: None)
    assert "--have" in caught.value.next_step


def test_the_hosts_own_files_are_linked_and_never_written(tmp_path: Path, host_python: Path) -> None:
    (distribution,) = host.distributions(host_python, ["more-lib", "not-there"])
    assert (distribution.name, distribution.version) == ("more-lib", "0.9")
    environment = tmp_path / "environment"
    site = environment / "lib" / "site-packages"
    (site / "more_lib").mkdir(parents=True)
    (site / "more_lib" / "x.py").write_text("ours")
    host.link(distribution, environment, site)
    assert (site / "more_lib" / "x.py").read_text() == "ours"
    assert (site / "more_lib" / "__init__.py").resolve() == distribution.folder / "more_lib" / "__init__.py"
    # Whatever a list of files says, nothing is linked outside of the environment.
    hostile = HostDistribution("evil", "1", tmp_path, ("../../escaped", "/etc/passwd", "a/../../x", "bin/../../../y"))
    before = sorted(tmp_path.rglob("*"))
    host.link(hostile, environment, site)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("what", ["stack.toml", "suite", "bundle.json", "nothing"])
def test_an_unpacked_bundle_that_was_edited_is_refused(carried: Path, tmp_path: Path, what: str) -> None:
    root = unpacked(carried, tmp_path / "to")
    if what == "stack.toml":
        path = root / "lockfiles" / TINY / "debian.txt"
        path.write_text(path.read_text() + "# a line\n" + f"zlib1g=1 sha256:{'0' * 64}\n")
    elif what == "suite":
        (root / "smoke" / "late.py").touch()
    elif what == "bundle.json":
        (root / "bundle.json").write_text("{}")
    else:
        (root / "bundle.json").unlink()
    with pytest.raises(errors.BadInputError):
        read_unpacked(Project(root))
