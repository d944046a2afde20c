"""Copies that are known by their name alone: numbers are a range that holds every copy whose mix is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from record_files import each, observed

from kvreport.accounting.allocation import allocate
from kvreport.accounting.parallel import allowed_tensor_parallel
from kvreport.accounting.weights import released_bytes, weight_bytes
from kvreport.architectures.repository_names import quantized_name
from kvreport.catalog.base import Source
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Observation
from kvreport.catalog.strict_files import read_yaml
from kvreport.catalog.variant import Variant
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.conclusion import headline
from kvreport.estimation.named_copies import by_name, groups_to_try, narrowed
from kvreport.estimation.remedies import remedies
from kvreport.estimation.size import size
from kvreport.publish import explorer_data
from kvreport.publish.page_data import gather
from kvreport.publish.profiles import model_facts
from kvreport.site.pages.gpu_rows import served
from kvreport.site.pages.model.model_page import context
from kvreport.startup_log.diagnose import diagnose
from kvreport.startup_log.observed import published_start
from kvreport.units import GIB, gib

CATALOG = open_catalog()
FORMATS = CATALOG.weight_formats
REFUSED = ("engine_does_not_run", "format_not_supported")
STARTED = ("fits", "tight")
SHORT = ("cache_exceeds_pool", "weights_exceed_memory", "max_seqs_exceeds_states")
RUN = (
    "unsloth/Qwen3.8-27B-NVFP4",
    "nvidia/Qwen3.8-27B-NVFP4",
    "unsloth/Qwen3.6-27B-NVFP4",
    "RedHatAI/Qwen3-32B-NVFP4A16",
    "RedHatAI/Qwen3.6-35B-A3B-NVFP4",
    "cyankiwi/Qwen3.8-27B-AWQ-INT4",
)
"""Copies that people run, whose mix was read or measured."""
COPY = "someone/Qwen3.8-27B-NVFP4"
"""A copy that nobody has read: its name is all there is."""


@cache
def copies() -> tuple[Model, ...]:
    """Every copy of the catalog whose name says a format, as its name alone says it."""
    found = []
    for model in CATALOG.models.values():
        said = quantized_name(model.id)
        guess = None if said is None or model.weight_format == "bf16" else by_name(model.id, CATALOG)
        if guess is not None:
            found.append(guess[0])
    return tuple(found)


def by_its_name(name: str) -> Model:
    found = by_name(name, CATALOG)
    assert found is not None, name
    return found[0]


def test_there_are_copies_of_every_method() -> None:
    named = {guess.weight_format.split("-")[0] for guess in copies() if guess.by_name}
    assert {"nvfp4", "fp8", "int4", "gptq4", "mxfp8"} <= named
    assert len(copies()) > 200


@each(copies)
def test_the_weights_of_a_copy_lie_within_what_its_name_says(guess: Model) -> None:
    real = CATALOG.models[guess.id]
    least, most = (weight_bytes(end, None, FORMATS) for end in (narrowed(guess), guess))
    assert least <= weight_bytes(real, None, FORMATS) <= most
    assert least < most or not guess.by_name


def _device(model: Model) -> tuple[str, int]:
    """The first device on which the copy takes less than two thirds of the memory, and how many of it."""
    need = weight_bytes(model, None, FORMATS)
    for gpu in ("l4", "rtx-5090", "h100-sxm-80gb", "h200-sxm-141gb", "b300-sxm-288gb"):
        for devices in (1, 2, 4, 8):
            room = CATALOG.accelerator(gpu).usable_bytes * devices
            if need < room * 2 // 3 and devices in allowed_tensor_parallel(model, devices):
                return gpu, devices
    return "b300-sxm-288gb", 8


@each(lambda: copies()[::2])
def test_counts_and_verdicts_of_a_copy_lie_within_what_its_name_says(guess: Model) -> None:
    real = CATALOG.models[guess.id]
    gpu, devices = _device(real)
    asked: dict[str, Any] = {
        "gpu": gpu,
        "tensor_parallel": devices,
        "kv": "bf16",
        "context_tokens": min(4096, real.context_tokens),
        "max_seqs": 1024,
        "limit_mm_per_prompt": "image=0",
    }
    if real.weight_format.startswith("mlx"):
        asked["engine"] = "ceiling"
    try:
        true = estimate(real, **asked)
    except InputError as refusal:
        with pytest.raises(InputError, match=str(refusal)[:20].replace("(", ".")):
            estimate(guess, **asked)
        return
    said = estimate(guess, **asked)
    assert said.by_name == guess.by_name
    least, most = said.range_of("max_concurrent_requests_by_memory")
    assert least <= true.max_concurrent_requests_by_memory <= most
    if said.verdict in REFUSED:
        assert true.verdict in REFUSED
    if true.verdict in REFUSED:
        # Blocks that a name leaves open refuse nothing, and the answer says that others may be cut.
        assert said.verdict in REFUSED or any("cut by" in one for one in said.request.assumptions)
        return
    assert said.max_concurrent_requests <= true.max_concurrent_requests
    if said.verdict != "may_fit":
        # A promise is kept, and "does not fit" is said only where not even the narrow end does.
        assert (said.verdict in STARTED) <= (true.verdict in STARTED)
        assert (said.verdict in SHORT) <= (true.verdict not in STARTED)


@each(lambda: [one for one in copies() if CATALOG.models[one.id].published_total])
def test_a_published_total_lies_within_what_the_name_says(guess: Model) -> None:
    total = CATALOG.models[guess.id].published_total
    assert total is not None
    size_bytes = (total.gib - total.unused_gib) / total.copies * GIB
    least, most = (released_bytes(end, FORMATS) for end in (narrowed(guess), guess))
    # The listed totals have two decimals, and repositories hold headers and tokenizers as well.
    assert least * 0.995 <= size_bytes <= most * 1.005


def test_a_record_has_the_elements_that_the_hub_counts() -> None:
    # The Hub's record of unsloth/Qwen3.8-27B-NVFP4 at 16b6615a: the main file, without the scales of its blocks.
    rows = [row for row in CATALOG.models["unsloth/Qwen3.8-27B-NVFP4"].weights if row.component != "mtp"]
    counted = {
        form: sum(row.parameters for row in rows if row.released == form)
        for form in (None, "fp8-channel", "nvfp4")
    }
    assert counted["nvfp4"] // 2 == 7_486_832_640
    assert counted["fp8-channel"] == 10_624_696_320
    assert counted[None] == pytest.approx(1_758_366_992, abs=32)


@pytest.mark.parametrize("name", RUN)
def test_a_record_of_a_copy_says_where_its_mix_is_from(name: str) -> None:
    model = CATALOG.models[name]
    assert not model.by_name
    own = [source for source in model.sources if "weight_format" in source.covers]
    assert any(source.evidence in ("verbatim", "documented", "observed") for source in own)


def _own_sources(model: Model) -> list[Source]:
    variant = Variant.model_validate(
        read_yaml(CATALOG.folder / "models" / f"{model.slug}.yaml", model.id), strict=False
    )
    return [source for source in variant.sources if "weights" in source.covers]


LISTED = [
    name
    for name, model in CATALOG.models.items()
    if model.quantized_from
    and "layers:" not in (CATALOG.folder / "models" / f"{model.slug}.yaml").read_text()
]
"""Copies whose file says what differs from the original."""


@pytest.mark.parametrize("name", LISTED)
def test_a_copy_of_the_catalog_whose_mix_nobody_read_is_a_range(name: str) -> None:
    model = CATALOG.models[name]
    assumed = all(source.evidence == "unverified" for source in _own_sources(model))
    assert model.by_name == (assumed and model.published_total is None)
    for source in _own_sources(model):
        # A guess is no fact that follows from others, and what was read can be read again.
        assert "as is usual" not in source.title or source.evidence == "unverified"
        assert (
            source.evidence not in ("verbatim", "secondary")
            or source.url is not None
            or "public" in source.title
        )


def test_a_range_of_the_catalog_is_said_in_answers_and_on_pages() -> None:
    name = "TheBloke/Llama-2-13B-GPTQ"
    model = CATALOG.models[name]
    answer = estimate(name, gpu="l4")
    least, most = answer.range_of("weight_bytes_per_gpu")
    # README.md of the chat model's copy: 7.26 GB in groups of 128, 8.00 GB in groups of 32.
    assert all(least < size_bytes < most for size_bytes in (7.26e9, 8.00e9))
    assert answer.to_dict()["by_name"]
    site = gather(CATALOG, models=f"{name},Qwen/Qwen3-8B-AWQ", gpus="h100-sxm-80gb", version="test")
    pages = {one.id: context(site, one, site.headline[one.id]) for one in site.models}
    low, high = (gib(released_bytes(end, FORMATS)) for end in (narrowed(model), model))
    assert f"{low} to {high} GiB" in pages[name]["open_mix"]
    assert [row.head.text for row in pages[name]["weights"].rows if "by name, at most" in row.head.text]
    assert any(fact.label == "Weights by name, at most" for fact in pages[name]["facts"])
    rows = served(site)
    assert "by name, at most" in str(rows[name]["h100-sxm-80gb"].made)
    assert not pages["Qwen/Qwen3-8B-AWQ"]["open_mix"]
    assert "by name, at most" not in str(rows["Qwen/Qwen3-8B-AWQ"]["h100-sxm-80gb"].made)


def test_browsers_know_which_copies_are_known_by_their_name() -> None:
    """A redrawn row said nothing of the name: each page's data has the fact, and the scripts that draw it the words."""
    names = ("Qwen/Qwen3-8B-AWQ", "TheBloke/Llama-2-13B-GPTQ")
    site = gather(CATALOG, models=",".join(names), gpus="h100-sxm-80gb", version="test")
    told = {one.id: int(one.id == names[1]) for one in site.models}
    assert {one.id: model_facts(site, one)["by_name"] for one in site.models} == told
    assert "by_name" in explorer_data._COMMON  # what the files of all models carry of these facts
    for script in ("kv-gpu", "kv-show"):
        text = (Path(__file__).parents[2] / f"docs/assets/{script}.js").read_text(encoding="utf-8")
        assert "words.sentences.weights_by_name" in text


