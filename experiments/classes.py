"""The check over every class of the installed transformers: read and exact, or refused by name.

Each class is built on the meta device from its default config, from that config made small, and from
the small one with one key changed; its parameters are counted and compared with what the reader makes
of the same config. The small one is also run on the CPU where it can be, and its cache added up.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import kvreport.architectures
from experiments.completed import RUN_WITH, default_config, put
from experiments.probing import LAYER_KEYS, SKIPPED, changed, config_class, flattened
from experiments.running import reading, run
from experiments.vision_ops import import_torchvision
from kvreport.accounting.weights import parameters as counted
from kvreport.architectures import read_config
from kvreport.architectures.registry import known_classes
from kvreport.catalog.model import Model
from kvreport.errors import InputError

LISTS: Final = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "image_text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "multimodal": "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
}
"""transformers' own lists of the classes that generate (``models/auto/modeling_auto.py``)."""

LENGTHS: Final = (128, 256)
LARGEST: Final = 2_000_000_000
"""Parameters of a small model that is run; a larger one would take minutes."""

_WIDTH: Final = re.compile(r"hidden|size|dim|width|d_model|d_ff|n_embd|n_inner|experts$")
_FIXED: Final = re.compile(
    r"image|patch|kernel|window|head_dim|merge|channels|stride|chunk|bins|group|vocab_size_per"
)


@dataclass
class Finding:
    """What checking one class gave."""

    name: str  # The class.
    model_type: str
    group: str  # The list of transformers that it stands in.
    status: str = "not built"  # ``exact``, ``differs``, ``refused`` or ``not built``.
    ours: int | None = None  # Parameters as we count them; None if the config was refused.
    # Parameters that transformers allocates; None if it cannot build the default config.
    theirs: int | None = None
    small: str = "not built"  # The same for the config made small.
    cache: str = "not run"  # The same for the cache of the small model.
    changes: int = 0  # Keys changed one at a time.
    exact_changes: int = 0  # How many of them were followed exactly.
    refused_changes: int = 0  # How many were refused.
    followed_wrongly: list[str] = field(default_factory=list)  # The keys whose change was not followed.
    # The keys that are followed here and not by transformers.
    differs_on_purpose: list[str] = field(default_factory=list)
    note: str = ""  # The refusal, or why nothing was built.
    # Keys that the default config lacks and that were given as releases state them.
    completed: tuple[str, ...] = ()


def every_class() -> Iterator[tuple[str, str, str]]:
    """Yield list, model type and class name of every generating class of the installed transformers."""
    from transformers.models.auto import modeling_auto

    seen = set()
    for group, mapping in LISTS.items():
        for model_type, names in getattr(modeling_auto, mapping).items():
            name = names if isinstance(names, str) else names[0]
            if (model_type, name) not in seen:
                seen.add((model_type, name))
                yield group, model_type, name


def parameters(name: str, model_type: str, config: dict[str, Any], expected: int | None) -> int:
    """Count what transformers allocates for a config, with stored router biases where those are meant."""
    import torch
    import transformers
    from transformers.initialization import no_init_weights

    from experiments.e2 import count

    settings = config_class(model_type).from_dict(json.loads(json.dumps(config)))
    with torch.device("meta"), no_init_weights():
        net = getattr(transformers, name)._from_config(settings)
    net.tie_weights(recompute_mapping=False)  # left out with the initial values
    return count(net, expected if expected is not None else -1)[0]


def ours(name: str, config: dict[str, Any]) -> Model | str:
    """Read a config as ``config.json`` would hold it; the refusal's text if it is refused."""
    written = json.loads(json.dumps({**config, "architectures": [name]}))
    try:
        return read_config(written, id="local/check", assume_defaults=True)
    except InputError as error:
        return str(error)


def compare(name: str, model_type: str, config: dict[str, Any]) -> tuple[str, int | None, int | None, str]:
    """Return status, our count, their count and a note for one config."""
    model = ours(name, config)
    mine = None if isinstance(model, str) else counted(model)
    refusal = model if isinstance(model, str) else ""
    try:
        theirs = parameters(name, model_type, config, mine)
    except Exception as error:  # noqa: BLE001 - whatever a class raises over a config
        note = refusal or f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        # A class that is read is not refused where its own default config makes no model.
        return ("refused" if refusal and name not in known_classes() else "not built"), mine, None, note
    if mine is None:
        return "refused", None, theirs, refusal
    return ("exact" if mine == theirs else "differs"), mine, theirs, ""


