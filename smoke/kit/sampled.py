"""Checks of what a run sampled: from which distribution, for which prompts, when, and what the rewards were shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from smoke.kit import decoder, extremes, factors, journal, metrics, samples, tiny
from smoke.kit.journal import Generation, Journal
from smoke.kit.oracle import Run

if TYPE_CHECKING:
    from smoke.kit.interaction import Training

# Rounding may decide which tokens are left when two are as near as this at the edge of top_k, top_p or min_p.
EDGE = 5e-5
LEAST_SHUFFLED = 3  # of 48 prompts, in order by chance once in 100 000 runs
TABLE = 2e-4  # how far a number in a table of completions may be from what it should be


def data_wrong(training: Training, run: Run) -> Iterator[str]:
    """What is wrong with prompts, texts and tags, and with the moments of generation."""
    rows = [row for data in (training.data, *training.eval_sets.values()) for row in data]
    tags = {training.tokens(row): row["tag"] for row in rows}
    shown = {training.tokens(row): tiny.spell(journal.prompt_tokens(row)) for row in rows}
    end = f"{tiny.SPECIAL[3]}\n" if training.conversational else ""
    for rank, record in enumerate(run.journals):
        generations = run.generations(record)
        for i, generation in enumerate(generations):
            if generation.micro_batch != i * run.uses:
                yield f"rank {rank}: generation {i} before micro-batch {generation.micro_batch}, not {i * run.uses}"
        if run.uses * len(generations) != record.micro_batches:
            yield f"rank {rank}: {record.micro_batches} micro-batches of {len(generations)} generations"
        for generation in record.generations:
            of_generation = (*_wrong(generation, tags), *_model_shown(generation, shown, end))
            yield from (f"rank {rank}: {what}" for what in of_generation)
    for i, batch in enumerate(run.batches):
        counts = Counter(sample.prompt for sample in batch)
        if set(counts.values()) != {factors.generations(run.row)}:
            yield f"generation {i}: prompts with {sorted(counts.values())} completions"


def _wrong(generation: Generation, tags: dict[tuple[int, ...], str]) -> Iterator[str]:
    rows = zip(generation.prompts, generation.completions, generation.texts, generation.tags, strict=True)
    for prompt, completion, text, tag in rows:
        if tags.get(prompt) is None:
            yield f"a prompt that is not in the data: {tiny.decode(list(prompt))!r}"
        elif tags[prompt] != tag:
            yield f"the tag {tag} with the prompt of {tags[prompt]}"
        if text != tiny.decode(list(completion)):
            yield f"the reward saw {text!r} for {tiny.decode(list(completion))!r}"
        if len(completion) > factors.LENGTH:
            yield f"a completion of {len(completion)} tokens"
    for tags_shown, texts in generation.shown:
        if (tags_shown, texts) != (generation.tags, generation.texts):
            yield f"another reward saw {texts!r} with the tags {tags_shown}, and the first {generation.texts!r}"


def _model_shown(generation: Generation, shown: dict[tuple[int, ...], str], end: str) -> Iterator[str]:
    """What a reward model saw in place of prompt and completion."""
    if generation.judged is None:
        return
    for prompt, text, judged in zip(generation.prompts, generation.texts, generation.judged, strict=True):
        if judged != shown.get(prompt, "") + text + end:
            yield f"the reward model saw {judged!r} for {tiny.spell(prompt)!r} and {text!r}"


def ordered_wrong(training: Training, batches: Sequence[Sequence[samples.Sampled]]) -> list[str]:
    """Whether the prompts of all generations of a whole run came in the data's order, or another, as asked for."""
    prompts = [prompt for batch in batches for prompt in dict.fromkeys(sample.prompt for sample in batch)]
    given = [training.tokens(row) for row, _ in zip(training.data, prompts, strict=False)]
    if factors.options(training.row)["shuffle_dataset"]:
        # So few may be in order by chance.
        return ["the prompts are not shuffled"] if len(prompts) >= LEAST_SHUFFLED and prompts == given else []
    return ["the prompts are not in the order of the data"] if prompts != given else []


def repeated(journals: Sequence[Journal]) -> list[str]:
    """Prompts that were trained on in more than one generation: the run is shorter than an epoch."""
    counts: Counter[tuple[int, ...]] = Counter()
    for record in journals:
        for generation in Run.generations(record):
            counts.update(set(generation.prompts))
    return [f"{tiny.decode(list(p))!r} in {n} generations" for p, n in counts.items() if n > 1]


