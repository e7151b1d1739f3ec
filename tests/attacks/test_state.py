"""Attacks on what a clone keeps and on what runs: each worked once, and is refused now."""

from __future__ import annotations

import hmac
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.base import errors, machine, seal
from builder.base.project import Project
from builder.bisect.journal import Journal, Trial
from builder.certify import engine, hostenv
from builder.image import daemon, oci, target
from builder.lock import archives
from builder.upgrade import mainline
from tests.conftest import TINY, Small
from tests.unit.image.test_oci import Layout
from tests.unit.lock.test_commit import Repository

# A Docker engine of which a test chooses to which image a tag points, and what its containers run.
DOCKER = """\
#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> calls
case "$1 $2" in
  "image inspect") cat tagged ;;
  "container inspect") cat runs ;;
  "ps --all")
    for known in $(cat containers); do case "$*" in *"label=${known#*:}"*) echo "${known%%:*}" ;; esac; done ;;
  "load "*) cat > /dev/null ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of such an engine's state."""
    folder = tmp_path / "docker"
    folder.mkdir()
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("calls", "tagged", "runs", "containers"):
        (folder / name).touch()
    return folder


def test_another_branch_moves_the_tag_before_the_image_runs(docker: Path, tmp_path: Path) -> None:
    """Two branches share a tag; between loading and running it moves to the other branch's image."""
    image = oci.read(Layout(tmp_path / "layout").root)
    (docker / "tagged").write_text(image.manifest)
    loaded = daemon.load(image, "vetted/tiny:1")
    assert (loaded.digest, loaded.reference) == (image.manifest, f"vetted/tiny@{image.manifest}")


def test_the_classic_store_knows_an_image_by_its_config_only(docker: Path, tmp_path: Path) -> None:
    """There, too, the image does not run by its tag."""
    image = oci.read(Layout(tmp_path / "layout").root)
    (docker / "tagged").write_text(image.config)
    assert daemon.load(image, "vetted/tiny:1") == daemon.Loaded(image.manifest, image.config, image.config)


def test_another_image_is_loaded_under_the_tag(docker: Path, tmp_path: Path) -> None:
    """Docker reports another image after loading than the one that was built."""
    image = oci.read(Layout(tmp_path / "layout").root)
    (docker / "tagged").write_text("sha256:" + "b" * 64)
    with pytest.raises(errors.VettedError, match="the image that was built is"):
        daemon.load(image, "vetted/tiny:1")


def test_two_branches_with_one_lock_share_a_tag(small: Small) -> None:
    """The lock is the same, but the template differs."""
    before = target.reference(small.project, small.lock)
    template = small.root / "images" / "templates" / "Dockerfile.j2"
    template.write_text(template.read_text() + "# another line\n")
    assert target.reference(small.project, small.lock) != before


def test_a_run_removes_the_containers_of_another_clone(docker: Path, tmp_path: Path) -> None:
    """Two clones certify the same stack on one Docker engine."""
    ours, theirs = Project(tmp_path / "ours"), Project(tmp_path / "theirs")
    labels = [engine.run_label(clone, TINY) for clone in (ours, theirs)]
    (docker / "containers").write_text(f"ours:{labels[0]} theirs:{labels[1]}")
    engine.remove_leftovers(ours, TINY)
    assert (docker / "calls").read_text().splitlines()[-1] == "rm --force ours"


def prepared(small: Small) -> tuple[Path, list[str]]:
    """The environment that the host engine runs, and what was said while it was made."""
    messages: list[str] = []
    return hostenv.prepare(small.project, small.lock, small.scratch(), messages.append), messages


def greeting(small: Small, environment: Path) -> str:
    return (environment / small.lock.site_packages / "tiny_lib.py").read_text()


@pytest.mark.parametrize(
    "name", ["zz.pth", "sitecustomize.py", "tiny_lib.so", "__pycache__/tiny_lib.cpython-311.pyc", "other/__init__.py"]
)
def test_a_file_is_planted_in_a_kept_environment(wheels: Small, name: str) -> None:
    """Python would run or import it before anything of the stack."""
    environment, _ = prepared(wheels)
    planted = environment / wheels.lock.site_packages / name
    planted.parent.mkdir(exist_ok=True)
    planted.write_text("import os")
    again, messages = prepared(wheels)
    assert "installing 1 locked distributions" in messages
    assert not planted.exists() or planted.read_bytes() != b"import os"
    assert again == environment


