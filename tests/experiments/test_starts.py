"""Starts of an engine, with a made-up engine that prints what vLLM 0.26.0 printed on an H100 (own-001)."""

import pytest

from experiments import models, starts

ENGINE = """
import json, os, pathlib

class LLM:
    def __init__(self, model, **flags):
        config = json.loads((pathlib.Path(model) / "config.json").read_text())
        if os.environ.get("REFUSED"):
            raise RuntimeError("no device")
        assert config["hidden_size"] == 4096
        assert flags == {"load_format": "dummy", "skip_tokenizer_init": True, "max_num_batched_tokens": 8192,
                         "max_num_seqs": 1024, "max_model_len": 8192}
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        print(f"non-default args: {dict(flags, model=model)}")
        print("Initializing a V1 LLM engine (v0.26.0) with config: model='x', tensor_parallel_size=1")
        print("Model loading took 15.0 GiB and 1.446134 seconds")
        print("Available KV cache memory: 56.51 GiB")
        print("GPU KV cache size: 462,944 tokens")
        print("The current --gpu-memory-utilization=0.9200 is equivalent to")
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "vllm.py").write_text(ENGINE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return tmp_path / "logs"


def test_a_start_keeps_its_log_and_stands_beside_what_we_compute(engine, capsys):
    assert starts.check(["llama-8b"], engine, "H100") == 0
    said = capsys.readouterr().out
    assert "weights on a device: log 15.00 GiB, we compute 14.99 GiB" in said
    assert "cache size: log 462,944, we compute 462,944" in said
    assert "Available KV cache memory: 56.51 GiB" in (engine / "llama-8b.log").read_text()


def test_a_start_that_fails_is_said_and_keeps_its_log(engine, monkeypatch, capsys):
    monkeypatch.setenv("REFUSED", "1")
    assert starts.check(["llama-8b"], engine, "H100") == 1
    assert "llama-8b: stopped with 1" in capsys.readouterr().out
    assert "no device" in (engine / "llama-8b.log").read_text()


def test_an_unknown_start_names_the_known_ones(engine):
    with pytest.raises(SystemExit, match="found 'llama-9b'; allowed: llama-8b, "):
        starts.check(["llama-9b"], engine, "H100")


def test_every_start_has_a_config():
    assert {one.model for one in starts.STARTS} <= set(models.known())


def test_a_start_may_change_keys_of_its_config():
    one = next(one for one in starts.STARTS if one.name == "deepseek-six-layers")
    whole, changed = models.subject(one.model).config, starts.config_of(one)
    assert (whole["num_hidden_layers"], changed["num_hidden_layers"]) == (61, 6)
    assert changed["num_attention_heads"] == whole["num_attention_heads"] == 128
    assert "quantization_config" not in changed
