"""The script that reads servers' flags from the source of their parsers."""

from __future__ import annotations

from pathlib import Path

import yaml

from scripts import read_server_flags as script

ROOT = Path(__file__).parents[2]


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def read(server: str, root: Path) -> dict[str, str]:
    return {" ".join(flag.names): flag.takes for flag in script.flags(server, root)}


VLLM = {
    "config/cache.py": "class CacheConfig:\n    size: int = 1\n    prefix: bool | None = None\n    skip: list[str] = []\n",
    "engine/arg_utils.py": (
        "def add(parser):\n    cache = get_kwargs(CacheConfig)\n    g = parser.add_argument_group()\n"
        "    g.add_argument('--size', '-s', **cache['size'])\n    g.add_argument('--prefix', **{**cache['prefix'], 'default': None})\n"
        "    g.add_argument('--skip', **cache['skip'])\n    g.add_argument('--eager', action='store_true')\n"
    ),
    "entrypoints/common/cli_args.py": "class FrontendArgs:\n    chat_template: str | None = None\n    token: bool | str | None = None\n",
}
SGLANG = {
    "srt/server_args.py": "def add(parser):\n    parser.add_argument('--old', action='store_true')\n",
    "srt/arg_groups/fields/x.py": (
        "class X:\n    tp_size: A[int, Arg(help='x', aliases=['--tensor-parallel-size'])] = 1\n    on: A[bool, 'y'] = False\n"
        "    ports: A[Optional[List[int]], Arg(help='z', nargs='+')] = None\n    hidden: A[int, Arg(no_cli=True)] = 1\n"
    ),
}
LLAMA = {
    "common/arg.cpp": (
        'add_opt(common_arg(\n    // "-not" a flag\n    {"-n", "--number"}, "N",\n    string_format("a, b (%d)", 3),\n    [](int v) {}\n));\n'
        'add_opt(common_arg(\n    {"-kvo", "--kv-offload"},\n    {"-nkvo", "--no-kv-offload"},\n    "help",\n    [](bool v) {}\n));\n'
        'add_opt(common_arg({"--two"}, "A", "B", "help", [](x) {}));\n'
    )
}


def test_each_parser_s_flags_are_read_with_what_they_take(tmp_path: Path) -> None:
    assert read("vllm", written(tmp_path / "v", VLLM)) == {
        "--chat-template": "1", "--eager": "0", "--prefix": "0", "--size -s": "1", "--skip": "+", "--token": "?",
    }  # fmt: skip
    assert read("sglang", written(tmp_path / "s", SGLANG)) == {
        "--old": "0", "--on": "0", "--ports": "+", "--tp-size --tensor-parallel-size": "1",
    }  # fmt: skip
    assert read("llama_cpp", written(tmp_path / "l", LLAMA)) == {
        "--number -n": "1", "--kv-offload -kvo": "0", "--no-kv-offload -nkvo": "0", "--two": "2",
    }  # fmt: skip


def test_a_new_flag_is_of_unknown_effect_and_a_gone_one_is_named(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    groups = [
        {"effect": "none", "read": "x", "flags": {"--size": "0", "--gone": "1"}},
        {"effect": "none", "until": "0.1", "flags": {"--older": "1"}},
    ]
    listed = tmp_path / "vllm.yaml"
    listed.write_text(script.written_out({"family": "vllm", "groups": groups}), encoding="utf-8")
    assert script.hold(listed, script.flags("vllm", written(tmp_path / "v", VLLM))) == 5
    first, second, unknown = yaml.safe_load(listed.read_text(encoding="utf-8"))["groups"]
    assert first["flags"] == {"--size -s": "1", "--gone": "1"}
    assert second["flags"] == {"--older": "1"}
    assert unknown["effect"] == "unknown"
    assert set(unknown["flags"]) == {"--chat-template", "--eager", "--prefix", "--skip", "--token"}
    assert "gone from the parser: --gone\n" in capsys.readouterr().err


def test_what_is_listed_is_written_as_the_script_writes_it() -> None:
    for path in sorted((ROOT / "data/flags").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        assert script.written_out(yaml.safe_load(text)) == text, path.name
