"""Vision towers, counted exactly; an engine loads them unless it is told to serve text only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kvreport.architectures.blueprint import Tensor
from kvreport.architectures.keys import Keys
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm, norms

MAX_DEPTH: Final = 500


def times(count: int, tensors: Iterable[Tensor]) -> Tensors:
    """The same tensors in ``count`` blocks; their names carry a ``*`` for the block."""
    return tuple(replace(tensor, count=tensor.count * count) for tensor in tensors)


def plain_block(
    prefix: str,
    hidden: int,
    width: int,
    *,
    names: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    output: str = "self_attn.out_proj",
    mlp: tuple[str, str] = ("mlp.fc1", "mlp.fc2"),
    block_norms: tuple[str, str] = ("layer_norm1", "layer_norm2"),
    bias: bool = True,
    mlp_bias: bool = True,
    norm_bias: bool = True,
    inner: int | None = None,
) -> Tensors:
    """A transformer block with full attention and a two-matrix MLP, as most towers have it.

    Args:
        prefix: Module path of the blocks, with ``*`` for the index.
        hidden: Width.
        width: Width inside the MLP.
        names: The query, key and value projections, or a single fused one.
        output: The output projection.
        mlp: The two matrices of the MLP.
        block_norms: The two norms.
        bias: Whether the attention's projections have a bias.
        mlp_bias: Whether the MLP has.
        norm_bias: Whether the norms have.
        inner: Width of all heads together, where it may be another than that of the block.
    """
    inner = inner or hidden
    outputs = inner * 3 // len(names)
    tensors: Tensors = tuple(
        Tensor(f"{prefix}.{tensor.name}", "vision", tensor.shape)
        for tensor in norms(*block_norms, width=hidden, bias=norm_bias)
    )
    for name in names:
        tensors += linear(f"{prefix}.{name}", "vision", outputs, hidden, "columns", bias=bias)
    return (
        *tensors,
        *linear(f"{prefix}.{output}", "vision", hidden, inner, "rows", bias=bias),
        *linear(f"{prefix}.{mlp[0]}", "vision", width, hidden, "columns", bias=mlp_bias),
        *linear(f"{prefix}.{mlp[1]}", "vision", hidden, width, "rows", bias=mlp_bias),
    )


def section_or_default(config: Keys, name: str, defaults: Mapping[str, Any]) -> Keys:
    """Return a tower's section; where the config leaves it out, the class builds its default tower."""
    found = config.section(name, defaults=defaults)
    return found or Keys({}, config.where, config.field(name), defaults, config.trail)


def check_heads(vision: Keys, width: int, name: str) -> None:
    """Refuse heads that do not divide the width: classes with a matrix per projection round them down.

    No release has such an encoder, and an engine that fuses the projections would not round.
    """
    heads = vision.optional(name, low=1)
    if heads is not None and width % heads:
        raise vision.fault(name, heads, f"a number that divides the width of {width}")


def siglip(vision: Keys, prefix: str) -> Tensors:
    """SigLIP: learned positions, biased attention and MLP, one last norm.

    A pooling head (``vision_use_head``) is built where the config does not rule it out.
    """
    hidden = vision.whole("hidden_size")
    patch = vision.whole("patch_size", high=1 << 12)
    patches = (vision.whole("image_size", high=1 << 16) // patch) ** 2
    channels = vision.whole("num_channels", high=64)
    block = plain_block(f"{prefix}.encoder.layers.*", hidden, vision.whole("intermediate_size"))
    return (
        Tensor(f"{prefix}.embeddings.patch_embedding.weight", "vision", (hidden, channels, patch, patch)),
        Tensor(f"{prefix}.embeddings.patch_embedding.bias", "vision", (hidden,)),
        Tensor(f"{prefix}.embeddings.position_embedding.weight", "vision", (max(1, patches), hidden)),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), block),
        *norm(f"{prefix}.post_layernorm", hidden, bias=True, component="vision"),
        *(_siglip_head(vision, f"{prefix}.head", hidden) if vision.flag("vision_use_head") else ()),
    )


def _siglip_head(vision: Keys, prefix: str, hidden: int) -> Tensors:
    width = vision.whole("intermediate_size")
    return (
        Tensor(f"{prefix}.probe", "vision", (1, 1, hidden)),
        Tensor(f"{prefix}.attention.in_proj_weight", "vision", (3 * hidden, hidden)),
        Tensor(f"{prefix}.attention.in_proj_bias", "vision", (3 * hidden,)),
        *linear(f"{prefix}.attention.out_proj", "vision", hidden, hidden, bias=True),
        *norm(f"{prefix}.layernorm", hidden, bias=True, component="vision"),
        *linear(f"{prefix}.mlp.fc1", "vision", width, hidden, bias=True),
        *linear(f"{prefix}.mlp.fc2", "vision", hidden, width, bias=True),
    )


