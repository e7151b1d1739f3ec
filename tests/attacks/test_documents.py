"""Attacks on documents: files that no reader can take, and text that is more than text in Markdown."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from builder.base import errors, reading, text
from builder.bisect import configuration
from builder.bisect.journal import Journal
from builder.pages import evidence, generate, matrix, records
from tests.attacks.letters import harmless
from tests.conftest import TINY, Small
from tests.unit.conftest import Command

DEEP = "[" * 100_000
UNREADABLE = {
    "nested": b"x = " + DEEP.encode(), "digits": b"x = " + b"9" * 10_000, "binary": b"\xff\xfe\x00",
    "huge": b"#" * (2 << 20), "list": b"[]", "deep": DEEP.encode(), "number": b"9" * 10_000,
}  # fmt: skip
LINK = "[click](https://evil.example) ![x](https://evil.example/x.png) <img src=x onerror=alert(1)> | a | b\n# Heading"
SPOILED = st.text() | st.lists(
    st.sampled_from(["[x](http://a.b)", "<b>", "`", "``", "\\", "|", "\n", "![](", ")", "*", "_", "<!--", "-->", "1. ",
                     "# ", "$a$", "&lt;", "www.a.bc", "https://a.bc", "~~", "\x1b[31m", "\u202e", "[[override]]", " "]),
    max_size=9,
).map("".join)  # fmt: skip


def test_a_title_of_ten_megabytes(small: Small, command: Command) -> None:
    """The title of a stack is larger than any stack.toml."""
    small.edit("stack.toml", '"Tiny"', f'"{"x" * 10_000_000}"')
    answer = command(small.root, "list")
    assert answer.code == 3
    assert "lockfiles/tiny/stack.toml is larger than 1 MB" in answer.err
    assert len(answer.err) < 1000


@pytest.mark.parametrize("name", ["stack.toml", "lock.toml"])
@pytest.mark.parametrize("how", ["nested", "digits", "binary", "huge"])
def test_toml_that_no_reader_can_take(small: Small, command: Command, name: str, how: str) -> None:
    """TOML is nested endlessly, has a number of ten thousand digits, is not text, or is too large."""
    small.file(name).write_bytes(UNREADABLE[how])
    answer = command(small.root, "list", "--json")
    assert answer.code == 3
    assert answer.json["error"]["what"].startswith(f"lockfiles/tiny/{name}")
    assert answer.json["error"]["next"]


@pytest.mark.parametrize("name", ["stack.toml", "lock.toml", "requirements.txt", "certificates/cpu-host.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_a_pipe_in_place_of_a_file(small: Small, command: Command, name: str, kind: str) -> None:
    """A named pipe, a folder or an endless device is in place of a file; the reader does not wait."""
    path = small.file(name)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    answer = command(small.root, "list")
    assert answer.code == 3
    assert name in answer.err
    assert "is not a file" in answer.err


@pytest.mark.parametrize("how", ["list", "deep", "number", "binary"])
def test_json_that_is_no_object(small: Small, command: Command, how: str) -> None:
    """A certificate, evidence and a journal contain a list, endless nesting, or no text."""
    path = small.issue()
    path.write_bytes(UNREADABLE[how])
    answer = command(small.root, "show", TINY)
    assert answer.code == 3
    assert "is not a certificate" in answer.err
    recorded = evidence.path(small.project, "controls")
    recorded.parent.mkdir()
    recorded.write_bytes(UNREADABLE[how])
    with pytest.raises(errors.BadInputError, match=r"docs/evidence/controls\.json"):
        evidence.read(small.project, records.Controls)
    journal = small.project.state / "bisect" / "key.json"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(UNREADABLE[how])
    assert Journal.open(small.project, "key", small.root).sets == {}


@pytest.mark.parametrize(
    "document",
    [
        {"lead": 1, "rows": []},
        {"lead": 1, "rows": {"x": {"changes": "abc", "trials": [], "why_not": ""}}},
        {"lead": 1, "rows": {"x": {"changes": [], "trials": [{"outcome": "green", "reason": [[]]}], "why_not": ""}}},
        {"lead": 1, "rows": {"x": {"changes": [], "trials": [{"outcome": "certified"}], "why_not": 7}}},
        {"lead": [], "rows": {}},
    ],
)
def test_a_journal_of_another_shape(small: Small, document: object) -> None:
    """The journal of a bisection is valid JSON of another shape."""
    journal = small.project.state / "bisect" / "key.json"
    journal.parent.mkdir(parents=True)
    journal.write_text(json.dumps(document))
    opened = Journal.open(small.project, "key", small.root)
    assert (opened.sets, opened.lead, opened.tried()) == ({}, 1, [])


@pytest.mark.parametrize("epoch", ["-1", "true", "99999999999999", "1.5", '"1"', "[]"])
def test_a_lock_of_a_time_that_never_was(small: Small, command: Command, epoch: str) -> None:
    """The time of a lock is negative, a boolean, or beyond the limit of archives."""
    small.edit("lock.toml", "epoch = 1700000000", f"epoch = {epoch}")
    answer = command(small.root, "list")
    assert answer.code == 3
    assert "`epoch` is a number" in answer.err


@pytest.mark.parametrize("content", ["a: " + "[" * 10_000, "a: " + "9" * 10_000, "a: &a\n  - *a\n"])
def test_yaml_that_no_reader_can_take(tmp_path: Path, content: str) -> None:
    """A configuration is nested endlessly, or contains an endless number or itself."""
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(errors.BadInputError, match=r"config\.yaml"):
        configuration.read(path, [])


def test_yaml_that_grows_when_it_is_read(tmp_path: Path) -> None:
    """Ten aliases of ten aliases of ten: some hundred bytes that expand to a billion values."""
    path = tmp_path / "config.yaml"
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path.write_text("\n".join(["a0: &a0 [1, 2]", *rows]))
    with pytest.raises(errors.BadInputError, match="more than 10000 values"):
        configuration.read(path, [])


def test_evidence_of_another_shape(small: Small, command: Command) -> None:
    """Evidence is valid JSON of another shape; documents are generated from it."""
    recorded = evidence.path(small.project, "controls")
    recorded.parent.mkdir()
    recorded.write_text('{"caught": {}, "controls": [], "rows": 7}')
    (small.root / "docs" / "suite.md").write_text(
        "<!-- controls: generated by `vetted render` -->\n<!-- end of controls -->\n"
    )
    answer = command(small.root, "render")
    assert answer.code == 3
    assert "git checkout docs/evidence" in answer.err


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """A file is larger than the limit: it is sparse, so it costs its writer nothing."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(errors.BadInputError, match="larger than 67 MB"):
        reading.content(path, "huge")


