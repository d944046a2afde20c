"""A name is found however it is spelled."""

import re

import pytest

from kvreport.architectures.repository_names import quantized_name
from kvreport.catalog.load import open_catalog
from kvreport.catalog.shelf import spoken
from kvreport.errors import InputError
from kvreport.estimation.named import open_model


def test_case_and_separators_do_not_make_another_name() -> None:
    assert (
        len({spoken(name) for name in ("Llama 3.1 8B", "llama-3.1-8b", "LLAMA_3.1--8b", "llama/3.1 8b")}) == 1
    )
    assert spoken("llama-3.1") != spoken("llama-31")


@pytest.mark.parametrize("name", ["qwen3.6 27b", "Qwen3.6_27B", "qwen--qwen3.6-27b", "QWEN/qwen3.6-27b"])
def test_a_model_is_found_by_any_spelling(name: str) -> None:
    assert open_catalog().model(name).id == "Qwen/Qwen3.6-27B"


def test_a_model_is_found_by_its_name_before_a_copy_of_it() -> None:
    assert open_catalog().model("kimi-k2.6").id == "moonshotai/Kimi-K2.6"
    assert open_catalog().model("kimi k2.6 nvfp4").id == "nvidia/Kimi-K2.6-NVFP4"


@pytest.mark.parametrize("name", ["H100", "h100 sxm 80gb", "h100-sxm-80gb"])
def test_an_accelerator_is_found_by_any_spelling(name: str) -> None:
    assert open_catalog().accelerator(name).id == "h100-sxm-80gb"


def test_the_public_catalog_is_opened_once_and_another_every_time(tmp_path):
    from kvreport.catalog.load import open_catalog

    assert open_catalog() is open_catalog()
    assert open_catalog(tmp_path) is not open_catalog(tmp_path)


def test_a_name_is_looked_up_once(monkeypatch):
    from kvreport.catalog.load import open_catalog

    known = open_catalog()
    first = known.model("llama 3.1 8b")
    monkeypatch.setattr(known, "_find_model", None)
    assert known.model("llama 3.1 8b") is first


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("qwen3-235b", "Qwen/Qwen3-235B-A22B"),
        ("32b qwen3", "Qwen/Qwen3-32B"),
        ("llama-3.3", "meta-llama/Llama-3.3-70B-Instruct"),
        # More names are copies of this one than of the 8x22B.
        ("mixtral", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("llama", "meta-llama/Llama-3.1-70B-Instruct"),
        # A copy under another organization: its own name says which model it is.
        ("mlx-community/Kimi-K2.5", "moonshotai/Kimi-K2.5"),
        ("unsloth/DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Flash"),
        ("Qwen/Qwen3-8b-instruct", "Qwen/Qwen3-8B"),
        ("gemma-3-27b-instruct", "google/gemma-3-27b-it"),
        ("Mistal-7B", "mistralai/Mistral-7B-v0.1"),
    ],
)
def test_the_model_that_was_meant_is_proposed_first(asked: str, first: str) -> None:
    with pytest.raises(InputError, match=f"did you mean {re.escape(first)}[,?]"):
        open_catalog().model(asked)


@pytest.mark.parametrize(("asked", "first"), [("h10", "h100-"), ("macbook m4 max", "m4-max-")])
def test_a_beginning_and_known_words_come_before_a_close_spelling(asked: str, first: str) -> None:
    with pytest.raises(InputError, match=f"did you mean {re.escape(first)}"):
        open_catalog().accelerator(asked)


def test_words_of_a_card_are_found_in_any_order() -> None:
    with pytest.raises(InputError, match="did you mean rtx-pro-6000-ws, rtx-pro-6000-server, "):
        open_catalog().accelerator("rtx 6000 pro")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gemma4-31b", "google/gemma-4-31B-it"),
        ("Gemma4 E4B", "google/gemma-4-E4B-it"),
        ("glm5.2", "zai-org/GLM-5.2"),
    ],
)
def test_a_hyphen_between_a_word_and_its_number_may_be_left_out(typed: str, meant: str) -> None:
    assert open_catalog().model(typed).id == meant


