"""Ask two releases of an engine about the same starts, and say what it resolves, builds and plans otherwise.

``make follow`` calls it with the two packages that it unpacked. The starts are those of one hard model
of ``experiments/configs`` of each kind with no flag but the layout, on one device of each kind. What a release answers is kept, so that the
next release needs one run alone. No rule of ours is read: a changed default, buffer or plan is listed where it shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from follow_planner import hard_models
from follow_sources import Package

from kvreport.architectures import read_config
from kvreport.catalog.load import load_catalog
from kvreport.units import GIB
from kvreport.witness import asking

DEVICES: Final = {
    "vllm": ("h100-sxm-80gb", "b200-sxm-180gb", "rtx-4090", "mi300x"),
    "sglang": ("h100-sxm-80gb", "b200-sxm-180gb", "rtx-4090"),
}
"""One device of each kind that an engine can be asked about: Hopper, Blackwell, a consumer card and AMD's."""
WORDS: Final = {"vllm": ("--tensor-parallel-size", "4"), "sglang": ("--tp-size", "4")}
POOL: Final = 40 * GIB
LENGTH: Final = 8192
SECONDS: Final = 3000
_APART: Final = re.compile(r"seed|instance_id|_port$|\.port$|uuid|\.registry\.|\.hf_\w*config\.")
"""Settings that every run draws anew, the table of model classes, which the report lists by itself, and the model's own config."""
_TITLES: Final = {
    "plan": "Plans",
    "cache": "What layers ask of the cache",
    "tensor": "Tensors on the device",
    "setting": "Settings",
    "module": "Parts of models",
}
_LONGEST: Final = 120
_MOST: Final = 4
"""Pairs of values of one name that are printed, those of the most cases first."""


def of_each_kind(configs: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return id and config of the hard model with the fewest layers of each kind.

    Of one kind are models with the same kinds of caches and quantization that have experts or not, and an encoder or not.
    """
    found: dict[object, tuple[int, str, dict[str, Any]]] = {}
    for name, config in hard_models(configs):
        model = read_config(config, id=name)
        caches = {
            (one.kind, getattr(one, "mechanism", None), getattr(one, "stride", None))
            for layers in model.layers
            for one in layers.caches
        }
        encodes = any(row.component == "vision" for row in model.weights)
        quantizer = config.get("quantization_config", {}).get("quant_method")
        kind = frozenset(caches), model.experts is not None, encodes, quantizer
        count = sum(layers.count for layers in model.layers)
        found[kind] = min(
            found.get(kind, (count, name, config)), (count, name, config), key=lambda one: one[:2]
        )
    return sorted((name, config) for _, name, config in found.values())


def answers(
    family: str, releases: Sequence[tuple[str, Package]], python: str, configs: Path, kept: Path
) -> list[dict[tuple[str, str], dict[str, Any]]]:
    """Return what each release answers, by device and model; two are asked at a time.

    ``kept``: the folder in which answers are kept by release, device and question.
    """
    cases = [
        {"id": name, "config": config, "quantizer": None, "words": WORDS[family], "facts": True}
        | {"pools": [POOL], "lengths": [LENGTH]}
        for name, config in of_each_kind(configs)
    ]
    catalog = load_catalog()
    sources = sorted(Path(asking.__file__).parent.glob("*.py"))
    asked = hashlib.sha256(json.dumps(cases).encode() + b"".join(one.read_bytes() for one in sources))

    def answered(one: tuple[str, Package, str]) -> list[dict[str, Any]]:
        release, package, gpu = one
        path = kept / f"witness-{family}-{release}-{gpu}-{asked.hexdigest()[:12]}.json"
        if path.is_file():
            return list(json.loads(path.read_text(encoding="utf-8")))
        device = catalog.accelerator(gpu)
        found = asking.ask(python, family, device, cases, path=package.folder, seconds=SECONDS)
        path.write_text(json.dumps(found), encoding="utf-8")
        return found

    every = [(release, package, gpu) for gpu in DEVICES[family] for release, package in releases]
    with ThreadPoolExecutor(2) as pool:
        told = dict(zip(((one[0], one[2]) for one in every), pool.map(answered, every), strict=True))
    return [
        {
            (gpu, str(case["id"])): answer
            for gpu in DEVICES[family]
            for case, answer in zip(cases, told[release, gpu], strict=True)
        }
        for release, _ in releases
    ]


def facts(answer: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return what an answer says, by kind and name."""
    found: dict[tuple[str, str], str] = {}
    for name, said in answer["facts"].items():
        kind, _, of = name.partition(" ")
        if kind in _TITLES:
            found[kind, of] = said
        elif not _APART.search(name):
            found["setting", name] = said
    for row in answer["at"]:
        found |= {("plan", name): str(said) for name, said in row.items() if name not in ("pool", "length")}
    return found


Difference = tuple[str, str, str | None, str | None]
"""Kind, name and both values; None where a release has no such name."""
Case = tuple[str, str]
"""Device and model."""


def differences(
    before: Mapping[Case, Mapping[str, Any]], after: Mapping[Case, Mapping[str, Any]]
) -> dict[Difference, list[Case]]:
    """Return the cases in which two releases differ, by what differs.

    A tensor or a part that has another name alone is no difference.
    """
    found: dict[Difference, list[Case]] = {}
    for case in sorted(before.keys() & after.keys()):
        sides = [before[case], after[case]]
        refused = [side.get("error") for side in sides]
        if any(refused):
            if not all(refused):
                found.setdefault(("plan", "refused", *refused), []).append(case)  # type: ignore[arg-type]
            continue
        old, new = map(facts, sides)
        gone = Counter((key[0], said) for key, said in old.items() if key not in new)
        more = Counter((key[0], said) for key, said in new.items() if key not in old)
        renamed = {id(old): gone & more, id(new): gone & more}
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) == new.get(key):
                continue
            if key[0] in ("tensor", "module") and (key not in old or key not in new):
                side = new if key in new else old
                same = renamed[id(side)]
                if same[key[0], side[key]] > 0:
                    same[key[0], side[key]] -= 1
                    continue
            cases = found.setdefault((key[0], _short(*key), old.get(key), new.get(key)), [])
            if case not in cases:
                cases.append(case)
    return found


