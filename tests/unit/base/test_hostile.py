"""What strangers write: names, references, manifests, envelopes, layouts. None of it becomes a path, an option, an
escape sequence or a traceback."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from builder.base import errors
from builder.base.machine import Hardware
from builder.certify import certificate
from builder.certify.certificate import Resource
from builder.commands.readout import lines
from builder.image import oci
from builder.intent import stack
from builder.lock import metadata
from builder.publish import attached, dotenv, licences, publish, refusal, registry, signing, verify
from builder.publish.reference import parse_reference, parse_repository
from tests.conftest import TINY, Small
from tests.registry.conftest import image_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# Texts that look like names, and what people try with them.
NASTY = st.sampled_from(
    ["..", "../../etc/passwd", "-rf", "--registry=x", "$(id)", "`id`", ";", "\n", "\x1b[31m", "\0", "@", ":", "a.b/c"]
)
NAMES = st.lists(NASTY | st.text(max_size=8), max_size=4).map("".join)
SAFE = re.compile(r"[A-Za-z0-9._:/@\[\]-]+")
FIXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture is only read


@given(NAMES)
@example("a.b/c:t@sha256:" + "1" * 64)
def test_a_reference_is_refused_or_harmless(text: str) -> None:
    for read in (parse_repository, parse_reference):
        try:
            reference = str(read(text, insecure=False))
        except ValueError:
            continue
        assert SAFE.fullmatch(reference)
        assert not reference.startswith("-")
        assert ".." not in reference.split("/")


@given(NAMES)
def test_a_tag_is_refused_or_harmless(text: str) -> None:
    try:
        tag = publish.tag(text)
    except errors.BadInputError:
        return
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,118}", tag)


@FIXED
@given(NAMES)
def test_a_stack_that_is_published_or_used_has_a_plain_name(small: Small, text: str) -> None:
    with pytest.raises(errors.BadInputError):
        stack.load(small.project, text if text != TINY else "")


@given(NAMES, st.text())
def test_a_digest_never_leads_out_of_a_layout(text: str, more: str) -> None:
    for digest in (text, f"sha256:{text}", f"sha256:{'1' * 64}{more}"):
        try:
            path = oci.blob(Path("/layout"), digest)
        except ValueError:
            continue
        assert path.parent == Path("/layout/blobs/sha256")
        assert re.fullmatch(r"[0-9a-f]{64}", path.name)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
@example(b"[" * 100_000)
def test_what_is_no_envelope_is_none(raw: bytes) -> None:
    assert signing.parse(raw) is None


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary())
@example(b"[" * 100_000)
def test_a_statement_that_says_anything_is_read_without_a_traceback(statement: bytes) -> None:
    raw = json.dumps(
        {
            "payloadType": signing.PAYLOAD, "signatures": [{"sig": "AA=="}],
            "payload": base64.b64encode(statement).decode(),
        }
    ).encode()  # fmt: skip
    envelope = signing.parse(raw)
    assert envelope is not None
    assert isinstance(envelope.predicate_type, str)
    assert not verify.is_about(envelope.statement, "sha256:" + "1" * 64)


@FIXED
@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary())
@example(b'{"layers": [{"digest": "sha256:../../x", "mediaType": "x"}]}')
@example(b'{"layers": []}')
@example(b'{"layers": [' + b"{}," * 200 + b"{}]}")
@example(b"[" * 100_000)
def test_a_registry_that_serves_anything_for_a_manifest_is_told(content: bytes) -> None:
    """The fault is injected: no real registry serves what it did not check."""
    place = parse_repository("registry.example/a", insecure=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "manifest", lambda *_: content)
        ignored: list[str] = []
        assert attached.fetch(place, "sha256:" + "1" * 64, ignored) == []
    if not ignored:
        assert json.loads(content)["layers"] == []


@FIXED
@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary())
@example(b'{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}')
@example(b'{"manifests": [{"digest": 7}]}')
@example(b'{"manifests": []}')
@example(b"[" * 100_000)
def test_a_layout_that_says_anything_is_bad_input(small: Small, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "index.json").write_bytes(content)
    with pytest.raises(errors.BadInputError):
        verify.local(small.project, tmp_path, None, [tmp_path / "cosign.pub"], tmp_path, None)


@FIXED
@given(JSON)
def test_a_manifest_in_a_layout_that_says_anything_is_bad_input(small: Small, tmp_path: Path, manifest: Any) -> None:
    layout = tmp_path / "layout"
    if not layout.exists():
        oci.begin(layout)
    oci.finish(layout, [oci.add(layout, json.dumps(manifest).encode(), oci.MANIFEST)])
    with pytest.raises(errors.BadInputError):
        verify.local(small.project, layout, None, [tmp_path / "cosign.pub"], tmp_path, None)


@FIXED
@given(JSON | JSON.map(lambda value: {"subject": value, "layers": value}))
@example("subject")
@example({"subject": {"digest": "{image}"}, "layers": [{"digest": "sha256:../../x", "mediaType": signing.MEDIA_TYPE}]})
@example(
    {"subject": {"digest": "{image}"}, "layers": [{"digest": "sha256:" + "1" * 64, "mediaType": signing.MEDIA_TYPE}]}
)
def test_a_manifest_beside_a_good_image_that_says_anything_is_told(small: Small, tmp_path: Path, manifest: Any) -> None:
    layout = tmp_path / "layout"
    shutil.rmtree(layout, ignore_errors=True)
    image = image_of(layout, [{"etc/content": "content"}])
    hostile = json.dumps(manifest).replace("{image}", image.manifest).encode()
    oci.finish(layout, [image.descriptor, oci.add(layout, hostile, oci.MANIFEST)])
    try:
        verdict = verify.local(small.project, layout, image.manifest, [tmp_path / "cosign.pub"], tmp_path, None)
    except errors.BadInputError:
        return
    assert not verdict.good


@given(st.text() | NAMES)
def test_what_a_registry_says_is_printable_and_short(output: str) -> None:
    error = refusal.explain(parse_repository("registry.example/a", insecure=False), output)
    assert error.exit_code == 5
    assert error.what.replace("\n", "").isprintable()
    assert len(error.what) < 2500


@given(st.text() | NAMES, st.text() | NAMES)
def test_what_is_said_of_an_image_is_printable(text: str, more: str) -> None:
    """Even of what is signed: a key may be anybody's."""
    statement = certificate.statement(
        subject=Resource(name=text, digest=certificate.bare("1" * 64)), lock="2" * 64, suite="3" * 64,
        hardware=Hardware(text, 1, (more,), more), engine={"name": more}, python=text, probes=[],
    )  # fmt: skip
    judged = (verify.JudgedCertificate(statement, (text, more)),)
    verdict = verify.Verdict(text, more, text, more, judged, (text, f"{text}\n{more}"), (more,))
    for line, _ in lines(verdict):
        assert line.isprintable()


@given(st.text())
def test_a_licence_is_one_printable_line(text: str) -> None:
    for names in (
        licences.of_wheel(f"Name: x\nLicense: {text}\nClassifier: License :: {text}\n")[1],
        licences.of_wheel(text)[1],
        licences.of_debian(f"Format: https://x/copyright-format/1.0/\nLicense: {text}\n"),
    ):
        assert all(name and name.isprintable() and len(name) <= metadata.LONGEST for name in names)


@given(st.text())
def test_what_a_person_keeps_in_env_stays(text: str) -> None:
    after = dotenv.replaced(text, {"VETTED_IMAGE": "a.b/c@sha256:1", "VETTED_STACK": TINY})
    assert dotenv.replaced(after, {"VETTED_IMAGE": "a.b/c@sha256:1", "VETTED_STACK": TINY}) == after
    assert re.findall(r"^VETTED_(?:IMAGE|STACK)=.*$", after, re.MULTILINE).count("VETTED_STACK=tiny") == 1
    if "VETTED" not in text:
        assert after.startswith(text)
