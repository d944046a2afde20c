"""Parts: an encoder or a layer that is listed once, and read by code and by the listings of classes alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kvreport.architectures import families, listing
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.tensor_builders import Tensors
from kvreport.errors import InputError

FOLDER = Path(families.__file__).parents[1]
SOURCE = "".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.rglob("*.py")))
LISTINGS = "".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*/*.txt")))
PARTS = sorted(
    listing.sections(path.read_text(encoding="utf-8") for path in sorted((FOLDER / "parts").glob("*.txt")))
)
# The largest CLIP of OpenAI as its config.json has it.
CLIP_L_336 = {
    "hidden_size": 1024,
    "image_size": 336,
    "intermediate_size": 4096,
    "num_channels": 3,
    "num_hidden_layers": 24,
    "patch_size": 14,
}


def keys(**data: object) -> Keys:
    return Keys(data, "config", "vision_config", {"patch_size": 14, "qkv_bias": True})


def elements(tensors: Tensors) -> int:
    total = 0
    for tensor in tensors:
        count = tensor.count
        for side in tensor.shape:
            count *= side
        total += count
    return total


def test_every_part_can_be_read_and_is_used() -> None:
    for name in PARTS:
        assert listing.part_listing(name).rows, name
        used = rf"^(?:part|encoder): {name} |^predicts: (?:\w+ )*{name}$"
        assert f'"{name}"' in SOURCE or re.search(used, LISTINGS, re.MULTILINE), name


def test_clip_has_the_parameters_of_the_published_encoder() -> None:
    # The encoder of LLaVA 1.5: 303,507,456 parameters (the sum over model.safetensors.index.json's tensors).
    tensors = part("clip", keys(**CLIP_L_336), "vision_tower.vision_model")
    assert elements(tensors) == 303_507_456
    assert "vision_tower.vision_model.encoder.layers.*.self_attn.q_proj.bias" in {t.name for t in tensors}


def test_a_line_of_a_listing_puts_the_part_into_a_module_with_the_sizes_of_a_section() -> None:
    text = "part: vit_layer model.tower.* vision_config\n"
    placed = {row.names[0]: row for row in listing.read_listing("Example", text).rows}
    row = placed["model.tower.*.mlp.fc1.weight"]
    assert row.shape == ("vision_config.intermediate_size", "vision_config.hidden_size")
    assert row.count == "vision_config.num_hidden_layers"
    same = listing.read_listing("Example", "part: vit_layer .\n").rows
    assert same == listing.part_listing("vit_layer").rows


def test_formulas_are_put_into_a_section_without_their_functions_and_words() -> None:
    formula = "ceil(num_layers/2) if norm_type == 'layer_norm' else max(a, b.c)"
    assert listing._qualified(formula, "x.y") == (
        "ceil(x.y.num_layers/2) if x.y.norm_type == 'layer_norm' else max(x.y.a, x.y.b.c)"
    )


def test_what_the_caller_gives_goes_before_keys_and_terms() -> None:
    vision = keys(
        hidden_size=8, intermediate_size=16, depth=1, in_chans=3, temporal_patch_size=2, spatial_merge_size=2
    )
    vision.data["out_hidden_size"] = 8  # type: ignore[index] - the dict that was given
    plain = {t.name: t.shape for t in part("qwen2_5_vision", vision, "visual")}
    grouped = {t.name: t.shape for t in part("qwen2_5_vision", vision, "visual", fused=12)}
    assert plain["visual.blocks.*.attn.qkv.weight"] == (24, 8)
    assert grouped["visual.blocks.*.attn.qkv.weight"] == (12, 8)
    # An alias stands for the key.
    assert plain["visual.patch_embed.proj.weight"] == (8, 6, 14, 14)


def test_a_missing_or_absurd_size_is_named() -> None:
    data: dict[str, Any] = dict(CLIP_L_336)
    with pytest.raises(InputError, match=r"vision_config\.num_hidden_layers: found 501"):
        part("clip", keys(**{**data, "num_hidden_layers": 501}))
    data.pop("image_size")
    with pytest.raises(InputError, match=r"vision_config\.image_size: found nothing"):
        part("clip", keys(**data))
