"""What an image weighs: its layers by name, its locked files by size, and only what ran in this very image."""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.certify import certificate
from builder.image import oci, render
from builder.image.build import Built
from builder.intent import stack
from builder.intent.platform import ARM64
from builder.lock import lockfile
from builder.pages import evidence, images, records, weight
from tests.conftest import TINY, Small
from tests.unit.image.test_oci import File, Layout

MB = 1_000_000


def built(small: Small, root: Path, count: int | None = None) -> Built:
    names = render.layers(small.lock)
    layers = [[File(f"layer/{number}")] for number in range(count or len(names))]
    return Built(oci.read(Layout(root, layers).root), "vetted/tiny:1", "0.13", "sha256:" + "1" * 64)


def test_the_names_are_those_of_the_layers_that_the_dockerfiles_make(real: Project) -> None:
    for name in stack.names(real):
        final = real.dockerfile(name).read_text().rpartition("\nFROM base\n")[2]
        instructions = re.findall(r"^(?:WORKDIR|COPY --link)", final, re.MULTILINE)
        lock = lockfile.load(real, name)
        assert len(render.layers(lock)) == 1 + len(instructions), name
        copied = re.findall(r"^COPY --link --from=(\S+)", final, re.MULTILINE)
        assert render.layers(lock)[2:] == [layer.replace("-patched", " patches") for layer in copied]


def test_every_layer_is_measured_beside_the_locked_files_in_it(wheels: Small, tmp_path: Path) -> None:
    image = built(wheels, tmp_path / "layout")
    row = weight.measure(wheels.project, wheels.lock, image, "vetted build", wheels.scratch())
    files = {path.name.partition("-")[0]: path.stat().st_size for path in wheels.wheelhouse.glob("*.whl")}
    locked = {entry.name for entry in wheels.lock.python}
    assert row.files_bytes == sum(size for name, size in files.items() if lockfile.normalise(name) in locked) > 0
    assert row.bytes == image.image.size == sum(layer.bytes for layer in row.layers)
    by_name = {layer.name: layer for layer in row.layers}
    assert by_name["base"].files_bytes is None
    assert sum(layer.files_bytes or 0 for layer in row.layers) == row.files_bytes


def test_bytecode_is_what_it_takes_when_it_is_packed_by_itself(wheels: Small, tmp_path: Path) -> None:
    code = random.Random(1).randbytes(40_000)  # nothing packs it smaller
    layers = [[File(f"layer/{number}")] for number in range(len(render.layers(wheels.lock)))]
    layers[0] += [File("opt/a.pyc", code), File("opt/a.py", code * 9), File("opt/link.pyc", link="a.pyc")]
    layers[1] += [File("opt/twice.pyc", code * 2)]
    image = Built(oci.read(Layout(tmp_path / "layout", layers).root), "vetted/tiny:1", "0.13", "sha256:" + "1" * 64)
    row = weight.measure(wheels.project, wheels.lock, image, "vetted build", wheels.scratch())
    first, second, *rest = [layer.bytecode_bytes for layer in row.layers]
    assert first is not None and 40_000 <= first < 40_200
    assert second is not None and 40_000 <= second < 40_400
    assert set(rest) == {0}


@pytest.mark.parametrize(
    ("bytecode", "row"),
    [
        (50, "| 1000 MB | 200 MB | 50 MB | 750 MB | 0.75 |"),
        (None, "| 1000 MB | 200 MB | not measured | 800 MB | 0.80 with bytecode |"),
        (0, "| 1000 MB | 200 MB | 0.0 kB | 800 MB | 0.80 |"),
    ],
)
def test_base_and_bytecode_explain_what_an_image_has_beside_its_files(
    bytecode: int | None, row: str, wheels: Small, tmp_path: Path
) -> None:
    assert images.parts(wheels.project) == "Not measured yet.\n"
    weight.record(wheels.project, wheels.lock, built(wheels, tmp_path / "layout"), "it", wheels.scratch())
    path = evidence.path(wheels.project, records.Images.FILE)
    document = json.loads(path.read_text())
    layers = [
        {"name": "base", "digest": "sha256:1", "bytes": 200 * MB, "files_bytes": None, "bytecode_bytes": 9 * MB},
        {"name": "torch", "digest": "sha256:2", "bytes": 800 * MB, "files_bytes": 1000 * MB},
    ]
    if bytecode is not None:
        layers[1]["bytecode_bytes"] = bytecode * MB
    document["images"][TINY] |= {"bytes": 1000 * MB, "files_bytes": 1000 * MB, "layers": layers}
    path.write_text(json.dumps(document))
    assert images.parts(wheels.project).splitlines()[-1] == f"| `{TINY}` {row}"


