"""The question of the front page: the number of devices is read wherever people write it."""

from __future__ import annotations

from typing import Any

import pytest
from page_states import published, run

from kvreport import resources

PAGE = """
globalThis.kvreport = {
  plainName: (text) => text.toLowerCase().replace(/[^a-z0-9]/g, ""), count: String, tokens: String,
};
"""


def understood(text: str, names: str, page: str = PAGE) -> dict[str, Any]:
    """What the box takes a text for.

    Args:
        text: What is typed.
        names: A script with the models and accelerators that there are; it prints the answer.
        page: What the box finds of the page.
    """
    site, _, _ = published()
    own = (resources.assets_dir() / "kv-ask.js").read_text(encoding="utf-8")
    answer: dict[str, Any] = run(page + own + names, {"site": site, "text": text})
    return answer


ASK = """
const { site, text } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared({
  models: [["llama", "Llama 3.1 70B", "Meta", "2024", 1, []]],
  gpus: [["mi355x", "Instinct MI355X", "AMD", "2025", 1, ["mi355x"]], ["h100", "H100", "NVIDIA", "2022", 1, []]],
});
console.log(JSON.stringify(kvreport.asked.understand(text, site, names)));
"""


@pytest.mark.parametrize(
    "text",
    [
        "llama 70b 8 mi355x",
        "llama 70b 8x mi355x",
        "llama 70b 8xmi355x",
        "llama 70b mi355x 8",
        "llama 70b mi355x x8",
        "llama 70b mi355x x 8",
        "llama 70b mi355x 8 32k",
    ],
)
def test_the_number_of_devices_stands_before_or_after_the_name(text: str) -> None:
    answer = understood(text, ASK)
    assert answer["missed"] == [], answer
    assert (answer["state"]["gpu"], answer["state"]["tp"]) == ("mi355x", 8)
    assert answer["state"]["model"] == "llama"


UNEQUAL = """
const { site, text } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared({
  models: [["large", "Mistral Large 2411", "Mistral", "2024", 1, []], ["qwen", "Qwen3 30B A3B", "Qwen", "2025", 1, []]],
  gpus: [["rtx-3090", "RTX 3090", "NVIDIA", "2020", 1, ["3090"]], ["rtx-3060", "RTX 3060", "NVIDIA", "2021", 1, ["3060"]]],
});
const found = kvreport.asked.understand(text, site, names);
console.log(JSON.stringify({ ...found, sentence: kvreport.asked.said(found) }));
"""


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("qwen3 30b 3090 + 3060", "rtx-3090+rtx-3060"),
        ("qwen3 30b a3b rtx 3090+rtx 3060 8k", "rtx-3090+rtx-3060"),
        ("2x 3090 + 3060 qwen3 30b", "rtx-3090*2+rtx-3060"),
        ("2 3090 + 2x3060 qwen3 30b", "rtx-3090*2+rtx-3060*2"),
    ],
)
def test_accelerators_with_a_plus_sign_are_one_machine(text: str, machine: str) -> None:
    """The second one was left for a comparison, and the answer was of the first alone."""
    answer = understood(text, UNEQUAL)
    assert answer["state"]["gpu"] == machine
    assert "tp" not in answer["state"]
    assert answer["state"]["model"] == "qwen"
    assert (answer["missed"], answer["gpus"]) == ([], [])


def test_a_plus_sign_beside_something_else_is_no_machine() -> None:
    answer = understood("qwen3 30b + 3090", UNEQUAL)
    assert answer["state"]["gpu"] == "rtx-3090"


def test_another_release_of_a_name_is_said_to_be_missing() -> None:
    """The answer was of another release, and only a digit was named as not understood."""
    answer = understood("mistral large 3 2x 3090", UNEQUAL)
    assert answer["unlisted"] == "mistral large 3"
    assert answer["sentence"].startswith(
        "“mistral large 3” is not in this catalog; Mistral Large 2411 is the nearest."
    )
    assert understood("mistral large 2411 3090", UNEQUAL)["unlisted"] is None


