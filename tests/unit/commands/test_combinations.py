"""An option without effect in some combination is refused, with the reason, and not ignored."""

from __future__ import annotations

import json

import pytest

from tests.conftest import TINY, Small
from tests.unit.conftest import Command

FLEET = ("fleet", TINY, "--on")
CLUSTER = (*FLEET, "kubernetes", "--image-registry", "registry.example/team/vetted")
IMAGE = "registry.example/team/vetted:tiny"
RUN = "runs/20261121-101500"

REFUSED = [
    ((*FLEET, "local", "--gpus", "h200:1"), "--gpus is for a scheduler: a stack has this whole machine"),
    ((*FLEET, "local", "--cpus", "2"), "--cpus is for a scheduler"),  # the default, and typed all the same
    ((*FLEET, "local", "--minutes", "5"), "--minutes is for a scheduler"),
    ((*FLEET, "local", "--partition", "long"), "--partition goes with --on slurm"),
    ((*FLEET, "local", "--manifest", "-"), "--manifest goes with --on kubernetes"),
    ((*FLEET, "slurm", "--namespace", "n"), "--namespace goes with --on kubernetes"),
    ((*FLEET, "slurm", "--queue", "q"), "--queue goes with --on kubernetes"),
    ((*FLEET, "slurm", "--memory", "64"), "--memory goes with --on kubernetes"),
    ((*FLEET, "slurm", "--gpu-label", "l"), "--gpu-label goes with --on kubernetes"),
    ((*FLEET, "slurm", "--gpus", "h200:1"), "--gpus: none of these stacks uses a GPU"),
    ((*CLUSTER, "--partition", "long"), "--partition goes with --on slurm"),
    ((*CLUSTER, "--engine", "host"), "--engine does not go with --on kubernetes: there the suite runs in the image"),
    ((*CLUSTER, "--manifest", "f", "--output", "o"), "--output has nothing to write with --manifest"),
    ((*CLUSTER, "--manifest", "-", "--json"), "--json does not go with --manifest -: stdout has the Jobs"),
    (("lock", "--check", "--upgrade", "tiny-lib"), "--upgrade does not go with --check, which moves nothing"),
    (("build", TINY, "--platform", "all", "--prove"), "--prove is for one platform, and not for --platform all"),
    (("build", TINY, "--platform", "all", "--record"), "--record is for one platform"),
    (("bake", "--prepare", "--builder", "b"), "--builder does not go with --prepare, which builds nothing"),
    (("certify", TINY, "--probe", "alpha", "--key", "k"), "--key signs a certificate, and --probe gives none"),
    (("show", TINY, "--engine", "host", "--certificate", "cpu-docker"), "--engine does not go with --certificate"),
    (("controls", "--lock", "--full"), "--full does not go with --lock, which runs nothing"),
    (("controls", "--lock", "--record"), "--record does not go with --lock"),
    (("controls", "--lock", "--jobs", "2"), "--jobs does not go with --lock"),
    (("controls", "--changed", "--record"), "--record does not go with --changed: the record would lack"),
    (("trajectories", "--seeds", "30"), "--seeds is about the training of one stack: vetted trajectories STACK"),
    (("trajectories", "--against", "b.json"), "--against is about the training of one stack"),
    (("verify", IMAGE, "--rebuild", "--allow-rollback"), "--allow-rollback is about a release, which is checked with"),
    (("verify", "f", "--offline", "--key", "k", "--insecure"), "--insecure is about a registry, and --offline asks"),
    (("verify", "f", "--offline", "--key", "k", "--allow-rollback"), "--allow-rollback is about a registry"),
    (("use", TINY, "--insecure"), "--insecure goes with --registry"),
    (("use", TINY, "--registry", "registry.example/a", "--allow-rollback"), "--allow-rollback is about a release"),
    (
        ("bundle", TINY, "--output", "o", "--image", "--key", "k", "--part-size", "1M"),
        "--part-size does not go with --image, which is written in one piece",
    ),
    (("doctor", "--device", "cpu"), "--device goes with --measure or --measure-all"),
    (("doctor", "--single-file", "d.py", "--python", "."), "--python does not go with --single-file"),
    (("doctor", "train.log", "--single-file", "d.py"), "PATH does not go with --single-file, which diagnoses nothing"),
    (("doctor", "train.log", "--lock-of", TINY), "PATH does not go with --lock-of, which prints a lock"),
    (("doctor", "--python", ".", "--lock-of", TINY), "--python does not go with --lock-of"),
    (("doctor", "--single-file", "d.py", "--all"), "--all does not go with --single-file"),
    (
        ("bisect", "packages", "--good", TINY, "--bad", "a==1", "--probe", "alpha", "--time-limit", "9"),
        "--time-limit is for a command: a probe has its own limit",
    ),
    (
        ("bisect", "packages", "--good", TINY, "--bad", "a==1", "--probe", "alpha", "--python", "3.12"),
        "--python is for a good end that is a file of pins",
    ),
    (("extend", TINY, "--name", "m", "--debian", "jq", "--allow-old", "a"), "--allow-old is about a requirements file"),
]


@pytest.mark.parametrize(("argv", "said"), REFUSED, ids=[" ".join(argv) for argv, _ in REFUSED])
def test_an_option_that_would_be_ignored_is_refused(
    command: Command, small: Small, argv: tuple[str, ...], said: str
) -> None:
    answer = command(small.root, *argv)
    assert answer.code == 2, answer.out + answer.err
    if "--json" in argv:
        assert said in answer.json["error"]["what"]
    else:
        assert said in answer.err and answer.out == ""
    assert not (small.root / ".vetted" / "fleet").exists()


@pytest.mark.parametrize(
    "option", [["--key", "cosign.pub"], ["--hardware", "H200"], ["--rebuild"], ["--insecure"], ["--allow-rollback"]]
)
def test_what_is_about_images_is_refused_for_a_training_run(
    command: Command, small: Small, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    monkeypatch.setattr("builder.publish.training.found", lambda *_: small.root / RUN)
    answer = command(small.root, "verify", RUN, *option)
    assert answer.code == 2
    assert f"{option[0]} is about images, and {RUN} is the folder of a training run" in answer.err


def test_the_jobs_in_a_file_are_counted_in_json(
    command: Command, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = type("Job", (), {"name": "vetted-tiny"})
    monkeypatch.setattr("builder.commands.kube.prepare", lambda *_: ([job], None))
    monkeypatch.setattr("builder.fleet.manifest.to_yaml", lambda *_: "jobs\n")
    answer = command(small.root, *CLUSTER, "--manifest", "jobs.yaml", "--json")
    assert (answer.code, answer.json) == (0, {"manifest": "jobs.yaml", "jobs": ["vetted-tiny"]})
    assert (small.root / "jobs.yaml").read_text().endswith("\njobs\n")


def test_controls_that_are_locked_again_are_answered_in_json(
    command: Command, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small.project.control_dir("rude")
    folder.mkdir(parents=True)
    stack = small.file("stack.toml").read_text()
    expect = '\n[expect]\nfails = ["alpha"]\nreason = "nobody"\ntwin = { tiny-lib = "2.0" }\n'
    (folder / "stack.toml").write_text(stack + expect)
    monkeypatch.setattr("builder.certify.control.make", lambda *_: True)
    answer = command(small.root, "controls", "--lock", "--json")
    assert (answer.code, json.loads(answer.out)) == (0, {"rude": {"changed": True}})
