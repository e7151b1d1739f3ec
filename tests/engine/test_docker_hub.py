"""Training with a model and a dataset of the Hub, in the image of test_docker.py: what was downloaded once is kept.

The Hub answers over TLS, with a certificate of an authority that only this machine knows, as behind a company's proxy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.engine import hub
from tests.engine.conftest import STACK, Workshop
from tests.engine.training import rows, run, runs, typed

CONFIG = """\
model_name_or_path: team/tiny
dataset_name: team/lines
reward_funcs: [mine.length]
max_steps: 2
per_device_train_batch_size: 8
num_generations: 4
max_completion_length: 8
logging_steps: 1
save_strategy: "no"
bf16: false
"""
REWARD = "def length(completions, **_):\n    return [float(len(text)) for text in completions]\n"
# The host as containers see it: two names, because the Hub keeps large files on another host.
HOSTS = 'services: {train: {extra_hosts: ["hub.test:host-gateway", "files.test:host-gateway"]}}\n'


def test_a_second_run_downloads_nothing_and_a_third_needs_no_network(
    chosen: Workshop, registry: tuple[str, ...], built_in_task: Path, tmp_path: Path
) -> None:
    mine, secrets = tmp_path / "mine", tmp_path / "secrets"
    repositories = {"models/team/tiny": tmp_path / "model", "datasets/team/lines": tmp_path / "data"}
    shutil.copytree(built_in_task / "model", tmp_path / "model")
    shutil.copytree(built_in_task / "data", tmp_path / "data")
    mine.mkdir()
    (mine / "my.yaml").write_text(CONFIG)
    (mine / "mine.py").write_text(REWARD)
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(HOSTS)
    names = ("hub.test", "files.test")
    ca, certificate = hub.authority(tmp_path, *names)
    own = {
        "VETTED_SECRETS": str(secrets), "HF_HOME": str(mine / ".huggingface"), "VETTED_CA": str(ca),
    }  # fmt: skip
    workshop_use = ("use", STACK, *registry, "--into", str(mine))
    chosen.json(*workshop_use, "--network", env=own)
    subprocess.run(["chmod", "a+rx", str(tmp_path)], check=True)
    proxies = dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(names))
    with hub.serving(repositories, "0.0.0.0", "files.test", certificate) as server:  # noqa: S104 — a container's
        environment = {**own, **proxies, "HF_ENDPOINT": f"https://hub.test:{server.port}"}
        code, output = typed(mine, "train", "--config", "my.yaml", files=[hosts], env=environment)
        assert code == 0, output
        assert "model.safetensors: 100%" in output  # a bar of progress
        weights = (tmp_path / "model" / "model.safetensors").stat().st_size
        assert ("model.safetensors", weights) in server.downloads
        assert "train.jsonl" in {name for name, _ in server.downloads}
        once = server.downloaded
        code, output = run(mine, "train", "--config", "my.yaml", files=[hosts], env=environment)
        assert code == 0, output
        assert server.downloaded - once == 0
    chosen.json(*workshop_use, "--no-network", env=own)
    code, output = run(mine, "train", "--config", "my.yaml", env=own)
    assert code == 0, output
    assert [len(rows(run)) for run in runs(mine)] == [2, 2, 2]
    owner = (mine / "runs").stat().st_uid
    assert {path.lstat().st_uid for path in (mine / ".huggingface" / "hub").rglob("models--*")} == {owner}
    assert owner != 0 or os.geteuid() != 0