RELEASES = """
const { site, text } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared({
  models: [
    ["four", "Mistral Large 4", "Mistral", "2026-10", 0, []],
    ["three", "Mistral Large 3 675B Instruct 2512", "Mistral", "2025-12", 0, []],
    ["older", "Mistral Large 2411", "Mistral", "2024-11", 0, []],
    ["small", "Mistral Small 4", "Mistral", "2026-03", 0, []],
  ],
  gpus: [["h200", "H200", "NVIDIA", "2024", 1, ["h200"]]],
});
console.log(JSON.stringify(kvreport.asked.understand(text, site, names)));
"""


def test_a_name_without_its_release_says_which_others_there_are() -> None:
    """The newest release was taken as if the reader had said so."""
    assert [one["id"] for one in understood("mistral large on 8 h200", RELEASES)["others"]] == [
        "three",
        "older",
    ]
    said = understood("mistral large 4 on 8 h200", RELEASES)
    assert (said["state"]["model"], said["others"]) == ("four", [])


def test_a_computer_alone_is_understood() -> None:
    """The line under the box said that nothing was, and the answer named the machine."""
    assert understood("macbook pro 64gb", UNEQUAL)["sentence"].startswith("Understood: ")
    assert understood("nothing of this", UNEQUAL)["sentence"].startswith("Nothing was understood.")


def test_a_length_after_a_name_is_no_number_of_devices() -> None:
    answer = understood("llama 70b h100 32k", ASK)
    assert "tp" not in answer["state"]
    assert answer["state"]["context"] == 32_768


@pytest.mark.parametrize(
    "text", ["llama 70b h100 kv fp8", "llama 70b h100 fp8 kv", "llama 70b h100 cache=fp8"]
)
def test_the_cache_format_stands_before_or_after_its_name(text: str) -> None:
    answer = understood(text, ASK)
    assert answer["state"]["kv"] == "fp8"
    assert answer["missed"] == []


def test_a_format_of_the_cache_without_an_answer_is_named_and_is_not_taken_for_the_weights() -> None:
    answer = understood("llama 70b h100 int4 kv cache", ASK)
    assert "weights" not in answer["state"]
    assert "int4 kv" in answer["missed"]


def test_a_mac_leads_to_the_page_of_machines() -> None:
    answer = understood("llama on my mac", ASK)
    assert answer["home"] == ["mac"]
    assert answer["missed"] == []


SIZES = """
const { site, text } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared({
  models: [["llama", "Llama 3.1 70B", "Meta", "2024", 1, []]],
  gpus: [
    ["m4-max-128", "M4 Max 128GB", "Apple", "2024", 1, ["m4 max"]],
    ["h100-sxm-80gb", "H100 80GB", "NVIDIA", "2022", 1, ["h100"]],
    ["h100-nvl-94gb", "H100 NVL 94GB", "NVIDIA", "2023", 1, ["h100 nvl"]],
  ],
});
console.log(JSON.stringify(kvreport.asked.understand(text, site, names)));
"""


@pytest.mark.parametrize(
    ("text", "gpu", "home", "missed"),
    [
        ("llama 70b m4 max 64gb", None, ["m4 max 64gb"], []),
        ("llama 70b m4 max 128gb", "m4-max-128", [], []),
        ("llama 70b on a mac studio 128gb", None, ["mac studio 128gb"], []),
        ("llama 70b macbook pro m4 max 64gb", None, ["m4 max 64gb", "macbook pro"], []),
        ("llama 70b h100 94gb", "h100-nvl-94gb", [], []),
        ("llama 70b h100 48gb", "h100-sxm-80gb", [], ["48gb"]),
    ],
)
def test_a_size_of_memory_is_answered_with_it_or_named(
    text: str, gpu: str | None, home: list[str], missed: list[str]
) -> None:
    answer = understood(text, SIZES)
    assert (answer["state"].get("gpu"), answer["home"], answer["missed"]) == (gpu, home, missed)
    assert answer["state"]["model"] == "llama"


