"""Names beyond the catalog: a Hub that is asked on request, and quantized copies by their names."""

from __future__ import annotations

import io
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPMessage
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest
from brought import gguf_file
from checkpoints import header, llama, total
from fake_hub import SHA, FakeHub, serve
from huggingface_configs import plain

from kvreport.accounting.weights import released_bytes
from kvreport.architectures import hub as hub_module
from kvreport.architectures import hub_client
from kvreport.architectures.hub import fetch, fetch_gguf, kept
from kvreport.architectures.repository_names import quantized_name
from kvreport.budgets import HUB, HUB_LISTING
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.named import open_model
from kvreport.estimation.named_copies import by_name, narrowed

CATALOG = open_catalog()
SIZES = (4, 512, 8, 2, 1536, 4096)
CONFIG = plain(
    "LlamaForCausalLM", 512, 4, 8, 2, 1536, 4096, 2048, tie_word_embeddings=False, dtype="bfloat16"
)
HALF = {**CONFIG, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}
NAME = "some-org/Some-Model-7B"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    index = {"metadata": {"total_size": total(llama(*SIZES))}, "weight_map": {}}
    files = {
        NAME: {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors.index.json": json.dumps(index).encode(),
            "tokenizer.json": b"not wanted",
        },
        "some-org/Single": {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors": header(llama(*SIZES)) + b"weights" * 1000,
        },
        "some-org/Locked": {"config.json": json.dumps(CONFIG).encode()},
        "some-org/Only-GGUF": {"model-Q4_K_M.gguf": b"GGUF"},
        "some-org/Beside": {
            "config.json": json.dumps(CONFIG).encode(),
            "quantize_config.json": json.dumps({"bits": 4, "group_size": 64}).encode(),
        },
    }
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve(FakeHub(files, gated={"some-org/Locked"})) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        yield served


def test_nothing_is_asked_unless_it_is_asked_for(hub: FakeHub) -> None:
    with pytest.raises(InputError, match=r"a config.json, .* a GGUF file or a Hub id .*--fetch.* also works"):
        open_model(NAME, CATALOG)
    assert hub.asked == []