def _short(kind: str, name: str) -> str:
    """The name of a setting alone, or the field of a cache: the same in every place that has it."""
    return re.split(r"\.", name)[-1] if kind == "setting" else name.rpartition(": ")[2]


def report(found: Mapping[Difference, Sequence[Case]]) -> list[str]:
    """Return the lines of a report about what two releases answer otherwise: one line a name."""
    lines = []
    for kind, title in _TITLES.items():
        by_name: dict[str, list[Difference]] = {}
        for key in sorted(
            (key for key in found if key[0] == kind), key=lambda one: (-len(found[one]), one[2] is None)
        ):
            by_name.setdefault(key[1], []).append(key)
        # What one release alone has, with one value whatever the device and the model, decides nothing here.
        plain = {
            name: keys[0]
            for name, keys in by_name.items()
            if kind in ("setting", "cache") and len(keys) == 1 and None in keys[0]
        }
        lines += ["", f"### {title}: {len(by_name)}", ""]
        for name, keys in by_name.items():
            if name not in plain:
                said = "; ".join(f"{_change(*one[2:])} ({_where(found[one])})" for one in keys[:_MOST])
                lines.append(
                    f"- `{name}`: {said}{f'; and {len(keys) - _MOST} more' if len(keys) > _MOST else ''}"
                )
        for word, at in (("New", 2), ("Gone", 3)):
            names = sorted(
                f"`{name}` ({_cut(key[5 - at])})" for name, key in plain.items() if key[at] is None
            )
            lines += [f"- {word}, with one value in all cases: {', '.join(names)}"] if names else []
    return lines


def _change(old: str | None, new: str | None) -> str:
    if None in (old, new):
        return f"new, {_cut(new)}" if old is None else f"gone, was {_cut(old)}"
    return f"{_cut(old)}, now {_cut(new)}"


def _cut(said: str | None) -> str:
    text = str(said)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _where(cases: Iterable[Case]) -> str:
    by_device: dict[str, list[str]] = {}
    for gpu, name in cases:
        by_device.setdefault(gpu, []).append(name)
    return "; ".join(
        f"{gpu}: {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for gpu, names in by_device.items()
    )
