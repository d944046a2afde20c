"""What a class of transformers allocates, and how each tensor's shape depends on the keys of its config.

A class is built on the meta device, from its default config made small and from variations of that
with one key changed. Each tensor's sides, and the number of tensors of a name, become a formula over
the keys that changed them. What no formula explains is reported, never guessed.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

LAYER_KEYS: Final = re.compile(r"^(num_.*layers|n_layers?|.*_layers|num_layers|num_blocks|.*depth|n_block)$")
SKIPPED: Final = re.compile(
    r"token|_id$|_ids$|id2label|label2id|dropout|_eps$|epsilon|initializer|init_|return_dict|output_|"
    r"chunk_size_feed|use_cache|problem_type|rope|scal|multiplier|num_beams|dtype|_std$|loss|_coef|"
    r"architectures|transformers_version|_name_or_path|model_type|gradient|is_encoder_decoder|jitter|"
    r"max_new|temperature|top_p|top_k$|theta|softcap|mask_(?:time|feature)|apply_spec|layerdrop|_prob"
)
_STORED: Final = re.compile(r"correction_bias|expert_bias|moe_statics|per_expert_bias")

Path = tuple[str, ...]
Key = tuple[str, tuple[int, ...] | int]


def config_class(model_type: str) -> Any:  # noqa: ANN401
    """Return transformers' config class of a model type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type]


def flattened(config: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every key of a config with its path; of a section, its keys."""
    for key, value in config.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, dict) and not SKIPPED.search(key):
            yield from flattened(value, (*path, key))
        else:
            yield (*path, key), value


def changed(config: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    """Return a copy of a config with one key changed; a new depth drops the lists by layer beside it."""
    copied = copy.deepcopy(config)
    place = copied
    for key in path[:-1]:
        place = place[key]
    old = place.get(path[-1])
    if LAYER_KEYS.match(path[-1]) and isinstance(old, int) and isinstance(value, int):
        for key, listed in list(place.items()):
            if isinstance(listed, list) and len(listed) == old and old > 0:
                if value <= old:
                    place[key] = listed[:value]
                elif key in ("layer_types", "mlp_layer_types", "layers_block_type", "block_types"):
                    place.pop(key)
                else:
                    place[key] = listed + [listed[-1]] * (value - old)
    place[path[-1]] = value
    return copied


@dataclass
class Row:
    """Tensors of one name pattern and shape."""

    pattern: str
    ordinal: int
    shape: tuple[int, ...]
    count: int
    module: str
    first: int = 0


@dataclass
class Built:
    """What a config builds."""

    rows: dict[tuple[str, int], Row] = field(default_factory=dict)
    total: int = 0


def build(model_class: Any, config: dict[str, Any], model_type: str) -> Built:  # noqa: ANN401
    """Build a config on the meta device and fold its tensors into rows."""
    import torch

    warnings.filterwarnings("ignore")
    cfg = config_class(model_type).from_dict(copy.deepcopy(config))
    with torch.device("meta"):
        net = model_class._from_config(cfg)
    return fold(net)


def fold(net: Any) -> Built:  # noqa: ANN401
    """Fold a model's tensors by name pattern and shape."""
    import torch

    lists = {name for name, module in net.named_modules() if isinstance(module, torch.nn.ModuleList)}
    kinds = {name: type(module).__name__ for name, module in net.named_modules()}
    built = Built()
    shapes: dict[str, list[tuple[int, ...]]] = {}
    tensors = list(net.named_parameters())
    seen = {id(tensor) for _, tensor in tensors}
    tensors += [
        (name, tensor)
        for name, tensor in net.state_dict(keep_vars=True).items()
        if id(tensor) not in seen and _STORED.search(name)
    ]
    for name, tensor in tensors:
        parts = name.split(".")
        pattern = ".".join(
            "*" if part.isdigit() and ".".join(parts[:i]) in lists else part for i, part in enumerate(parts)
        )
        shape = tuple(tensor.shape)
        known = shapes.setdefault(pattern, [])
        if shape not in known:
            known.append(shape)
        key = (pattern, known.index(shape))
        row = built.rows.get(key)
        if row is None:
            owner = kinds.get(name.rpartition(".")[0], "")
            row = built.rows[key] = Row(pattern, key[1], shape, 0, owner)
        row.count += 1
        built.total += tensor.numel()
    return built


def small(model_type: str, model_class: Any) -> tuple[dict[str, Any], Built]:  # noqa: ANN401
    """Return a class's default config with few layers and experts, and what it builds."""
    config = config_class(model_type)().to_dict()
    built = build(model_class, config, model_type)
    for path, value in list(flattened(config)):
        key = path[-1]
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        goal = None
        if LAYER_KEYS.match(key) and value > 4 and "nextn" not in key:
            goal = 4
        elif (
            "expert" in key and value > 16 and key.startswith(("num_", "n_", "moe_num")) and "tok" not in key
        ):
            goal = 8 if value % 8 == 0 else value
        if goal is None:
            continue
        tried = changed(config, path, goal)
        try:
            built = build(model_class, tried, model_type)
            config = tried
        except Exception:  # noqa: BLE001, S112 - whatever a class raises over a config
            continue
    return config, built
