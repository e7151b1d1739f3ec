"""On the host: a certificate only for exactly the lock, and every difference is named."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project, sha256_file
from builder.bundle import hollow, offline
from builder.bundle.contents import CarriedFile, Contents, read_unpacked
from builder.bundle.offline import Installed
from builder.certify import certificate, compiler
from builder.certify.certify import Certification, Options
from builder.lock import lockfile
from tests.conftest import BAD_RUN, GOOD_RUN, LIBRARY, PYTHON, TINY, Small
from tests.unit.bundle.conftest import make, unpacked

HOST = Options("cpu", "host")


EXACT = [Installed("tiny-lib", "1.0")]


def contents_of(small: Small, python: str = PYTHON, sha256: str = "") -> Contents:
    (entry,) = small.lock.python
    carried = CarriedFile(
        name=entry.name, version=entry.version, file="tiny_lib-1.0-py3-none-any.whl", sha256=sha256 or entry.sha256
    )
    return Contents(
        stack=TINY, lock=small.lock.digest, suite="", python=python, carried=False, distributions=[carried], build=[]
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
        (f"{PYTHON}.7", [Installed("tiny-lib", "1.0+cu130")], "",
         {"distributions": ["tiny-lib 1.0+cu130, not 1.0"]}),
        (f"{PYTHON}.7", [*EXACT, Installed("tiny-lib", "0.9")], "",
         {"distributions": ["tiny-lib 1.0 and 0.9, not 1.0"]}),
        (f"{PYTHON}.7", [*EXACT, Installed("more", "2")], "", {"distributions": ["more 2, not in the lock"]}),
        (f"{PYTHON}.7", EXACT, "0" * 64, {"files not of the lock": ["tiny-lib"]}),
    ],
)  # fmt: skip
def test_every_difference_is_named(
    small: Small, python: str, distributions: list[Installed], sha256: str, expected: dict[str, object]
) -> None:
    assert offline.differences(small.lock, contents_of(small, sha256=sha256), python, distributions) == expected


def test_long_lists_are_cut_for_people() -> None:
    lines = offline.summary({"python": "3.12.3, not 3.11", "distributions": [f"a{n} 1" for n in range(20)]})
    assert lines[0] == "python: 3.12.3, not 3.11"
    assert lines[1].endswith("a7 1 and 12 more")


OnHost = Callable[..., Certification]


@pytest.fixture
def on_host(bare: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnHost:
    """Bundle, unpack, and run; this Python is the host's. `edit` changes what was unpacked."""

    def run(
        present: Mapping[str, int] | None = None,
        folders: Sequence[Path] = (),
        edit: Callable[[Path], None] = lambda _: None,
    ) -> Certification:
        folder, to = tmp_path / "carried", tmp_path / "to"
        make(bare, folder, present)
        project = Project(unpacked(folder, to))
        edit(project.root)
        monkeypatch.setenv("VETTED_STATE", str(to))
        monkeypatch.delenv("VETTED_WHEELHOUSE", raising=False)  # from the bundle only
        lock, contents = read_unpacked(project)
        place = offline.Host(Path(sys.executable), tuple(folders))
        with project.holding(TINY) as scratch:
            return offline.run(project, lock, contents, HOST, place, scratch, lambda _: None, lambda _: None)

    return run


def test_exactly_the_lock_and_a_suite_that_passes_earn_a_certificate(on_host: OnHost, bare: Small) -> None:
    bare.suite(
        'import sys, tiny_lib\nassert tiny_lib.greeting == "somebody"\n' + GOOD_RUN  # patched
    )
    outcome = on_host()
    statement, path = outcome.statement, outcome.certificate
    assert path is not None
    assert path.parts[-2:] == ("results", "certificate.json")
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


def test_a_suite_that_fails_writes_a_report(on_host: OnHost, bare: Small) -> None:
    bare.suite(BAD_RUN)
    outcome = on_host()
    assert (outcome.statement.predicate.result, outcome.certificate) == ("FAILED", None)
    path = outcome.report
    assert path is not None
    assert path.parts[-2:] == ("results", "report.json")


