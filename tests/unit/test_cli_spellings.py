"""Flags as servers spell them, and what the command line says of arguments that it does not have."""

from __future__ import annotations

import json
import re

import pytest
from fuzzing import thinned

from kvreport.catalog.load import open_catalog
from kvreport.catalog.release import version_number
from kvreport.catalog.server_flags import FAMILIES, load_server_flags
from kvreport.cli import main, parser, spellings
from kvreport.cli.query_options import query_values
from kvreport.cli.spellings import flags_of, in_our_spelling
from kvreport.errors import InputError, ServerRefusalError
from kvreport.estimation import estimate
from kvreport.query import options
from kvreport.resources import data_dir

ESTIMATE = ("estimate", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h100", "--format", "json")


def answered(capsys, *words):
    assert main([*ESTIMATE, *words]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


OURS = {
    "vllm": "--tensor-parallel 2 --context 8192 --utilization 0.9 --kv fp8 --max-seqs 64 --max-batched-tokens 4096 "
    "--eager --no-prefix-caching",
    "sglang": "--engine sglang --tp 2 --context 8K --utilization 0.8 --max-seqs 64",
}
THEIRS = {
    "vllm": "-tp 2 --max_model_len=8192 --gpu-memory-utilization=0.9 --kv-cache-dtype fp8 --max-num-seqs 64 "
    "--max-num-batched-tokens 4096 --enforce-eager --no-enable-prefix-caching",
    "sglang": "--engine=sglang --tp-size 2 --context-length 8192 --mem-fraction-static 0.8 --max-running-requests 64",
}


@pytest.mark.parametrize("server", OURS)
def test_flags_of_a_server_mean_what_they_mean_there(capsys, server):
    assert answered(capsys, *OURS[server].split()) == answered(capsys, *THEIRS[server].split())


def test_a_small_k_is_decimal_after_the_flag_of_vllm_alone():
    flags = ["--context"]
    assert in_our_spelling(["--max-model-len", "32k"], flags) == ["--context", "32000"]
    assert in_our_spelling(["--max-model-len", "1.5k"], flags) == ["--context", "1500"]
    assert in_our_spelling(["--max-model-len=32K"], flags) == ["--context=32K"]
    assert in_our_spelling(["--context", "32k"], flags) == ["--context", "32k"]


def test_every_flag_that_a_server_s_flag_stands_for_is_one_of_ours():
    own = {flag for option in options() for flag in option.flags}
    own |= {f"--no-{option.name.replace('_', '-')}" for option in options() if option.kind == "tristate"}
    for server in load_server_flags(data_dir()).values():
        written = [one.ours for one in server.groups if one.ours]
        written += [words for one in server.groups for words in one.values.values() if words]
        assert {words.partition("=")[0] for words in written} <= own, server.family


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mem-fraction-static", "1", "--engine=sglang"), ("found 1;", "less than 1, because graphs")),
        (("--mem-fraction-static", "0.8"), ("a flag of SGLang", "the rules of vLLM", "--utilization")),
        (
            ("--engine", "sglang", "--max-model-len", "8K"),
            ("a flag of vLLM", "the rules of SGLang", "--context"),
        ),
        (("--contxt", "8K"), ("'--contxt'", "did you mean --context")),
        (("--gpus", "2"), ("'--gpus'", "--gpu")),
        (("--concurrent", "4"), ("'--concurrent'", "kvreport size MODEL --concurrent")),
        (("--ep", "8"), ("'--ep'", "instead: --expert-parallel, without a number")),
        (("--ctx-size", "4096"), ("ctx-size", "with --engine llama-cpp")),
        (("--max-modle-len", "8K"), ("did you mean --max-model-len, a flag of vllm serve?",)),
        (("--qzx", "3", "--contxt", "8K"), ("'--qzx'", "see kvreport", "'--contxt'", "--context")),
        (("-c", "4096"), ("-c: not an option here", "--context TOKENS for each request")),
        (("--count", "4"), ("'--count'", "--gpu 4xNAME")),
        (("--qzx",), ("'--qzx'", "see kvreport estimate --help")),
    ],
)
def test_an_option_that_a_command_does_not_have_is_answered_with_what_it_has(capsys, words, said):
    told = refused(capsys, *ESTIMATE, *words)
    assert all(part in told for part in said), told


