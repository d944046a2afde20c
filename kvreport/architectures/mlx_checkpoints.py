"""MLX checkpoints: one scheme for every layer that can have it, and exceptions by module.

``mlx.nn.quantize`` converts linear layers, experts and embeddings whose inputs are whole groups
(mlx-lm 0.32.2, ``utils.py::quantize_model``); a head that shares the embedding shares its bits.
Prediction layers are left out by every model of mlx-lm (``sanitize``), and the section of an image
encoder is taken out of the config of a model that was converted as text alone (``utils.py::save_config``).
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Weight
from kvreport.architectures.keys import Keys
from kvreport.architectures.quantized_modules import Quantization
from kvreport.catalog.layouts import layout

_MODES: Final = {"affine": (64, 4), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}
"""Group size and bits that a mode has where nothing else is said."""
_GROUPS: Final = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}
_TOWER: Final = "vision_config"
_TABLES: Final = ("embedding", "output_head")


def is_mlx(config: Keys) -> bool:
    """True if the config's ``quantization`` is MLX's: bits and group size, and no method."""
    section = config.raw("quantization")
    return isinstance(section, dict) and ("bits" in section or "mode" in section)


def leave_out(blueprint: Blueprint, config: Keys) -> None:
    """Take out of a model, in place, what its conversion for MLX leaves out, and what was assumed of it."""
    text_alone = _TOWER not in config.data and any(
        path.startswith(f"{_TOWER}.") for path in config.trail.looked_at
    )
    dropped = {"mtp", "vision", "audio"} if text_alone else {"mtp"}
    left = [tensor for tensor in blueprint.outer if tensor.component not in dropped]
    if len(left) == len(blueprint.outer):
        return
    blueprint.outer = left
    if text_alone:
        config.trail.forget(_TOWER)
        blueprint.notes.append("Converted for MLX as text alone: the config has no image encoder.")


def mlx(found: Quantization, own: Keys) -> None:
    """Read ``quantization`` as MLX writes it.

    Raises:
        InputError: If a mode or a width is not MLX's.
    """
    usual, group = _form(own)
    listed: dict[str, tuple[str, int] | None] = {}
    for name, value in own.data.items():
        if value is False:
            listed[_plain(name)] = None
        elif isinstance(value, dict):
            entry = own.section(name)
            if entry is not None:
                listed[_plain(name)] = _form(entry)

    def decide(module: str, tensor: Weight) -> str | None:
        name = _plain(module)
        if name in listed:
            its = listed[name]
        elif tensor.component in ("vision", "audio") or not (
            tensor.linear or tensor.component in _TABLES or tensor.looked_up
        ):
            its = None
        else:
            its = (usual, group)
        if its is None or len(tensor.shape) < 2 or tensor.shape[-1] % its[1]:
            return None
        return its[0]

    found.decide = decide
    found.weight_format = usual


def _form(own: Keys) -> tuple[str, int]:
    mode = own.text("mode", default="affine") or "affine"
    if mode not in _MODES:
        raise own.fault("mode", mode, f"one of {', '.join(_MODES)}")
    usual_group, usual_bits = _MODES[mode]
    group = own.whole("group_size", default=usual_group, high=1024)
    if mode != "affine":
        return ("mlx-nvfp4" if mode == "nvfp4" else mode), _GROUPS[mode]
    bits = own.whole("bits", default=usual_bits, high=8)
    form = f"mlx{bits}-g{group}"
    if layout(form) is None:
        raise own.fault("bits", bits, "2, 3, 4, 5, 6 or 8")
    return form, group


def _plain(module: str) -> str:
    """Bring a module's path to one spelling: MLX nests text models and names experts otherwise."""
    inner = [part for part in module.split(".") if part != "language_model"]
    while inner and inner[0] == "model":
        inner = inner[1:]
    return ".".join(inner).replace(".switch_mlp.", ".experts.0.")