def test_a_copy_without_groups_lies_within_its_name() -> None:
    # README.md of TheBloke/Llama-2-70B-chat-GPTQ at 7a706cfe, by branch: no groups, 128, 64 and 32.
    copy = by_its_name("x/Llama-2-70B-GPTQ")
    least, most = (released_bytes(end, FORMATS) for end in (narrowed(copy), copy))
    for size_bytes in (35.33e9, 36.65e9, 37.99e9, 40.66e9):
        assert least <= size_bytes <= most


NOT_ITS_MIX = {
    "fresh-012": "a patched build with tables of its own",
    "moon-117": "1.5 GiB more than every matrix but the experts' at 16 bits; its release is not named",
    "wren-008": "its draft of 15 tokens is loaded with it",
    "wren-009": "its draft of 15 tokens is loaded with it",
    "wren-010": "99.7 GB are on disk, more than its name says, and its draft is loaded with it",
    "wren-102": "99.7 GB are on disk, more than its name says",
    "merle-037": "0.6 % more than every matrix but the experts' at 16 bits; the cause is not known",
    "finch-031": "its draft of 7 tokens is loaded with it",
    "finch-048": "a build of the day that keeps the table of n-grams elsewhere, and its prediction layer is loaded with it",
    "plover-003": "its draft of 15 tokens is loaded with it",
    "plover-004": "a revision whose files have 92.84 GiB, and its draft is loaded with it",
    "plover-009": "99.7 GB are on disk, more than its name says",
    "late-005": "0.8 GiB more than every matrix but the experts' at 16 bits; the cause is not known",
    "linnet-020": "0.9 GiB more than every matrix but the experts' at 16 bits; its prediction layer may be loaded with it",
    "linnet-021": "as the log before, another share of memory",
    "teal-013": "6.7 GiB per GPU more than every matrix but the experts' at 16 bits, in a development build",
    "linnet-050": "7.4 GiB more than its name says, in an image whose release is not stated",
}
"""Loads that no mix of formats makes, with the reason."""


