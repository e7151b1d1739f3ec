"""What a program is linked with where the driver's library comes from the host."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.image import render
from builder.intent.platform import AMD64, PLATFORMS
from builder.lock import lockfile
from runtime import preflight
from tests import parts
from tests.gpu import stub

PROGRAM = "int cuInit(unsigned);\nint main(void) { return cuInit(0); }\n"


def test_it_is_looked_for_where_preflight_looks() -> None:
    own = {platform.libraries for platform in PLATFORMS.values()}
    assert own | set(render.DRIVER_FOLDERS) == {f"/{folder}" for folder in preflight.DRIVER_FOLDERS}


@pytest.mark.parametrize("place", range(1 + len(render.DRIVER_FOLDERS)))
def test_a_program_links_wherever_the_driver_is_mounted(place: int, real: Project, tmp_path: Path) -> None:
    """With a link into one of these folders, `-lcuda` failed where the driver was in another."""
    parts.programs("gcc", how="apt-get install gcc libc6-dev")
    libraries = stub.libraries(tmp_path / "driver")
    (tmp_path / "stubs").mkdir()
    folder = (AMD64.libraries, *render.DRIVER_FOLDERS)[place]
    script = render.stub(lockfile.load(real, "trl1.16-cu130")).replace(f"({folder})", f"({libraries})")
    (tmp_path / "stubs" / "libcuda.so").write_text(script)
    (tmp_path / "main.c").write_text(PROGRAM)
    program = tmp_path / "program"
    argv = ["gcc", "-o", str(program), str(tmp_path / "main.c"), f"-L{tmp_path / 'stubs'}", "-lcuda"]
    subprocess.run(argv, check=True, capture_output=True)
    done = subprocess.run([program], env={"LD_LIBRARY_PATH": str(libraries)}, check=False)
    assert done.returncode == 100, "CUDA_ERROR_NO_DEVICE, by the library that the program was linked with by name"
    assert "cuInit" in (libraries / "calls").read_text()
