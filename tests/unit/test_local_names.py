"""Names of local models as people have them: GGUF repositories, files elsewhere, Ollama's library, whole commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from brought import GGUF_KEYS, Q6_K, gguf_header, gguf_tensors
from fake_hub import SHA, FakeHub, serve

from kvreport.accounting.engines.llama_cpp.quantize import is_mix
from kvreport.accounting.weights import parameters_by_component
from kvreport.architectures.hub import GGUF_STEP_BYTES, fetch_gguf, gguf_parts, kept_gguf
from kvreport.catalog.load import open_catalog
from kvreport.catalog.local_architectures import OllamaNames, PublishedFile, PublishersMixes
from kvreport.cli import main
from kvreport.cli.server_command import without_server_command
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.conclusion import headline
from kvreport.estimation.home_answer import LocalEstimate
from kvreport.estimation.home_case import open_local
from kvreport.estimation.home_names import engine_of

CATALOG = open_catalog()
REPOSITORY = "some-org/Tiny-GGUF"
HEADER = gguf_header(GGUF_KEYS, gguf_tensors(1000, Q6_K))
DATA = b"\0" * (5 << 20)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    files = {
        REPOSITORY: {
            "Tiny-Q4_K_M.gguf": HEADER + DATA,
            "Tiny-UD-Q4_K_M.gguf": HEADER + DATA,
            "UD-Q4_K_XL/Tiny-UD-Q4_K_XL-00001-of-00002.gguf": HEADER + DATA,
            "UD-Q4_K_XL/Tiny-UD-Q4_K_XL-00002-of-00002.gguf": gguf_header({}, []) + DATA,
            "mmproj-F16.gguf": b"GGUF",
            "README.md": b"not wanted",
        },
        "some-org/Broken-GGUF": {"Broken-Q4_K_M.gguf": HEADER[:-40]},
    }
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve(FakeHub(files)) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        yield served


def asked(model: str, **options: object) -> LocalEstimate:
    found = estimate(model, gpu="rtx-4090", context_tokens=4096, **options)
    assert isinstance(found, LocalEstimate)
    return found


def test_the_header_of_a_repositorys_file_is_fetched_kept_and_found_again(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(HEADER)
    whole = asked(str(path), engine="llama-cpp")
    found = asked(f"{REPOSITORY}:UD-Q4_K_XL", fetch=True)
    assert found.weight_bytes_per_gpu == whole.weight_bytes_per_gpu
    assert found.case.mix == "file"
    (source,) = found.request.model.sources
    assert (source.revision, source.evidence) == (SHA, "verbatim")
    said = " ".join(found.request.assumptions)
    assert "Tiny-UD-Q4_K_XL-00001-of-00002.gguf" in said
    assert "before its tensors do" not in said
    assert found.explanation[-1].startswith("command: llama-server -hf some-org/Tiny-GGUF:UD-Q4_K_XL -c 4096")
    assert not any(name in path for path in hub.asked for name in ("mmproj", "README", "Tiny-Q4_K_M"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    again = asked(f"{REPOSITORY}:UD-Q4_K_XL")
    assert again.weight_bytes_per_gpu == found.weight_bytes_per_gpu


@pytest.mark.usefixtures("hub")
def test_only_the_header_is_kept() -> None:
    file = fetch_gguf(REPOSITORY)
    assert file.name == "Tiny-Q4_K_M.gguf"
    assert file.path.read_bytes() == HEADER
    assert kept_gguf(REPOSITORY) == file
    assert kept_gguf(REPOSITORY, "Q8_0") is None
    assert not list(file.path.parent.glob(".part-*"))


def test_a_header_longer_than_one_step_is_asked_for_in_growing_steps(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvreport.architectures.hub.GGUF_STEP_BYTES", len(HEADER) // 5)
    assert fetch_gguf(REPOSITORY, "q4_k_m").path.read_bytes() == HEADER
    assert sum("/resolve/" in path for path in hub.asked) == 4
    assert GGUF_STEP_BYTES == 4 << 20


@pytest.mark.usefixtures("hub")
def test_what_a_repository_lacks_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"no file for Q5_K_M; allowed: Q4_K_M, UD-Q4_K_M, UD-Q4_K_XL"):
        fetch_gguf(REPOSITORY, "Q5_K_M")
    with pytest.raises(InputError, match="without a whole header"):
        fetch_gguf("some-org/Broken-GGUF")
    with pytest.raises(InputError, match="no such repository"):
        fetch_gguf("some-org/Missing-GGUF")


@pytest.mark.parametrize(
    ("mix", "chosen"),
    [
        (None, "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("UD-Q4_K_M", "m-UD-Q4_K_M.gguf"),
        ("Q8_0", "Q8_0/m-Q8_0-00001-of-00002.gguf"),
        ("K_M", None),
        ("IQ1_S", None),
    ],
)
def test_a_file_is_chosen_as_llama_server_chooses(mix: str | None, chosen: str | None) -> None:
    files = [
        "m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf",
        "mmproj-m-Q8_0.gguf", "m.imatrix.gguf", "config.json",
    ]  # fmt: skip
    found = gguf_parts(files, mix)
    assert (found[0] if found else None) == chosen
    assert len(found) == (2 if mix == "Q8_0" else 1 if chosen else 0)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("hf.co/unsloth/gemma-3-27b-it-GGUF:Q4_K_M", "llama-cpp"),
        ("https://huggingface.co/unsloth/gemma-3-27b-it-GGUF", "llama-cpp"),
        ("llama3.1", "ollama"),
        ("llama3:latest", "ollama"),
        ("qwen3.6", "ollama"),
        # The catalog has a model of this name.
        ("glm-4.7-flash", None),
        ("Qwen3-8B", None),
    ],
)
def test_a_name_implies_its_engine(name: str, engine: str | None) -> None:
    assert engine_of(name, CATALOG).get("engine") == engine


@pytest.mark.parametrize(
    ("weights", "engine"), [(None, "ollama"), ("released", "ollama"), ("q8_0", "ollama"), ("awq", None)]
)
def test_a_format_that_only_servers_read_makes_no_name_of_ollamas(
    weights: str | None, engine: str | None
) -> None:
    assert engine_of("mistral-small", CATALOG, weights).get("engine") == engine
    assert engine_of("mistral-small:24b", CATALOG, weights).get("engine") == "ollama"


MIXES_OF_PUBLISHERS = PublishersMixes.need()


@pytest.mark.parametrize(
    "file", MIXES_OF_PUBLISHERS.files, ids=lambda file: f"{file.model}-{file.mix}-{file.gb}"
)
def test_a_published_file_lies_within_what_its_mix_says(file: PublishedFile) -> None:
    between = MIXES_OF_PUBLISHERS.range_of(file.mix)
    assert between is not None
    assert not (is_mix(file.mix) and not file.mix.startswith("UD-"))
    least, most = (
        sum(tensor.nbytes for tensor in open_local(CATALOG.model(file.model), mix, None)[0].tensors)
        for mix in (between.least, between.most)
    )
    assert least <= file.gb * 1e9 <= most
    # A range that says nothing would hold every file.
    assert most < least * 1.7
    assert file.url or file.title


def test_every_range_of_a_mix_is_of_mixes_that_the_quantizer_has() -> None:
    base = CATALOG.model("Qwen/Qwen3-32B")
    for between in MIXES_OF_PUBLISHERS.ranges.values():
        ends = [open_local(base, mix, None)[0].tensors for mix in (between.least, between.most)]
        assert sum(tensor.nbytes for tensor in ends[0]) < sum(tensor.nbytes for tensor in ends[1])


@pytest.mark.parametrize(
    "name",
    [
        "unsloth/Qwen3-32B-GGUF:UD-Q4_K_XL",
        "bartowski/Qwen_Qwen3-32B-GGUF:Q6_K_L",
        "unsloth/Qwen3-32B-GGUF:UD-Q4_K_M",
        "/models/Qwen3-32B-UD-Q3_K_XL.gguf",
    ],
)
def test_a_publishers_own_mix_is_a_range(name: str) -> None:
    answer = asked(name)
    mix = re.search(r"(?:UD-)?Q\d_K_\w+?(?=\.gguf|$)", name)
    assert mix is not None
    between = MIXES_OF_PUBLISHERS.range_of(mix[0])
    assert between is not None
    ends = [asked("Qwen/Qwen3-32B", engine="llama-cpp", weights=one) for one in (between.least, between.most)]
    assert answer.range_of("weight_bytes_per_gpu") == tuple(end.weight_bytes_per_gpu for end in ends)
    least, most = answer.range_of("max_concurrent_requests_by_memory")
    assert (least, most) == (
        ends[1].max_concurrent_requests_by_memory,
        ends[0].max_concurrent_requests_by_memory,
    )
    assert answer.to_dict()["by_name"]
    assert f"{mix[0]} by its name: " in answer.formats
    assert any("its publisher chose the type of every tensor" in text for text in answer.request.assumptions)


def test_a_range_decides_a_verdict_and_a_mix_of_no_bits_is_refused() -> None:
    # 17.07 to 20.58 GiB of weights in 23.5 GiB: four GiB of cache may fit, eight do not.
    row = {one.context_tokens: one.verdict for one in asked("unsloth/Qwen3-32B-GGUF:UD-Q4_K_XL").by_context}
    assert (row[16384], row[32768]) == ("may_fit", "cache_exceeds_pool")
    plain = asked("unsloth/Qwen3-32B-GGUF:Q4_K_M")
    assert not plain.by_name
    assert any("types are those of llama.cpp's quantizer for Q4_K_M" in t for t in plain.request.assumptions)


def test_a_repository_without_a_mix_has_the_usual_one() -> None:
    unsaid = asked("ggml-org/gpt-oss-20b-GGUF")
    assert unsaid.case.mix == "mxfp4"
    assert any("states no mix: MXFP4, as is usual" in text for text in unsaid.request.assumptions)


def test_a_file_elsewhere_is_read_by_its_name() -> None:
    found = asked("/models/Qwen3-32B-Q4_K_M.gguf")
    plain = asked("Qwen/Qwen3-32B", engine="llama-cpp", weights="q4_k_m")
    assert found.weight_bytes_per_gpu == plain.weight_bytes_per_gpu
    assert any(
        "is not here: by its name it is Qwen/Qwen3-32B in Q4_K_M" in t for t in found.request.assumptions
    )
    assert found.explanation[-1] == "command: llama-server -m /models/Qwen3-32B-Q4_K_M.gguf -c 4096"
    with pytest.raises(InputError, match="there is no such file"):
        asked("/models/some-unknown-thing-Q4_K_M.gguf")


def test_a_server_that_loads_encoders_by_itself_says_what_is_not_counted() -> None:
    for name in ("gemma3:27b", "unsloth/gemma-3-27b-it-GGUF:Q4_K_M"):
        assert any(text.startswith("text only: encoders") for text in asked(name).request.assumptions)
    plain = asked("google/gemma-3-27b-it", engine="llama-cpp", weights="q4_k_m")
    assert not any(text.startswith("text only") for text in plain.request.assumptions)


@pytest.mark.parametrize(
    "name", [name for name, held in OllamaNames.need().names.items() if held.size_gb is not None]
)
def test_the_bytes_of_a_name_are_those_that_ollamas_library_lists(name: str) -> None:
    """Listed sizes are rounded to two or three digits; one file is 3.5% larger than both quantizers make it."""
    held = OllamaNames.need().names[name]
    model = CATALOG.model(held.model)
    local, _ = open_local(model, held.format, None)
    text = sum(tensor.nbytes for tensor in local.tensors)
    found = parameters_by_component(model)
    # gemma3n's download holds no encoders.
    towers = 0 if model.architecture.startswith("Gemma3n") else 2 * sum(
        int(number) for part, number in found.items() if part in ("vision", "audio")
    )  # fmt: skip
    assert held.size_gb is not None
    digit = 1.0 if held.size_gb >= 10 else 0.1 if held.size_gb >= 1 else 0.001
    assert (text + towers) / 1e9 == pytest.approx(
        held.size_gb, abs=digit / 2 + (0.035 if name == "qwen3:8b" else 0.02) * held.size_gb
    )


def test_ollamas_own_quantizer_differs_where_its_source_says() -> None:
    """A table of embeddings per layer stays in 16 bits; latent projections have 8; linear attention has a table."""
    kinds = {}
    for name in ("google/gemma-4-E4B-it", "zai-org/GLM-4.7-Flash", "Qwen/Qwen3.5-35B-A3B"):
        local, _ = open_local(CATALOG.model(name), "ollama-q4_k_m", None)
        kinds[name] = {tensor.role: tensor.kind.name for tensor in local.tensors if tensor.kind is not None}
    assert kinds["google/gemma-4-E4B-it"]["per_layer_token_embd"] == "bf16"
    assert (
        kinds["zai-org/GLM-4.7-Flash"]["attn_q_a"]
        == kinds["zai-org/GLM-4.7-Flash"]["attn_kv_a_mqa"]
        == "q8_0"
    )
    assert kinds["Qwen/Qwen3.5-35B-A3B"]["ffn_down_exps"] == "q6_k"
    assert kinds["Qwen/Qwen3.5-35B-A3B"]["attn_qkv"] == "q4_k"


@pytest.mark.parametrize(
    ("pasted", "ours"),
    [
        (
            "llama-server -hf org/M-GGUF:Q4_K_M -c 8192 -np 2",
            "org/M-GGUF:Q4_K_M --engine llama-cpp -c 8192 -np 2 --fit",
        ),
        ("./build/bin/llama-server -m m.gguf -fa --mlock", "m.gguf --engine llama-cpp -fa on --mlock --fit"),
        ("llama-cli -hf org/M-GGUF -hff M-UD-Q2_K_XL.gguf", "org/M-GGUF:UD-Q2_K_XL --engine llama-cpp --fit"),
        (
            "llama-cli -hf org/M-GGUF -hff Q8_0/M-Q8_0-00001-of-00002.gguf",
            "org/M-GGUF:Q8_0 --engine llama-cpp --fit",
        ),
        (
            "docker run --gpus all -p 80:80 ghcr.io/ggml-org/llama.cpp:server-cuda -hf org/M-GGUF -c 0",
            "org/M-GGUF --engine llama-cpp --fit",
        ),
        (
            "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 ollama run llama3.1:8b",
            "llama3.1:8b --engine ollama --context 8192 --parallel 2 --kv q8_0",
        ),
        ("OLLAMA_FLASH_ATTENTION=0 ollama serve & ollama run m", "m --engine ollama --flash-attn off"),
    ],
)
def test_commands_of_local_engines_are_read(pasted: str, ours: str) -> None:
    assert without_server_command([pasted]) == ours.split()
    if "&" not in pasted:
        assert without_server_command(pasted.split()) == ours.split()


@pytest.mark.parametrize("words", [["llama-server", "-c", "8192"], ["ollama", "serve"]])
def test_a_local_command_without_a_model_is_one_sentence(words: list[str]) -> None:
    with pytest.raises(InputError, match="found no model"):
        without_server_command(words)


def test_a_pasted_command_is_answered_word_by_word(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the shell has split it: the parser of all commands leaves its flags alone."""
    words = shlex.split("llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 32768 -np 4 --host localhost")
    assert main(["estimate", "--gpu", "rtx-4090", *words]) == 0
    told = capsys.readouterr()
    assert "context 8,192 tokens: what each of 4 slots has of the 32,768 cells of -c" in told.out
    assert told.out.startswith("4 requests at 8K fit on one GeForce RTX 4090, limited by --parallel")
    assert "left out, because they change no memory: --host" in told.err
    sglang = ["sglang", "serve", "--model-path", "Qwen/Qwen3-8B", "--mem-fraction-static", "0.8"]
    assert main(["estimate", "--gpu", "h100", *sglang]) == 0


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--json", "--format json"),
        ("--max-len", "--context"),
        ("--quant", "--weights"),
        ("--kv-dtype", "--kv"),
    ],
)
def test_usual_flags_of_other_tools_are_answered_with_ours(
    flag: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", "Qwen/Qwen3-8B", "--gpu", "l4", flag, "2"]) == 2
    assert f"instead: {hint}" in capsys.readouterr().err


def test_ollamas_own_types_give_the_printed_buffers() -> None:
    """``qwen3.5:9b`` as Ollama 0.34.2 loaded it: buffers of device and host as its log prints them (log-401)."""
    found = asked("qwen3.5:9b", parallel=1)
    assert found.local.devices[0].weights / 2**20 == pytest.approx(4717.38, abs=0.005)
    assert found.local.host.weights / 2**20 == pytest.approx(545.63, abs=0.01)


@pytest.mark.parametrize(
    ("name", "base", "mix"),
    [
        ("Qwen/Qwen3-8B-Q8_0-GGUF", "Qwen/Qwen3-8B", "q8_0"),
        ("google/gemma-4-E4B-it-Q4_0-GGUF", "google/gemma-4-E4B-it", "q4_0"),
    ],
)
def test_a_mix_may_stand_before_the_word_gguf(name: str, base: str, mix: str) -> None:
    answer = estimate(name, gpu="rtx-4090", context_tokens=8192)
    plain = estimate(base, gpu="rtx-4090", context_tokens=8192, engine="llama-cpp", weights=mix)
    assert isinstance(answer, LocalEstimate)
    assert isinstance(plain, LocalEstimate)
    assert answer.request.model == plain.request.model
    assert answer.budget == plain.budget


@pytest.mark.parametrize(
    "name",
    [
        "google/gemma-3-27b-it-qat-q4_0-gguf",
        "gemma3:27b-it-qat",
    ],
)
def test_a_copy_trained_for_q4_0_is_a_range_over_its_tables(name: str) -> None:
    """Published: 17.2 GB with tables in F16, of Google's file, and 15.6 GB with Q6_K (see ``QAT_MIX``)."""
    found = estimate(name, gpu="rtx-4090", context_tokens=8192)
    assert isinstance(found, LocalEstimate)
    least, most = found.range_of("weight_bytes_per_gpu")
    assert least / 1e9 == pytest.approx(15.6, abs=0.05)
    assert most / 1e9 == pytest.approx(17.2, abs=0.05)
    assert found.request.model.id == "google/gemma-3-27b-it"
    assert "weights Q4_0 by its name: 14.49 to 16.04 GiB per GPU" in found.formats
    assert any("may keep its embedding in F16" in text for text in found.request.assumptions)
    assert name in (found.command or "")


def test_the_narrow_end_of_a_copy_trained_for_q4_0_is_the_quantizers() -> None:
    found = estimate("google/gemma-4-E4B-it-qat-q4_0-gguf", gpu="rtx-4090", context_tokens=8192)
    plain = estimate(
        "google/gemma-4-E4B-it", gpu="rtx-4090", context_tokens=8192, engine="llama-cpp", weights="q4_0"
    )
    assert found.optimistic is not None
    assert found.optimistic.budget == plain.budget
    assert found.weight_bytes_per_gpu > plain.weight_bytes_per_gpu


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        ("estimate gpt-oss-120b --gpu strix-halo --context 64K", "With llama.cpp (what Ryzen AI Max+ 395"),
        (
            "estimate qwen3-8b --gpu rtx-4090 --weights q4_k_m --context 8K",
            "With llama.cpp (Q4_K_M is a GGUF mix): ",
        ),
        ("size qwen3-8b --gpu m4-24 --context 8K", "With llama.cpp (what M4 24GB is usually run with): "),
        ("size qwen3-8b --gpu rtx-4090 --weights q6_k --context 8K", "With llama.cpp (Q6_K is a GGUF mix): "),
    ],
)
def test_a_question_of_a_home_is_answered_for_llama_cpp(
    words: str, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no engine is named, and the first line says so."""
    assert main(words.split()) == 0
    assert capsys.readouterr().out.startswith(begins)


@pytest.mark.parametrize(
    "words",
    [
        "estimate qwen3-8b --gpu rtx-4090 --context 8K",
        "estimate qwen3-8b --gpu rtx-4090 --weights bf16 --context 8K",
        "estimate qwen3-8b --gpu ryzen-ai-max-395 --max-seqs 8 --context 8K",
        "estimate qwen3-8b --gpu m4-24 --engine vllm --context 8K",
        "estimate qwen3-8b --gpu rtx-4090 --engine vllm --weights q4_k_m --context 8K",
    ],
)
def test_a_servers_question_stays_one(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A card that serves, a checkpoint's format, a flag of a server and a named engine keep vLLM."""
    assert main(words.split()) == 0
    assert "vLLM 0.33" in capsys.readouterr().out.splitlines()[1]


def test_the_engine_that_was_taken_is_an_assumption() -> None:
    """Python and JSON say it, too."""
    found = estimate("qwen3-8b", gpu="m4-24", context_tokens=8192)
    assert isinstance(found, LocalEstimate)
    assert found.request.assumptions[0].startswith("engine llama-cpp: what M4 24GB is usually run with")


def test_a_bare_name_of_ollamas_library_says_why_it_is_answered_for_ollama() -> None:
    """A tag says it by itself; a bare name may have been meant for a server."""
    bare = estimate("mixtral", gpu="2xa100")
    assert headline(bare).startswith("With Ollama ('mixtral' is a name of its library): ")
    tagged = estimate("mixtral:8x7b", gpu="2xa100")
    assert not headline(tagged).startswith("With")
    assert tagged.max_concurrent_requests == bare.max_concurrent_requests


@pytest.mark.parametrize(
    "name",
    [
        "registry.ollama.ai/library/qwen3:8b",
        "ollama/qwen3:8b",
        "ollama_chat/qwen3:8b",
        "ollama:qwen3:8b",
        "library/qwen3:8b",
        "https://ollama.com/library/qwen3:8b",
    ],
)
def test_a_name_of_ollamas_registry_is_answered_for_ollama(name: str) -> None:
    """Six ways to write one name; a server engine reads none of its files."""
    found, plain = (estimate(one, gpu="rtx-4090").to_dict() for one in (name, "qwen3:8b"))
    assert (
        (found["engine"], found["model"]) == (plain["engine"], plain["model"]) == ("ollama", "Qwen/Qwen3-8B")
    )


@pytest.mark.parametrize("name", ["ai/qwen3:8B", "docker.io/ai/qwen3:8b", "ai/gpt-oss"])
def test_a_name_of_docker_is_answered_for_llama_cpp(name: str) -> None:
    assert engine_of(name, CATALOG) == {"engine": "llama-cpp"}


def test_an_organization_that_is_called_so_is_not_dockers() -> None:
    assert engine_of("ai/nothing-that-ollama-has", CATALOG) == {}