@cache
def starts() -> dict[str, tuple[Observation, Model]]:
    """Logs of copies whose mix their name alone says, by id, each with the copy."""
    found = {}
    for one in observed():
        name = (one.model_id or one.model or "").split(" ")[0]
        try:
            guess = by_name(name, CATALOG) if one.engine in ("vllm", "sglang") else None
        except InputError:
            continue
        if (
            guess is not None
            and guess[0].by_name
            and one.printed.model_load_gib
            and one.id not in NOT_ITS_MIX
        ):
            found[one.id] = (one.model_copy(update={"weight_format": "released"}), guess[0])
    return found


@each(lambda: [log for log, _ in starts().values()])
def test_what_a_copy_loads_lies_within_what_its_name_says(observation: Observation) -> None:
    guess = starts()[observation.id][1]
    engine = CATALOG.engine(observation.engine)
    wide, narrow = (
        published_start(CATALOG, observation, engine, end, own=True) for end in (guess, narrowed(guess))
    )
    loaded = (observation.printed.model_load_gib or 0) * GIB
    # What loading adds depends on kernels that not every log names, so the least is the tensors alone.
    staged = narrow.flags.layout.pipeline > 1
    tensors = narrow.weights() if staged else float(allocate(narrow.case()).weight_bytes)
    assert tensors * 0.995 <= loaded
    # 0.59 % at most: web-004 loaded 0.64 GiB that the rules of its release do not have; those of 0.33 had 0.16 of them.
    assert loaded <= wide.weights() * 1.006


