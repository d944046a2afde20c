"""Kimi K2.5 to K2.7 (DeepSeek-V3 layers beside a vision tower), Kimi Linear and Kimi K3 (KDA)."""

from __future__ import annotations

from kvreport.architectures.attention import latent_cache, layer_kinds, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import decoder, dense_mlp, expert_counts, latent_sizes
from kvreport.architectures.families.deepseek import latent_tensors, mixture
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norm
from kvreport.catalog.caches import Cache, RecurrentState, StateTensor


def kda_state(heads: int, head_dim: int, kernel: int) -> tuple[str, tuple[Cache, ...]]:
    """Return the state of a Kimi Delta Attention layer: three convolved streams, one matrix a head.

    The recurrence is kept in float32 whatever the model's type.
    """
    conv = StateTensor(name="conv", channels=3 * heads * head_dim, columns=kernel - 1)
    state = StateTensor(name="recurrent", channels=heads, columns=head_dim * head_dim, precision="float32")
    return "Kimi Delta Attention", (RecurrentState(mechanism="kda", tensors=(conv, state)),)


def kda_tensors(
    keys: Keys, hidden: int, dims: tuple[int, int, int], *, full_gate: bool = False, full_decay: bool = False
) -> Tensors:
    """Kimi Delta Attention: a delta rule whose decay is per channel.

    ``dims`` are heads, width of a head, width of the convolution. Gate and decay are one matrix each if they are full, else they
    go through a bottleneck of a head's width.
    """
    heads, head_dim, kernel = dims
    given = {"hidden": hidden, "heads": heads, "head_dim": head_dim, "kernel": kernel}
    return part(
        "kimi_delta_attention", keys, "self_attn", **given, full_gate=full_gate, full_decay=full_decay
    )


def _full_layers(keys: Keys, linear_config: Keys | None, layers: int) -> list[bool]:
    """Tell which layers are full attention; the checkpoint's own lists count from 1."""
    if linear_config is not None and linear_config.has("full_attn_layers"):
        full = linear_config.wholes("full_attn_layers", low=1, high=layers) or []
        return [index + 1 in full for index in range(layers)]
    kinds = layer_kinds(keys, layers, lambda i: "full" if i and i % 4 == 0 else "linear", ("full", "linear"))
    return [kind == "full" for kind in kinds]


@reads("KimiLinearForCausalLM", family="Kimi Linear", model_types=("kimi_linear",))
def kimi_linear(keys: Keys) -> Blueprint:
    """Kimi Delta Attention with a latent-attention layer after every third, and a mixture."""
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(
        keys, "num_experts", "num_local_experts", per_token=("num_experts_per_tok", "num_experts_per_token")
    )
    inner = keys.section("linear_attn_config", defaults=_linear_defaults(keys))
    dims = _kda_sizes(keys, inner)
    latent = latent_tensors(keys, its, rank, rope)
    mixed, dense = mixture(keys, its.hidden, routed), dense_mlp(keys, its.hidden, width)
    attends = latent_cache(rank, rope), latent
    delta = kda_state(*dims), (*latent[:2], *kda_tensors(keys, its.hidden, dims))
    layers = _layers(keys, inner, its.layers, (attends, delta), (mixed, dense))
    # transformers, modeling_kimi_linear.py: the class ties nothing, whatever the config says.
    return decoder(keys, its, layers, intermediate=width, experts=(routed, per_token), tie=False)


_Mixer = tuple[tuple[str, tuple[Cache, ...]], Tensors]


def _layers(
    keys: Keys, inner: Keys | None, count: int, kinds: tuple[_Mixer, _Mixer], mlps: tuple[Tensors, Tensors]
) -> list[Layer]:
    """Put together what layers keep and weigh: of latent attention or KDA, with a mixture or a dense MLP."""
    (attends, delta), (mixed, dense) = kinds, mlps
    chosen = zip(_full_layers(keys, inner, count), mixture_pattern(keys, count), strict=True)
    each = ((attends if full else delta, mixed if sparse else dense) for full, sparse in chosen)
    return [Layer(*kept, (*tensors, *mlp)) for (kept, tensors), mlp in each]