NAMES = """
const { site, text } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared({
  models: [
    ["small-3.2", "Mistral Small 3.2 24B", "Mistral", "2025-06", 1, []],
    ["small-4", "Mistral Small 4 119B 2603", "Mistral", "2026-03", 0, []],
    ["glm-5", "GLM-5", "Z.ai", "2026-02", 0, []],
    ["glm-5.2", "GLM-5.2", "Z.ai", "2026-06", 1, []],
    ["phi-4", "Phi-4", "Microsoft", "2024-12", 0, []],
    ["qwen3", "Qwen3 32B", "Qwen", "2025-04", 1, []],
    ["q--Qwen2.5-72B-Instruct", "Qwen2.5 72B", "Qwen", "2024-09", 1, []],
    ["q--Qwen2.5-72B-Instruct-AWQ", "Qwen2.5 72B Instruct AWQ", "Qwen", "2024-09", 0, []],
    ["q--Qwen2.5-VL-72B-Instruct-AWQ", "Qwen2.5 VL 72B Instruct AWQ", "Qwen", "2025-01", 0, []],
    ["m--Llama-3.1-70B-Instruct", "Llama 3.1 70B", "Meta", "2024-07", 1, []],
    ["h--Meta-Llama-3.1-70B-Instruct-GPTQ-INT4", "Llama 3.1 70B Instruct GPTQ INT4", "Meta", "2024-07", 0, []],
  ],
  gpus: [
    ["rtx-5090", "GeForce RTX 5090", "NVIDIA", "2025", 1, ["rtx 5090", "5090"]],
    ["rtx-3090", "GeForce RTX 3090", "NVIDIA", "2020", 0, ["rtx 3090", "3090"]],
  ],
});
console.log(JSON.stringify(kvreport.asked.understand(text, site, names)));
"""


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("qwen2.5 72b awq 2x 3090", {"model": "q--Qwen2.5-72B-Instruct-AWQ", "gpu": "rtx-3090", "tp": 2}),
        ("llama 3.1 70b gptq", {"model": "h--Meta-Llama-3.1-70B-Instruct-GPTQ-INT4"}),
        ("llama 3.1 70b awq", {"model": "m--Llama-3.1-70B-Instruct", "weights": "int4"}),
        ("qwen2.5 72b int4", {"model": "q--Qwen2.5-72B-Instruct", "weights": "int4"}),
    ],
)
def test_a_quantizer_s_name_is_the_checkpoint_where_there_is_one(text: str, state: dict[str, object]) -> None:
    answer = understood(text, NAMES)
    assert answer["state"] == state
    assert answer["missed"] == []
    assert any("weights" in said for said in answer["understood"]) == ("weights" in state)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("mistral small 4 rtx 5090 32k", {"model": "small-4", "gpu": "rtx-5090", "context": 32768}),
        ("mistral small 2 rtx 5090", {"model": "small-3.2", "gpu": "rtx-5090", "tp": 2}),
        ("glm-5 rtx 5090", {"model": "glm-5", "gpu": "rtx-5090"}),
        ("glm 5.2 on a 3090", {"model": "glm-5.2", "gpu": "rtx-3090", "tp": 1}),
        ("does phi-4 fit on one 3090?", {"model": "phi-4", "gpu": "rtx-3090", "tp": 1}),
        ("phi-4 80gb", {"model": "phi-4", "gpu": "h100-sxm-80gb", "tp": 1}),
        ("glm 5 rtx 5090", {"model": "glm-5", "gpu": "rtx-5090"}),
        ("qwen 3 32b rtx 5090", {"model": "qwen3", "gpu": "rtx-5090"}),
    ],
)
def test_names_keep_their_numbers_and_devices_theirs(text: str, state: dict[str, object]) -> None:
    answer = understood(text, NAMES)
    assert answer["state"] == state
    assert answer["missed"] == answer["home"] == []


@pytest.mark.parametrize(
    ("text", "home"),
    [
        ("phi-4 on rtx 4060 8gb", "rtx 4060 8gb"),
        ("phi-4 rtx 4070 ti super 16gb", "rtx 4070 ti super 16gb"),
        ("phi-4 12gb", "12gb"),
    ],
)
def test_a_card_without_numbers_leads_to_the_page_of_machines(text: str, home: str) -> None:
    answer = understood(text, NAMES)
    assert answer["state"] == {"model": "phi-4"}, "its number is no context"
    assert (answer["home"], answer["missed"]) == ([home], [])


