"""Kimi K2.5 to K2.7 (DeepSeek-V3 layers beside a vision tower), Kimi Linear and Kimi K3 (KDA)."""

from __future__ import annotations

from kvreport.architectures.attention import latent_cache, layer_kinds, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import decoder, expert_counts, latent_sizes
from kvreport.architectures.families.deepseek import latent_tensors, mixture
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    linear,
    norm,
    out_linear,
    routed_experts,
    router,
)
from kvreport.catalog.caches import Cache, RecurrentState, StateTensor


def kda_state(heads: int, head_dim: int, kernel: int) -> tuple[str, tuple[Cache, ...]]:
    """Return the state of a Kimi Delta Attention layer: three convolved streams, one matrix a head.

    The recurrence is kept in float32 whatever the model's type.
    """
    conv = StateTensor(name="conv", channels=3 * heads * head_dim, columns=kernel - 1)
    state = StateTensor(name="recurrent", channels=heads, columns=head_dim * head_dim, precision="float32")
    return "Kimi Delta Attention", (RecurrentState(mechanism="kda", tensors=(conv, state)),)


def kda_tensors(
    hidden: int, heads: int, head_dim: int, kernel: int, *, full_gate: bool, full_decay: bool = False
) -> Tensors:
    """Kimi Delta Attention: a delta rule whose decay is per channel.

    Args:
        hidden: Width of the residual stream.
        heads: Heads.
        head_dim: Width of a head.
        kernel: Width of the convolution.
        full_gate: Whether the output's gate is one matrix; else it goes through a waist of a head's width.
        full_decay: The same of the decay.
    """
    wide = heads * head_dim
    path = "self_attn"

    def into(name: str, outputs: int, inputs: int = hidden) -> Tensors:
        return linear(f"{path}.{name}", "recurrent", outputs, inputs, "heads", heads=heads)

    def gate(name: str, *, full: bool) -> Tensors:
        if full:
            return into(f"{name}_proj", wide)
        waist = linear(f"{path}.{name}_a_proj", "recurrent", head_dim, hidden)
        return (*waist, *into(f"{name}_b_proj", wide, head_dim))

    return (
        *into("q_proj", wide),
        *into("k_proj", wide),
        *into("v_proj", wide),
        Weight(f"{path}.conv1d.weight", "recurrent", (3 * wide, 1, kernel), "heads", heads),
        *gate("f", full=full_decay),
        Weight(f"{path}.dt_bias", "recurrent", (wide,), "heads", heads),
        Weight(f"{path}.A_log", "recurrent", (heads,), "heads", heads),
        *into("b_proj", heads),
        *gate("g", full=full_gate),
        *norm(f"{path}.o_norm", head_dim, component="recurrent"),
        *out_linear(f"{path}.o_proj", "recurrent", hidden, wide, heads),
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
    heads, head_dim, kernel = _kda_sizes(keys, inner)
    latent = latent_tensors(keys, its, rank, rope)
    delta = (
        *latent[:2],
        *kda_tensors(its.hidden, heads, head_dim, kernel, full_gate=False),
    )
    mlps = [
        mixture(keys, its.hidden, routed, correction=True) if sparse else gated_mlp(its.hidden, width)
        for sparse in mixture_pattern(keys, its.layers)
    ]
    layers = [
        Layer(*latent_cache(rank, rope), (*latent, *mlp))
        if full
        else Layer(*kda_state(heads, head_dim, kernel), (*delta, *mlp))
        for full, mlp in zip(_full_layers(keys, inner, its.layers), mlps, strict=True)
    ]
    # transformers, modeling_kimi_linear.py: the class ties nothing, whatever the config says.
    return decoder(keys, its, layers, intermediate=width, experts=(routed, per_token), tie=False)


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
    if inner is not None:
        return (
            inner.whole("num_heads", high=1 << 14),
            inner.whole("head_dim", high=1 << 14),
            inner.whole("short_conv_kernel_size", low=2, high=1 << 10),
        )
    return (
        keys.whole("linear_num_heads", high=1 << 14),
        keys.whole("linear_head_dim", high=1 << 14),
        keys.whole("linear_conv_kernel_dim", low=2, high=1 << 10),
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
    heads, head_dim, kernel = _kda_sizes(keys, inner)
    around = _k3_residuals(keys, its.hidden)
    latent = (*latent_tensors(keys, its, rank, rope), *_k3_gate(keys, its.hidden, its.heads), *around)
    delta = (
        *latent[:2],
        *kda_tensors(
            its.hidden, heads, head_dim, kernel, full_gate=inner.flag("use_full_rank_gate", default=False)
        ),
        *around,
    )
    dense, mixed = gated_mlp(its.hidden, width), _k3_mixture(keys, its.hidden, routed)
    layers = [
        Layer(
            *(latent_cache(rank, rope) if full else kda_state(heads, head_dim, kernel)),
            (*(latent if full else delta), *(mixed if sparse else dense)),
        )
        for full, sparse in zip(
            _full_layers(keys, inner, its.layers), mixture_pattern(keys, its.layers), strict=True
        )
    ]
    base = "language_model.model"
    extra = (
        *(_k3_vision(keys, its.hidden)),
        *(
            (
                *norm(f"{base}.output_attn_res_norm", its.hidden),
                Weight(f"{base}.output_attn_res_proj.weight", "other", (1, its.hidden)),
            )
            if around
            else ()
        ),
    )
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


def _k3_residuals(keys: Keys, hidden: int) -> Tensors:
    """The glue by which a layer attends over the outputs of earlier blocks of layers."""
    if not keys.has("attn_res_block_size"):
        return ()
    return (
        *norm("self_attention_res_norm", hidden),
        *norm("mlp_res_norm", hidden),
        Weight("self_attention_res_proj.weight", "other", (1, hidden)),
        Weight("mlp_res_proj.weight", "other", (1, hidden)),
    )


def _k3_mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    """Experts between a shared projection down to a latent width and back up."""
    base = "block_sparse_moe"
    width = keys.whole("moe_intermediate_size")
    inner = keys.whole("routed_expert_hidden_size", default=hidden)
    shared = keys.whole("num_shared_experts", default=0, low=0, high=1 << 10)
    around: Tensors = ()
    if inner != hidden:
        around = (
            # Built without a quantizer (vLLM 0.33, models/kimi_k3), and at 16 bits in the checkpoint.
            Weight(f"{base}.routed_expert_down_proj.weight", "other", (inner, hidden)),
            *(
                norm(f"{base}.routed_expert_norm", inner)
                if keys.flag("latent_moe_use_norm", default=False)
                else ()
            ),
            Weight(f"{base}.routed_expert_up_proj.weight", "other", (hidden, inner)),
        )
    return (
        *router(hidden, routed, f"{base}.gate"),
        *correction_bias(routed, f"{base}.gate.e_score_correction_bias"),
        *around,
        *routed_experts(inner, width, routed, f"{base}.experts.*", names=("w1", "w3", "w2")),
        *(gated_mlp(hidden, width * shared, f"{base}.shared_experts", "shared_experts") if shared else ()),
    )


def _k3_vision(keys: Keys, text_hidden: int) -> Tensors:
    """MoonViT with RMSNorm, no biases, wider heads, and a projector without a norm in front."""
    vision = keys.outer.section("vision_config", defaults=published("k3_vision"))
    if vision is None:
        return ()
    return part("moonvit3", vision, text_hidden=text_hidden)