def made_small(
    name: str, model_type: str, config: dict[str, Any], *, every_layer: bool = False
) -> dict[str, Any]:
    """Return the class's default config with few layers, few experts and narrow widths.

    Args:
        name: The class.
        model_type: Its model type.
        config: Its default config.
        every_layer: Whether to keep all layers, for classes whose first attention comes late.

    Raises:
        Exception: Whatever the class raises over its own default config.
    """
    parameters(name, model_type, config, None)
    for path, value in list(flattened(config)):
        key = path[-1]
        if isinstance(value, bool) or not isinstance(value, int) or SKIPPED.search(key):
            continue
        goals: tuple[int, ...] = ()
        if LAYER_KEYS.match(key) and "nextn" not in key:
            goals = (4,) if value > 4 and not every_layer else ()
        elif key == "vocab_size":
            goals = (1024,) if value > 1024 else ()
        elif _WIDTH.search(key) and not _FIXED.search(key) and value >= 64:
            goals = tuple(
                value // part for part in (16, 8, 4, 2) if value % part == 0 and value // part >= 32
            )
        for goal in goals:
            tried = changed(config, path, goal)
            try:
                parameters(name, model_type, tried, None)
            except Exception:  # noqa: BLE001, S112 - the next, larger size may do
                continue
            config = tried
            break
    return config