FURTHER = """
const { site, text } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared({
  models: [
    ["llama", "Llama 3.1 70B", "Meta", "2024", 1, []],
    ["m2", "MiniMax-M2.5", "MiniMax", "2025", 0, []],
    ["m3", "MiniMax-M3", "MiniMax", "2026", 1, []],
  ],
  gpus: [
    ["h100", "H100", "NVIDIA", "2022", 1, []],
    ["mi300x", "Instinct MI300X", "AMD", "2023", 1, ["mi300x"]],
  ],
});
console.log(JSON.stringify(kvreport.asked.understand(text, site, names)));
"""


@pytest.mark.parametrize("text", ["llama 70b h100 vs mi300x", "compare h100 and mi300x for llama 70b"])
def test_a_second_accelerator_is_understood(text: str) -> None:
    answer = understood(text, FURTHER)
    assert answer["missed"] == []
    assert (answer["state"]["gpu"], answer["gpus"], answer["state"]["model"]) == ("h100", ["mi300x"], "llama")


@pytest.mark.parametrize("text", ["longest context of llama 70b", "cost of llama 70b for 100 users"])
def test_words_of_a_question_are_no_names(text: str) -> None:
    assert understood(text, FURTHER)["missed"] == []


def test_a_release_is_found_by_its_first_number() -> None:
    answer = understood("minimax m2", FURTHER, PAGE.replace("[^a-z0-9]", "[^a-z0-9.]"))
    assert (answer["state"]["model"], answer["missed"]) == ("m2", [])


WORDS = """
const { site, text } = JSON.parse(await new Response(Deno.stdin.readable).text());
const names = kvreport.asked.prepared({
  models: [
    ["muse", "Muse Glimmer 30B", "Meta", "2026", 1, ["meta-models/Muse-Glimmer-30B"]],
    ["deepseek", "DeepSeek-V3.2", "DeepSeek", "2025", 1, []],
  ],
  gpus: [
    ["a16", "A16", "NVIDIA", "2021", 0, ["a16"]],
    ["b200", "B200", "NVIDIA", "2024", 1, []],
  ],
});
console.log(JSON.stringify(kvreport.asked.understand(text, site, names)));
"""


def test_an_article_and_a_size_are_no_name_of_an_accelerator() -> None:
    answer = understood("gguf Q4_K_M on a 16 GB Mac", WORDS)
    assert "gpu" not in answer["state"]
    assert answer["missed"] == []
    assert answer["home"] == ["gguf", "q4_k_m", "16gb mac"]


def test_a_question_about_all_models_names_no_model() -> None:
    answer = understood("models that fit on 48 GiB at 32k", WORDS)
    assert "model" not in answer["state"]
    assert answer["state"]["context"] == 32_768
    assert answer["missed"] == []


@pytest.mark.parametrize(
    ("text", "tensor"), [("8x b200", 8), ("8xb200 dp8 ep", 1), ("16 b200 dp4", 4), ("8x b200 tp8 dp2", 8)]
)
def test_the_number_of_devices_is_that_of_all_ranks(text: str, tensor: int) -> None:
    assert understood(f"deepseek v3.2 {text}", WORDS)["state"]["tp"] == tensor


@pytest.mark.parametrize(
    "text", ["gpu memory utilization 0.95", "--gpu-memory-utilization 0.95", "util=0.95"]
)
def test_the_memory_share_is_read_as_people_write_it(text: str) -> None:
    answer = understood(f"deepseek v3.2 b200 {text}", WORDS)
    assert answer["state"]["share"] == 0.95
    assert answer["missed"] == []


def test_a_kind_of_models_on_an_accelerator_is_understood() -> None:
    answer = understood("coder on rtx 3090", UNEQUAL)
    assert answer["state"] == {"gpu": "rtx-3090"}
    assert answer["sentence"] == "Understood: RTX 3090 · models named “coder”."