def test_starts_of_many_copies_are_checked() -> None:
    assert len(starts()) > 70
    assert {"unsloth/Qwen3.8-27B-NVFP4", "Inferact/Qwen3.8-27B-NVFP4"} <= {
        one.model for one, _ in starts().values()
    }


@pytest.mark.parametrize(
    ("name", "tokens", "flags"),
    [
        # A file in a public repository: vLLM 0.27.1 on an RTX 5090, 129,706 tokens of 4.56 GiB.
        (
            "unsloth/Qwen3.8-27B-NVFP4",
            129_706,
            {"context_tokens": 32_768, "utilization": 0.9, "kv": "fp8", "max_seqs": 16},
        ),
        # A file in a public repository: vLLM 0.27.1 on an RTX 5090 of 31.84 GiB, text only.
        (
            "RadixArk/Qwen3.8-27B-NVFP4",
            186_278,
            {
                "context_tokens": 84_672,
                "utilization": 0.9,
                "kv": "fp8",
                "max_seqs": 2,
                "max_batched_tokens": 8192,
            },
        ),
    ],
)
def test_no_more_tokens_are_promised_than_a_copy_started_with(
    name: str, tokens: int, flags: dict[str, Any]
) -> None:
    answer = estimate(by_its_name(name), gpu="rtx-5090", engine="vllm@0.27.1", **flags)
    least, most = answer.range_of("kv_pool_tokens")
    assert least <= tokens <= most


def test_a_guessed_group_refuses_nothing() -> None:
    # A file in a public repository: this copy runs on two RTX 3090. 128 do not divide a rank's 1,056 inputs.
    asked = {"gpu": "rtx-3090", "tensor_parallel": 2, "context_tokens": 8192, "engine": "vllm"}
    answer = estimate(by_its_name("cyankiwi/gemma-4-26B-A4B-it-AWQ-4bit"), **asked)
    assert answer.verdict == "fits"
    assert any("groups of 32" in one for one in answer.request.assumptions)
    # Eight ranks cut every group of 29,568 inputs, and Qwen's own copies pad them: no answer may refuse.
    wide = estimate(by_its_name("x/Qwen2.5-72B-Instruct-AWQ"), gpu="h100-sxm-80gb", tensor_parallel=8)
    assert wide.verdict == "fits"
    assert any("one scale per output channel" in one for one in wide.request.assumptions)
    # A group that the name states is no guess.
    stated = by_its_name("x/Qwen2.5-72B-Instruct-GPTQ-4b-128g")
    assert list(groups_to_try(stated)) == [None]
    assert estimate(stated, gpu="h100-sxm-80gb", tensor_parallel=8).verdict == "format_not_supported"


def test_may_fit_where_the_mix_decides_and_a_refusal_where_it_does_not() -> None:
    asked: dict[str, Any] = {"gpu": "rtx-5090", "max_seqs": 16}
    between = estimate(COPY, context_tokens=32768, **asked)
    assert between.verdict == "may_fit"
    assert between.max_concurrent_requests == 0
    assert between.optimistic is not None
    assert between.optimistic.verdict in ("fits", "tight")
    assert between.shortfall_bytes <= between.budget.uncertainty_bytes
    beyond = estimate(COPY, context_tokens=262144, **asked)
    assert beyond.verdict in SHORT
    enough = estimate(COPY, context_tokens=32768, **(asked | {"gpu": "h100-sxm-80gb"}))
    assert enough.verdict == "fits"


def test_nothing_may_fit_where_neither_end_of_a_range_holds_a_request() -> None:
    asked: dict[str, Any] = {"gpu": "h100-sxm-80gb", "context_tokens": 8192}
    found = estimate(COPY, **asked)
    assert found.optimistic is not None
    assert found.optimistic.max_concurrent_requests == 0
    assert found.verdict == "max_seqs_exceeds_states"
    assert "may fit" not in headline(found)
    assert "by its name, weights are" in headline(found)
    least, most = map(int, re.findall(r"the (\d+) to (\d+) blocks", headline(found))[0])
    seqs = next(one for one in remedies(found, CATALOG.kv_formats) if one.lever == "seqs")
    assert seqs.flags == f"--max-seqs {least}"
    assert least < most < found.request.serving.max_seqs
    assert seqs.requests == estimate(COPY, **asked, max_seqs=least).max_concurrent_requests > 0


def test_fewer_sequences_are_offered_where_one_end_of_a_range_starts() -> None:
    asked: dict[str, Any] = {"gpu": "h100-sxm-80gb", "context_tokens": 8192}
    between = estimate(COPY, **asked, max_seqs=900)
    assert between.verdict == "may_fit"
    assert "may fit" in headline(between)
    assert "seqs" in {one.lever for one in remedies(between, CATALOG.kv_formats)}


