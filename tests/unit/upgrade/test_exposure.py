"""Known vulnerabilities of a stack: whether a fix fits, what people said of them in VEX, and what `watch` answers."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from builder.base import errors
from builder.certify import certificate
from builder.lock import osv, renewal
from builder.lock.renewal import Fix, Renewal
from builder.publish import purls
from builder.upgrade.watch import exposure, vex
from builder.upgrade.watch.exposure import Exposure
from tests.conftest import LIBRARY, TINY, Small, make_wheel
from tests.unit.conftest import Command
from tests.unit.lock.test_osv import BEGIN, add, of, record

PURL = "pkg:pypi/tiny-lib@1.0"
UTIL = "util-linux"


@pytest.fixture
def stack(wheels: Small) -> Small:
    """tiny-lib 1.0 is locked; 2.0 is there, and 3.0 needs what nobody has."""
    for version, needs in (("2.0", []), ("3.0", ["missing>=1"])):
        make_wheel(wheels.wheelhouse, "tiny-lib", version, {"tiny_lib.py": LIBRARY}, needs)
    wheels.issue()
    return wheels


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "osv"
    folder.mkdir()
    add(
        folder,
        record("PYSEC-2026-1", of("tiny-lib", BEGIN, {"fixed": "1.5"}), aliases=["CVE-2026-1"], summary="It leaks."),
        record("PYSEC-2026-2", of("tiny-lib", BEGIN, {"fixed": "2.5"})),
        record("PYSEC-2026-3", of("tiny-lib", BEGIN)),
        record("DSA-1", of(UTIL, BEGIN, {"fixed": "2.38.1-5+deb12u4"}, kind="Debian:12")),
        record("DSA-2", of(UTIL, BEGIN, {"fixed": "2.38.1-5+deb12u9"}, kind="Debian:12")),
    )
    return folder


def renewed(new: str = "2.38.1-5+deb12u5") -> Renewal:
    sources = {"bsdutils": (UTIL, "2.38.1-5+deb12u3")}
    return Renewal((Fix(UTIL, "2.38.1-5+deb12u3", new, ("bsdutils",), ("CVE-2026-9",)),), sources)


def exposures(stack: Small, export: Path, known: Renewal | None) -> list[Exposure]:
    things = exposure.installed(stack.lock, known)
    return exposure.of(stack.lock, things, osv.matches(export, things)[0], known, stack.scratch())


def test_a_fix_fits_or_what_is_in_the_way_is_said(stack: Small, export: Path) -> None:
    exposed = {each.match.name: each for each in exposures(stack, export, renewed())}
    assert {name: each.fits for name, each in exposed.items()} == {
        "CVE-2026-1": True, "PYSEC-2026-2": False, "PYSEC-2026-3": False, "DSA-1": True, "DSA-2": False,
    }  # fmt: skip
    assert str(exposed["CVE-2026-1"]) == "CVE-2026-1: tiny-lib 1.0 (<1.5); fixed in 1.5: tiny-lib 2.0 fits"
    assert "it does not fit: " in exposed["PYSEC-2026-2"].fit and "missing" in exposed["PYSEC-2026-2"].fit
    assert exposed["PYSEC-2026-3"].fit == "no version is known to fix it"
    assert exposed["DSA-1"].fit == "a rebuild with today's Debian packages has 2.38.1-5+deb12u5"
    assert exposed["DSA-2"].fit == "the mirror has 2.38.1-5+deb12u5"
    assert exposed["CVE-2026-1"].purls == (PURL,)
    assert exposed["DSA-1"].purls == ("pkg:deb/debian/bsdutils@1:2.38.1-5%2Bdeb12u3?distro=bookworm",)


def test_without_a_mirror_debians_packages_have_their_own_names(stack: Small, export: Path) -> None:
    add(export, record("DSA-3", of("bsdutils", BEGIN, {"fixed": "1:2.39"}, kind="Debian:12")))
    exposed = {each.match.name: each for each in exposures(stack, export, None)}
    assert "DSA-1" not in exposed
    assert (exposed["DSA-3"].fits, exposed["DSA-3"].fit) == (False, "whether the mirror has it is not known")


def test_those_without_a_fix_share_a_line(stack: Small, export: Path) -> None:
    exposed = exposures(stack, export, renewed())
    lines = exposure.lines(exposed, 5)
    assert len(lines) == 5 and lines[-1] == "without a fix: PYSEC-2026-3 (tiny-lib)"
    assert exposure.lines([], 5) == ["no known vulnerability, in 5 records"]
    assert "- CVE-2026-1: tiny-lib 1.0 (&lt;1.5)" in "\n".join(exposure.section(exposed, 5))


# --- VEX -------------------------------------------------------------------------------------------------------------


def update(stack: Small, export: Path, document: vex.Document, days: int = 0) -> vex.Document:
    exposed = vex.judged(document, exposures(stack, export, renewed()))
    day = certificate.today() + datetime.timedelta(days=days)
    return vex.updated(document, exposed, set(purls.of(stack.lock).values()), day)


def test_a_match_is_a_question_and_a_person_answers_it(stack: Small, export: Path, tmp_path: Path) -> None:
    file = tmp_path / "vex.json"
    questions = update(stack, export, vex.read(file))
    assert {each.status for each in questions.statements} == {"under_investigation"} and len(questions.statements) == 5
    file.write_text(vex.to_json(questions))
    assert update(stack, export, (again := vex.read(file)), days=1) is again  # nothing new is no new version
    document = json.loads(file.read_text())
    assert document["@context"] == "https://openvex.dev/ns/v0.2.0" and document["@id"].startswith("urn:uuid:")
    (question,) = [each for each in document["statements"] if each["vulnerability"]["name"] == "CVE-2026-1"]
    assert question["products"] == [{"@id": PURL}] and question["vulnerability"]["aliases"] == ["PYSEC-2026-1"]
    question.update(status="not_affected", justification="vulnerable_code_not_in_execute_path", supplier="me")
    file.write_text(json.dumps(document))
    (answered,) = [
        e for e in vex.judged(vex.read(file), exposures(stack, export, None)) if e.match.name == "CVE-2026-1"
    ]
    assert (answered.judged, answered.needs_a_person) == ("not_affected", False)
    add(export, record("PYSEC-2026-4", of("tiny-lib", BEGIN)))
    later = update(stack, export, vex.read(file))
    assert (later.version, len(later.statements)) == (2, 6)
    kept = json.loads(vex.to_json(later))["statements"]
    assert question in kept  # with all that the person wrote


def test_questions_that_no_longer_arise_go_and_answers_stay(stack: Small, export: Path) -> None:
    questions = update(stack, export, vex.read(stack.root / "none.json"))
    answered = questions.statements[0].model_copy(update={"status": "affected"})
    other = vex.Product.model_validate({"@id": "pkg:pypi/x@1"})
    elsewhere = questions.statements[1].model_copy(update={"products": [other]})
    document = questions.model_copy(update={"statements": [answered, elsewhere, *questions.statements[1:]]})
    for path in export.iterdir():
        path.unlink()
    add(export, record("PYSEC-2026-9", of("other", BEGIN)))
    assert update(stack, export, document).statements == [answered, elsewhere]


def test_a_judgement_of_another_version_does_not_count(stack: Small, export: Path) -> None:
    document = update(stack, export, vex.read(stack.root / "none.json"))
    statements = [each.model_copy(update={"status": "fixed"}) for each in document.statements]
    document = document.model_copy(update={"statements": statements})
    assert {each.judged for each in vex.judged(document, exposures(stack, export, renewed()))} == {"fixed"}
    stack.edit("requirements.txt", "tiny-lib==1.0", "tiny-lib==1.1")
    judged = {each.match.name: each.judged for each in vex.judged(document, exposures(stack, export, renewed()))}
    assert judged["CVE-2026-1"] == "" and judged["DSA-1"] == "fixed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"), ("[]", "not an object"), ('{"statements": [{"status": "fine"}]}', "is no OpenVEX document"),
        (
            '{"statements": [{"status": "not_affected", "vulnerability": {"name": "CVE-1"}, "products": []}]}',
            "nobody says why",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "vex.json").write_text(text)
    with pytest.raises(errors.BadInputError, match=words):
        vex.read(tmp_path / "vex.json")


# --- the command -----------------------------------------------------------------------------------------------------


def watch(command: Command, stack: Small, *argv: str) -> Any:
    return command(stack.root, "watch", TINY, "--dry-run", *argv)


def test_watch_says_what_a_rebuild_fixes(stack: Small, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "of", lambda *_: renewed())
    answer = watch(command, stack)
    assert answer.code == 0, answer.err
    lines = " ".join(answer.out.split())
    assert f"{TINY}: a rebuild with today's Debian packages fixes CVE-2026-9 (util-linux 2.38.1-5+deb12u3" in lines
    assert f"next: vetted recertify {TINY} --upgrade debian" in lines
    (fix,) = watch(command, stack, "--json").json[TINY]["debian"]["fixes"]
    assert (fix["source"], fix["cves"], fix["packages"]) == (UTIL, ["CVE-2026-9"], ["bsdutils"])


def test_without_a_mirror_it_is_said_and_nothing_fails(stack: Small, command: Command) -> None:
    answer = watch(command, stack)
    assert answer.code == 0, answer.err
    sentence = "packages were not compared with the mirror: the Debian mirror did not answer"
    assert sentence in " ".join(answer.out.split())
    debian = watch(command, stack, "--json").json[TINY]["debian"]
    assert debian == {"fixes": None, "note": "the Debian mirror did not answer"}
    earlier = watch(command, stack, "--json", "--as-of", "2026-01-01").json[TINY]
    assert "the packages of today" in earlier["debian"]["note"]


def test_watch_needs_a_person_while_a_fix_that_fits_is_left_out(
    stack: Small, command: Command, export: Path, tmp_path: Path
) -> None:
    file = tmp_path / "vex.json"
    answer = watch(command, stack, "--osv", str(export), "--vex", str(file))
    assert answer.code == 1
    assert "CVE-2026-1: tiny-lib 1.0 (<1.5); fixed in 1.5: tiny-lib 2.0 fits" in " ".join(answer.out.split())
    matches = watch(command, stack, "--osv", str(export), "--json").json[TINY]["osv"]
    assert matches["records"] == 5
    assert [match["names"][0] for match in matches["matches"]] == ["CVE-2026-1", "PYSEC-2026-2", "PYSEC-2026-3"]
    document = json.loads(file.read_text())
    for statement in document["statements"]:
        if statement["vulnerability"]["name"] == "CVE-2026-1":
            statement.update(status="not_affected", impact_statement="Nothing here leaks.")
    file.write_text(json.dumps(document))
    answer = watch(command, stack, "--osv", str(export), "--vex", str(file))
    assert answer.code == 0, answer.out
    assert "1 more are judged in VEX" in answer.out and "CVE-2026-1:" not in answer.out


def test_vex_needs_osv_and_an_export_has_to_be_one(stack: Small, command: Command, tmp_path: Path) -> None:
    assert watch(command, stack, "--vex", str(tmp_path / "vex.json")).code == 2
    assert watch(command, stack, "--osv", str(tmp_path / "nowhere")).code == 3