def test_another_python_ends_in_a_report_and_never_in_a_certificate(
    on_host: OnHost, bare: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when all passes; and a report that was copied back all the same is no certificate."""
    monkeypatch.setattr(offline, "installed", lambda _: ("3.99.1", EXACT))
    outcome = on_host()
    statement, path = outcome.statement, outcome.report
    assert (statement.predicate.result, outcome.certificate) == ("PASSED", None)
    assert path is not None
    assert statement.resource(certificate.DIFFERENCES).annotations == {"python": f"3.99.1, not {PYTHON}"}
    back = certificate.path(bare.project, TINY, "cpu", "host")
    back.parent.mkdir()
    shutil.copy(path, back)
    with pytest.raises(errors.BadInputError, match="is a report"):
        certificate.of_stack(bare.project, TINY)


@pytest.fixture
def of_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that has the only file of tiny-lib, somewhere else and under another name."""
    monkeypatch.setattr(hollow, "LEAST_SAVED", 0)
    folder = tmp_path / "packages" / "deep"
    folder.mkdir(parents=True)
    (folder / "its_own.py").write_text(LIBRARY)
    (folder / "of_the_same_size.py").write_text("x" * len(LIBRARY))
    return folder.parent


def present_in(folder: Path) -> dict[str, int]:
    return {sha256_file(path)[7:]: path.stat().st_size for path in folder.rglob("*.py")}


def test_a_host_that_has_the_very_files_earns_a_certificate(on_host: OnHost, bare: Small, of_host: Path) -> None:
    bare.suite('import sys, tiny_lib\nassert tiny_lib.greeting == "somebody"\n' + GOOD_RUN)
    before = {path: path.read_bytes() for path in of_host.rglob("*.py")}
    outcome = on_host(present_in(of_host), [of_host])
    assert outcome.certificate is not None and not outcome.doubts
    assert certificate.DIFFERENCES not in {resource.name for resource in outcome.statement.predicate.configuration}
    assert {path: path.read_bytes() for path in of_host.rglob("*.py")} == before  # patched, but not there


def test_a_file_of_the_host_that_has_changed_since_is_refused(on_host: OnHost, of_host: Path) -> None:
    listed = present_in(of_host)
    path = of_host / "deep" / "its_own.py"
    path.write_text(path.read_text().replace("nobody", "NOBODY"))
    with pytest.raises(
        errors.BadInputError, match="lacks 1 of the files that the bundle leaves out: those of tiny-lib"
    ):
        on_host(listed, [of_host])


def test_a_record_that_was_edited_is_refused(on_host: OnHost, of_host: Path) -> None:
    """It names the attacker's file, which the host has."""
    evil = of_host / "evil.py"
    evil.write_text(LIBRARY.replace("nobody", "robber"))

    def edit(root: Path) -> None:
        (wheel,) = (root / "wheels").glob("tiny_lib-*.whl")
        rewrite(
            wheel, "tiny_lib-1.0.dist-info/RECORD", lambda text: text.replace(_row(LIBRARY), _row(evil.read_text()))
        )

    with pytest.raises(errors.BadInputError, match="RECORD is not the locked one"):
        on_host(present_in(of_host), [of_host], edit)


def _row(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{len(text)}"


def test_a_wheel_that_was_edited_is_refused(on_host: OnHost, of_host: Path) -> None:
    def edit(root: Path) -> None:
        (wheel,) = (root / "wheels").glob("tiny_lib-*.whl")
        rewrite(wheel, "tiny_lib-1.0.dist-info/METADATA", lambda text: text + "Author: evil\n")

    with pytest.raises(errors.BadInputError, match=r"METADATA: sha256"):
        on_host(present_in(of_host), [of_host], edit)


def rewrite(wheel: Path, name: str, change: Callable[[str], str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        content = {entry: archive.read(entry) for entry in archive.namelist()}
    content[name] = change(content[name].decode()).encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for entry, data in content.items():
            archive.writestr(entry, data)


GPU = """\
#!/bin/sh
echo "NVIDIA H200, 580.95.05, GPU-0"
"""


@pytest.mark.parametrize("installed", [False, True])
def test_a_gpu_that_is_missing_or_runs_nothing_earns_no_certificate(
    on_host: OnHost, bare: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """nvidia-smi may say anything: the probes that need a GPU did not run."""
    bare.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    bare.file("lock.toml").write_text(
        lockfile.header(TINY) + lockfile.format_meta(lockfile.intent(bare.lock.stack), 1_700_000_000)
    )
    bare.suite(
        GOOD_RUN.replace('end("alpha")', 'end("alpha", "not-run", reason="no GPU can be used")').replace(
            'end("beta")', 'end("beta", "not-run", reason="no GPU can be used")'
        )
    )
    monkeypatch.setattr(compiler, "require", lambda *_: None)
    programs = tmp_path / "programs"
    programs.mkdir()
    if installed:
        (programs / "nvidia-smi").write_text(GPU)
        (programs / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr("tests.unit.bundle.test_offline.HOST", Options("cuda", "host"))
    if not installed:
        with pytest.raises(errors.MissingToolError, match="no GPU to certify on"):
            on_host()
        return
    outcome = on_host()
    assert outcome.certificate is None and outcome.report is not None
    assert outcome.statement.predicate.issued is None


@pytest.mark.parametrize("what", ["stack.toml", "suite", "package", "bundle.json", "nothing"])
def test_an_unpacked_bundle_that_was_edited_is_refused(carried: Path, tmp_path: Path, what: str) -> None:
    root = unpacked(carried, tmp_path / "to")
    if what == "stack.toml":
        path = root / "lockfiles" / TINY / "debian.txt"
        path.write_text(path.read_text() + "# a line\n" + f"zlib1g=1 sha256:{'0' * 64}\n")
    elif what == "suite":
        (root / "smoke" / "late.py").touch()
    elif what == "package":
        (root / "python").mkdir()
        (root / "python" / f"{'0' * 64}.deb").touch()
    elif what == "bundle.json":
        (root / "bundle.json").write_text("{}")
    else:
        (root / "bundle.json").unlink()
    with pytest.raises(errors.BadInputError):
        read_unpacked(Project(root))