@pytest.mark.parametrize("flag", ["--held-by-others", "--engines-per-gpu"])
def test_a_gpu_that_others_use_too_is_answered_with_the_way_to_its_share(capsys, flag):
    told = refused(capsys, "size", "qwen/qwen3-8b", "--gpu", "h100", "--context", "8K", flag, "2")
    assert f"'{flag}': not an option of kvreport size; instead: kvreport estimate" in told
    assert "--utilization" in told


def test_the_share_that_others_leave_can_be_sized_with(capsys):
    asked = ["qwen/qwen3-8b", "--gpu", "h100", "--context", "8K"]
    assert main(["estimate", *asked, "--engines-per-gpu", "2"]) == 0
    share = capsys.readouterr().out.split("--gpu-memory-utilization ")[1].split()[0]
    assert main(["size", *asked, "--concurrent", "8", "--utilization", share, "--format", "json"]) == 0
    sized = json.loads(capsys.readouterr().out)["deployments"][0]
    told = ["--max-seqs", str(sized["users_per_replica"])]
    assert main(["estimate", *asked, *told, "--engines-per-gpu", "2", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["max_concurrent_requests"] == sized["users_held_by_memory"]


def test_flags_that_change_no_memory_are_left_out_and_named(capsys):
    """A command is pasted as it is: nothing of it is passed over without a word."""
    own = [*ESTIMATE]
    assert main(own) == 0
    plain = capsys.readouterr().out
    pasted = "--trust-remote-code --port 8000 --served_model_name=mine --tool-call-parser hermes --enable-auto-tool-choice"
    assert main([own[0], *pasted.split()[:3], *own[1:], *pasted.split()[3:]]) == 0
    said = capsys.readouterr()
    assert said.out == plain
    assert (
        "--trust-remote-code, --port, --served-model-name, --tool-call-parser, --enable-auto-tool-choice"
        in said.err
    )


FLAGS = [
    (family, name, flag)
    for family, server in load_server_flags(data_dir()).items()
    for name, flag in server.spellings()
]
READ_WHOLE = {
    "--speculative-config": '{"method":"mtp","num_speculative_tokens":2}', "-sc": '{"method":"mtp","num_speculative_tokens":2}',
    "--spec-method": "mtp", "--spec-tokens": "1", "--speculative-algorithm": "EAGLE", "--speculative-algo": "EAGLE", "--speculative-eagle-topk": "1",
    "--speculative-draft-model-path": "m", "--speculative-draft-model": "m", "--spec-model": "m", "--fit": "off", "-fit": "off",
}  # fmt: skip
"""Values of flags that say a draft, or that are not the default; a number elsewhere."""


def pasted(family, *words):
    command = {"sglang": "python -m sglang.launch_server --model-path", "llama_cpp": "llama-server -m"}.get(
        family
    )
    command = command or {"mlx": "mlx_lm.server --model"}.get(
        family, f"{load_server_flags(data_dir())[family].command}"
    )
    return [*command.split(), "org/m", *words]


OF_MODELS = ("-m", "--model", "--model-path", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file")
ALONE = {
    "vllm": ("vllm serve meta-llama/Llama-3.1-8B-Instruct", "h100"),
    "sglang": ("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct", "h100"),
    "tensorrt_llm": ("trtllm-serve meta-llama/Llama-3.1-8B-Instruct", "h100"),
    "llama_cpp": ("llama-server -hf HuggingFaceTB/SmolLM-360M-Instruct-GGUF:Q8_0", "rtx-4090"),
    "mlx": ("mlx_lm.server --model mlx-community/Llama-3.1-8B-Instruct-4bit", "m4-max-128"),
}
TAKEN = {
    "--kv-cache-dtype": "fp8", "--quantization": "fp8", "--limit-mm-per-prompt": "image=1", "--override-tensor": "x=CPU", "--fit": "on",
    "--speculative-config": '{"method":"ngram","num_speculative_tokens":2}', "--cache-type-k": "q8_0", "--cache-type-v": "q8_0",
} | dict.fromkeys(("--spec-model", "--draft-model", "--speculative-draft-model-path"), "meta-llama/Llama-3.2-1B") | dict.fromkeys(
    ("--spec-draft-hf", "--spec-draft-model"), "HuggingFaceTB/SmolLM-360M-Instruct"
) | dict.fromkeys(("--hf-overrides", "--json-model-override-args"), '{"max_position_embeddings": 8192}')  # fmt: skip
"""Values of the flags that take no number; of a choice, its first."""
REFUSED_ALONE = {
    ("vllm", "--spec-tokens"),
    ("vllm", "--spec-method"),
    ("vllm", "--enable-expert-parallel"),
    ("vllm", "-ep"),
}
"""Halves of a pair, and what a model without experts refuses (``config/speculative.py``, ``config/model.py`` of vLLM 0.33)."""


@pytest.mark.parametrize("family", load_server_flags(data_dir()))
def test_every_flag_of_every_recorded_parser_alone_is_answered_or_refused_as_the_server_does(family, capsys):
    own = {flag: option for option in options() for flag in option.flags}
    catalog, answered_, refused_, stopped = open_catalog(), set(), set(), []
    command, gpu = ALONE[family]
    asked = [one for one in FLAGS if one[0] == family and one[1] not in OF_MODELS]
    refused = [one for one in asked if one[:2] in REFUSED_ALONE]
    for _, name, flag in [*thinned(asked, 4), *refused]:
        option = own.get((flag.group.ours or flag.name).partition("=")[0])
        value = "0.8" if option is not None and option.kind == "share" else "1"
        value = option.choices[0] if option is not None and option.choices else value
        words = [*command.split(), name]
        words += [TAKEN.get(flag.name, value)] * {"0": 0, "2": 2}.get(flag.takes, 1)
        try:
            given = parser().parse_args(["estimate", *words, "--gpu", gpu])
            given.not_followed = []
            if repr(given) not in answered_:
                estimate(given.model, catalog=catalog, **query_values(given))
            answered_.add(repr(given))
        except ServerRefusalError:
            refused_.add((family, name))
        except InputError as error:
            stopped.append((name, str(error)))
    assert stopped == []
    assert refused_ == {one for one in REFUSED_ALONE if one[0] == family}
    capsys.readouterr()


TERMS = {(family, flag.group.changes): flag for family, _, flag in FLAGS if flag.group.effect == "changes"}


@pytest.mark.parametrize(("family", "term"), TERMS)
def test_nothing_surely_fits_where_a_flag_changes_memory_by_nobody_knows_how_much(family, term, capsys):
    """One flag of each term: the answer said ``fits``, and that its band does not cover the term."""
    flag, (command, gpu) = TERMS[family, term], ALONE[family]
    words = [*command.split(), flag.name, *["1"] * {"0": 0, "2": 2}.get(flag.takes, 1), "--gpu", gpu]
    assert main(["estimate", *words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if term in found["uncertainty_unknown"]:
        assert found["verdict"] == "tight"
        assert "fits" not in {row["verdict"] for row in found["by_context"]}
        assert term in found["verdict_reason"]
    else:  # without the flag that it belongs to it has no effect
        assert flag.group.needs, flag.name


FOLLOWED = {
    (family, flag.group.changes): flag
    for family, _, flag in FLAGS
    if flag.group.effect == "followed" and flag.group.until is None
}


@pytest.mark.parametrize(("family", "term"), FOLLOWED)
def test_size_follows_or_names_what_only_estimate_follows(family, term, capsys, monkeypatch):
    """``size vllm serve ... --enforce-eager`` ended with "vllm serve has no such flag and does not start"."""
    flag, (command, gpu) = FOLLOWED[family, term], ALONE[family]
    written = [flag.name, *[TAKEN.get(flag.name, "1")] * {"0": 0, "2": 2}.get(flag.takes, 1)]
    monkeypatch.setattr("kvreport.cli.size.run", lambda _: 0)  # its words are read
    main(["size", *command.split(), *written, "--concurrent", "1", "--gpu", gpu])
    assert not re.search("not an option|has no such flag", capsys.readouterr().err)


def test_size_is_as_unsure_as_estimate_where_a_flag_is_not_followed(capsys):
    """``size`` said ``fits`` beside a term that its error band does not cover."""
    for flags, terms, verdict in (([], [], "fits"), (["--enforce-eager"], ["graphs"], "tight")):
        words = ["vllm", "serve", "Qwen/Qwen3-8B", *flags, "--gpu", "h100", "--context", "4K"]
        assert main(["size", *words, "--concurrent", "1", "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["uncertainty_unknown"] == terms
        assert {one["verdict"] for one in found["deployments"]} == {verdict}
        assert [one["flag"] for one in found["not_followed"]] == flags
    assert main(["size", *words, "--concurrent", "1"]) == 0
    assert "error band does not cover what this changes of: graphs" in capsys.readouterr().out


EARLIER = [one for one in FLAGS if one[2].group.until is not None]


@pytest.mark.parametrize(("family", "name", "flag"), EARLIER, ids=[name for _, name, _ in EARLIER])
def test_a_flag_that_later_parsers_lack_is_named_or_refused_under_them(family, name, flag, capsys):
    """``--rope-scaling`` of vLLM 0.11 was followed under 0.33, whose server does not start with it."""
    command = next(action for action in parser()._actions if action.choices and "estimate" in action.choices)
    own, server = flags_of(command.choices["estimate"]), load_server_flags(data_dir())[family]
    written = [name, *[READ_WHOLE.get(name, "1")] * {"0": 0, "2": 2}.get(flag.takes, 1)]
    engine, until = family.replace("_", "-"), flag.group.until

    def named(release):
        stated = ["--engine", f"{engine}@{release}"] if release else []
        made = in_our_spelling([*stated, *pasted(family, *written)], own)
        capsys.readouterr()
        return any("refuses it" in word for word in made)

    assert named("")
    if version_number(until):
        assert not named(until)
        with pytest.raises(ServerRefusalError, match=f"{name}: .*has no such flag .*{engine}@{until}"):
            named(server.release)


def outcomes(family, name, flag, own, capsys):
    """What becomes of a flag with each of a few values: other words, a name of what is not followed, or a refusal."""
    drafts = [] if "spec" not in name or name in READ_WHOLE else ["--speculative-algorithm", "EAGLE"]
    met = set()
    for value in (READ_WHOLE.get(name, "1"), "2", "7", "true"):
        written = [name, *[value] * {"0": 0, "2": 2}.get(flag.takes, 1)]
        if drafts and family != "sglang":
            drafts = ["--spec-method", "mtp", "--spec-tokens", "3"] if family == "vllm" else []
        without = in_our_spelling(pasted(family, *drafts), own)
        capsys.readouterr()
        try:
            made = in_our_spelling(pasted(family, *written, *drafts), own)
        except InputError:
            met.add("refused")
            continue
        said = capsys.readouterr().err
        met.add("changed" if made != without else "left out" if "change no memory" in said else "silent")
        if "silent" not in met:
            break
    return met


def test_no_flag_of_any_server_is_passed_over_without_a_word(capsys):
    """Each flag of each server makes other words, is named as not followed or as without effect, or is refused.

    A value may be the server's default, and change nothing; never all of them.
    """
    command = next(action for action in parser()._actions if action.choices and "estimate" in action.choices)
    own = flags_of(command.choices["estimate"])
    silent = []
    for family, name, flag in FLAGS:
        if name in OF_MODELS:
            continue
        met = outcomes(family, name, flag, own, capsys)
        silent += [] if met - {"silent"} else [(family, name)]
    assert silent == []


def test_a_flag_has_one_effect():
    for server in load_server_flags(data_dir()).values():
        names = [name for name, _ in server.spellings()]
        assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "vllm serve org/m --attention_config.backend=FLASHINFER",
            ("--attention-config.backend", "FLASHINFER"),
        ),
        ("vllm serve org/m -O3", ("-O", "3")),
        ("vllm serve org/m --no-enable-dbo", ("--no-enable-dbo", "")),
        ("vllm serve org/m --max-lora-rank 32", ("--max-lora-rank", "32")),
        ("mlx_lm.server --model org/m --num-draft-tokens 3", ("--num-draft-tokens", "3")),
        ("llama-server -m org/m --spec-draft-n-max 8", ("--spec-draft-n-max", "8")),
        (
            "python3 -m dynamo.vllm --model org/m --disaggregation-mode decode",
            ("--disaggregation-mode", "decode"),
        ),
        ("vllm serve org/m --compilation-config '{\"mode\": 3}'", ("--compilation-config", '{"mode": 3}')),
        ("vllm serve org/m --cudagraph-capture-sizes 1 2 4 --port 1", ("--cudagraph-capture-sizes", "1 2 4")),
        ("vllm serve org/m --all2all-backend naive", ("--all2all-backend", "naive")),
        ("sglang serve --model org/m --cuda-graph-max-bs 64", ("--cuda-graph-max-bs", "64")),
        ("llama-server -m org/m -sm tensor", ("-sm", "tensor")),
    ],
)
def test_a_flag_is_named_as_its_parser_takes_it(words, said, capsys):
    command = next(action for action in parser()._actions if action.choices and "estimate" in action.choices)
    made = in_our_spelling([words], flags_of(command.choices["estimate"]))
    [entry] = [json.loads(word.partition("=")[2]) for word in made if word.startswith("--not-followed=")]
    assert (entry["flag"], entry["value"]) == said
    assert entry["effect"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("vllm serve org/m --max-model-len auto", ""),
        ("vllm serve org/m --max_model_len=-1 --quantization modelopt", ""),
        ("vllm serve org/m --dtype float", "--dtype=float32"),
        ("vllm serve org/m --no-enable-prefix-caching --no-enforce-eager", "--no-prefix-caching"),
        ("vllm serve org/m --gpu-memory-utilization 0.9 --gpu-memory-utilization 0.8", "--utilization 0.8"),
        ("vllm serve org/m --limit-mm-per-prompt.image 2 --limit-mm-per-prompt.video 0",
         "--limit-mm-per-prompt=image=2 --limit-mm-per-prompt=video=0"),
        ("vllm serve org/m --tensor-parallel 2", "--tensor-parallel 2"),
        ("vllm serve org/m --max-model-len 25.6k --max-num-batched-tokens 8k", "--context 25600 --max-batched-tokens 8000"),
        ("vllm serve org/m --kv_cache_memory_bytes=10G", "--kv-cache-memory-bytes=10737418240"),
        ("vllm serve org/m --kv-cache-memory-bytes 10g --max-num-batched-tokens 8K", "--kv-cache-memory-bytes 10000000000 --max-batched-tokens 8K"),
        ("llama-server -m org/m -ngl all -fit off -c 4096", "--n-gpu-layers=999 -c 4096"),
        ("llama-server -m org/m -ngl -1 --fit on", "--fit"),
        ("llama-server -m org/m -fa 1 -c 8192", "--flash-attn=on -c 8192 --fit"),
        ("vllm serve org/m --gpu-memory-util 0.9 --max_num_batched_token=4096", "--utilization 0.9 --max-batched-tokens=4096"),
        ("trtllm-serve org/m --tp_size 8 --ep_size 8 --max_seq_len 4096",
         "--context 4096 --tensor-parallel 8 --expert-parallel"),
    ],
)  # fmt: skip
def test_values_are_read_as_the_server_s_parser_takes_them(words, ours, capsys):
    command = next(action for action in parser()._actions if action.choices and "estimate" in action.choices)
    made = in_our_spelling([words], flags_of(command.choices["estimate"]))
    assert made[3:] == ours.split()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ('{"image": 2, "video": 0}', {"image": 2, "video": 0}),
        ('{"image": {"count": 3, "width": 512}}', {"image": 3}),
        ("image=2", {"image": 2}),
    ],
)
def test_inputs_are_limited_as_the_server_spells_it(capsys, limit, found):
    words = ["estimate", "Qwen/Qwen3-VL-8B-Instruct", "--gpu", "l40s", "--context", "32K", "--format", "json"]
    assert main([*words, "--limit-mm-per-prompt", limit]) == 0
    told = json.loads(capsys.readouterr().out)["extras"]["encoder"]
    assert told["limits"] == found


@pytest.mark.parametrize(
    "limit", ['{"image": "many"}', '{"image": {"width": 5}}', "{image}", '{"image": true}']
)
def test_limits_that_are_no_numbers_are_refused(capsys, limit):
    told = refused(capsys, *ESTIMATE, "--limit-mm-per-prompt", limit)
    assert "limit-mm-per-prompt" in told
    assert "allowed: KIND=N" in told


def test_a_name_with_spaces_that_was_not_quoted(capsys):
    assert "quote a name with spaces" in refused(capsys, "estimate", "llama", "3.1", "8b", "--gpu", "h100")


def test_a_command_that_does_not_exist(capsys):
    assert "did you mean estimate?" in refused(capsys, "estimat", "llama-3.1-8b")


@pytest.mark.parametrize("flag", ["--rps", "--qps", "--request-rate"])
@pytest.mark.parametrize("command", [ESTIMATE, ("size", "qwen3-8b", "--gpu", "h100", "--context", "8K")])
def test_a_rate_of_requests_is_asked_of_size(capsys, command, flag):
    told = refused(capsys, *command, flag, "5")
    assert "instead: kvreport size MODEL --users N --requests-per-minute R --latency TIME" in told


def test_an_engine_s_flags_are_known_by_each_of_its_names():
    """``--engine llama.cpp@b9849`` and ``--engine trtllm`` had the flags of no server."""
    families = [one for one in open_catalog().engines.values() if one.family in FAMILIES]
    for engine in families:
        for name in (engine.name, *engine.aliases, f"{engine.name}@1.2", engine.label):
            assert spellings._server(["--engine", name])[0] == engine.family, name
            assert spellings._server([f"--engine={name.upper()}"])[0] == engine.family, name
    assert {engine.family for engine in families} == set(FAMILIES)


def test_adapters_of_sglang_are_those_of_its_own_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Its printed command was answered with one adapter of rank 16, and does not start without more."""

    def told(*words: str) -> str:
        assert main(["estimate", *words, "--gpu", "H100", "--context", "8K"]) == 0
        return capsys.readouterr().out

    first = told("Qwen/Qwen3-8B", "--engine", "sglang", "--max-loras", "8", "--max-lora-rank", "256")
    command = next(line for line in first.splitlines() if "sglang.launch_server" in line)
    assert "--enable-lora --max-loras-per-batch 8 --max-lora-rank 256" in command
    assert "add --lora-paths with yours, or --lora-target-modules" in first
    assert told(command.replace(" --context-length 8192", "")).splitlines()[0] == first.splitlines()[0]
    alone = told(
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --enable-lora --max-lora-rank 256"
    )
    assert alone.splitlines()[0] == first.splitlines()[0]
