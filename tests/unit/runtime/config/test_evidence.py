"""docs/evidence/configs.json is about the wrong configs that the tests have, and the page shows it."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import configs
from tests.conftest import ROOT

EVIDENCE: dict[str, Any] = json.loads((ROOT / "docs/evidence/configs.json").read_text())


def test_every_wrong_config_was_measured() -> None:
    assert len(configs.WRONG) >= 12
    assert [row["config"] for row in EVIDENCE["rows"]] == [wrong.name for wrong in configs.WRONG]


def test_the_page_shows_the_evidence() -> None:
    text = configs.PAGE.read_text(encoding="utf-8")
    assert EVIDENCE["machine"] in text
    assert configs.page(text, configs.sentence(EVIDENCE)) == text