def kda_sizes(keys: Keys) -> tuple[int, int, int]:
    """Return heads, head width and kernel of KDA, from the sub-object or from the top level."""
    return _kda_sizes(keys, keys.section("linear_attn_config", defaults=_linear_defaults(keys)))


def _linear_defaults(keys: Keys) -> dict[str, object]:
    return {
        "head_dim": keys.defaults.get("linear_head_dim"),
        "num_heads": keys.defaults.get("linear_num_heads"),
        "short_conv_kernel_size": keys.defaults.get("linear_conv_kernel_dim"),
    }


def _kda_sizes(keys: Keys, inner: Keys | None) -> tuple[int, int, int]:
    place, prefix = (keys, "linear_") if inner is None else (inner, "")
    return (
        place.whole(f"{prefix}num_heads", high=1 << 14),
        place.whole(f"{prefix}head_dim", high=1 << 14),
        place.whole("linear_conv_kernel_dim" if prefix else "short_conv_kernel_size", low=2, high=1 << 10),
    )


@reads("KimiK3ForConditionalGeneration", family="Kimi K3", model_types=("kimi_k3",))
def kimi_k3(keys: Keys) -> Blueprint:
    """Kimi Linear grown: full-rank gates, experts in a latent width, residuals across blocks.

    Every matrix of the text model is counted as the engine that runs it builds it; its class has no
    defaults of its own, so a missing dimension is an error.
    """
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(
        keys, "num_experts", per_token=("num_experts_per_token", "num_experts_per_tok")
    )
    inner = keys.section("linear_attn_config")
    if inner is None:
        raise keys.fault("linear_attn_config", None, "an object with the layers and sizes of KDA")
    dims = _kda_sizes(keys, inner)
    # The glue by which a layer attends over the outputs of earlier blocks of layers.
    around = part("kimi_k3_residuals", keys, hidden=its.hidden) if keys.has("attn_res_block_size") else ()
    latent = (*latent_tensors(keys, its, rank, rope), *_k3_gate(keys, its.hidden, its.heads), *around)
    full_gate = inner.flag("use_full_rank_gate", default=False)
    linear_layer = (*latent[:2], *kda_tensors(keys, its.hidden, dims, full_gate=full_gate), *around)
    dense, mixed = dense_mlp(keys, its.hidden, width), _k3_mixture(keys, its.hidden, routed)
    kinds = (latent_cache(rank, rope), latent), (kda_state(*dims), linear_layer)
    layers = _layers(keys, inner, its.layers, kinds, (mixed, dense))
    base = "language_model.model"
    extra = _k3_vision(keys, its.hidden)
    if around:
        extra += norm(f"{base}.output_attn_res_norm", its.hidden)
        extra += (Weight(f"{base}.output_attn_res_proj.weight", "other", (1, its.hidden)),)
    return decoder(
        keys,
        its,
        layers,
        base=base,
        head="language_model.lm_head",
        intermediate=width,
        experts=(routed, per_token),
        extra=extra,
    )


def _k3_gate(keys: Keys, hidden: int, heads: int) -> Tensors:
    if not keys.flag("mla_use_output_gate", default=False):
        return ()
    wide = heads * keys.whole("v_head_dim", high=1 << 14)
    return linear("self_attn.g_proj", "attention", wide, hidden, "heads", heads=heads)


def _k3_mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    """Experts between a shared projection down to a latent width and back up."""
    width = keys.whole("moe_intermediate_size")
    inner = keys.whole("routed_expert_hidden_size", default=hidden)
    shared = keys.whole("num_shared_experts", default=0, low=0, high=1 << 10)
    normed = inner != hidden and keys.flag("latent_moe_use_norm", default=False)
    given = {"hidden": hidden, "inner": inner, "routed": routed, "expert_width": width, "normed": normed}
    return part("kimi_k3_mixture", keys, "block_sparse_moe", **given, shared_width=width * shared)


def _k3_vision(keys: Keys, text_hidden: int) -> Tensors:
    """MoonViT with RMSNorm, no biases, wider heads, and a projector without a norm in front."""
    vision = keys.outer.section("vision_config", defaults=published("k3_vision"))
    if vision is None:
        return ()
    return part("moonvit3", vision, text_hidden=text_hidden)