def test_a_kept_environment_is_a_link(wheels: Small, tmp_path: Path) -> None:
    """It leads to the very files, in a folder of somebody who can change them after they were compared."""
    environment, _ = prepared(wheels)
    environment.rename(tmp_path / "theirs")
    environment.symlink_to(tmp_path / "theirs")
    again, _ = prepared(wheels)
    assert again == environment and not environment.is_symlink()


@pytest.mark.parametrize("how", ["written", "linked", "mode"])
def test_a_file_of_a_kept_environment_is_changed(wheels: Small, how: str, tmp_path: Path) -> None:
    """The change keeps the size, and the times are set back."""
    environment, _ = prepared(wheels)
    file = environment / wheels.lock.site_packages / "tiny_lib.py"
    before, times = file.read_text(), file.stat()
    if how == "written":
        file.write_text(before.replace("first = 1", "first = 2"))
    elif how == "linked":
        file.rename(tmp_path / "moved.py")
        file.symlink_to(tmp_path / "moved.py")
    else:
        file.chmod(0o777)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    environment, _ = prepared(wheels)
    assert greeting(wheels, environment) == before
    assert not file.is_symlink() and file.stat().st_mode & 0o777 != 0o777


@pytest.mark.parametrize("sealed", [False, True])
def test_a_made_up_environment_stands_where_the_locked_one_is_looked_for(
    wheels: Small, sealed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its Python would answer for the suite; the forger may have a key, but not this user's key."""
    fake = hostenv.path(wheels.project, wheels.lock)
    (fake / "bin").mkdir(parents=True)
    (fake / "bin" / "python").write_text("#!/bin/sh\necho forged\n")
    if sealed:
        with monkeypatch.context() as forger:
            forger.setenv("XDG_STATE_HOME", str(tmp_path / "forger"))
            seal.put(hostenv._seal(fake), hostenv._sealed_as(wheels.lock.digest), seal.tree(fake), wheels.scratch())
    environment, messages = prepared(wheels)
    assert "installing 1 locked distributions" in messages
    assert (environment / "bin" / "python").read_bytes() != b"#!/bin/sh\necho forged\n"


def test_the_environment_of_another_lock_is_renamed_to_this_ones(wheels: Small) -> None:
    """It was made here and is complete, with its seal, but it is of another lock."""
    patch = wheels.patch.read_text()
    wheels.patch.write_text(patch.replace("+greeting = 'somebody'", "+greeting = 'everybody'"))
    other, _ = prepared(wheels)
    wheels.patch.write_text(patch)
    ours = hostenv.path(wheels.project, wheels.lock)
    hostenv._seal(other).rename(hostenv._seal(ours))
    other.rename(ours)
    assert "somebody" in greeting(wheels, prepared(wheels)[0])


def test_a_wheel_that_uv_unpacked_earlier_is_poisoned(
    wheels: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--require-hashes` checks archives; uv installs unpacked files from its cache without a check."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    (wheel,) = wheels.wheelhouse.iterdir()
    argv = [machine.uv_binary(), "pip", "install", "--target", str(tmp_path / "x"), "--no-deps", "--no-index"]
    subprocess.run([*argv, "--find-links", str(wheel.parent), "tiny-lib"], check=True, capture_output=True)
    poisoned = [path for path in (tmp_path / "cache").rglob("tiny_lib.py") if path.is_file()]
    assert poisoned
    for path in poisoned:
        path.write_text(path.read_text().replace("first = 1", "first = 666"))
    assert "666" not in greeting(wheels, prepared(wheels)[0])


def test_a_kept_archive_is_exchanged(wheels: Small) -> None:
    """The file has the expected hash as its name."""
    prepared(wheels)
    (kept,) = (wheels.project.state / archives.FOLDER).rglob("*.whl")
    good = kept.read_bytes()
    kept.write_bytes(good.replace(b"first = 1", b"first = 6"))
    shutil.rmtree(wheels.project.state / "host")
    assert "first = 1" in greeting(wheels, prepared(wheels)[0])
    assert kept.read_bytes() == good


def test_a_kept_archives_folder_is_a_link(wheels: Small, tmp_path: Path) -> None:
    """It leads to a folder of the user: all that lay there was removed, to make room for the one file."""
    home = tmp_path / "home"
    (home / "thesis").mkdir(parents=True)
    (home / "thesis" / "thesis.tex").write_text("mine")
    (home / "letter").write_text("mine")
    (entry,) = wheels.lock.python
    (folder := wheels.project.state / archives.FOLDER).mkdir(parents=True)
    (folder / entry.sha256).symlink_to(home)
    files = archives.fetch(wheels.project, wheels.lock.stack, [entry], wheels.scratch(), lambda _: None)
    assert (home / "letter").is_file() and (home / "thesis" / "thesis.tex").is_file()
    assert files[entry].parent.is_dir() and not files[entry].parent.is_symlink()
    assert len(list(home.iterdir())) == 2


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_key_that_others_may_read_seals_nothing(
    wheels: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int
) -> None:
    """Anyone who can read the key can seal anything."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "open"))
    key = seal.key_file()
    assert key is not None
    key.parent.mkdir(parents=True)
    key.write_bytes(b"k" * seal.SIZE)
    key.chmod(mode)
    path = wheels.scratch() / "x.seal"
    seal.put(path, "this", "sha256:1", wheels.scratch())
    code = hmac.new(b"k" * seal.SIZE, b'["this", "sha256:1"]', "sha256").hexdigest()
    assert path.read_text().strip() != code
    key.chmod(0o600)
    seal._key.cache_clear()
    assert not seal.intact(path, "this", "sha256:1")
    path.write_text(code)
    assert seal.intact(path, "this", "sha256:1")  # only the mode of the file made the difference
    seal._key.cache_clear()


def test_the_trials_of_a_bisection_are_forged(small: Small) -> None:
    """The state comes from elsewhere: its journal once said which change breaks a set, and nobody here had run it."""

    def opened(key: str) -> Journal:
        return Journal.open(small.project, key, scratch)

    scratch = small.scratch()
    opened("one").decide("a set", ["trl 1 → 2"], lambda: Trial("green"))
    assert opened("one").sets["a set"].trials == [Trial("green")]
    path = opened("one").path
    for file in path.parent.glob("one.*"):  # as those of another question
        file.with_name(file.name.replace("one", "other")).write_bytes(file.read_bytes())
    path.write_text(path.read_text().replace("green", "red"))
    assert (opened("one").sets, opened("other").sets) == ({}, {})
    # Nor is its folder a link, in which drafts of advisories are replaced.
    path.with_suffix("").symlink_to(small.project.root)
    assert not opened("one").folder.is_symlink() and small.project.smoke.is_dir()


@pytest.mark.parametrize("how", ["hook", "configuration", "link"])
def test_a_kept_repository_starts_a_program(tmp_path: Path, how: str) -> None:
    """The state comes from elsewhere, with the repository of a package: git read its hooks and its configuration."""
    upstream = Repository(tmp_path / "upstream")
    upstream.commit(pyproject_dot_toml="[project]\n")
    source = mainline.parse(f"kit={upstream.folder}")
    (scratch := tmp_path / "scratch").mkdir()
    kept = tmp_path / "kit.git"
    mainline._fetch(kept, source, scratch)
    before = kept.stat().st_ino
    mainline._fetch(kept, source, scratch)
    assert kept.stat().st_ino == before  # as it was left, it saves time
    if how == "hook":
        (kept / "hooks").mkdir(exist_ok=True)
        (hook := kept / "hooks" / "reference-transaction").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        hook.chmod(0o755)
    elif how == "configuration":
        program = f"touch {tmp_path}/started; git-upload-pack"
        with (kept / "config").open("a") as file:
            file.write(f'[remote "{source.address}"]\n\tuploadpack = "{program}"\n')
    else:
        kept.rename(tmp_path / "elsewhere.git")
        kept.symlink_to(tmp_path / "elsewhere.git")
    upstream.commit(more="")
    mainline._fetch(kept, source, scratch)
    assert not (tmp_path / "started").exists() and not kept.is_symlink()
    assert mainline._git(kept, "rev-parse", mainline.HEAD) == upstream.git("rev-parse", "HEAD")
