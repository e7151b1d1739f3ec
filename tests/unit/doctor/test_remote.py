"""Code that comes with a model, and the release of Transformers that it was not written for."""

from __future__ import annotations

import pytest

from tests.unit.doctor.kit import only, reported, rules

TIED = """\
  File "/root/.cache/huggingface/modules/transformers_modules/a/b/modeling_exaone.py", line 9, in __init__
    self.post_init()
  File "/venv/lib/python3.11/site-packages/transformers/modeling_utils.py", line 12, in post_init
    self.all_tied_weights_keys = self.get_expanded_tied_weights_keys(all_submodels=False)
  File "/venv/lib/python3.11/site-packages/transformers/modeling_utils.py", line 20, in get_expanded_tied_weights_keys
    tied_keys = tied.keys()
AttributeError: 'list' object has no attribute 'keys'"""


@pytest.mark.parametrize("version", ["5.0.0", "5.10.1", ""])
def test_code_that_comes_with_a_model_fails_in_what_a_later_release_brought(version: str) -> None:
    case = reported({"transformers": version} if version else {}, TIED)
    finding = only(case, "model-code")
    assert finding.ranges == {"transformers": [">=5.0.0"]}
    assert finding.remedy[0].startswith("transformers<5.0.0")
    assert finding.confidence == "possible"


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("4.57.0", TIED),  # it lacks that method: the error is another release's
        ("5.0.0", TIED.replace("transformers_modules/", "mine/")),  # code of one's own
        ("5.0.0", TIED.replace("tied_weights_keys", "forward")),
        ("5.0.0", TIED.replace("AttributeError", "torch.OutOfMemoryError")),
        ("5.10.1", "transformers_modules/x.py, in save_pretrained\nTypeError: self.save_pretrained"),
        ("5.10.1", "transformers_modules/x.py, in is_initialized\nAttributeError: torch.distributed.is_initialized()"),
        ("5.10.1", "transformers_modules/x.py, in apply_chat_template\nTypeError: add_special_tokens"),
    ],
)
def test_nothing_is_concluded_about_code_that_comes_with_a_model(version: str, error: str) -> None:
    assert "model-code" not in rules(reported({"transformers": version}, error))
