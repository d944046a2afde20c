"""``kvreport claim``: sentences are read as meant, and a cause is named only where it gives the figure."""

from __future__ import annotations

import json
import random

import pytest

from kvreport.book.mistakes import MISTAKES, mistaken
from kvreport.book.quantities import Quantities
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.evidence.claim_check import answer, check
from kvreport.evidence.claim_sentences import QUANTITIES, Statement, read_statement


@pytest.mark.parametrize(
    ("text", "model", "quantity", "value", "unit", "context", "form", "gpu"),
    [
        ("Kimi-K3 107136 B/token", "Kimi-K3", "kv_per_token", "107136", "B", None, None, None),
        ("Kimi-K3: 31,200 bytes per token", "Kimi-K3", "kv_per_token", "31,200", "B", None, None, None),
        ("Llama 3.1 8B takes 16 GB at 128K", "Llama 3.1 8B", "kv_request", "16", "GB", 131072, None, None),
        ("Llama 3.1 8B at 128K: 8 GB in FP16", "Llama 3.1 8B", "kv_request", "8", "GB", 131072, "fp16", None),
        ("Qwen3 8B 8K context: 1.2 GB", "Qwen3 8B", "kv_request", "1.2", "GB", 8192, None, None),
        ("Qwen3 32B: 128 KB per token in 8 bits", "Qwen3 32B", "kv_per_token", "128", "KB", None, "fp8", None),
        ("gpt-oss-20b weights 13.8GB", "gpt-oss-20b", "weights", "13.8", "GB", None, None, None),
        ("Qwen3-30B-A3B has 30.5 B parameters", "Qwen3-30B-A3B", "parameters", "30.5", "billion", None, None, None),
        ("llama 3.1 8b runs 54 requests at 8K on H100", "llama 3.1 8b", "requests", "54", "requests", 8192, None, "H100"),
    ],
)  # fmt: skip
def test_a_sentence_is_read_as_it_is_meant(text, model, quantity, value, unit, context, form, gpu) -> None:
    found = read_statement(text)
    assert (found.model, found.quantity, found.value, found.unit) == (model, quantity, value, unit)
    assert (found.context, found.form, found.gpu) == (context, form, gpu)


@pytest.mark.parametrize(
    ("words", "relation", "about"),
    [("about", "equals", True), ("at least", "at_least", False), ("less than", "less_than", False), (">=", "at_least", False)],
)  # fmt: skip
def test_words_before_a_figure_are_heard(words, relation, about) -> None:
    found = read_statement(f"Qwen3 8B takes {words} 1.2 GB at 8K")
    assert (found.relation, found.about, found.model) == (relation, about, "Qwen3 8B")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a cache of Llama is large", "found no number with a unit"),
        ("Llama 3.1 8B 3 GB of cache", "found a cache and no context"),
        ("Llama 3.1 8B 3 GB at 8K and 4 GB at 16K", "found two figures"),
        ("3 GB at 8K", "found no model"),
        ("Qwen3 32B takes 2 GB at 8K in 4 bits", "found 'in 4 bits'; allowed: a format by its name"),
        ("x" * 401, "found 401 characters"),
    ],
)
def test_what_cannot_be_read_says_what_is_missing(text, said) -> None:
    with pytest.raises(InputError, match=said):
        read_statement(text)


# What the arithmetic gives by hand, and what somebody printed.
JUDGED = [
    # 93 layers x 1,152 B; 24 of them keep a latent.
    ("Kimi-K3 107136 B/token", "contradicted", "every layer was counted"),
    ("Kimi-K3 27,648 B/token", "confirmed", ""),
    # 2 x 32 x 8 x 128 x 2 B x 131,072 = 16 GiB.
    ("Llama 3.1 8B takes 16 GB at 128K", "unit slip", ""),
    ("Llama 3.1 8B at 128K: 8 GiB in FP16", "contradicted", "it was counted in fp8"),
    ("Llama 3.1 8B takes 8 GiB at 128K", "depends on an unstated assumption", ""),
    # 16 layers grow by 2 x 4 x 256 x 2 B; 48 keep states, which make 16 GiB into 16.14.
    ("Qwen3.5 27B takes 16.00 GiB at 256K", "contradicted", "the states that each request holds were left out"),
    # 64 query heads over 8 KV heads.
    ("Qwen3 32B 2 MiB/token", "contradicted", "every query head was given separate keys and values"),
    ("DeepSeek-V3 1.75 MB/token", "contradicted", "every query head was given separate keys and values"),
    ("Qwen3 32B takes less than 1 GB at 1K", "confirmed", ""),
    ("Llama 3.1 8B takes 12.3 GiB at 128K", "contradicted", ""),
    # Makers leave the input embedding out: 5.712 - 201,088 x 2,880; 4.187 - the same; 32.86 - 163,840 x 7,168 and
    # 37.55 - 129,280 x 7,168 billion.
    ("gpt-oss-120b 5.1 billion active parameters", "depends on an unstated assumption", ""),
    ("gpt-oss-20b 3.6 billion active parameters", "depends on an unstated assumption", ""),
    ("Kimi-K2 32 billion active parameters", "depends on an unstated assumption", ""),
    ("DeepSeek-V3 37 billion active parameters", "depends on an unstated assumption", ""),
    ("gpt-oss-120b 5.71 billion active parameters", "confirmed within its rounding", ""),
    ("gpt-oss-120b 5.4 billion active parameters", "contradicted", ""),
    # Its embedding is the output head too (3.823 billion; its maker says 3.8): without it no token is written.
    ("google/gemma-4-26B-A4B 3.8 billion active parameters", "confirmed within its rounding", ""),
    ("google/gemma-4-26B-A4B 3.08 billion active parameters", "contradicted", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "cause"), JUDGED)