def test_a_hyphen_between_two_numbers_may_not_be_left_out() -> None:
    with pytest.raises(InputError, match="did you mean"):
        open_catalog().model("gemma-22b")


@pytest.mark.parametrize(
    "name",
    [
        "unsloth/Qwen3-32B",
        "Qwen/Qwen3-32B:latest",
        "qwen/qwen3-32b:free",
        "openrouter/qwen/qwen3-32b",
        "hf://Qwen/Qwen3-32B",
        "https://modelscope.cn/models/Qwen/Qwen3-32B/summary",
        "https://huggingface.co/Qwen/Qwen3-32B?library=vllm",
        "/models/Qwen--Qwen3-32B",
        "/models/Qwen/Qwen3-32B/",
        "/models/Qwen3-32B",
        "/root/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/0123abc",
        "~/models/Qwen3-32B",
        "Qwen/Qwen3-32B@9216db5781bf21249d130ec9da846c4624c16137",
        "Qwen/Qwen3-32B.git",
        "git@hf.co:Qwen/Qwen3-32B.git",
        '"Qwen/Qwen3-32B"',
    ],
)
def test_a_name_of_a_container_or_a_router_is_found(name: str) -> None:
    """What was taken for granted is said, where the name is not the record's own."""
    found = open_model(name, open_catalog())
    assert found.model.id == "Qwen/Qwen3-32B"
    own = "Qwen/Qwen3-32B" in name and name.startswith(("hf:", "https:"))
    assert own or found.assumptions[0].startswith(f"{name} is assumed to be Qwen/Qwen3-32B")


def test_a_copy_in_a_container_keeps_the_format_of_its_name() -> None:
    found = open_model("/models/someone--Qwen3-32B-AWQ-4bit", open_catalog())
    assert found.model.quantized_from == "Qwen/Qwen3-32B"


@pytest.mark.parametrize(
    "name", ["/data/nosuch", "/models/r1", "someone/r1", "Qwen/Qwen3-32B:q8_0", "./Qwen3-32B", "//", "/"]
)
def test_what_only_resembles_a_name_is_refused(name: str) -> None:
    """An alias is what people say, and a tag with a format is no route."""
    with pytest.raises(InputError):
        open_model(name, open_catalog())


@pytest.mark.parametrize(
    "name", ["DeepSeek-R1-0528", "nvidia/DeepSeek-R1-0528-NVFP4-v2", "unsloth/DeepSeek-R1-0528"]
)
def test_an_id_that_means_the_same_bytes_is_found_by_its_last_part(name: str) -> None:
    """As the last part of a record's own id is; copies are named after such an id, too."""
    found = open_model(name, open_catalog()).model
    assert "deepseek-ai/DeepSeek-R1" in (found.id, found.quantized_from)


@pytest.mark.parametrize(
    ("name", "base", "weights"),
    [
        ("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-NVFP4-QAD", "NVIDIA-Nemotron-Nano-12B-v2-VL", "nvfp4"),
        ("amd/gpt-oss-120b-w-mxfp4-a-fp8", "gpt-oss-120b", "mxfp4"),
    ],
)
def test_makers_words_for_a_format_are_known(name: str, base: str, weights: str) -> None:
    said = quantized_name(name)
    assert said is not None
    assert (base in [one.rpartition("/")[2] for one in said.bases], said.weights) == (True, weights)


@pytest.mark.parametrize(
    "name", ["openai/clip-vit-large-patch14", "laion/CLIP-ViT-H-14", "facebook/dinov2-base"]
)
def test_no_name_is_proposed_for_its_letters_alone(name: str) -> None:
    """An image encoder was told of Whisper large and MiniCPM-V."""
    with pytest.raises(InputError, match="kvreport list models prints all"):
        open_catalog().model(name)
