"""A mutant: where it is found, and how it is made without touching what it is made of."""

from __future__ import annotations

import py_compile
import subprocess
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import hostenv
from tests.conftest import Small
from tests.mutants import mutant
from tests.unit.mutants.conftest import SUMS, place, site_packages


@pytest.mark.parametrize(
    ("package", "file"),
    [("tiny-math", "sums.py"), ("tiny_math", "sums.py"), ("Tiny.Math", "tiny_math/sums.py")],
)
def test_a_mutant_is_found_by_distribution_or_import_name(
    calculator: Small, tmp_path: Path, package: str, file: str
) -> None:
    placed = place(calculator, tmp_path, package=package, file=file)
    assert str(placed.file) == "tiny_math/sums.py"
    assert placed.content.decode() == SUMS.replace("a + b", "a - b")


def test_a_module_that_is_no_folder_is_found_too(calculator: Small, tmp_path: Path) -> None:
    placed = place(calculator, tmp_path, package="tiny-lib", file="tiny_lib.py", find="last = 3", replace="last = 4")
    assert str(placed.file) == "tiny_lib.py"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"find": "a * b"}, "`find` of one: must stand exactly once in tiny_math/sums.py of tiny-math 1.0, and is not"),
        ({"find": "add"}, "`find` of one: must stand exactly once in tiny_math/sums.py of tiny-math 1.0, and stands"),
        ({"file": "sum.py"}, "`file` of one: tiny-math 1.0 has no file sum.py"),
        ({"file": "flat/sums.py"}, "it has tiny_math/deep/sums.py, tiny_math/sums.py"),
        ({"file": "tiny_lib.py"}, "`file` of one: tiny-math 1.0 has no file tiny_lib.py"),
        ({"package": "tiny-meth"}, "`package` of one: tiny-meth is neither a distribution in the lock nor a folder of"),
        ({"package": "smuggled"}, "`package` of one: smuggled is neither a distribution in the lock"),
        ({"replace": "a +"}, "`replace` of one: tiny_math/sums.py is no Python any more, line 5"),
    ],
)
def test_a_mutant_without_its_one_place_is_a_bad_input(
    calculator: Small, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    (site_packages(calculator) / "smuggled").mkdir()
    (site_packages(calculator) / "smuggled" / "sums.py").write_text(SUMS)
    with pytest.raises(errors.BadInputError) as caught:
        place(calculator, tmp_path, **change)
    assert message in caught.value.what
    assert "list.toml" in caught.value.next_step


def answer_of(environment: Path) -> str:
    program = "from tiny_math import sums; print(sums.add(1, 3))"
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_mutant_is_made_beside_what_it_is_made_of(calculator: Small, tmp_path: Path) -> None:
    environment = hostenv.path(calculator.project, calculator.lock)
    clone = tmp_path / "clone"
    mutant.clone(environment, clone)
    mutant.make(place(calculator, tmp_path), clone / calculator.lock.site_packages)
    changed, original = (folder / calculator.lock.site_packages / "tiny_math" for folder in (clone, environment))
    assert (original / "sums.py").read_text() == SUMS
    assert (changed / "sums.py").read_text() == SUMS.replace("a + b", "a - b")
    assert (changed / "__init__.py").samefile(original / "__init__.py")  # shared: a clone costs no space
    assert (answer_of(environment), answer_of(clone)) == ("4", "-2")
    mutant.undo(place(calculator, tmp_path), changed.parent, original.parent)
    assert (changed / "sums.py").samefile(original / "sums.py")
    assert answer_of(clone) == "4"
    assert list(changed.glob("*.mutant")) == []


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_bytecode_of_the_original_does_not_hide_the_mutant(
    calculator: Small, tmp_path: Path, mode: py_compile.PycInvalidationMode
) -> None:
    """Not even when the change alters neither the time nor the size of the source."""
    environment = hostenv.path(calculator.project, calculator.lock)
    original = site_packages(calculator) / "tiny_math" / "sums.py"
    compiling = (
        f"import py_compile as p; p.compile({str(original)!r}, invalidation_mode=p.PycInvalidationMode({mode.value}))"
    )
    subprocess.run([str(environment / "bin" / "python"), "-c", compiling], check=True)
    kept = {path: path.read_bytes() for path in original.parent.glob("__pycache__/sums.*.pyc")}
    assert kept
    clone = tmp_path / "clone"
    mutant.clone(environment, clone)
    mutant.make(place(calculator, tmp_path), clone / calculator.lock.site_packages)
    assert answer_of(clone) == "-2"
    assert {path: path.read_bytes() for path in kept} == kept