def test_what_was_fetched_is_pinned_and_found_again_without_a_connection(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = open_model(NAME, CATALOG, fetch=True)
    assert found.model.id == NAME
    assert found.assumptions == () or "come from the files" not in " ".join(found.assumptions)
    assert released_bytes(found.model, CATALOG.weight_formats) == total(llama(*SIZES))
    (source,) = found.model.sources
    assert (source.revision, source.evidence) == (SHA, "verbatim")
    assert source.url == f"https://huggingface.co/{NAME}/blob/{SHA}/config.json"
    assert not any("tokenizer" in path for path in hub.asked)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    asked = len(hub.asked)
    assert open_model(NAME, CATALOG).model == found.model
    assert open_model(NAME, CATALOG, revision=SHA).model == found.model
    assert len(hub.asked) == asked


@pytest.mark.usefixtures("hub")
def test_without_a_connection_what_was_fetched_before_answers_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    online = open_model(NAME, CATALOG, fetch=True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    offline = open_model(NAME, CATALOG, fetch=True)
    assert offline.model == online.model
    assert offline.assumptions[0] == (
        f"{NAME}: no connection to the Hub, so revision {SHA[:8]} is used, which was fetched before"
    )
    assert open_model(NAME, CATALOG, fetch=True, revision=SHA).model == online.model
    with pytest.raises(InputError, match="no connection to"):
        open_model(NAME, CATALOG, fetch=True, revision="v2")


def test_a_revision_is_asked_for_by_name_and_kept_by_its_commit(hub: FakeHub) -> None:
    with pytest.raises(InputError, match="no such revision kept"):
        open_model(NAME, CATALOG, revision="v2")
    assert fetch(NAME, "v2").revision == SHA
    later = "f" * 40
    hub.commit = later
    hub.files[NAME]["config.json"] = json.dumps(HALF).encode()
    del hub.files[NAME]["model.safetensors.index.json"]
    assert fetch(NAME).revision == later
    assert open_model(NAME, CATALOG).model.weight_format == "int4-g32-zp"
    assert open_model(NAME, CATALOG, revision="v2").model.weight_format == "bf16"
    with pytest.raises(InputError, match="no such repository, revision or file"):
        fetch(NAME, "v3")


@pytest.mark.usefixtures("hub")
def test_of_a_single_file_only_the_header_is_read() -> None:
    repository = fetch("some-org/Single")
    size = (repository.folder / "model.safetensors").stat().st_size
    assert size == len(header(llama(*SIZES)))
    assert (
        open_model("some-org/Single", CATALOG).assumptions
        == open_model(NAME, CATALOG, fetch=True).assumptions
    )


@pytest.mark.usefixtures("hub")
def test_the_quantizers_own_file_comes_along() -> None:
    assert open_model("some-org/Beside", CATALOG, fetch=True).model.weight_format == "gptq4-g64"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "revision", "named"),
    [
        ("some-org/Locked", None, "gated, private or missing; allowed: .*HF_TOKEN.*config.json"),
        ("some-org/Nothing-Here", None, "no such repository"),
        ("some-org/Only-GGUF", None, "GGUF files and no config.json; .*path of one of its GGUF files"),
        (NAME, "../../x", "a branch, tag or commit"),
        ("../x", None, "a Hub id"),
    ],
)
def test_what_the_hub_refuses_is_said_in_one_sentence(name: str, revision: str | None, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        fetch(name, revision)
    assert "\n" not in str(caught.value)
    assert kept(name) is None


def test_a_token_opens_a_gated_repository_and_goes_to_no_other_host(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "open-sesame")
    elsewhere = FakeHub({"some-org/Locked": dict(hub.files["some-org/Locked"])})
    with serve(elsewhere):
        path = f"/some-org/Locked/resolve/{SHA}/config.json"
        hub.moved[path] = elsewhere.endpoint + path
        assert fetch("some-org/Locked").revision == SHA
    assert set(hub.tokens) == {"Bearer open-sesame"}
    assert elsewhere.tokens == [None]


def test_a_redirect_to_a_plain_address_is_not_followed(hub: FakeHub) -> None:
    hub.moved[f"/{NAME}/resolve/{SHA}/config.json"] = "http://example.org/config.json"
    with pytest.raises(InputError, match="a redirect to http"):
        fetch(NAME)
    assert kept(NAME) is None


def test_no_connection_is_said_and_nothing_half_written_stays(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    del hub.files[NAME]["config.json"]
    hub.files[NAME]["params.json"] = b""
    hub.moved[f"/{NAME}/resolve/{SHA}/params.json"] = "http://127.0.0.1:9/x"
    with pytest.raises(InputError, match="no connection to"):
        fetch(NAME)
    left = list(hub_module.cache_folder().rglob("*"))
    assert [path for path in left if path.is_file()] == []
    assert kept(NAME) is None
    monkeypatch.setenv("HF_ENDPOINT", "http://example.org")
    with pytest.raises(InputError, match="HF_ENDPOINT"):
        fetch(NAME)


def test_an_index_that_contradicts_the_config_is_heard(hub: FakeHub) -> None:
    index = {"metadata": {"total_size": total(llama(*SIZES)) // 2}, "weight_map": {}}
    hub.files[NAME]["model.safetensors.index.json"] = json.dumps(index).encode()
    found = open_model(NAME, CATALOG, fetch=True)
    assert any("the weights come from the files" in sentence for sentence in found.assumptions)


@pytest.mark.usefixtures("hub")
def test_the_command_line_fetches_and_says_what_it_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["estimate", NAME, "--gpu", "h100-sxm-80gb", "--context", "1K", "--format", "json"]
    assert main(asked) == 2
    assert main([*asked, "--fetch"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["model"] == NAME
    assert isinstance(answer["assumptions"], list)
    assert isinstance(answer["not_read"], list)
    assert main(asked) == 0
    shutil.rmtree(hub_module.cache_folder())
    assert main(asked) == 2


LISTING = f"/api/models/{NAME}/revision/main"
CONFIG_PATH = f"/{NAME}/resolve/{SHA}/config.json"
INDEX_PATH = f"/{NAME}/resolve/{SHA}/model.safetensors.index.json"


def files_kept() -> list[Path]:
    return [path for path in hub_module.cache_folder().rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", [CONFIG_PATH, INDEX_PATH, LISTING])
@pytest.mark.parametrize("sent", [0, 1, 30, 45])
def test_a_cut_download_is_not_kept(hub: FakeHub, path: str, sent: int) -> None:
    hub.cut[path] = sent
    with pytest.raises(InputError, match=rf"found no connection to .* \({sent} of [0-9,]+ bytes came\)"):
        fetch(NAME)
    assert files_kept() == []
    hub.cut.clear()
    assert open_model(NAME, CATALOG, fetch=True).model.id == NAME


@pytest.mark.parametrize("path", [CONFIG_PATH, INDEX_PATH])
@pytest.mark.parametrize(
    "lie", [b"<html>sign in first</html>", b'{"a": 1', b"[1]", b"\xff\xfe", b"[" * 100_000, b""]
)
def test_what_cannot_be_read_is_not_kept(hub: FakeHub, path: str, lie: bytes) -> None:
    """The page of a captive portal answered every later --fetch."""
    hub.lies[path] = lie
    with pytest.raises(InputError, match=rf"^model {NAME}: .*nothing was kept$") as caught:
        fetch(NAME)
    assert "fetching-" not in str(caught.value)
    assert files_kept() == []
    hub.lies.clear()
    assert open_model(NAME, CATALOG, fetch=True).model.id == NAME


@pytest.mark.parametrize("damage", [b"", b'{"architectures": ["Lla', b"<html>", b"\xff"])
@pytest.mark.usefixtures("hub")
def test_what_was_kept_and_cannot_be_read_is_fetched_again(damage: bytes) -> None:
    folder = fetch(NAME).folder
    (folder / "config.json").write_bytes(damage)
    with pytest.raises(InputError, match="--fetch fetches it again"):
        open_model(NAME, CATALOG)
    assert open_model(NAME, CATALOG, fetch=True).model.id == NAME
    (folder / "config.json").unlink()
    assert open_model(NAME, CATALOG, fetch=True).model.id == NAME


@pytest.mark.usefixtures("hub")
def test_a_kept_file_that_has_changed_is_fetched_again() -> None:
    """Another number in a file that is still JSON is no fault that a reader sees."""
    folder = fetch(NAME).folder
    whole = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(whole.replace(b'"num_hidden_layers": 4', b'"num_hidden_layers": 5'))
    fault = hub_module.fault_of(folder)
    assert fault is not None
    assert "has changed since it was fetched" in str(fault)
    assert (fetch(NAME).folder / "config.json").read_bytes() == whole


@pytest.mark.parametrize(
    "lie", [b"[" * 100_000, b"{" * 50, b"\xff\xff", b"null", b'{"sha": 1e999}', b'{"sha": "x"}']
)
def test_a_listing_that_is_none_is_said_in_one_sentence(hub: FakeHub, lie: bytes) -> None:
    hub.lies[LISTING] = lie
    with pytest.raises(InputError, match="the Hub's own"):
        fetch(NAME)


def test_a_listing_is_bounded(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [{"rfilename": f"f{number}"} for number in range(HUB_LISTING.rows + 1)]
    hub.lies[LISTING] = json.dumps({"sha": SHA, "siblings": names}).encode()
    with pytest.raises(InputError, match=r"found 100,001 files; allowed: at most 100,000"):
        fetch(NAME)
    monkeypatch.setattr(hub_client, "HUB_LISTING", replace(HUB_LISTING, bytes=1000))
    with pytest.raises(InputError, match=r"found more than 1,000 bytes"):
        fetch(NAME)


@pytest.mark.parametrize("path", [CONFIG_PATH, LISTING])
def test_a_hub_that_sends_a_byte_at_a_time_is_left_after_a_time(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(hub_client, "HUB", replace(HUB, seconds=1))
    hub.slow.add(path)
    began = time.monotonic()
    with pytest.raises(InputError, match="no whole answer within 1 seconds"):
        fetch(NAME)
    assert time.monotonic() - began < 10
    assert files_kept() == []


def test_headers_that_never_end_are_left_after_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub_client, "HUB", replace(HUB, seconds=1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Header: ")
                while not ended.wait(0.02):
                    connection.sendall(b"a")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        began = time.monotonic()
        with pytest.raises(InputError, match="no whole answer within 1 seconds"):
            fetch(NAME, cache=tmp_path, endpoint=f"http://127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - began < 10
        ended.set()
        thread.join()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"../../../etc", b"\n"])
@pytest.mark.usefixtures("hub")
def test_a_damaged_reference_is_as_none(content: bytes) -> None:
    fetch(NAME)
    (reference,) = (hub_module.cache_folder() / NAME.replace("/", "--") / "refs").iterdir()
    reference.write_bytes(content)
    assert kept(NAME) is None
    assert open_model(NAME, CATALOG, fetch=True).model.id == NAME


@pytest.mark.parametrize(
    "target", ["http://localhost:8080/x", "http://127.0.0.1/x", "https://localhost/x", "https://[::1]/x"]
)
def test_a_hub_elsewhere_leads_nobody_to_services_of_this_machine(target: str) -> None:
    handler = hub_client._SameHostToken()
    asked = Request("https://hub.example.org/a/b/resolve/main/config.json")
    with pytest.raises(URLError, match=r"a redirect to (http|this machine)"):
        handler.redirect_request(asked, io.BytesIO(), 302, "Found", HTTPMessage(), target)
    moved = handler.redirect_request(
        asked, io.BytesIO(), 302, "Found", HTTPMessage(), "https://cdn.example.org/x"
    )
    assert moved is not None


def test_a_damaged_header_of_a_gguf_file_is_fetched_again(hub: FakeHub) -> None:
    whole = gguf_file()
    hub.files["some-org/Only-GGUF"]["model-Q4_K_M.gguf"] = whole
    path = fetch_gguf("some-org/Only-GGUF").path
    header = path.read_bytes()
    path.write_bytes(header[:30])
    assert fetch_gguf("some-org/Only-GGUF").path.read_bytes() == header
    hub.cut[f"/some-org/Only-GGUF/resolve/{SHA}/model-Q4_K_M.gguf"] = 20
    path.unlink()
    with pytest.raises(InputError, match="found no connection"):
        fetch_gguf("some-org/Only-GGUF")
    assert not path.exists()


BASE = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("name", "base", "form"),
    [
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", BASE, "int4"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-GPTQ-INT4", BASE, "gptq4-g128"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", BASE, "fp8-channel"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", BASE, "int4-g128-sym"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", BASE, "int8"),
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", BASE, "nvfp4"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", BASE, "fp8-tensor"),
        ("mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", BASE, "mlx4-g64"),
        ("mlx-community/Llama-3.1-8B-Instruct-8bit", BASE, "mlx8-g64"),
        ("lmstudio-community/Llama-3.1-8B-Instruct-MLX-6bit", BASE, "mlx6-g64"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q8_0", BASE, "q8_0"),
        ("unsloth/Llama-3.1-8B-Instruct-GGUF", BASE, "q4_k_m"),
        ("unsloth/Llama-3.1-8B-Instruct-unsloth-bnb-4bit", BASE, "bnb-4bit-dq"),
        ("turboderp/Llama-3.1-8B-Instruct-4.5bpw-exl2", BASE, "exl2-4.5bpw"),
        ("turboderp/Llama-3.1-8B-Instruct-exl3-3.0bpw", BASE, "exl3-3bpw"),
        ("bartowski/Qwen_Qwen3-32B-GGUF:Q4_K_M", "Qwen/Qwen3-32B", "q4_k_m"),
        ("mlx-community/Qwen3-30B-A3B-4bit-DWQ", "Qwen/Qwen3-30B-A3B", "mlx4-g64"),
        ("amd/Llama-3.1-8B-Instruct-MXFP4-Preview", BASE, "mxfp4"),
        ("ModelCloud/Llama-3.1-8B-Instruct-gptqmodel-4bit", BASE, "gptq4-g128"),
    ],
)
def test_a_quantized_copy_is_its_model_in_another_format(name: str, base: str, form: str) -> None:
    said = quantized_name(name)
    assert said is not None
    assert said.weights == form
    if form not in CATALOG.weight_formats:
        pytest.skip(f"{form} is not a format here yet")
    # Some of these have records of their own by now: what their names say is asked alone.
    found = by_name(name, CATALOG)
    assert found is not None
    model, assumptions = found
    original = CATALOG.models[base]
    assert model.weight_format == form
    assert model.layers == original.layers
    assert base in assumptions[0]
    # A copy that is known by its name is a range, whose MLPs have the named width at both ends.
    for end in (model, narrowed(model)):
        stored = {row.released for row in end.weights if row.component == "dense_mlp"} - {None}
        assert {CATALOG.weight_formats[name].bits for name in stored} <= {CATALOG.weight_formats[form].bits}
    less = released_bytes(model, CATALOG.weight_formats)
    assert less < released_bytes(original, CATALOG.weight_formats)


@pytest.mark.parametrize(
    "name",
    ["meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-4bits", "some/thing-8b", "x/-AWQ", "openai/gpt-oss-20b"],
)
def test_a_name_that_says_nothing_of_a_quantizer_is_left_alone(name: str) -> None:
    assert quantized_name(name) is None


def test_a_catalog_record_counts_before_what_its_name_says() -> None:
    found = open_model("Qwen/Qwen3-8B-FP8", CATALOG)
    assert found.assumptions == ()
    assert found.model is CATALOG.model("Qwen/Qwen3-8B-FP8")


def test_an_estimate_of_a_copy_says_so() -> None:
    answer = estimate(
        "mlx-community/Qwen3-32B-5bit", gpu="h100-sxm-80gb", engine="ceiling", context_tokens=8192
    ).to_dict()
    assert "Qwen/Qwen3-32B" in answer["assumptions"][0]


def test_sizes_and_logs_fetch_too(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sized = ["size", NAME, "--concurrent", "4", "--context", "2K", "--gpu", "h100-sxm-80gb"]
    assert main(sized) == 2
    assert "--fetch" in capsys.readouterr().err
    assert main([*sized, "--fetch", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["deployments"][0]["model"] == NAME
    log = tmp_path / "vllm.log"
    log.write_text(f"vllm serve {NAME} --max-model-len 2048\nAvailable KV cache memory: 3.20 GiB\n")
    assert main(["log", str(log), "--fetch"]) == 0
    assert "does not know" not in capsys.readouterr().out
    assert any(f"/{NAME}/resolve/" in path for path in hub.asked)
    assert main(["log", str(log), "--model", "some-org/Locked", "--fetch"]) == 2
    assert "gated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "model", "form"),
    [
        ("llama3.1:8b", "ollama/llama3.1-8b", "q4_k_m"),
        ("gpt-oss:20b", "ollama/gpt-oss-20b", "mxfp4"),
        ("https://huggingface.co/Qwen/Qwen3-32B/tree/main", "Qwen/Qwen3-32B", "bf16"),
        ("hf.co/bartowski/Qwen_Qwen3-32B-GGUF:Q4_K_M", "bartowski/Qwen_Qwen3-32B-GGUF-Q4_K_M", "q4_k_m"),
        ("ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "gptq4-g128"),
        ("gaunernst/gemma-3-27b-it-int4-awq", "gaunernst/gemma-3-27b-it-int4-awq", "int4"),
    ],
)
def test_names_as_people_copy_them_are_a_model_in_a_format(name: str, model: str, form: str) -> None:
    found = open_model(name, CATALOG).model
    assert (found.id, found.weight_format) == (model, form)


@pytest.mark.parametrize(
    "name", ["bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q5_K_M", "llama3.1:8b-instruct-q5_K_M"]
)
def test_a_mix_of_types_is_laid_out_by_llama_cpp(name: str) -> None:
    with pytest.raises(InputError, match="--engine llama-cpp --weights q5_k_m"):
        open_model(name, CATALOG)
    by_name_ = estimate(name, gpu="rtx-4090", context_tokens=4096, engine="llama-cpp")
    plainly = estimate(
        "meta-llama/Llama-3.1-8B-Instruct",
        gpu="rtx-4090",
        context_tokens=4096,
        engine="llama-cpp",
        weights="q5_k_m",
    )
    assert by_name_.weight_bytes_per_gpu == plainly.weight_bytes_per_gpu


def test_one_layout_has_one_name() -> None:
    assert CATALOG.weight_format("mlx-4bit").name == CATALOG.weight_formats["mlx4-g64"].name == "mlx4-g64"