def table_wrong(training: Training, run: Run) -> Iterator[str]:
    """Rows of the tables of completions that are not what was sampled and judged, where TRL writes them as files."""
    import pyarrow.parquet

    judged = {(sample.prompt, sample.text): sample for batch in run.batches for sample in batch}
    record = run.journals[0]
    for number in range(record.start + 1, record.start + len(record.steps) + 1):
        path = training.output / "completions" / f"completions_{number:05d}.parquet"
        if not path.exists():
            continue
        rows = pyarrow.parquet.read_table(path).to_pylist()
        if not rows:
            yield f"step {number}: an empty table of completions"
        for row in rows:
            prompt, completion = training.tokens(row), row["completion"]
            text = completion if isinstance(completion, str) else completion[-1]["content"]
            if journal.EVAL in tiny.decode(list(prompt)):
                continue
            if (sample := judged.get((prompt, text))) is None:
                yield f"step {number}: the table has {text!r}, which was not sampled for its prompt"
            elif off := [name for name, value in _of(sample) if not metrics.distance(row.get(name), value) <= TABLE]:
                yield f"step {number}: the table's {', '.join(off)} of {text!r}"


def _of(sample: samples.Sampled) -> Iterator[tuple[str, float]]:
    yield "advantage", sample.advantage
    yield from zip(("spelling", "evenness"), sample.rewards, strict=False)


def distances(run: Run) -> dict[str, float]:
    """By generation of this rank, how far what tokens were drawn from is from what the policy and the settings say.

    Total variation between the two distributions of a token, at most. The policy's is that of the plain decoder with
    the weights of that moment.
    """
    import torch

    record = run.journals[0]
    worst = {}
    chosen = factors.options(run.row)
    for i, generation in enumerate(record.generations):
        if generation.scores is None:
            continue
        # After the last step only an evaluation can follow.
        weights = run.policy_at(max(generation.step - (0 if generation.evaluates else 1), 0))
        rows = [p + c for p, c in zip(generation.prompts, generation.completions, strict=True)]
        with torch.no_grad():
            logits = decoder.logits(run.shape, weights, rows, samples.PAD)
        values = [0.0]
        for row, (prompt, completion) in enumerate(zip(generation.prompts, generation.completions, strict=True)):
            count = len(completion)
            own = logits[row, len(prompt) - 1 : len(prompt) - 1 + count]
            chances, sure = settled(chosen, own)
            drawn = generation.scores[row, :count].softmax(dim=-1)
            distance = (drawn - chances).abs().sum(dim=-1) / 2
            values.append(extremes.largest(distance[sure].tolist(), default=0.0))
        kind = "evaluation" if generation.evaluates else "generation"
        worst[f"{kind} {i}"] = extremes.largest(values)
    return worst


def settled(chosen: dict[str, Any], logits: Any) -> tuple[Any, Any]:
    """The distributions that these settings make of logits, and which of them rounding cannot change."""
    import torch

    scaled = logits / chosen["temperature"]
    chances = scaled.softmax(dim=-1)
    sure = torch.ones(len(chances), dtype=torch.bool)
    kept = torch.ones_like(chances, dtype=torch.bool)
    if chosen["top_k"]:
        best = chances.sort(dim=-1, descending=True).values
        kept &= chances >= best[:, chosen["top_k"] - 1 : chosen["top_k"]]
        sure &= best[:, chosen["top_k"] - 1] - best[:, chosen["top_k"]] > EDGE * best[:, chosen["top_k"]]
    if chosen["top_p"] < 1:
        best, order = chances.sort(dim=-1, descending=True)
        before = best.cumsum(dim=-1) - best
        kept &= torch.zeros_like(kept).scatter(-1, order, before < chosen["top_p"])
        sure &= (before - chosen["top_p"]).abs().amin(dim=-1) > EDGE
        # Two tokens that are as likely may change places, one of them left out.
        least, most = torch.where(kept, chances, 1.0).amin(dim=-1), torch.where(kept, 0.0, chances).amax(dim=-1)
        sure &= least - most > EDGE * least
    if chosen["min_p"]:
        least = chosen["min_p"] * chances.amax(dim=-1, keepdim=True)
        kept &= chances >= least
        sure &= (chances / least - 1).abs().amin(dim=-1) > EDGE
    chances = torch.where(kept, chances, 0.0)
    return chances / chances.sum(dim=-1, keepdim=True), sure