def with_wide_heads(default: dict[str, Any], small: dict[str, Any]) -> dict[str, Any]:
    """Return the small config with as many heads fewer as its widths are narrower, so that heads keep their width."""
    before = dict(flattened(default))
    for path, width in list(flattened(small)):
        wide = before.get(path)
        if path[-1] not in ("hidden_size", "n_embd", "d_model") or not width or not wide or wide % width:
            continue
        for key in ("num_attention_heads", "num_key_value_heads", "n_head"):
            beside = (*path[:-1], key)
            heads = before.get(beside)
            if isinstance(heads, int):
                small = changed(small, beside, max(1, heads * width // wide))
    return small


def one_key_changes(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the config with one key changed at a time, by the key's dotted path."""
    for path, value in flattened(config):
        if SKIPPED.search(path[-1]) or path[-1] in ("is_decoder", "add_cross_attention"):
            continue
        if isinstance(value, bool):
            yield ".".join(path), changed(config, path, not value)
        elif isinstance(value, int) and value > 0:
            yield (
                ".".join(path),
                changed(config, path, value + 1 if LAYER_KEYS.match(path[-1]) else value * 2),
            )


def check_class(group: str, model_type: str, name: str, *, changes: bool = True) -> Finding:
    """Check one class."""
    import torch

    import_torchvision()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # classes are checked side by side
    found = Finding(name, model_type, group)
    try:
        model_type, default, found.completed = default_config(name, model_type)
    except Exception as error:  # noqa: BLE001 - whatever a config class raises
        found.note = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        return found
    found.status, found.ours, found.theirs, found.note = compare(name, model_type, default)
    try:
        config = made_small(name, model_type, default)
    except Exception:  # noqa: BLE001 - its default config cannot be built
        return found
    found.small = compare(name, model_type, config)[0]
    if found.small in ("exact", "differs"):
        found.cache = cache_of(name, model_type, config)
        for again in _made_to_run(name, model_type, default, config):
            if not found.cache.startswith("not run: "):
                break
            tried = cache_of(name, model_type, again)
            found.cache = found.cache if tried.startswith("not run") else tried
    if changes and found.small == "exact":
        for key, tried in one_key_changes(config):
            status = compare(name, model_type, tried)[0]
            if status == "not built":
                continue
            found.changes += 1
            found.exact_changes += status == "exact"
            found.refused_changes += status == "refused"
            if status == "differs" and key in CHANGES_ON_PURPOSE.get(name, ()):
                found.differs_on_purpose.append(key)
            elif status == "differs":
                found.followed_wrongly.append(key)
    return found


def _made_to_run(
    name: str, model_type: str, default: dict[str, Any], small: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield other small configs, for classes that cannot be run with the smallest one."""
    # Rotary sections and some kernels want heads as wide as the default config has them.
    yield with_wide_heads(default, small)
    whole = made_small(name, model_type, default, every_layer=True)
    yield whole
    yield with_wide_heads(default, whole)


def cache_of(name: str, model_type: str, config: dict[str, Any]) -> str:
    """Run a small model on the CPU and compare its cache: ``exact``, ``differs ...`` or ``not run``."""
    import torch
    import transformers

    from experiments.cache import held
    from experiments.models import Subject
    from experiments.theory import cache_bytes

    config = json.loads(json.dumps(config))
    for path, value in RUN_WITH.get(model_type, {}).items():
        put(config, path, value)
    model = ours(name, config)
    if isinstance(model, str):
        return "not run"
    if counted(model) > LARGEST:
        return f"not run: {counted(model):,} parameters"
    settings = config_class(model_type).from_dict(json.loads(json.dumps(config)))
    if getattr(settings, "is_decoder", None) is False:
        settings.is_decoder = True  # BERT's relatives keep a cache where they generate
    # One matrix product after the other: kernels for all experts at once want aligned widths.
    settings._experts_implementation = "eager"
    results = []
    try:
        torch.manual_seed(0)
        net = getattr(transformers, name)._from_config(settings, dtype=torch.bfloat16).eval()
        for length in LENGTHS:
            ids = torch.randint(1, min(200, model.vocabulary), (1, length))
            with torch.inference_mode():
                kept, read = run(net, ids, settings)
            if kept is None:
                return "not run: the class keeps no cache"
            asked = Subject("local/check", config, reading(model, read))
            results.append((held(kept).shape_bytes, cache_bytes(asked, length)))
    except Exception as error:  # noqa: BLE001 - whatever a class raises when it runs
        return f"not run: {type(error).__name__}: {' '.join(str(error).split())[:80]}"
    if all(theirs == mine for theirs, mine in results):
        return "exact"
    return "differs: " + ", ".join(f"{theirs} against {mine}" for theirs, mine in results)


_THINKER: Final = "the thinker alone is counted: it is what engines serve"
ON_PURPOSE: Final = {
    "LongcatFlashForCausalLM": "transformers allocates weights for the 256 zero experts, which have none",
    "Qwen2_5OmniForConditionalGeneration": _THINKER,
    "Qwen3OmniMoeForConditionalGeneration": _THINKER,
    "HeliumForCausalLM": "with heads x head_dim other than hidden_size the class builds a model that cannot run",
    "MptForCausalLM": "transformers fixes the MLP at 4 x hidden_size; expansion_ratio is followed here",
}
"""Where our count differs from what transformers allocates, and why."""

_POOLED: Final = "transformers caches an index key of every token and its positions; what is read is one pooled key for each block"
_INDEX_KEYS: Final = (
    "transformers holds index keys in float32 here; engines hold them in the model's type or in FP8"
)
CACHE_ON_PURPOSE: Final = {
    "Dots3NoteForCausalLM": _INDEX_KEYS,
    "Dots3NoteForConditionalGeneration": _INDEX_KEYS,
    "Qwen4ExpForCausalLM": _POOLED,
    "Qwen4ExpForConditionalGeneration": _POOLED,
    "Glm5NextForConditionalGeneration": _POOLED,
    "DeepseekV4ForCausalLM": "what a compressor has not compressed yet counts at its most and in float32, as engines keep it; transformers holds none of it at these lengths",
    "CpmAntForCausalLM": "transformers puts 32 positions of a prompt ahead of every request and caches them",
    "StableLmForCausalLM": "rotating heads of an odd width widens them, and the small model's are 5; no release's are odd",
}
"""Where our count of a small model's cache differs from what transformers holds, and why."""

CHANGES_ON_PURPOSE: Final = {"MptForCausalLM": ("expansion_ratio",)}
"""Keys that transformers ignores and other readers of the same checkpoints follow; :data:`ON_PURPOSE` says why."""


def check_all(
    out: Path | None,
    only: list[str],
    *,
    changes: bool = True,
    journal: Path | None = None,
    jobs: int = 1,
) -> int:
    """Check every class, print a line for each and write the table.

    Args:
        out: Where ``class_check.yaml`` is written; None to print only.
        only: Classes or model types to check; all of them if empty.
        changes: Whether to change one key at a time as well.
        journal: File of finished findings, one JSON line each. A class in it is not checked again under
            the same releases of torch and transformers and with the same readers, unless ``only`` names it.
        jobs: Processes that check classes side by side.

    Returns:
        1 if a class differs that is not named as differing on purpose, or if no table was written because
        the journal lacks classes of this revision.
    """
    finished = {} if journal is None else read_journal(journal)
    wanted = list(every_class())
    asked = [
        item for item in wanted if (item[1] in only or item[2] in only if only else item[1:] not in finished)
    ]
    for found in _checked(asked, jobs, changes=changes):
        finished[found.model_type, found.name] = found
        if journal is not None:
            journal.parent.mkdir(parents=True, exist_ok=True)
            with journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"releases": releases(), **asdict(found)}) + "\n")
        print(f"{found.status:9} {found.small:9} {found.cache[:40]:20} {found.exact_changes}/{found.changes} {found.name} {','.join(found.followed_wrongly)[:90]} {found.note[:60]}", flush=True)  # fmt: skip
    findings = [finished[item[1:]] for item in wanted if item[1:] in finished]
    if out is not None and len(findings) < len(wanted):
        print(
            f"{len(findings)} of {len(wanted)} classes were checked with these readers: no table is written"
        )
        return 1
    if out is not None:
        write_table(out, findings)
    return int(any(f.status == "differs" and f.name not in ON_PURPOSE for f in findings))


def _checked(asked: list[tuple[str, str, str]], jobs: int, *, changes: bool) -> Iterator[Finding]:
    """Yield a finding for each class, in the order in which they are finished."""
    if jobs <= 1:
        yield from (check_class(*item, changes=changes) for item in asked)
        return
    # Models are not given back to the system completely, so that a worker is replaced now and then.
    with get_context("spawn").Pool(jobs, maxtasksperchild=25) as pool:
        yield from pool.imap_unordered(partial(_check_item, changes=changes), asked)


def _check_item(item: tuple[str, str, str], *, changes: bool) -> Finding:
    return check_class(*item, changes=changes)


def releases() -> dict[str, str]:
    """Return the installed releases of torch and transformers, without a build's suffix, and our readers' digest."""
    installed = {name: version(name).partition("+")[0] for name in ("transformers", "torch")}
    return {**installed, "readers": readers_digest()}


@cache
def readers_digest() -> str:
    """Return a digest of everything that reads a config: one table is of one revision."""
    digest = sha256()
    for path in sorted(Path(kvreport.architectures.__file__).parent.rglob("*")):
        if path.suffix in (".py", ".txt", ".json"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def read_journal(path: Path) -> dict[tuple[str, str], Finding]:
    """Read findings made with the installed releases, by model type and class; a later line wins."""
    findings = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        if entry.pop("releases") == releases():
            findings[entry["model_type"], entry["name"]] = Finding(**entry)
    return findings


def write_table(out: Path, findings: list[Finding]) -> None:
    """Write findings as ``class_check.yaml``."""
    import yaml

    classes = [entry_of(found) for found in sorted(findings, key=lambda f: (f.name, f.model_type))]
    table = {
        "schema_version": 1,
        **releases(),
        "classes": classes,
    }
    out.write_text(yaml.safe_dump(table, sort_keys=False, width=200), encoding="utf-8")


def entry_of(found: Finding) -> dict[str, Any]:
    """Return one entry of the table."""
    from kvreport.architectures.registry import nearest_class

    entry: dict[str, Any] = {
        "name": found.name,
        "model_type": found.model_type,
        "group": found.group,
        "status": found.status,
        "small": found.small,
        "cache": found.cache.split(":")[0],
    }
    if found.theirs is not None:
        entry["parameters"] = found.theirs
    if found.completed:
        entry["completed"] = list(found.completed)
    if found.changes:
        entry |= {"changes": found.changes, "exact_changes": found.exact_changes}
    if found.refused_changes:
        entry["refused_changes"] = found.refused_changes
    if found.followed_wrongly:
        entry["followed_wrongly"] = found.followed_wrongly
    if found.differs_on_purpose:
        entry["differs_on_purpose"] = found.differs_on_purpose
    if found.status == "refused":
        entry["nearest"] = nearest_class(found.name, None)
    differs = "differs" in (found.status, found.small) or found.differs_on_purpose
    note = ON_PURPOSE.get(found.name) if differs else None
    if found.cache.startswith("differs"):
        note = CACHE_ON_PURPOSE.get(found.name, note)
    if note:
        entry["note"] = note
    return entry
