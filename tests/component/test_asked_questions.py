"""The box of the front page over the whole catalog: questions as people type them, and where each of them is answered."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from fuzzing import thinned
from page_states import run

from kvreport import resources
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.server_flags import flag_table
from kvreport.cli import main
from kvreport.publish import picker, profiles
from kvreport.publish.page_data import gather
from kvreport.resources import data_dir

PAGE = """
globalThis.kvreport = {
  plainName: (text) => text.toLowerCase().replace(/[^a-z0-9.]/g, ""), count: String, tokens: String,
};
"""
ASK = """
const { site, names: file, texts } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared(file);
console.log(JSON.stringify(texts.map((text) => {
  const found = kvreport.asked.understand(text, site, names);
  return { ...found, way: kvreport.asked.wayTo(text, found, site, names) };
})));
"""
FIELDS = ("model", "gpu", "tp", "pp", "dp", "ep", "weights", "kv", "engine", "context", "requests")
CHANGING = [
    "ollama",
    "llama.cpp",
    "gguf",
    "q4_k_m",
    "mlx",
    "mac",
    "best",
    "largest",
    "cheapest",
    "fastest",
    "tokens/s",
    "tgi",
    "exl2",
    "int2",
    "3bit",
    "lora",
    "mtp",
    "offload",
    "cpu",
    "vllm@9.9",
    "sglang 9.9.0",
]
"""Words that change every question that they are added to."""


@cache
def catalog() -> Catalog:
    """The public catalog."""
    return open_catalog()


@cache
def shared() -> dict[str, Any]:
    """What the box reads of the public site: facts of every accelerator, and every name."""
    site = gather(catalog(), models="openai/gpt-oss-20b", version="test")
    facts = json.loads(profiles.encode(profiles.site_facts(site)))
    every = replace(site, models=tuple(catalog().models.values()))
    return {"site": facts, "names": json.loads(profiles.encode(picker.facts(every)))}


def asked(texts: list[str]) -> list[dict[str, Any]]:
    """What the box makes of some texts."""
    own = (resources.assets_dir() / "kv-ask.js").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = run(PAGE + own + ASK, {**shared(), "texts": texts})
    return found


@cache
def questions(repository: Any) -> list[dict[str, Any]]:
    """The table of questions."""
    rows: list[dict[str, Any]] = yaml.safe_load((repository / "tests/asked.yaml").read_text(encoding="utf-8"))
    return rows


def test_each_question_is_answered_where_it_belongs(repository: Any) -> None:
    rows = questions(repository)
    assert len(rows) >= 50
    wrong = []
    for row, found in zip(rows, asked([row["ask"] for row in rows]), strict=True):
        used = {name: found["state"][name] for name in FIELDS if name in found["state"]}
        way = found["way"]
        told = {
            "ask": row["ask"],
            "used": used,
            "unused": [*found["missed"], *found["asks"]],
            "home": found["home"],
            "to": None if way is None else next((page for _, page in way["links"]), None),
            "command": way and way.get("command"),
            "answered": way is None,
        }
        wanted = {"unused": [], "home": [], "to": None, "command": None, "answered": "to" not in row} | row
        if told != wanted:
            wrong.append((told, wanted))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_word_that_changes_a_question_never_leaves_its_answer(repository: Any) -> None:
    """A word was dropped, or sorted out, and the answer of another question stayed on the screen."""
    answered = [row["ask"] for row in questions(repository) if "to" not in row]
    texts = [f"{text} {word}" for text in answered for word in CHANGING]
    texts += [f"{word} {text}" for text in answered for word in CHANGING]
    texts = thinned(texts, 4)
    found = dict(zip(texts, asked(texts), strict=True))
    assert not [text for text, one in found.items() if one["way"] is None]


def test_what_no_state_has_is_named_where_the_answer_stands(repository: Any) -> None:
    answered = [row["ask"] for row in questions(repository) if "to" not in row]
    for text, found in zip(answered, asked([f"{text} flavourful" for text in answered]), strict=True):
        assert found["missed"][-1] == "flavourful", text


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "No available memory for the cache blocks",
        "what is a KV cache",
        "preemption",
        "how do I install kvreport",
        "max_num_seqs (256) exceeds available Mamba cache blocks (183)",
        "Free memory on device (20.1/23.5 GiB) on startup is less than desired GPU memory utilization (0.9, 21.15 GiB)",
        "mamba hybrid state memory",
        "mla vs gqa memory",
        "two vllm instances same gpu",
    ],
)
def test_a_text_that_names_nothing_of_the_catalog_asks_the_search(text: str) -> None:
    """Errors and words of the field got links to the lists, or the answer of a model that holds one of their words."""
    assert asked([text])[0]["way"]["search"]


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("Two RTX 3090 against one RTX 5090 for a 32B model in 4 bits", {"rtx-3090": 2, "rtx-5090": 1}),
        ("2x 3090 vs 1x rtx pro 6000 qwen3 32b", {"rtx-3090": 2, "rtx-pro-6000-ws": 1}),
        ("rtx pro 6000 or two 3090 qwen3 32b", {"rtx-3090": 2, "rtx-pro-6000-ws": 1}),
        ("qwen3 32b: one 5090 compared to 3090 x2", {"rtx-3090": 2, "rtx-5090": 1}),
        ("llama 3.3 70b b200 vs 2× h100", {"b200-sxm-180gb": 1, "h100-sxm-80gb": 2}),
    ],
)
def test_each_side_of_a_comparison_keeps_its_number(text: str, sides: dict[str, int]) -> None:
    """ "Two" was dropped, or went to the GPU that the words named second: the conclusion was reversed."""
    (found,) = asked([text])
    assert dict(found["each"]) == sides
    assert not [word for word in found["missed"] if re.search(r"\d", word)]
    said = {address for _, address in found["way"]["links"]}
    for gpu, number in sides.items():
        assert any(f"gpu={gpu}&tp={number}" in address for address in said), (gpu, said)


NAMES = {
    "deepseek",
    "gemma",
    "glm",
    "gpt",
    "jamba",
    "kimi",
    "llama",
    "minimax",
    "mistral",
    "mixtral",
    "nemotron",
    "phi",
    "qwen",
}
"""What prose calls a model by."""


def test_a_size_of_memory_in_a_sentence_decides_the_machine() -> None:
    """A "M3 Ultra with 256GB" was answered for one of 512 GB."""
    sized = [(one[0], re.match(r"(\D.*?) (\d+) ?GB", one[1])) for one in shared()["names"]["machines"]]
    named = [
        (key, found[1].partition(" (")[0], found[2])
        for key, found in sized
        if found and re.search(r"\d", found[1])
    ]
    assert len(named) > 20
    texts = [
        text
        for _, name, size in named
        for text in (
            f"what runs on a {name} with {size} GB?",
            f"{size}GB {name} models",
            f"{name} and {size} GB",
        )
    ]
    stored = {one[0]: one[6] for one in shared()["names"]["gpus"] if len(one) > 6}
    rows = [(key, f"{size} GB") for key, _, size in named for _ in range(3)]
    wrong = []
    for text, found, (key, size) in zip(texts, asked(texts), rows, strict=True):
        told = found.get("machine") or found["state"].get("gpu")
        if told not in (key, None) and stored.get(told) != size:
            wrong.append((text, told, found["missed"]))
    assert not wrong, wrong


def test_a_word_of_the_language_names_no_model(repository: Any) -> None:
    """ "checked" was read as DBRX for its "data", "all" as ALLaM, "larger" as Large, "seen" as Seed."""
    pages = [*repository.glob("docs/**/*.md"), *repository.glob("docs/chapters/*.py")]
    searches = yaml.safe_load((repository / "tests/searches.yaml").read_text(encoding="utf-8"))
    texts = [page.read_text(encoding="utf-8") for page in pages]
    texts += [search for half in searches.values() for search in half]
    words = {word for text in texts for word in re.findall(r"(?<![\w.`/-])[a-z]{2,}(?![\w`/(=-])", text)}
    words = sorted(words - NAMES)
    assert len(words) > 2000
    some = thinned(words, 3)
    found = [
        (word, one["state"]["model"])
        for form, few in (("{}", words), ("what about the {} of it", some), ("{} 3 of them", some))
        for word, one in zip(few, asked([form.format(word) for word in few]), strict=True)
        if "model" in one["state"]
    ]
    assert found == []


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_a_flag_of_a_pasted_command_is_followed_or_named(family: str) -> None:
    """``--mem-fraction-static 0.88`` was answered for the default share, in silence; words after it named no GPU."""
    server = flag_table(data_dir(), family).server
    texts = {
        (
            name,
            flag.takes,
        ): f"{server.command} --model Qwen/Qwen3-32B {name}{'' if flag.takes == '0' else ' fp8'} on 2x H200"
        for name, flag in server.spellings()
        if flag.group.effect != "none"
    }
    assert len(texts) > 200
    silent = []
    for (name, takes), found in zip(texts, asked(list(texts.values())), strict=True):
        set_by_it = set(found["state"]) - {"model", "tp", "engine", "gpu"}
        said = (found["way"] or {"said": ""})["said"]
        key = shared()["names"]["servers"][family]["keys"].get(name)
        named = re.search(rf"(?<!\S){re.escape(name)}(?![\w-])", said) or (key and f"{key}=" in said)
        if not (set_by_it or named) or found["state"].get("gpu") != "h200-sxm-141gb":
            silent.append((name, takes, found["state"], said))
    assert not silent, silent


def test_lists_that_the_box_filters_have_a_row(repository: Any) -> None:
    """A list for the words "32b vision" was empty: names have one or the other."""
    names = {
        kind: [" ".join(map(str, one)).lower() for one in shared()["names"][kind]]
        for kind in ("models", "machines")
    }
    texts = [
        "32b vision model on 4090",
        "best vision model 4090",
        "mac studio 256gb",
        "70b coding model on h100",
    ]
    for found in asked([*texts, *(row["ask"] for row in questions(repository))]):
        for _, address in (found["way"] or {"links": []})["links"]:
            place = urlsplit(address)
            words = parse_qs(place.query).get("name", [""])[0].split()
            listed = names["machines" if place.path == "local/" else "models"]
            assert any(all(word in name for word in words) for name in listed), address


def test_the_sizer_is_told_how_long_the_requests_are() -> None:
    """Asked for 20 requests of 100K tokens, it planned for prompts of 1,500 tokens, of which a replica holds 191."""
    for text in (
        "how many gpus for 20 requests of 100k with qwen3 coder 480b",
        "20 agents 100k qwen3 coder 480b how many gpus",
    ):
        (found,) = asked([text])
        sizers = [
            parse_qs(urlsplit(link).query) for _, link in found["way"]["links"] if link.startswith("sizer/")
        ]
        assert sizers, text
        assert all(one["average"] == one["context"] for one in sizers), text


def test_pages_that_the_box_leads_to_exist(repository: Any) -> None:
    known = {
        "models": {model.slug for model in catalog().models.values()},
        "gpus": {gpu["id"] for gpu in shared()["site"]["gpus"]},
        "local": {machine.id for machine, _ in picker.home_machines(catalog())},
        "data": {"engine-releases"},
        "evidence": {"claims"},
        "learn": {path.stem[3:] for path in (repository / "docs" / "chapters").glob("*.py")},
        "about": {page.stem for page in (repository / "docs" / "about").glob("*.md")},
        "questions": {page.stem for page in (repository / "docs" / "questions").glob("*.md")},
    }
    for found in asked([row["ask"] for row in questions(repository)]):
        for _, address in (found["way"] or {"links": []})["links"]:
            folder, name, *_ = (*urlsplit(address).path.split("/"), "")
            assert folder in {
                "",
                "models",
                "gpus",
                "local",
                "compare",
                "sizer",
                "learn",
                "log",
                "traffic",
                "data",
                "evidence",
                "questions",
                "about",
                "your-model",
            }, address
            assert not name or name in known[folder], address


def test_commands_that_the_box_offers_are_answered(
    repository: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvreport.catalog.load.open_catalog", lambda _=None: catalog())
    for command in thinned([row["command"] for row in questions(repository) if row.get("command")], 3):
        words = shlex.split(command)[1:]
        # Nothing is fetched here: without the flag, the refusal of the id names it.
        fetched = "--fetch" in words
        status = main([word for word in words if word != "--fetch"])
        said = capsys.readouterr()
        if fetched:
            assert (status, "with --fetch" in said.err) == (2, True), command
            continue
        # Prediction layers that a model does not have are refused by name.
        refused = "--draft mtp" in command and "has no MTP layers" in said.err
        wrong = words[0] == "claim" and status == 3  # a figure that does not hold
        assert status == 0 or refused or wrong, (command, said.err)


def test_the_name_of_a_model_is_answered_for_no_other_in_silence() -> None:
    """ "Llama 2 7B" was answered as Code Llama 7B, and "Code Llama 70B" as Llama 3.3 70B. Copies of a model may stand for it."""
    models = {one.slug: one for one in catalog().models.values()}
    for model, found in zip(
        models.values(), asked([f"{one.name} H100 8K" for one in models.values()]), strict=True
    ):
        taken = models.get(found["state"].get("model", ""))
        sizes = [sum(row.parameters for row in one.weights) for one in (model, taken) if one is not None]
        assert found["missed"] or sizes[-1] == pytest.approx(sizes[0], rel=0.02), (model.name, taken)