def test_an_answer_in_json_has_a_range_beside_each_count() -> None:
    answer = estimate(COPY, gpu="h100-sxm-80gb", context_tokens=32768, max_seqs=64).to_dict()
    assert answer["by_name"] is True
    for name in (
        "max_concurrent_requests",
        "max_concurrency",
        "kv_pool_tokens",
        "max_concurrent_requests_ceiling",
    ):
        least, most = answer["range"][name]
        assert answer[name] == least < most
    assert answer["range"]["weight_bytes_per_gpu"][1] == answer["weight_bytes_per_gpu"]
    spread = answer["range"]["kv_pool_bytes"][1] - answer["range"]["kv_pool_bytes"][0]
    assert answer["uncertainty_bytes"] > spread > 5 * GIB
    assert all(
        row["range"]["max_concurrent_requests"][0] == row["max_concurrent_requests"]
        for row in answer["by_context"]
    )
    assert any("by its name" in one for one in answer["assumptions"])
    known = estimate("nvidia/Qwen3.6-27B-NVFP4", gpu="h100-sxm-80gb").to_dict()
    assert (known["by_name"], known["range"]) == (False, None)
    converted = estimate(COPY, gpu="h100-sxm-80gb", weights="fp8").to_dict()
    assert converted["by_name"] is False


def test_the_command_says_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--gpu", "h100-sxm-80gb", "--context", "32K", "--max-num-seqs", "64"]
    assert main(["estimate", COPY, *asked]) == 0
    text = capsys.readouterr().out
    head, title = text.splitlines()[:2]
    assert "by its name, weights are" in head
    assert "weights NVFP4 by its name: " in title
    assert "as released" not in title
    assert main(["size", COPY, *asked, "--concurrent", "40"]) == 0
    text = capsys.readouterr().out
    assert "By its name, weights are" in text
    assert "as released" not in text
    assert main(["diff", "Qwen/Qwen3.8-27B", COPY, *asked[:2]]) == 0
    assert "counted with its widest layers" in capsys.readouterr().out
    assert main(["estimate", "nvidia/Qwen3.6-27B-NVFP4", *asked]) == 0
    assert "weights as released (NVFP4)" in capsys.readouterr().out


def test_a_size_counts_with_the_widest_layers_and_says_the_range() -> None:
    asked: dict[str, Any] = {"gpus": ["h100-sxm-80gb"], "context": "32K", "concurrent": 40}
    best = size(COPY, **asked).to_dict()["deployments"][0]
    assert best["by_name"] is True
    least, most = best["range"]["users_per_replica"]
    assert best["users_per_replica"] == least < most
    known = size("nvidia/Qwen3.6-27B-NVFP4", **asked).to_dict()["deployments"][0]
    assert (known["by_name"], known["range"]) == (False, None)


def test_a_log_of_a_copy_is_read_with_its_base_and_its_weights_are_held_against_the_range() -> None:
    log = (
        f"vllm serve {COPY} --gpu-memory-utilization 0.90 --max-model-len 32768 --kv-cache-dtype fp8\n"
        "vLLM API server version 0.27.1\n"
        "Model loading took 21.5 GiB memory and 10 seconds\n"
        "Available KV cache memory: 4.56 GiB\n"
        "GPU KV cache size: 129,706 tokens\n"
    )
    read = diagnose(log, gpu="rtx-5090")
    assert any("21.50 GiB are within the range that the name allows" in note for note in read.notes)
    assert any("by its name" in note for note in read.notes)
    assert "weights" not in {one.fact for one in read.comparisons}
    far = diagnose(log.replace("21.5 GiB", "9.5 GiB"), gpu="rtx-5090")
    assert any("9.50 GiB are outside the range that the name allows" in note for note in far.notes)


def test_the_schema_knows_ranges() -> None:
    from kvreport.publish.schemas import STORE

    schema = json.loads((STORE / "estimate.json").read_text())
    assert {"by_name", "range"} <= set(schema["properties"])
    assert "range" in schema["properties"]["by_context"]["items"]["properties"]


def test_a_draft_of_a_copy_is_a_range_too() -> None:
    answer = estimate(COPY, gpu="h100-sxm-80gb", draft="mtp", num_speculative_tokens=2, max_seqs=64)
    assert answer.optimistic is not None
    assert answer.optimistic.request.draft is not None
    assert not answer.optimistic.request.served_model.by_name
    assert replace(answer, optimistic=None).verdict == answer.verdict == "fits"
