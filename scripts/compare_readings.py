"""Hold what the config reader makes of thousands of configs against another version: the net under its refactoring.

    python scripts/compare_readings.py BEFORE.jsonl     # whichever kvreport is imported
    python scripts/compare_answers.py compare BEFORE.jsonl AFTER.jsonl

Configs: every class with its defaults alone and with every size stated, the published configs of the tests and of
``experiments/configs``, each of them with one key at a time changed, taken away or given (the keys that the reader
looked for), nested in a section, with other quantizers, and under the class's pooling names. Of every config the
whole model (caches, tensors with their names and formats, notes), assumptions, keys not read, or the refusal count.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "unit")]

Config = dict[str, Any]
_PUBLISHED = "published "
_TRIED: tuple[Any, ...] = (2, True, [0, 1], {})
"""What a key that a config lacks is given."""
_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
_QUANTIZERS: tuple[Config, ...] = (
    _FP8,
    {**_FP8, "modules_to_not_convert": ["lm_head", "self_attn", "model.layers.0", "merger", "embed"]},
    {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["re:.*mlp.*", "lm_head"],
     "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128, "type": "int"}}}},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
)  # fmt: skip
_POOLED = ("Model", "ForSequenceClassification", "TextModel")


def bases() -> Iterator[tuple[str, Config]]:
    """Yield the configs to begin with, and what to call each."""
    from huggingface_configs import COUNTED, STARTS

    from kvreport.architectures.nearest import READ_AS
    from kvreport.architectures.registry import known_classes

    for name in sorted({*known_classes(), *READ_AS}):
        start = STARTS.get(name, {})
        for nested, keys in (("flat", start), ("nested", {"text_config": start})):
            yield f"{name} {nested}", {"architectures": [name], **copy.deepcopy(keys)}
    for name, (config, _) in COUNTED.items():
        yield f"{_PUBLISHED}{name}", config
    for path in sorted((ROOT / "experiments" / "configs").glob("*.yaml")):
        yield f"{_PUBLISHED}{path.stem}", yaml.safe_load(path.read_text(encoding="utf-8"))["config"]


def stated(config: Config) -> Config:
    """Return a config with the sizes that the reader would assume written into it, as far as it can be read."""
    for _ in range(3):
        found, trail = read(config)
        if "error" in found:
            break
        for path, value in trail.assumed.items():
            put(config, path, value)
    return config


def put(config: Config, path: str, value: object) -> None:
    """Set a key by its dotted path; nothing where something else stands in the way."""
    *sections, key = path.split(".")
    place: Any = config
    for section in sections:
        place = place.setdefault(section, {}) if isinstance(place, dict) else None
        if place is None:
            place = {}
    if isinstance(place, dict):
        place[key] = value


def get(config: Config, path: str) -> Any:
    """Return a key by its dotted path, or None."""
    place: Any = config
    for part in path.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    return place


def read(config: Config) -> tuple[dict[str, Any], Any]:
    """Return what a config is read as, and the trail of its reading."""
    from kvreport.accounting.weights import parameters
    from kvreport.architectures import reader
    from kvreport.errors import InputError

    opened = []
    own = reader._open

    def noting(*args: Any) -> Any:
        opened.append(own(*args))
        return opened[-1]

    reader._open = noting
    try:
        found = reader.read_config_report(copy.deepcopy(config), id="local/x", assume_defaults=True)
    except InputError as error:
        return {"error": str(error)}, opened[0][0].trail if opened else None
    except Exception as error:  # noqa: BLE001 - a crash is a finding of its own
        return {"error": f"{type(error).__name__}: {error}"}, None
    finally:
        reader._open = own
    model = found.model.model_dump(mode="json")
    model["weights"] = sorted(model["weights"], key=lambda row: json.dumps(row, sort_keys=True))
    text = json.dumps(model, sort_keys=True)
    answer = {
        "parameters": parameters(found.model),
        "model": sha256(text.encode()).hexdigest()[:20],
        "assumptions": found.assumptions,
        "not_read": found.not_read,
    }
    return answer, opened[0][0].trail


def variants(config: Config) -> Iterator[tuple[str, Config]]:
    """Yield a config and its neighbors, by what was done to it."""
    yield "as it is", config
    _, trail = read(config)
    for path in sorted(trail.looked_at) if trail is not None else ():
        if "[" in path or path in ("architectures", "quantization_config"):
            continue
        value = get(config, path)
        tried: tuple[Any, ...]
        if value is None:
            known = {**trail.usual, **trail.assumed}.get(path)
            tried = _TRIED if known is None else (*_near(known), None)
        else:
            tried = (*_near(value), None, "taken away")
        for number, new in enumerate(tried):
            changed = copy.deepcopy(config)
            if new == "taken away":
                *sections, key = path.split(".")
                place = get(changed, ".".join(sections)) if sections else changed
                place.pop(key)
            else:
                put(changed, path, new)
            yield f"{path} {number}: {json.dumps(new)[:40]}", changed
    for quantizer in _QUANTIZERS:
        name = f"quantized by {quantizer['quant_method']} {'modules_to_not_convert' in quantizer}"
        yield name, {**config, "quantization_config": quantizer}
    rest = {key: value for key, value in config.items() if key != "architectures"}
    yield "all in a section", {"architectures": config.get("architectures"), "text_config": rest}
    yield "no class", rest
    for ending in _POOLED:
        for name in config.get("architectures") or ():
            for own in ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel"):
                if name.endswith(own):
                    yield f"pooled: {ending}", {**config, "architectures": [name.removesuffix(own) + ending]}


def _near(value: object) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int | float):
        return (value * 2, value + 1, 0)
    if isinstance(value, str):
        return ("something else",)
    if isinstance(value, list):
        return (value[:-1], value[::-1])
    return ()


def answers(base: tuple[str, Config]) -> list[str]:
    """Read one config with its sizes stated, and its neighbors; a JSON line of each, as ``compare_answers.py`` reads it."""
    name, config = base
    config = config if name.startswith(_PUBLISHED) else stated(config)
    return [
        json.dumps({"kind": "reading", "asked": [name, how], "status": 0, "answer": read(changed)[0]})
        for how, changed in variants(config)
    ]


def record(out: Path, jobs: int, only: list[str]) -> int:
    """Read every config, or those whose names begin so, and write what each is read as."""
    chosen = [base for base in bases() if not only or base[0].startswith(tuple(only))]
    with Pool(jobs) as pool, out.open("w", encoding="utf-8") as file:
        for lines in pool.imap(answers, chosen, chunksize=2):
            file.writelines(f"{line}\n" for line in lines)
    return 0


def main() -> int:
    """Record what the configs are read as."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names of configs")
    args = parser.parse_args()
    return record(args.out, args.jobs, args.only)


if __name__ == "__main__":
    raise SystemExit(main())
