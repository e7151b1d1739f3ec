"""What the doctor keeps of the imports of installed packages: for the same sources alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from doctor.read import environment, imports, parsing
from tests.unit.doctor.test_callers import check, installed

FAILING = {
    "trl/__init__.py": "", "trl/trainer/__init__.py": "", "trl/trainer/grpo_config.py": "",
    "trl/trainer/grpo_trainer.py": "from peft import Gone\n",
}  # fmt: skip


def test_what_was_read_of_a_wheel_is_kept_until_a_file_of_it_changes(tmp_path: Path) -> None:
    site, cache = tmp_path / "site", tmp_path / "cache"
    installed(site, "trl", "1.0", {"trl/__init__.py": "from peft import a"})
    package = environment.of_folders("", [site]).packages["trl"]
    own = imports.sources(package)
    assert own is not None
    assert imports.of_package(package, own, cache) == {"peft": {"a": ["trl/__init__.py"]}}
    (kept,) = cache.iterdir()
    kept.write_text('{"peft": {"b": ["trl/__init__.py"]}}')
    assert imports.of_package(package, own, cache) == {"peft": {"b": ["trl/__init__.py"]}}
    for spoiled in ("", "[]", '{"peft": {"b": [1]}}', "{" * 10_000):
        kept.write_text(spoiled)
        assert imports.of_package(package, own, cache) == {"peft": {"a": ["trl/__init__.py"]}}
    (site / "trl" / "__init__.py").write_text("from peft import longer_than_before")
    edited = imports.sources(package)
    assert edited is not None and edited.digest == ""


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    installed(tmp_path, "trl", "1.0", {"trl/__init__.py": "from peft import a"})
    package = environment.of_folders("", [tmp_path]).packages["trl"]
    own = imports.sources(package)
    assert own is not None
    (tmp_path / "file").write_text("")
    assert imports.of_package(package, own, tmp_path / "file") == {"peft": {"a": ["trl/__init__.py"]}}


def test_what_was_concluded_is_kept_for_the_same_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "peft", "1.0", {"peft/__init__.py": "here = 1\n"})
    installed(tmp_path, "trl", "1.0", FAILING)
    parsed: list[Path] = []
    tree = parsing.tree

    def remembered(path: Path) -> ast.Module | None:
        parsed.append(path)
        return tree(path)

    monkeypatch.setattr(parsing, "tree", remembered)
    (first,) = check(tmp_path)
    assert parsed
    parsed.clear()
    (again,) = check(tmp_path)
    assert (again.title, again.evidence, again.confidence) == (first.title, first.evidence, first.confidence)
    assert parsed == []
    # Another release of one package, or an edited file, is another question.
    (tmp_path / "trl" / "trainer" / "grpo_config.py").write_text("edited = 1\n")
    assert len(check(tmp_path)) == 1 and parsed
    # A file that no RECORD names may bring the name since.
    (tmp_path / "trl" / "trainer" / "grpo_config.py").write_text("")
    (tmp_path / "peft" / "Gone.py").write_text("")
    assert check(tmp_path) == []


@pytest.mark.parametrize(
    "spoiled", ["", "{}", "[1]", '[["trl", "peft", "peft", "Gone", "trl", "", "1", []]]', "[" * 10_000]
)
def test_a_spoiled_conclusion_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoiled: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    installed(tmp_path / "site", "peft", "1.0", {"peft/__init__.py": "here = 1\n"})
    installed(tmp_path / "site", "trl", "1.0", FAILING)
    assert len(check(tmp_path / "site")) == 1
    (path,) = imports.cache_folder().glob("*.uses.json")
    path.write_text(spoiled)
    assert len(check(tmp_path / "site")) == 1
