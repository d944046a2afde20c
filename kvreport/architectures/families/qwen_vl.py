"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Intern-S1-Pro: the text models of their generation beside a vision tower."""

from __future__ import annotations

from math import tau

from kvreport.architectures.blueprint import Blueprint, Weight
from kvreport.architectures.keys import MAX_CONTEXT, Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import qwen3_vision, section_or_default
from kvreport.catalog.caches import FullAttention


@reads("InternS1ProForConditionalGeneration", family="Intern-S1", model_types=("interns1_pro",))
def interns1_pro(keys: Keys) -> Blueprint:
    """Qwen3-VL's mixture with Fourier position coefficients that are learned (vLLM 0.33, ``interns1_pro.py``).

    Without ``deepstack_visual_indexes`` there are no deep stacks. vLLM and SGLang (0.5.23, ``interns1pro.py``) leave
    the encoder of time series out.
    """
    defaults = {**published("qwen3_vision"), "deepstack_visual_indexes": []}
    tower = qwen3_vision(section_or_default(keys.outer, "vision_config", defaults))
    blueprint = read_layered("Qwen3MoeForCausalLM", keys, base="model.language_model", extra=tower)
    blueprint.outer += _fourier(keys, blueprint)
    if keys.outer.has("ts_config"):
        keys.outer.section("ts_config")
        blueprint.notes.append("The encoder of time series is not counted: engines do not load it.")
    return blueprint


def _fourier(keys: Keys, blueprint: Blueprint) -> Tensors:
    """Two coefficients per KV head and pair of frequencies (vLLM 0.33, ``rotary_embedding/fope.py``).

    Kept are as many frequencies as ``num_inv_freq`` says, else those whose period is within the longest context.
    """
    rope = keys.section("rope_scaling", "rope_parameters")
    if rope is None or not rope.has("fope_init_factor", "fope_sep_head", "num_inv_freq"):
        raise keys.fault("rope_scaling", None, "fope_init_factor, fope_sep_head or num_inv_freq")
    cache = blueprint.layers[0].caches[0]
    if not isinstance(cache, FullAttention):
        raise keys.fault("use_sliding_window", "true", "false")
    pairs = cache.key_dim // 2
    kept = rope.optional("num_inv_freq", low=1, high=1 << 14)
    if kept is None:
        base = (keys if keys.has("rope_theta") else rope).number("rope_theta", low=1, high=1e12)
        longest = keys.whole("max_position_embeddings", high=MAX_CONTEXT)
        kept = sum(base ** (-pair / pairs) > tau / longest for pair in range(pairs))
    side = min(kept, pairs)
    return tuple(
        Weight(
            f"model.language_model.rotary_emb.{name}_coef",
            "attention",
            (cache.kv_heads, side, side),
            "kv_heads",
            cache.kv_heads,
        )
        for name in ("sin", "cos")
    )