# What is shown in Markdown.


def tokens(content: str) -> list[Token]:
    blocks = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough").parse(content)
    return [*blocks, *(child for block in blocks for child in block.children or ())]


ALLOWED = {
    "text", "inline", "paragraph_open", "paragraph_close", "code_inline", "table_open", "table_close", "thead_open",
    "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close",
}  # fmt: skip


@given(SPOILED)
@example(LINK)
@example("`a`` `b` <!-- end of matrix -->")
@example("\\|`|`\\")
def test_markdown_that_is_more_than_text(content: str) -> None:
    """Links, images, HTML, cells, headings and emphasis are in a cell, in a line, and in code."""
    for shown in (text.markdown(content), text.code(content)):
        assert "\n" not in shown
        assert "<!--" not in shown
        assert harmless(shown)
        rows = tokens(f"| a | b |\n|---|---|\n| {shown} | end |\n")
        kinds = {token.type for token in rows}
        assert {token.content for token in rows if token.type == "html_inline"} <= {"<code>", "</code>"}
        assert kinds <= ALLOWED | {"html_inline"}
        assert [token.type for token in rows].count("td_open") == 2
        assert rows[[token.type for token in rows].index("tbody_close") - 3].content == "end"
    assert {token.type for token in tokens(f"x {text.markdown(content)}")} <= ALLOWED | {"html_inline"}
    assert {token.type for token in tokens(text.markdown(content))} <= ALLOWED | {"html_inline"}


@given(SPOILED)
@example("```\n# Heading\n````\n<b>")
def test_a_block_of_code_that_ends_itself(content: str) -> None:
    """The content of a fenced block contains fences."""
    blocks = MarkdownIt("commonmark").parse("\n".join([*text.block(content, "toml"), "", "after"]))
    assert [token.type for token in blocks] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert harmless(blocks[0].content)


def test_a_certificate_that_writes_the_readme(small: Small) -> None:
    """The hardware of a certificate contains a link, HTML, cells and the mark that ends the matrix."""
    path = small.issue()
    document = json.loads(path.read_text())
    for resource in document["predicate"]["configuration"]:
        if resource["name"] == "hardware":
            cpu = f"{LINK} <!-- end of matrix -->".replace("\n", " ")
            resource["annotations"] = {"class": f"{cpu}, 2 cores", "cpu": cpu, "cores": 2}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=True) + "\n")
    shown = matrix.matrix(small.project)
    assert "2 cores (lock)" in shown
    assert len(shown.splitlines()) == 3
    assert "\x1b" not in shown
    assert "<!--" not in shown
    assert not {"link_open", "image"} & {token.type for token in tokens(shown)}
    assert {token.content for token in tokens(shown) if token.type == "html_inline"} <= {"<br>"}


def test_evidence_that_writes_the_documents(small: Small) -> None:
    """Titles and outcomes of recorded controls contain links, HTML and cells."""
    row = {
        "control": LINK, "title": LINK, "expected": [LINK], "on_control": [{"probe": LINK, "outcome": LINK}],
        "on_twin": [{"probe": LINK, "outcome": LINK}], "twin": LINK, "patches": [f"images/patches/{LINK}.patch"],
    }  # fmt: skip
    document = {
        "caught": 1, "controls": 1, "false_alarms": 0, "rows": [row], "date": LINK, "machine": LINK, "command": LINK,
        "suite": LINK,
    }  # fmt: skip
    evidence.store(small.project, "controls", document, small.scratch())
    shown = generate.part(small.project, "controls", "..")
    assert len(shown.splitlines()) == 3
    links = [token.attrs["href"] for token in tokens(shown) if token.type == "link_open"]
    assert all(str(link).startswith("../images/patches/") for link in links)
    assert "image" not in {token.type for token in tokens(shown)}
    assert {token.content for token in tokens(shown) if token.type == "html_inline"} <= {"<code>", "</code>"}
