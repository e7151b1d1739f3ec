"""Which lines are noted as executed."""

from __future__ import annotations

from pathlib import Path

from tests.commands import spawn

LIBRARY = """\
def chosen(flag):
    if flag:
        return 1
    return 2
"""
PROGRAM = """\
import os, sys
from pathlib import Path
from tests.mutants.tracing import trace
sys.path[:0] = [os.path.join("site-packages", folder) for folder in ("trl/trainer", "other")]
import utils, others
trace(Path("notes"))
if os.fork() == 0:
    utils.chosen(False)
    os._exit(0)
os.wait()
utils.chosen(True)
others.chosen(True)
"""


def test_lines_are_noted_once_of_the_libraries_files_and_of_forked_processes_too(tmp_path: Path) -> None:
    for file in ("trl/trainer/utils.py", "other/others.py"):
        (tmp_path / "site-packages" / file).parent.mkdir(parents=True)
        (tmp_path / "site-packages" / file).write_text(LIBRARY)
    with spawn(["-c", PROGRAM], tmp_path) as child:
        out, err = child.communicate()
    assert (child.returncode, out, err) == (0, "", "")
    noted = (tmp_path / "notes").read_text().splitlines()
    assert sorted(set(noted)) == [f"trl/trainer/utils.py:{line}" for line in (2, 3, 4)]
    assert noted.count("trl/trainer/utils.py:3") == 1
