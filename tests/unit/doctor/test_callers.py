"""Imports of installed packages against what the others have, in packages of a few lines."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from doctor.answer import diagnose
from doctor.case import Case
from doctor.checks import callers
from doctor.finding import Finding
from doctor.know.data import Knowledge
from doctor.read import environment, guards, imports, offers, parsing
from tests.conftest import ROOT
from tests.unit.doctor.kit import KNOWLEDGE, install

PEFT = {
    "peft/__init__.py": "from .tuners import *\n",
    "peft/tuners.py": "class Lora: ...\n_private = 1\n",
    "peft/plain.py": "import os as system\nfor step in range(3): ...\nif system:\n    def made(): ...\n",
    "peft/asked.py": "def __getattr__(name): return 1\n",
    "peft/lazy.py": "import sys\n_import_structure = {'x': ['Later']}\nsys.modules[__name__] = _LazyModule()\n",
    "peft/globals.py": "globals().update(a=1)\n",
    "peft/compiled.cpython-311-x86_64-linux-gnu.so": "",
    "peft/space/inner.py": "seen = 1\n",
    "peft/star_of_compiled.py": "from .compiled import *\n",
    "peft/later.py": "def start():\n    global started, over\n    started = over = 1\n",
    "peft/set_there.py": "",
    "peft/setter.py": "import peft.set_there\npeft.set_there.outside = 1\n",
    "peft/unparsed.py": "print 'two'\n",
}


NAMES = Knowledge(apis=KNOWLEDGE.apis)  # without any advisory


def installed(folder: Path, name: str, version: str, sources: Mapping[str, str]) -> None:
    """A distribution with a RECORD as an installer writes it."""
    info = install(folder, name, version, files={path: text.encode() for path, text in sources.items()})
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in sources.items()}
    lines = [f"{path},sha256={digests[path].decode().rstrip('=')},{len(text)}\n" for path, text in sources.items()]
    (info / "RECORD").write_text("".join(lines))


def check(folder: Path, error: str = "", knowledge: Knowledge = KNOWLEDGE) -> list[Finding]:
    case = Case(environment.of_folders("a test", [folder], "3.11.2"), error=error, knowledge=knowledge)
    return list(callers.missing_imports(case))


def of_source(folder: Path, source: str, error: str = "") -> list[Finding]:
    """What is missed by one file of Transformers beside the PEFT above."""
    installed(folder, "peft", "0.18.1", PEFT)
    installed(folder, "transformers", "5.6.0", {"transformers/__init__.py": "", "transformers/trainer.py": source})
    return check(folder, error)


@pytest.mark.parametrize(
    "source",
    [
        "from peft import Gone",
        "from peft.tuners import Lora, Gone",
        "from peft.tuners import (\n    Lora,  # seen\n    Gone as Here,\n)",
        "from peft.tuners import Lora, \\\n    Gone",
        "from peft.gone import Lora",
        "import os, peft.gone",
        "class Inside:\n    from peft.plain import Gone",
        "try:\n    from peft.tuners import Gone\nfinally:\n    pass",
        "try:\n    from peft.tuners import Gone\nexcept KeyError:\n    pass",
        "if is_peft_available():\n    from peft.tuners import Gone",
        "if not is_peft_available():\n    pass\nelse:\n    from peft.tuners import Gone",
        "if TYPE_CHECKING:\n    pass\nelse:\n    from peft.tuners import Gone",
        "with open('x'):\n    from peft.tuners import Gone",
    ],
)
def test_a_missing_name_is_certain_where_nothing_keeps_the_import_from_running(tmp_path: Path, source: str) -> None:
    (finding,) = of_source(tmp_path, source)
    assert (finding.rule, finding.confidence) == ("missing-import", "certain")
    assert finding.packages == {"peft": "0.18.1", "transformers": "5.6.0"}
    assert finding.title.endswith("which peft 0.18.1 does not have")
    assert finding.evidence[0].startswith("transformers.trainer, line ")


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    from peft import Gone\nexcept ImportError:\n    Gone = None",
        "try:\n    from peft import Gone\nexcept (ValueError, errors.Any):\n    Gone = None",
        "try:\n    import peft\nexcept:\n    from peft import Gone",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from peft import Gone",
        "import typing\nif typing.TYPE_CHECKING:\n    from peft import Gone",
        "if version.parse(peft.__version__) >= version.parse('0.19'):\n    from peft import Gone",
        "if is_peft_available() and is_peft_version('>=', '0.19'):\n    from peft import Gone",
        "if is_trl_available():\n    from peft import Gone",
        "if not is_peft_available():\n    from peft import Gone",
        "if is_peft_available():\n    pass\nelse:\n    from peft import Gone",
        "with contextlib.suppress(ImportError):\n    from peft import Gone",
        "require_version('peft>=0.19')\nfrom peft import Gone",
        "assert peft.__version__ >= '0.19'\nfrom peft import Gone",
        "def f():\n    if not new:\n        return\n    from peft import Gone",
        "def f():\n    for x in y:\n        if x: return\n    from peft import Gone",
        "@requires_backends('x')\ndef f():\n    from peft import Gone",
        "'''\nfrom peft import Gone\n'''",
        "if False:\n    from peft import Gone",
        "raise SystemExit\nfrom peft import Gone",
        "from . import peft\nfrom .peft import Gone",
        # What is there, or may be.
        "from peft import Lora, tuners, space, compiled, plain",
        "from peft.tuners import _private, __version__",
        "from peft.plain import made, step, system",
        "from peft.later import started, over",
        "from peft.asked import anything\nfrom peft.globals import a, b",
        "from peft.lazy import Later",
        "from peft.compiled import any_thing\nimport peft.compiled.inner",
        "from peft.star_of_compiled import any_thing",
        "from peft.space import inner, unknown\nimport peft.space.unknown",
        "from peft.set_there import outside",
        "from peft.unparsed import any_thing",
        "import sys\nsys.modules['peft.gone'] = sys\nimport peft.gone",
        "import no_such_distribution\nfrom no_such_distribution.x import y",
        "print 'no Python of this version'\nfrom peft import Gone",
    ],
)
def test_an_import_that_may_not_run_or_may_succeed_is_no_finding(tmp_path: Path, source: str) -> None:
    assert of_source(tmp_path, source) == []


def test_a_name_in_no_file_of_a_lazy_module_is_missing(tmp_path: Path) -> None:
    (finding,) = of_source(tmp_path, "from peft.lazy import Later, Nowhere")
    assert finding.title.startswith("transformers 5.6.0 imports peft.lazy.Nowhere, which")


def test_vetted_0060_is_seen_without_its_advisory(tmp_path: Path) -> None:
    name = "_maybe_shard_state_dict_for_tp"
    installed(tmp_path, "peft", "0.18.1", {"peft/__init__.py": "", "peft/utils/__init__.py": "",
                                           "peft/utils/save_and_load.py": "def load(): ...\n"})  # fmt: skip
    source = f"class Mixin:\n    def load_adapter(self):\n        from peft.utils.save_and_load import {name}\n"
    sources = {"transformers/__init__.py": "", "transformers/integrations/peft.py": source}
    installed(tmp_path, "transformers", "5.6.0", sources)
    (finding,) = check(tmp_path, knowledge=NAMES)
    assert (finding.confidence, finding.ranges) == ("possible", {"peft": ["<0.19.0"]})  # a run may not load adapters
    assert finding.commands == ["uv pip install 'peft>=0.19.0'"]
    assert finding.decide == ["whether your run calls Mixin.load_adapter of transformers.integrations.peft"]
    error = f"ImportError: cannot import name '{name}' from 'peft.utils.save_and_load'"
    (explained,) = check(tmp_path, error, NAMES)
    assert (explained.confidence, explained.shown) == ("certain", 2)


def test_a_moved_name_is_mended_by_the_caller_that_knows_the_new_place(tmp_path: Path) -> None:
    installed(tmp_path, "transformers", "5.0.0", {"transformers/__init__.py": "from .kept import *\n",
                                                  "transformers/kept.py": "DynamicCache = 1\n"})  # fmt: skip
    peft = {"peft/__init__.py": "from .peft_model import PeftModel\n",
            "peft/peft_model.py": "from transformers import DynamicCache, HybridCache\n"}  # fmt: skip
    installed(tmp_path, "peft", "0.17.0", peft)
    (finding,) = check(tmp_path, knowledge=NAMES)
    assert finding.evidence[:2] == [
        "peft.peft_model, line 1: transformers.HybridCache",
        "imported by peft → peft.peft_model",
    ]
    assert finding.commands == ["uv pip install 'peft>=0.18.0,<0.19'"]
    assert finding.ranges == {"transformers": [">=5.0.0"], "peft": ["<0.18.0"]}


@pytest.mark.parametrize(
    ("source", "confidence"),
    [
        ("def act():\n    from peft import Gone", "possible"),
        ("class A:\n    def __init__(self):\n        from peft import Gone", "possible"),
        ("def _act():\n    from peft import Gone", ""),
        ("class _A:\n    def act(self):\n        from peft import Gone", ""),
        ("from peft import Gone", ""),
    ],
)
def test_what_only_others_know_when_to_run_is_no_finding_until_an_error_names_it(
    tmp_path: Path, source: str, confidence: str
) -> None:
    installed(tmp_path, "peft", "0.18.1", PEFT)
    sources = {"trl/__init__.py": "", "trl/trainer/__init__.py": "", "trl/more/__init__.py": source,
               "trl/trainer/grpo_trainer.py": "from peft import Lora"}  # fmt: skip
    installed(tmp_path, "trl", "1.0.0", sources)
    assert [finding.confidence for finding in check(tmp_path)] == ([confidence] if confidence else [])
    (named,) = check(tmp_path, "ImportError: cannot import name 'Gone' from 'peft' (/x/peft/__init__.py)")
    assert named.confidence == "certain"


@pytest.mark.parametrize(
    "content",
    [
        b"import " * 200_000,
        b"from a import (\n" * 60_000,
        b"from a import \\\n" * 60_000,
        b"\xff\x00import a\n",
        b"from a import " + b"b," * 300_000,
    ],
    ids=["import", "open brackets", "continued", "binary", "many names"],
)
def test_hostile_sources_are_read_in_no_time(content: bytes) -> None:
    assert len(set(imports.lines(content))) < 20_000


def test_deep_sources_are_no_traceback() -> None:
    assert parsing.tree_of(b"(" * 5000) is None
    deep = b"".join(b" " * level + b"if x:\n" for level in range(95)) + b" " * 95 + b"from a import b\n"
    tree = parsing.tree_of(deep)
    assert tree is not None and guards.certain(tree, "p") == []


def test_relative_imports_and_star_circles_end(tmp_path: Path) -> None:
    installed(tmp_path, "peft", "1.0", {"peft/__init__.py": "from .a import *", "peft/a.py": "from . import *\nx = 1"})
    modules = offers.Modules((tmp_path,))
    assert modules.offers("peft", "x") is True
    assert modules.offers("peft", "y") is None
    assert guards.module_of("peft/a.py") == ("peft.a", "peft")


def test_an_advisory_about_the_same_packages_says_it_better(tmp_path: Path) -> None:
    source = "def load_adapter():\n    from peft import _maybe_shard_state_dict_for_tp\n"
    installed(tmp_path, "peft", "0.18.1", PEFT)
    installed(tmp_path, "transformers", "5.6.0", {"transformers/__init__.py": source})
    case = Case(environment.of_folders("a test", [tmp_path], "3.11.2"), knowledge=KNOWLEDGE)
    assert len(check(tmp_path, knowledge=NAMES)) == 1
    rules = [finding.rule for finding in diagnose.findings(case)]
    assert "VETTED-0060" in rules and "missing-import" not in rules


def test_no_command_goes_back_to_an_older_release(tmp_path: Path) -> None:
    installed(tmp_path, "trl", "0.24.0", {"trl/__init__.py": "", "trl/core.py": ""})
    source = "def batched():\n    from trl.core import logprobs_from_logits\n"
    installed(tmp_path, "llamafactory", "0.9.5", {"llamafactory/__init__.py": "", "llamafactory/ppo.py": source})
    (finding,) = check(tmp_path)
    assert (finding.remedy[1], finding.commands) == ("trl<0.14.0", [])


def test_the_document_says_what_was_measured() -> None:
    record = json.loads((ROOT / "docs" / "evidence" / "callers.json").read_text())
    text = " ".join((ROOT / "docs" / "explanation" / "doctor.md").read_text().split())
    assert f"In these {record['count']} environments it has {record['alarms']} findings *for sure*" in text
    assert f"in {record['quiet']} of them it has none at all." in text
    assert f"took {record['slowest_s']} s of CPU at first, and {record['slowest_again_s']} s with" in text
    assert record["alarms"] == 0 and record["count"] >= 20