def test_an_image_for_another_platform_has_a_row_of_its_own(wheels: Small, tmp_path: Path) -> None:
    wheels.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    for file in ("requirements.txt", "debian.txt"):
        shutil.copy(wheels.file(file), wheels.file(ARM64.file(file)))
    weight.record(wheels.project, wheels.lock, built(wheels, tmp_path / "layout"), "it", wheels.scratch())
    arm = lockfile.load(wheels.project, TINY, ARM64)
    assert f"| `{TINY}.arm64` | not built yet |" in images.images(wheels.project)
    weight.record(wheels.project, arm, built(wheels, tmp_path / "arm"), "it --platform arm64", wheels.scratch())
    assert list(images.measured(wheels.project)) == [TINY, f"{TINY}.arm64"]
    assert "not built yet" not in images.images(wheels.project)
    assert f"| layer | `{TINY}` | `{TINY}.arm64` |" in images.layers(wheels.project)


def test_an_image_with_other_layers_than_its_dockerfile_is_refused(wheels: Small, tmp_path: Path) -> None:
    image = built(wheels, tmp_path / "layout", count=2)
    with pytest.raises(errors.VettedError, match="the image has 2 layers"):
        weight.measure(wheels.project, wheels.lock, image, "vetted build", wheels.scratch())


def test_a_file_whose_size_nobody_tells_is_no_zero(
    wheels: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.lock.index.size", lambda _: None)
    with pytest.raises(errors.NetworkError, match="its size is not known"):
        weight.measure(
            wheels.project, wheels.lock, built(wheels, tmp_path / "layout"), "vetted build", wheels.scratch()
        )


def test_a_row_is_replaced_and_those_of_other_stacks_stay(wheels: Small, tmp_path: Path) -> None:
    image = built(wheels, tmp_path / "layout")
    weight.record(wheels.project, wheels.lock, image, "first", wheels.scratch())
    path = evidence.path(wheels.project, records.Images.FILE)
    document = json.loads(path.read_text())
    document["images"]["other"] = {**document["images"][TINY], "manifest": "sha256:other"}
    path.write_text(json.dumps(document))
    weight.record(wheels.project, wheels.lock, image, "second", wheels.scratch())
    rows = json.loads(path.read_text())["images"]
    assert (rows[TINY]["command"], rows["other"]["command"]) == ("second", "first")


def test_the_document_says_what_is_shared_and_what_was_never_built(wheels: Small, tmp_path: Path) -> None:
    assert "not built yet" in images.images(wheels.project)
    assert images.layers(wheels.project) == "Not measured yet.\n"
    image = built(wheels, tmp_path / "layout")
    weight.record(wheels.project, wheels.lock, image, "vetted build tiny --record", wheels.scratch())
    assert image.image.manifest.removeprefix("sha256:")[:12] in images.images(wheels.project)
    assert "**1.00** of the sum" in images.layer_sharing(wheels.project)
    assert "(shared)" not in images.layers(wheels.project)


@pytest.mark.parametrize(("share", "missed"), [(0.9, False), (0.91, True)])
def test_a_size_that_misses_the_goal_is_marked(wheels: Small, tmp_path: Path, share: float, missed: bool) -> None:
    image = built(wheels, tmp_path / "layout")
    weight.record(wheels.project, wheels.lock, image, "vetted build tiny --record", wheels.scratch())
    path = evidence.path(wheels.project, records.Images.FILE)
    document = json.loads(path.read_text())
    document["images"][TINY] |= {"bytes": round(share * 1000), "files_bytes": 1000}
    path.write_text(json.dumps(document))
    assert f"| {share:.2f}{' (missed)' if missed else ''} |" in images.images(wheels.project)


def test_an_image_that_would_be_another_today_is_said_to_be_an_earlier_one(wheels: Small, tmp_path: Path) -> None:
    image = replace(built(wheels, tmp_path / "layout"), inputs=wheels.inputs)
    weight.record(wheels.project, wheels.lock, image, "vetted build tiny --record", wheels.scratch())
    assert "today's would differ" not in images.images(wheels.project)
    (wheels.root / "runtime" / "train.py").write_text("# changed since\n")
    assert "today's would differ" in images.images(wheels.project)


def test_only_what_ran_in_this_very_image_is_told(small: Small, tmp_path: Path) -> None:
    image = built(small, tmp_path / "layout")
    lock = replace(small.lock, stack=small.lock.stack.model_copy(update={"device": "cuda"}))
    assert weight.without_gpu(small.project, lock, image) is None
    source = small.issue("docker")
    statement = certificate.read(source)
    target = certificate.report_path(small.project, TINY, "cpu", "docker")
    target.parent.mkdir(parents=True)
    target.write_text(statement.to_json())
    assert weight.without_gpu(small.project, lock, image) is None, "another image's report"
    subject = statement.subject[0].model_copy(update={"digest": certificate.bare(image.image.manifest)})
    target.write_text(statement.model_copy(update={"subject": [subject]}).to_json())
    report = weight.without_gpu(small.project, lock, image)
    assert report is not None
    assert report.passed == statement.predicate.passedTests
