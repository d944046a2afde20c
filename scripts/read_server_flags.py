"""Read the flags of a server from the source of its argument parser, without running it.

    python scripts/read_server_flags.py vllm ROOT_OF_THE_PACKAGE      # prints "flag also-written takes help"
    python scripts/read_server_flags.py vllm ROOT --into data/flags/vllm.yaml

ROOT is the unpacked package: the folder ``vllm``, ``sglang``, ``tensorrt_llm`` or ``mlx_lm`` of a wheel, or llama.cpp's
source. With ``--into`` the file's flags are held against the parser: flags that the file lacks are added to its group of
unknown effect, with a warning, for a person to read where they are used; flags that the parser no longer has are
named, to be moved to a group with the last release that had them; spellings and numbers of values are corrected.

What a flag takes: 0 no value, 1 a value, ? perhaps one, + one or more.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

SWITCHES = ("store_true", "store_false", "store_const", "version", "help", "count")


@dataclass(frozen=True)
class Flag:
    """One flag: its spellings, the long one first; what it takes; what its parser says of it."""

    names: tuple[str, ...]
    takes: str
    help: str = ""

    def __post_init__(self) -> None:
        ordered = sorted(self.names, key=lambda name: not name.startswith("--"))
        object.__setattr__(self, "names", tuple(dict.fromkeys(ordered)))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _text(node: ast.AST | None) -> str:
    return "" if node is None else ast.unparse(node)


def _said(node: ast.AST | None) -> str:
    """The texts of a help argument, in one line."""
    parts = (
        [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if node
        else []
    )
    return " ".join(" ".join(parts).split())


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {one.arg: one.value for one in call.keywords if one.arg}


def _takes(given: dict[str, ast.expr]) -> str:
    """What an argument of argparse takes, by its keywords."""
    action, nargs = _text(given.get("action")), _text(given.get("nargs")).strip("'\"")
    if any(switch in action for switch in SWITCHES) or "BooleanOptional" in action or "StoreTrue" in action:
        return "0"
    if "StoreConst" in action and "choices" not in given:
        return "0"
    return {"?": "?", "+": "+", "*": "+"}.get(nargs, "1")


def _by_type(annotation: str) -> str:
    """What vLLM's parser makes of a field's type (``engine/arg_utils.py::_compute_kwargs``)."""
    kinds = {kind.strip() for kind in re.sub(r"\[.*\]", "", annotation).split("|")}
    if kinds == {"bool", "str", "None"}:
        return "?"
    if "bool" in kinds:
        return "0"
    return "+" if kinds & {"list", "set"} or "tuple" in kinds else "1"


def _fields(paths: Iterable[Path]) -> dict[str, dict[str, tuple[str, str]]]:
    """Classes of configuration: each field's type and the text under it."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for path in paths:
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            own = found.setdefault(node.name, {})
            for base in node.bases:
                own.update(found.get(_text(base), {}))
            for one, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    told = _said(after) if isinstance(after, ast.Expr) else ""
                    own[one.target.id] = (_text(one.annotation), told)
    return found