def clip(vision: Keys, prefix: str) -> Tensors:
    """CLIP's tower: a class token, learned positions, and norms before and after the blocks."""
    hidden = vision.whole("hidden_size")
    patch = vision.whole("patch_size", high=1 << 12)
    patches = (vision.whole("image_size", high=1 << 16) // patch) ** 2
    channels = vision.whole("num_channels", high=64)
    block = plain_block(f"{prefix}.encoder.layers.*", hidden, vision.whole("intermediate_size"))
    return (
        Tensor(f"{prefix}.embeddings.class_embedding", "vision", (hidden,)),
        Tensor(f"{prefix}.embeddings.patch_embedding.weight", "vision", (hidden, channels, patch, patch)),
        Tensor(f"{prefix}.embeddings.position_embedding.weight", "vision", (patches + 1, hidden)),
        *norm(f"{prefix}.pre_layrnorm", hidden, bias=True, component="vision"),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), block),
        *norm(f"{prefix}.post_layernorm", hidden, bias=True, component="vision"),
    )


def qwen3_vision(vision: Keys, prefix: str = "model.visual") -> Tensors:
    """The tower of Qwen3-VL and Qwen3.5: fused QKV, a merger, and one more merger per deep stack."""
    hidden = vision.whole("hidden_size")
    depth = vision.whole("depth", high=MAX_DEPTH)
    patch = vision.whole("patch_size", high=1 << 12)
    frames = vision.whole("temporal_patch_size", high=64)
    merged = hidden * vision.whole("spatial_merge_size", high=64) ** 2
    out = vision.whole("out_hidden_size")
    deep = vision.wholes("deepstack_visual_indexes", high=MAX_DEPTH) or []
    block = plain_block(
        f"{prefix}.blocks.*",
        hidden,
        vision.whole("intermediate_size"),
        names=("attn.qkv",),
        output="attn.proj",
        mlp=("mlp.linear_fc1", "mlp.linear_fc2"),
        block_norms=("norm1", "norm2"),
    )
    kernel = vision.whole("in_channels", high=64) * frames
    tensors: Tensors = (
        Tensor(f"{prefix}.patch_embed.proj.weight", "vision", (hidden, kernel, patch, patch)),
        Tensor(f"{prefix}.patch_embed.proj.bias", "vision", (hidden,)),
        Tensor(
            f"{prefix}.pos_embed.weight",
            "vision",
            (vision.whole("num_position_embeddings", high=1 << 24), hidden),
        ),
        *times(depth, block),
    )
    for name, count, width in (("merger", 1, hidden), ("deepstack_merger_list.*", len(deep), merged)):
        if count:
            tensors += times(
                count,
                (
                    *norm(f"{prefix}.{name}.norm", width, bias=True, component="vision"),
                    *linear(f"{prefix}.{name}.linear_fc1", "vision", merged, merged, "columns", bias=True),
                    *linear(f"{prefix}.{name}.linear_fc2", "vision", out, merged, "rows", bias=True),
                ),
            )
    return tensors


def _patches(vision: Keys, prefix: str, hidden: int) -> Tensors:
    patch = vision.whole("patch_size", "spatial_patch_size", high=1 << 12)
    kernel = vision.whole("in_channels", "in_chans", high=64) * vision.whole("temporal_patch_size", high=64)
    return (Tensor(f"{prefix}.patch_embed.proj.weight", "vision", (hidden, kernel, patch, patch)),)


def _merger(vision: Keys, prefix: str, hidden: int, out: int, *, norm_bias: bool) -> Tensors:
    merged = hidden * vision.whole("spatial_merge_size", high=64) ** 2
    return (
        *norm(f"{prefix}.merger.ln_q", hidden, bias=norm_bias, component="vision"),
        *linear(f"{prefix}.merger.mlp.0", "vision", merged, merged, "columns", bias=True),
        *linear(f"{prefix}.merger.mlp.2", "vision", out, merged, "rows", bias=True),
    )


def qwen2_vision(vision: Keys, prefix: str) -> Tensors:
    """Qwen2-VL's tower; ``hidden_size`` here is the text model's width, ``embed_dim`` its own."""
    hidden = vision.whole("embed_dim")
    block = plain_block(
        f"{prefix}.blocks.*",
        hidden,
        hidden * vision.whole("mlp_ratio", high=64),
        names=("attn.qkv",),
        output="attn.proj",
        block_norms=("norm1", "norm2"),
    )
    return (
        *_patches(vision, prefix, hidden),
        *times(vision.whole("depth", high=MAX_DEPTH), block),
        *_merger(vision, prefix, hidden, vision.whole("hidden_size"), norm_bias=True),
    )


def qwen2_5_vision(vision: Keys, prefix: str) -> Tensors:
    """Qwen2.5-VL's tower: RMSNorm, a gated MLP with biases, windows inside."""
    hidden = vision.whole("hidden_size")
    width = vision.whole("intermediate_size")
    block = (
        *norm(f"{prefix}.blocks.*.norm1", hidden, component="vision"),
        *norm(f"{prefix}.blocks.*.norm2", hidden, component="vision"),
        *linear(f"{prefix}.blocks.*.attn.qkv", "vision", 3 * hidden, hidden, "columns", bias=True),
        *linear(f"{prefix}.blocks.*.attn.proj", "vision", hidden, hidden, "rows", bias=True),
        *gated_mlp(hidden, width, f"{prefix}.blocks.*.mlp", "vision", bias=True),
    )
    return (
        *_patches(vision, prefix, hidden),
        *times(vision.whole("depth", high=MAX_DEPTH), block),
        *_merger(vision, prefix, hidden, vision.whole("out_hidden_size"), norm_bias=False),
    )
