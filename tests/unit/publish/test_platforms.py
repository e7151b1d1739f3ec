"""An index of the images for several platforms: when it is published, and what its tag names. The registry is a folder
of names; what registries really do is in tests/registry."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from builder.image import build, index, oci, target
from builder.image.build import Built
from builder.intent.platform import AMD64, ARM64
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.publish import platforms, registry, signature, signing, verify
from builder.publish.platforms import Index
from builder.publish.reference import Reference, Repository, parse_repository
from tests.conftest import TINY, Small
from tests.unit.image.test_oci import File, Layout

HERE = parse_repository("localhost:1/images", insecure=False)


@dataclass
class Registry:
    """One repository. `signed`: the digests that cosign was asked to sign."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    signed: list[str] = field(default_factory=list)

    def push(self, _repository: Repository, layout: Path, digest: str) -> None:
        """The manifest and all that it names, as `oras cp` finds it."""
        content = oci.checked(layout, digest)
        document: Any = oci.json_of(layout, digest)
        for row in document.get("manifests", []):
            self.push(_repository, layout, row["digest"])
        for row in [*document.get("layers", []), *([document["config"]] if "config" in document else [])]:
            self.blobs[row["digest"]] = oci.checked(layout, row["digest"])
        self.blobs[digest] = content

    def manifest(self, _repository: Repository, digest: str) -> bytes | None:
        return self.blobs.get(digest)

    def resolve(self, _repository: Repository, tag: str) -> str | None:
        return self.tags.get(tag)

    def tag(self, _repository: Repository, digest: str, name: str) -> None:
        assert digest in self.blobs and digest in self.signed, "a tag moves last"
        self.tags[name] = digest

    def sign(self, _repository: Repository, image: str, *_: object) -> bool:
        assert image in self.blobs
        new = image not in self.signed
        self.signed.append(image)
        return new


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Registry:
    fake = Registry()
    for name in ("push", "manifest", "resolve", "tag"):
        monkeypatch.setattr(registry, name, getattr(fake, name))
    monkeypatch.setattr(signature, "add", fake.sign)
    monkeypatch.setattr(signing, "public", lambda _key, scratch: scratch / "signer.pub")
    return fake


@pytest.fixture
def both(small: Small) -> Small:
    """A stack for two platforms, whose image for amd64 was built."""
    small.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    for file in ("requirements.txt", "debian.txt"):
        shutil.copy(small.file(file), small.file(ARM64.file(file)))
    make(small, small.lock)
    return small


def make(small: Small, lock: Lock) -> Built:
    """What a build leaves."""
    root = small.project.state / "images" / lock.image
    files = [[File("same")], [File(f"etc/{lock.platform.name}")]]
    Layout(root, files, architecture=lock.platform.name, labels=build.own_labels(lock))
    inputs = target.inputs_of(small.project, lock)
    built = Built(oci.read(root), target.tag(lock, inputs), "v0", inputs)
    build.put_record(small.project, lock, built, small.scratch())
    assert build.existing(small.project, lock) == built
    return built


def publish(small: Small) -> Index | None:
    built = build.needed(small.project, small.lock)
    (scratch := small.scratch() / "own").mkdir()
    return platforms.publish(small.project, small.lock, built, HERE, "cosign.key", scratch, lambda _: None)


def arm(small: Small) -> Lock:
    return lockfile.load(small.project, TINY, ARM64)


def test_with_all_images_an_index_has_a_tag_of_its_own(both: Small, there: Registry) -> None:
    other = make(both, arm(both))
    native = build.needed(both.project, both.lock)
    there.push(HERE, native.image.layout, native.image.manifest)
    there.tags[TINY] = native.image.manifest  # as the certified image was published
    published = publish(both)
    assert published is not None and published.changed
    assert there.tags == {TINY: native.image.manifest, f"{TINY}.index": published.digest}
    expected = {"linux/amd64": native.image.manifest, "linux/arm64": other.image.manifest}
    assert index.listed(there.blobs[published.digest]) == published.images == expected
    assert set(there.blobs) == {published.digest, *native.image.digests, *other.image.digests}
    assert there.signed == [published.digest]
    again = publish(both)
    assert again is not None and (again.digest, again.changed) == (published.digest, False)


def test_a_new_image_for_one_platform_moves_the_index(both: Small, there: Registry) -> None:
    make(both, arm(both))
    first = publish(both)
    both.edit("requirements.arm64.txt", "tiny-lib==1.0 ", "tiny-lib==1.1 ")
    assert publish(both) is None, "the image is of another lock"
    shutil.rmtree(both.project.state / "images" / f"{TINY}.arm64")
    make(both, arm(both))
    second = publish(both)
    assert first is not None and second is not None
    assert there.tags[f"{TINY}.index"] == second.digest != first.digest


@pytest.mark.parametrize("damage", ["never built", "a blob is gone", "not sealed"])
def test_without_one_of_the_images_there_is_no_index(both: Small, there: Registry, damage: str) -> None:
    if damage != "never built":
        built = make(both, arm(both))
        gone = oci.blob(built.image.layout, built.image.layers[1].digest)
        (gone if damage == "a blob is gone" else both.project.state / "images" / f"{TINY}.arm64.seal").unlink()
    assert publish(both) is None
    assert [lock.image for lock in platforms.missing(both.project, both.lock)] == [f"{TINY}.arm64"]
    assert there == Registry()


def test_a_stack_for_one_platform_has_no_index(small: Small, there: Registry) -> None:
    make(small, small.lock)
    assert publish(small) is None
    assert platforms.missing(small.project, small.lock) == []
    assert there == Registry()


def test_the_tag_stays_when_signing_fails(
    both: Small, there: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    make(both, arm(both))

    def fail(*_: object) -> bool:
        raise OSError("no cosign")

    monkeypatch.setattr(signature, "add", fail)
    with pytest.raises(OSError, match="no cosign"):
        publish(both)
    assert there.tags == {}


@pytest.mark.usefixtures("there")
def test_an_index_is_not_judged_but_names_what_can_be(both: Small) -> None:
    other = make(both, arm(both))
    published = publish(both)
    assert published is not None
    reference = Reference(HERE, f"{TINY}.index", None)
    verdict = verify.remote(both.project, reference, [Path("cosign.pub")], both.scratch())
    (doubt,) = verdict.doubts
    assert not verdict.good and verdict.image == published.digest
    assert doubt.splitlines()[0] == "it is an index of images; each is verified by its own digest:"
    assert f"{ARM64.docker}  localhost:1/images@{other.image.manifest}" in doubt
    assert f"{AMD64.docker}  localhost:1/images@" in doubt


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"mediaType": "%b"}', b'{"mediaType": "%b", "manifests": [1]}',
     b'{"mediaType": "%b", "manifests": [{"platform": 1, "digest": "sha256:1"}]}',
     b'{"mediaType": "%b", "manifests": [{"platform": {"os": "a", "architecture": "b"}, "digest": "../.."}]}'],
)  # fmt: skip
def test_what_is_no_index_lists_nothing(content: bytes) -> None:
    assert index.listed(content.replace(b"%b", index.INDEX.encode())) == {}