def read_vllm(root: Path) -> Iterator[Flag]:
    """``vllm serve``: ``EngineArgs.add_cli_args``, the front end's fields, and what each parser adds."""
    configs = root / "config"
    files = sorted(configs.glob("*.py")) if configs.is_dir() else [root / "config.py"]
    front = next(
        path
        for path in (root / "entrypoints/common/cli_args.py", root / "entrypoints/openai/cli_args.py")
        if path.exists()
    )
    fields = _fields([*files, root / "engine/arg_utils.py", front])
    paths = [root / "engine/arg_utils.py", front, *sorted((root / "entrypoints/cli").glob("serve.py"))]
    for path in paths:
        tree = _tree(path)
        classes = {
            _text(node.targets[0]): _text(node.value.args[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and _text(node.value.func) == "get_kwargs"
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and _text(node.func).endswith(".add_argument")):
                continue
            names = tuple(
                one.value
                for one in node.args
                if isinstance(one, ast.Constant) and str(one.value).startswith("-")
            )
            if not names:
                continue
            given = _keywords(node)
            takes, told = _takes(given), _said(given.get("help"))
            for spread in (one.value for one in node.keywords if one.arg is None):
                field = next((one for one in ast.walk(spread) if isinstance(one, ast.Subscript)), None)
                if field is not None and isinstance(field.slice, ast.Constant):
                    kind, told = fields.get(classes.get(_text(field.value), ""), {}).get(
                        str(field.slice.value), ("str", told)
                    )
                    takes = takes if "action" in given or "nargs" in given else _by_type(kind)
            yield Flag(names, takes, told)
    text = front.read_text(encoding="utf-8")
    for name in ("BaseFrontendArgs", "FrontendArgs"):
        for field, (kind, told) in fields.get(name, {}).items():
            single = f'del frontend_kwargs["{field}"]["nargs"]' in text
            yield Flag((f"--{field.replace('_', '-')}",), "1" if single else _by_type(kind), told)


def read_sglang(root: Path) -> Iterator[Flag]:
    """``sglang.launch_server``: annotated fields of ``ServerArgs`` and its older ``add_argument`` calls."""
    groups = root / "srt/arg_groups/fields"
    for path in (*(sorted(groups.glob("*.py")) if groups.is_dir() else ()), root / "srt/server_args.py"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield from _annotated(node.target.id, node.annotation)
            elif isinstance(node, ast.Call) and _text(node.func) == "parser.add_argument":
                names = tuple(one.value for one in node.args if isinstance(one, ast.Constant))
                given = _keywords(node)
                yield Flag(names, _takes(given), _said(given.get("help")))


def _annotated(field: str, annotation: ast.expr) -> Iterator[Flag]:
    if not (isinstance(annotation, ast.Subscript) and _text(annotation.value) == "A"):
        return
    kind, *notes = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    arg = next((one for one in notes if isinstance(one, ast.Call) and _text(one.func) == "Arg"), None)
    given = _keywords(arg) if arg else {}
    if "no_cli" in given:
        return
    name = ast.literal_eval(given["cli_name"]) if "cli_name" in given else f"--{field.replace('_', '-')}"
    also = ast.literal_eval(given["aliases"]) if "aliases" in given else []
    takes = _takes(given)
    if takes == "1" and not given.keys() & {"nargs", "action", "type_parser", "choices"}:
        spelled = _text(kind)
        if spelled in {"bool", "Optional[bool]", "bool | None"}:
            takes = "0"
        elif re.search(r"\b[Ll]ist\[", spelled):
            takes = "+"
    yield Flag((name, *also), takes, _said(given.get("help") or next(iter(notes), None)))


def read_click(root: Path) -> Iterator[Flag]:
    """``trtllm-serve``: the options of click before the function ``serve``."""
    for node in ast.walk(_tree(root / "commands/serve.py")):
        if isinstance(node, ast.FunctionDef) and node.name == "serve":
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and _text(call.func) == "click.option":
                    given = _keywords(call)
                    names = (str(one.value) for one in call.args if isinstance(one, ast.Constant))
                    yield Flag(
                        tuple(name for name in names if name.startswith("-")),
                        "0" if "is_flag" in given else "1",
                        _said(given.get("help")),
                    )


def read_mlx(root: Path) -> Iterator[Flag]:
    """``mlx_lm.server``."""
    for node in ast.walk(_tree(root / "server.py")):
        if isinstance(node, ast.Call) and _text(node.func) == "parser.add_argument":
            given = _keywords(node)
            names = tuple(str(one.value) for one in node.args if isinstance(one, ast.Constant))
            yield Flag(names, _takes(given), _said(given.get("help")))


_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def read_llama(root: Path) -> Iterator[Flag]:
    """Programs of llama.cpp: ``common/arg.cpp::common_params_parser_init``."""
    text = (root / "common/arg.cpp").read_text(encoding="utf-8")
    text = re.sub(r"\n\s*//[^\n]*", "", text)
    for written in text.split("add_opt(common_arg(")[1:]:
        names, *further = _arguments(written)
        negative = further.pop(0) if further and further[0].startswith("{") else ""
        told = " ".join(_STRING.findall(further[-1])) if further else ""
        spelled = tuple(_STRING.findall(names))
        yield Flag(spelled, str(max(len(further) - 1, 0)), " ".join(told.replace("\\n", " ").split()))
        if negative:
            yield Flag(tuple(_STRING.findall(negative)), "0", f"negative of {spelled[-1]}")


def _arguments(text: str) -> list[str]:
    """A call's arguments before its handler, which is a function in brackets."""
    found, depth, start, place = [], 0, 0, 0
    while place < len(text):
        sign = text[place]
        if sign == '"':
            place = _STRING.match(text, place).end() - 1  # type: ignore[union-attr]
        elif sign == "[" and depth == 0:
            break
        elif sign in "({":
            depth += 1
        elif sign in ")}":
            depth -= 1
            if depth < 0:
                break
        elif sign == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
        place += 1
    return found


READERS: dict[str, Callable[[Path], Iterator[Flag]]] = {
    "vllm": read_vllm, "sglang": read_sglang, "tensorrt_llm": read_click, "llama_cpp": read_llama, "mlx": read_mlx,
}  # fmt: skip


def flags(server: str, root: Path) -> list[Flag]:
    """Every flag of a server's parser once, in the order of its first spelling."""
    found: dict[str, Flag] = {}
    for flag in READERS[server](root):
        if flag.names and not any(name in found for name in flag.names):
            found |= dict.fromkeys(flag.names, flag)
    return sorted(set(found.values()), key=lambda flag: flag.names[0].lstrip("-"))


def hold(path: Path, read: list[Flag]) -> int:
    """Bring a file of flags in line with a parser, and name what a person must look at."""
    record = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = {name: flag for flag in read for name in flag.names}
    listed: set[str] = set()
    for group in record["groups"]:
        if "until" in group or "package" in group:
            continue
        kept = {}
        for written, takes in group["flags"].items():
            flag = next((known[name] for name in written.split() if name in known), None)
            if flag is None and f"--{written.removeprefix('--no-')}" in known:
                kept[written] = takes  # the negative of a switch, whose effect is its own
                continue
            if flag is None:
                print(f"gone from the parser: {written}", file=sys.stderr)
                kept[written] = takes
                continue
            listed |= set(flag.names)
            kept[" ".join(dict.fromkeys([*flag.names, *written.split()]))] = flag.takes
        group["flags"] = kept
    new = {" ".join(flag.names): flag.takes for flag in read if not listed & set(flag.names)}
    for name in new:
        print(f"new, of unknown effect: {name}: {known[name.split()[0]].help[:200]}", file=sys.stderr)
    if new:
        unknown = next((one for one in record["groups"] if one["effect"] == "unknown"), None)
        if unknown is None:
            unknown = {"effect": "unknown", "read": "", "flags": {}}
            record["groups"].append(unknown)
        unknown["flags"] |= new
    path.write_text(written_out(record), encoding="utf-8")
    return len(new)


def written_out(record: dict) -> str:  # type: ignore[type-arg]
    """A file of flags as text: one group a block, its flags in lines of at most 120 signs."""
    lines = []
    for key, value in record.items():
        if key in ("groups", "variables"):
            lines += [f"{key}:", *_blocks(value)]
        elif key == "in_logs":
            lines += [f"{key}:", *(f"  {flag}: {_flow(known)}" for flag, known in value.items())]
        else:
            lines.append(f"{key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _blocks(groups: list[dict]) -> Iterator[str]:  # type: ignore[type-arg]
    for group in groups:
        head = [f"{key}: {_flow(value)}" for key, value in group.items() if key != "flags"]
        yield from (f"  - {head[0]}", *(f"    {one}" for one in head[1:]), "    flags:", "      {")
        line = "       "
        for name, takes in group["flags"].items():
            entry = f' "{name}": "{takes}",'
            if len(line) + len(entry) > 120:
                yield line
                line = "       "
            line += entry
        yield from (line, "      }")


def _flow(value: object) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, width=1 << 20, allow_unicode=True)
        .strip()
        .removesuffix("\n...")
    )


def main() -> None:
    """Print or hold a server's flags."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("server", choices=READERS)
    asked.add_argument("root", type=Path)
    asked.add_argument("--into", type=Path)
    given = asked.parse_args()
    read = flags(given.server, given.root)
    if given.into:
        sys.exit(1 if hold(given.into, read) else 0)
    for flag in read:
        print(" ".join(flag.names), flag.takes, flag.help, sep="\t")


if __name__ == "__main__":
    main()
