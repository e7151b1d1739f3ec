"""A module that is not ready when it is imported."""

from __future__ import annotations

from tests.unit.doctor.kit import first, only, reported, rules

CIRCULAR = "(most likely due to a circular import)"
TEXT = f"ImportError: cannot import name 'Dataset' from partially initialized module 'datasets' {CIRCULAR} ({{}})"


def test_a_file_that_hides_a_package_is_named() -> None:
    finding = first(reported({"datasets": "4.0.0"}, TEXT.format("/home/me/datasets.py")))
    assert (finding.rule, finding.confidence) == ("hidden-package", "certain")
    assert "/home/me/datasets.py hides datasets" in finding.title and finding.commands == []
    error = (
        f"AttributeError: partially initialized module 'torch' has no attribute 'Tensor' {CIRCULAR} (C:\\me\\torch.py)"
    )
    assert first(reported({}, error)).rule == "hidden-package"


def test_a_package_that_cannot_import_itself_has_a_release_before() -> None:
    error = f"cannot import name 'x' from partially initialized module 'huggingface_hub._oauth' {CIRCULAR}"
    finding = only(reported({"huggingface-hub": "1.20.0"}, error), "circular-import")
    assert (finding.confidence, finding.remedy[0]) == ("possible", "huggingface-hub<1.20.0, the one before")
    installed = "/v/lib/python3.11/site-packages/datasets/__init__.py"
    assert "circular-import" in rules(reported({"datasets": "4.0.0"}, TEXT.format(installed)))


def test_a_module_of_nobody_known_is_none_of_our_business() -> None:
    error = (
        "cannot import name 'x' from partially initialized module 'mine.models' (most likely due to a circular import)"
    )
    assert "circular-import" not in rules(reported({"trl": "1.0.0"}, error))


def test_without_a_path_a_file_of_that_name_may_hide_it() -> None:
    error = f"ImportError: cannot import name 'load_dataset' from partially initialized module 'datasets' {CIRCULAR}"
    finding = first(reported({"datasets": "4.0.0"}, error))
    assert (finding.rule, finding.confidence) == ("hidden-package", "possible")
    assert finding.decide == ["whether a datasets.py or a folder datasets is beside your script"]
