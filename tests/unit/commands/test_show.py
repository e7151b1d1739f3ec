"""List and show: the stacks of a project, and what their certificates say."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.certify import certificate, description
from builder.certify.certificate import Measurement, ProbeResult
from builder.commands import listing, show
from tests.conftest import TINY, Small
from tests.unit.conftest import Command

PROBES = [
    ProbeResult(
        name="alpha",
        outcome="passed",
        measurements=[Measurement(name="loss", value=0.25, bound={"at_most": 1}, headline=True)],
        seconds=1.5,
    ),
    ProbeResult(name="beta", outcome="not-run", reason="needs 1 GPU(s), found 0"),
]


def test_list_shows_versions_and_where_they_were_certified(command: Command, small: Small) -> None:
    answer = command(small.root, "list")
    assert answer.code == 0
    assert answer.out.splitlines()[0].split()[:2] == ["stack", "trl"]
    assert answer.out.splitlines()[1].split() == [TINY, *["–"] * 6, "not", "certified"]
    hardware = certificate.read(small.issue()).resource("hardware").annotations or {}
    assert f"{hardware['class']} (lock)" in command(small.root, "list").out


def test_list_as_json_says_the_same(command: Command, small: Small) -> None:
    (row,) = command(small.root, "list", "--json").json
    assert (row["stack"], row["device"], row["certified_on"]) == (TINY, "cpu", [])
    assert row["versions"]["torch"] == "–"
    small.issue()
    (row,) = command(small.root, "list", "--json").json
    assert (len(row["certified_on"]), row["earlier_on"]) == (1, [])
    small.suite("# another suite")
    (row,) = command(small.root, "list", "--json").json
    assert (row["certified_on"], len(row["earlier_on"])) == ([], 1)
    assert row["earlier_on"][0] in command(small.root, "list").out


def test_list_of_the_project_itself(command: Command, real: Project) -> None:
    rows = command(real.root, "list", "--json").json
    assert {row["stack"]: row["versions"]["trl"] for row in rows}["trl1.16-cpu"] == "1.16.0"


@pytest.mark.parametrize("json_", [True, False])
def test_show_without_a_certificate_ends_with_1(command: Command, small: Small, json_: bool) -> None:
    answer = command(small.root, "show", TINY, *(["--json"] if json_ else []))
    assert answer.code == 1
    if json_:
        assert answer.json == {}
    else:
        assert answer.out == f"{TINY} is not certified\nnext: vetted certify {TINY}\n"


def test_show_as_json_is_the_certificate_itself(command: Command, small: Small) -> None:
    path = small.issue(probes=PROBES)
    answer = command(small.root, "show", TINY, "--json")
    assert answer.code == 0
    assert answer.json == {"cpu-host": json.loads(path.read_text())}


def test_show_prints_subject_lock_hardware_and_results(command: Command, small: Small) -> None:
    small.issue(probes=PROBES)
    answer = command(small.root, "show", TINY)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "Tiny"
    assert f"  lock      {small.lock.digest}" in lines
    assert "another lock" not in answer.out
    assert any(line.split() == ["alpha", "passed", "loss", "0.25", "≤", "1", "1.5"] for line in lines)
    assert "not run: beta: needs 1 GPU(s), found 0" in lines


def test_show_says_when_a_certificate_speaks_of_an_earlier_lock(command: Command, small: Small) -> None:
    small.issue(probes=PROBES)
    before = small.lock.digest
    small.edit("lock.toml", "1700000000", "1700000001")
    answer = command(small.root, "show", TINY)
    assert answer.code == 0
    assert "  not valid: it was earned with another lock" in answer.out
    assert f"  lock      {before}" in answer.out


def test_show_says_when_a_certificate_was_issued_and_that_it_expired(command: Command, small: Small) -> None:
    today = certificate.today()
    small.issue(probes=PROBES)
    shown = command(small.root, "show", TINY).out
    assert f"  issued    {today}, expires {today + certificate.LIFETIME}" in shown.splitlines()
    assert "not valid: it expired" not in shown
    day = datetime.date(2025, 1, 1)
    small.issue(probes=PROBES, day=day)
    shown = command(small.root, "show", TINY).out
    assert f"  not valid: it expired on {day + certificate.LIFETIME}: certify again" in shown.splitlines()
    assert "  valid " not in shown
    small.issue()
    assert "  valid     for today's lock, suite and advisories" in command(small.root, "show", TINY).out.splitlines()


def test_every_engine_that_earns_a_certificate_can_be_asked_for() -> None:
    assert {*show.Engine} == {*description.ENGINES}


def test_show_of_a_certificate_of_before_certificates_expired(command: Command, small: Small) -> None:
    path = small.issue(probes=PROBES)
    data = json.loads(path.read_text())
    del data["predicate"]["issued"], data["predicate"]["expires"]
    path.write_text(json.dumps(data, indent=2) + "\n")
    answer = command(small.root, "show", TINY)
    assert answer.code == 0
    assert "  not valid: it has no expiry date: certify again" in answer.out.splitlines()


def test_show_of_one_engine_leaves_the_other_out(command: Command, small: Small) -> None:
    small.issue("host")
    small.issue("docker")
    assert set(command(small.root, "show", TINY, "--json").json) == {"cpu-host", "cpu-docker"}
    assert set(command(small.root, "show", TINY, "--engine", "docker", "--json").json) == {"cpu-docker"}


def test_show_of_a_damaged_certificate_ends_with_3(command: Command, small: Small) -> None:
    small.issue().write_text("{")
    answer = command(small.root, "show", TINY)
    assert answer.code == 3
    assert "cpu-host.json is not a certificate" in answer.err


def test_list_shows_the_other_stacks_beside_one_that_cannot_be_read(command: Command, small: Small) -> None:
    unfinished = small.root / "lockfiles" / "unfinished" / "stack.toml"
    unfinished.parent.mkdir()
    unfinished.write_text("title = ")
    answer = command(small.root, "list")
    assert answer.code == 3
    assert [line.split()[0] for line in answer.out.splitlines()[1:]] == [TINY, "unfinished"]
    assert answer.out.splitlines()[2].endswith("cannot be read: see below")
    assert "lockfiles/unfinished/stack.toml" in answer.err
    small.issue().write_text("{")
    answer = command(small.root, "list")
    assert answer.code == 3
    assert "cpu-host.json is not a certificate" in answer.err and "lockfiles/unfinished/stack.toml" in answer.err
    assert command(small.root, "list", "--json").json["error"]["exit_code"] == 3


def many(small: Small, count: int, probes: Sequence[ProbeResult] = ()) -> Path:
    path = small.issue(probes=probes)
    for number in range(1, count):
        path.with_name(f"cpu-{number}.json").write_bytes(path.read_bytes())
    return path


def test_show_of_many_certificates_has_a_line_for_each(command: Command, small: Small) -> None:
    path = many(small, show.WHOLE + 1)
    path.with_name("cpu-2.json").write_text(path.read_text().replace('"PASSED"', '"FAILED"'))
    answer = command(small.root, "show", TINY)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert len(lines) == show.WHOLE + 3
    today = certificate.today()
    assert lines[1].startswith("  cpu-1: ")
    assert lines[1].endswith(f" (lock), issued {today}, expires {today + certificate.LIFETIME}: holds")
    assert lines[2].startswith("  cpu-2: ") and lines[2].endswith(": it is the report of a run that failed")
    assert lines[-1] == f"next: vetted show {TINY} --certificate cpu-1"


def test_show_of_many_certificates_names_the_damaged_one_beside_the_others(command: Command, small: Small) -> None:
    many(small, show.WHOLE + 1).with_name("cpu-2.json").write_text("{")
    answer = command(small.root, "show", TINY)
    assert answer.code == 1
    lines = answer.out.splitlines()
    assert len(lines) == show.WHOLE + 3
    assert lines[1] == "  cpu-2: not a certificate of this stack"
    assert sum(line.endswith(": holds") for line in lines) == show.WHOLE
    assert lines[-1] == f"next: vetted show {TINY} --certificate cpu-2"


def test_show_of_one_certificate_has_its_numbers(command: Command, small: Small) -> None:
    many(small, show.WHOLE + 1, PROBES)
    answer = command(small.root, "show", TINY, "--certificate", "cpu-host")
    assert answer.code == 0
    assert any(line.split()[:3] == ["alpha", "passed", "loss"] for line in answer.out.splitlines())
    assert set(command(small.root, "show", TINY, "--certificate", "cpu-1", "--json").json) == {"cpu-1"}


@pytest.mark.parametrize("name", ["cpu-nothing", "../certificates/cpu-host", "*"])
def test_show_of_a_certificate_that_is_not_there(command: Command, small: Small, name: str) -> None:
    small.issue()
    answer = command(small.root, "show", TINY, "--certificate", name)
    assert answer.code == 1
    assert answer.out.splitlines() == [f"{TINY} has no certificate {name}", f"next: vetted show {TINY}"]


def test_list_names_some_of_many_places(command: Command, small: Small) -> None:
    path = many(small, 1)
    hardware = certificate.read(path).hardware
    for number in range(1, listing.SHOWN + 3):
        statement = certificate.read(path).model_dump(mode="json", by_alias=True, exclude_none=True)
        for resource in statement["predicate"]["configuration"]:
            if resource["name"] == "hardware":
                resource["annotations"] = {"class": f"CPU {number}, 2 cores", "cpu": f"CPU {number}", "cores": 2}
        written = certificate.Statement.model_validate(statement).to_json()
        path.with_name(f"cpu-{number:02}.json").write_text(written)
    answer = command(small.root, "list").out
    assert "CPU 1, 2 cores (lock)" in answer and hardware not in answer
    assert f"and 3 more: vetted show {TINY}" in answer
    (row,) = command(small.root, "list", "--json").json
    assert len(row["certified_on"]) == listing.SHOWN + 3
