"""What a pod has printed becomes a statement: by the same code as every certificate, from the events of the suite."""

from __future__ import annotations

import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from builder.base import errors
from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import certificate, certify, judgement
from builder.certify.certificate import Resource
from builder.certify.certify import Options, Subject
from builder.certify.suite import Runner
from builder.certify.transcript import Transcript
from builder.fleet.manifest import ENGINE, Work


class Machine(BaseModel):
    """What scripts/pod.py says of the machine. Only its form is checked here: the judgement does the rest."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cpu: str
    cores: int
    gpus: list[tuple[str, str]]  # name and driver
    kernel: str

    def hardware(self, device: str) -> Hardware:
        """Raises VettedError for a GPU stack without a GPU."""
        if device != "cuda":
            return Hardware(self.cpu, self.cores)
        if not self.gpus:
            raise errors.VettedError(
                "no GPU to certify on: nvidia-smi lists none in the pod",
                cause="the node's container runtime does not mount the driver's nvidia-smi into /usr/bin of containers",
                next_step="kubectl describe nodes; NVIDIA's container toolkit must be the default runtime",
            )
        return Hardware(self.cpu, self.cores, tuple(name for name, _ in self.gpus), self.gpus[0][1])


def statement(home: Project, work: Work, root: Path, suite: str, version: str, day: datetime.date, log: bytes) -> bytes:
    """The statement of a pod that ended on `day`: a certificate, or a report. Raises VettedError for any other log.

    `suite`: the digest of the suite below `root`; `version`: of Kubernetes.
    """
    device, built = work.lock.stack.device, work.built
    first, _, events = log.decode(errors="replace").partition("\n")
    try:
        machine = Machine.model_validate_json(first)
    except ValidationError as error:
        raise errors.VettedError(
            f"the pod's log does not begin with its machine: {first[:200]!r}",
            cause="the node has cut its log (containerLogMaxSize), or something writes into the logs of all pods",
            next_step="kubectl logs of the pod, if it is still there",
        ) from error
    transcript = Transcript(())
    for line in events.splitlines(keepends=True):
        if line.endswith("\n"):
            transcript.take(line)
    if not transcript.finished:
        raise errors.VettedError(
            "the pod's log ends before the suite does",
            cause="the node went away while the log was read",
            next_step="run this again",
        )
    subject = Subject(
        Resource(name=built.reference, digest=certificate.bare(built.image.manifest)), Runner([]),
        {"name": ENGINE, "version": version, "buildkit": built.buildkit, "kernel": machine.kernel}, built.inputs,
    )  # fmt: skip
    options = Options(device, ENGINE)
    report = certify.stated(work.lock, options, subject, suite, transcript.answer(), machine.hardware(device), day)
    doubts = certify.doubts_about(report, judgement.terms(home, work.lock, root / "smoke"), subject)
    return (report.undated() if doubts else report).to_json().encode()