def test_a_claim_gets_its_verdict_and_its_cause(catalog, text, verdict, cause) -> None:
    found = check(read_statement(text), catalog)
    assert (found.verdict.value, found.cause[: len(cause)]) == (verdict, cause)
    assert bool(found.cause) == bool(cause)


def test_active_parameters_without_the_input_embedding_are_named_so(catalog) -> None:
    found = check(read_statement("gpt-oss-120b 5.1 billion active parameters"), catalog)
    assert found.assumption == "the input embedding is left out"
    assert found.explanation.endswith("the result is 5.133 billion.")  # 5,711,982,912 - 201,088 x 2,880
    # The form of the claims page asks the same.
    fields = {"model": "gpt-oss-120b", "quantity": "active_parameters", "value": "5.1", "unit": "billion"}
    assert json.loads(answer(fields, catalog))["result"]["assumption"] == found.assumption


def test_a_true_figure_is_confirmed_for_every_model_and_never_explained_away(catalog) -> None:
    """What the package itself computes is confirmed to the byte; a tenth more has no verdict that agrees."""
    draw, words = random.Random(20261128), Quantities(catalog)  # noqa: S311 - a spread of cases, no secret
    for model in draw.sample(sorted(catalog.models), 60):
        if not (value := words.kv_request(model, tokens=4096)):
            continue
        asked = {"model": model, "quantity": "kv_request", "unit": "B", "context": 4096}
        assert check(Statement(**asked, value=str(value)), catalog).verdict.value == "confirmed"
        more = check(Statement(**asked, value=str(round(value * 1.1) + 7)), catalog)
        assert (more.verdict.value, more.cause) == ("contradicted", ""), model


def test_a_mistake_is_about_the_layers_that_it_names(catalog) -> None:
    """Each changes some model of the catalog, none changes one that lacks what it is about."""
    for name in MISTAKES:
        changed = [one.id for one in catalog.models.values() if mistaken(one, name) is not one]
        assert 0 < len(changed) < len(catalog.models), name
    with pytest.raises(InputError, match="mistake: found 'none'"):
        mistaken(catalog.model("llama-3.1-8b"), "none")


def test_the_command_ends_with_3_where_a_figure_is_contradicted(capsys) -> None:
    assert main(["claim", "Kimi-K3 107136 B/token"]) == 3
    assert "The figure is 3.88 times this value. Cause: every layer" in capsys.readouterr().out
    fields = ["--model", "llama-3.1-8b", "--quantity", "kv_request", "--value", "17.18", "--unit", "GB"]
    assert main(["claim", *fields, "--context", "128K", "--format", "bf16", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["format"], found["context_tokens"]) == (
        "confirmed within its rounding",
        "bf16",
        131072,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "qwen3-8b"], "found no --quantity, --value, --unit"),
        (["Qwen3 8B 1 GB at 8K", "--quantity", "kv_reqest"], "did you mean kv_request?"),
        (["Qwen3 8B 1 GB at 8K", "--unit", "parsecs"], "unit: found 'parsecs'"),
        (["Qwen3 8B 1 GB at 8K", "--quantity", "parameters"], "--unit: found 'GB' for parameters"),
        (["Qwen3 8B 1 GB at 8K", "--value", "many"], "--value: found 'many'"),
        (["Qwen3 8B 9 requests at 8K"], "requests: found no GPU"),
        (["Qwen9 8B 1 GB at 8K"], "model: found"),
        (["Qwen3 8B 1 GB at 8K in nvfp9"], "model: found"),
        (["Qwen3 8B 1 GB at 8K", "--format", "fp9"], "fp9"),
    ],
)
def test_bad_input_gets_one_clear_error(capsys, words, said) -> None:
    assert main(["claim", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_every_quantity_can_be_claimed(catalog) -> None:
    units = {"parameters": "billion", "active_parameters": "billion", "context_limit": "tokens", "requests": "requests", "pool_tokens": "tokens"}  # fmt: skip
    for quantity in QUANTITIES:
        asked = Statement(
            "qwen3.6-27b", quantity, "1.5", units.get(quantity, "GB"), context=8192, gpu="h200-sxm-141gb"
        )
        assert check(asked, catalog).computed > 0
