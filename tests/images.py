"""Images as a build leaves them, without a build."""

from __future__ import annotations

import io
import tarfile

from builder.image import build, target
from builder.image.build import Built
from tests import layouts
from tests.conftest import Small


def put(small: Small) -> Built:
    """The image of the small stack, built and recorded."""
    lock = small.lock
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("same"))
    config = {"architecture": "amd64", "os": "linux", "config": {"Labels": build.own_labels(lock)}}
    image = layouts.write(small.project.state / "images" / lock.image, [archive.getvalue()], config)
    inputs = target.inputs_of(small.project, lock)
    built = Built(image, target.tag(lock, inputs), "v0", inputs)
    build.put_record(small.project, lock, built, small.scratch())
    assert build.existing(small.project, lock) == built
    return built
