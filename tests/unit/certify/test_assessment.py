"""The certificate files of a stack are judged once; tests/attacks/test_assessment.py has what must not count."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import assessment as assessing
from builder.certify import certificate, judgement, standing
from builder.certify.assessment import Assessment, Assessments
from builder.certify.certificate import Resource
from tests.conftest import TINY, Small


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is judged and not merely found."""
    names: list[str] = []
    real = assessing.judge

    def judge(name: str, content: bytes, terms: judgement.Terms) -> Assessment:
        names.append(name)
        return real(name, content, terms)

    monkeypatch.setattr(assessing, "judge", judge)
    return names


def read(small: Small) -> list[Assessment]:
    return Assessments(small.project).of(small.lock)


def test_a_certificate_is_judged_once(small: Small, counted: list[str]) -> None:
    small.issue("host")
    small.issue("docker")
    first = read(small)
    assert counted == ["cpu-docker", "cpu-host"]
    assert read(small) == first
    assert counted == ["cpu-docker", "cpu-host"]


def test_the_answer_is_that_of_the_judgement(small: Small) -> None:
    path = small.issue("docker", day=datetime.date(2026, 1, 1))
    statement, terms = certificate.read(path), judgement.terms(small.project, small.lock)
    for _ in range(2):
        (assessment,) = read(small)
        assert assessment.doubts(terms.day) == judgement.doubts(statement, terms)
        assert (assessment.hardware, assessment.about, assessment.issued) == (
            statement.hardware,
            "image",
            datetime.date(2026, 1, 1),
        )
        assert (assessment.passed, assessment.result, assessment.gpus, assessment.differs) == (
            2,
            "PASSED",
            False,
            False,
        )


def test_only_what_is_new_is_judged_and_what_is_gone_is_forgotten(small: Small, counted: list[str]) -> None:
    path = small.issue("host")
    read(small)
    path.with_name("cpu-other.json").write_bytes(path.read_bytes())  # the same bytes under another name
    assert [assessment.name for assessment in read(small)] == ["cpu-host", "cpu-other"]
    small.issue("docker")
    read(small)
    assert counted == ["cpu-host", "cpu-docker"]
    path.unlink()
    path.with_name("cpu-other.json").unlink()
    assert [assessment.name for assessment in read(small)] == ["cpu-docker"]
    small.issue("host")
    read(small)
    assert counted == ["cpu-host", "cpu-docker", "cpu-host"]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read and hashed; a file counts as settled at once."""
    names: list[str] = []
    real = assessing._hash

    def digest(path: Path) -> str | None:
        names.append(path.stem)
        return real(path)

    monkeypatch.setattr(assessing, "_hash", digest)
    monkeypatch.setattr(assessing, "SETTLED", 0)
    return names


def test_a_file_that_has_not_changed_is_not_read_again(small: Small, hashed: list[str]) -> None:
    small.issue("host")
    small.issue("docker")
    first = read(small)
    assert read(small) == first == read(small)
    assert hashed == ["cpu-docker", "cpu-host"]


def test_a_file_that_has_just_changed_is_read_again(
    small: Small, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assessing, "SETTLED", 10**12)
    small.issue("host")
    assert read(small) == read(small)
    assert hashed == ["cpu-host", "cpu-host"]


def test_without_a_time_of_the_last_change_every_file_is_read(
    small: Small, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on FAT, where that time is the time of modification, which any program can set."""
    real = Path.stat

    def of_fat(path: Path, **options: bool) -> os.stat_result:
        status = real(path, **options)
        times = {"st_ctime_ns": status.st_mtime_ns, "st_mtime_ns": status.st_mtime_ns, "st_atime_ns": 0}
        return os.stat_result(tuple(status), times) if path.name == "clock" else status

    monkeypatch.setattr(Path, "stat", of_fat)
    small.issue("host")
    assert read(small) == read(small)
    assert hashed == ["cpu-host", "cpu-host"]


def test_each_judgement_is_reported_and_a_kept_one_is_not(small: Small) -> None:
    small.issue("host")
    said: list[str] = []
    Assessments(small.project, said.append).of(small.lock)
    Assessments(small.project, said.append).of(small.lock)
    assert said == [f"{TINY}: judging 1 of 1"]


def test_a_state_that_cannot_be_written_is_no_obstacle(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    small.issue()
    (small.root / "state").write_text("a file")
    monkeypatch.setenv("VETTED_STATE", str(small.root / "state"))
    assert [assessment.lasting for assessment in read(small)] == [()]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"terms": "", "rows": {}, "files": {}}'])
def test_a_damaged_file_of_verdicts_is_made_again(small: Small, counted: list[str], content: bytes) -> None:
    small.issue()
    first = read(small)
    (small.project.state / "assessments" / f"{TINY}.json").write_bytes(content)
    assert read(small) == first == read(small)
    assert len(counted) == 2


def test_nothing_is_left_beside_them(small: Small) -> None:
    small.issue()
    read(small)
    files = sorted(path.name for path in (small.project.state / "assessments").iterdir())
    assert files == [f"{TINY}.json", f"{TINY}.seal"]


def test_doubts_without_end_are_not_kept(small: Small, counted: list[str]) -> None:
    path = small.issue()
    statement = certificate.read(path)
    engine = Resource(name="engine", annotations={"name": "host", "system": "x" * 90_000})
    configuration = [engine if each.name == "engine" else each for each in statement.predicate.configuration]
    predicate = statement.predicate.model_copy(update={"configuration": configuration})
    path.write_text(statement.model_copy(update={"predicate": predicate}).to_json())
    (assessment,) = read(small)
    assert assessment.lasting and read(small) == [assessment]
    assert len(counted) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000])
def test_a_file_that_is_none_is_named(small: Small, content: bytes) -> None:
    small.issue().write_bytes(content)
    with pytest.raises(errors.BadInputError, match=r"cpu-host\.json is not a certificate"):
        read(small)


def test_a_folder_in_its_place_is_named(small: Small) -> None:
    path = small.issue()
    path.unlink()
    path.mkdir()
    with pytest.raises(errors.BadInputError, match=r"cpu-host\.json is not a file"):
        read(small)


def test_a_report_in_its_place_is_named(small: Small) -> None:
    path = small.issue()
    statement = certificate.read(path)
    more = certificate.Resource(name=certificate.DIFFERENCES, annotations={"torch": "2.0"})
    predicate = statement.predicate.model_copy(
        update={"configuration": [*statement.predicate.configuration, more]}
    )  # fmt: skip
    path.write_text(statement.model_copy(update={"predicate": predicate}).to_json())
    for _ in range(2):
        with pytest.raises(errors.BadInputError, match=r"cpu-host\.json is a report"):
            read(small)


def test_of_several_for_the_same_hardware_the_last_one_counts(small: Small) -> None:
    old, today = datetime.date(2026, 1, 1), certificate.today()
    path = small.issue(day=old)
    older = path.with_name("cpu-1.json")
    path.rename(older)
    (place,) = standing.certified_on(small.project, small.lock)
    assert standing.certified_on(small.project, small.lock, today) == [
        f"{place}, expired on {old + certificate.LIFETIME}"
    ]
    small.issue()
    assert standing.certified_on(small.project, small.lock, today) == [place]
    Path(older).unlink()
    assert standing.certified_on(small.project, small.lock, today) == [place]
