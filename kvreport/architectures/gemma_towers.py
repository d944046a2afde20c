"""The vision and audio towers of Gemma 3n and Gemma 4."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Tensor
from kvreport.architectures.keys import Keys
from kvreport.architectures.vision import MAX_DEPTH, times
from kvreport.architectures.weights import Tensors, linear, norm
from kvreport.catalog.model import Component

MOBILENET_V5_PARAMETERS: Final = 294_126_912
"""Parameters of the ``mobilenetv5_300m_enc`` encoder of timm, which Gemma 3n sees through.

Counted on the meta device with timm 1.0; the config names the encoder and says nothing of its
inside, so it is one row here.
"""


def gemma4_vision(vision: Keys, text_hidden: int) -> Tensors:
    """Linear patches, two tables of positions, gated MLPs, normalised queries and keys.

    Ranges and averages kept for calibration are not parameters and are left out.
    """
    hidden = vision.whole("hidden_size")
    heads = vision.whole("num_attention_heads", high=1 << 12)
    kv_heads = vision.whole("num_key_value_heads", high=heads)
    width = vision.whole("head_dim", high=1 << 12)
    inside = vision.whole("intermediate_size")
    patch = vision.whole("patch_size", high=1 << 12)
    path = "model.vision_tower.encoder.layers.*"
    names = (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    )
    block: Tensors = tuple(t for name in names for t in norm(f"{path}.{name}", hidden, component="vision"))
    for name, outputs in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
        block += linear(f"{path}.self_attn.{name}.linear", "vision", outputs * width, hidden, "columns")
    block += (
        *linear(f"{path}.self_attn.o_proj.linear", "vision", hidden, heads * width, "rows"),
        *norm(f"{path}.self_attn.q_norm", width, component="vision"),
        *norm(f"{path}.self_attn.k_norm", width, component="vision"),
        *linear(f"{path}.mlp.gate_proj.linear", "vision", inside, hidden, "columns"),
        *linear(f"{path}.mlp.up_proj.linear", "vision", inside, hidden, "columns"),
        *linear(f"{path}.mlp.down_proj.linear", "vision", hidden, inside, "rows"),
    )
    positions = vision.whole("position_embedding_size", high=1 << 24)
    return (
        *linear("model.vision_tower.patch_embedder.input_proj", "vision", hidden, 3 * patch * patch),
        Tensor(
            "model.vision_tower.patch_embedder.position_embedding_table", "vision", (2, positions, hidden)
        ),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), block),
        *linear("model.embed_vision.embedding_projection", "vision", text_hidden, hidden),
    )


def _subsampling(channels: list[int], hidden: int, frequencies: int, names: tuple[str, str]) -> Tensors:
    """Two strided convolutions over the spectrogram, and a projection of what is left of it."""
    first, second = channels
    path = "model.audio_tower.subsample_conv_projection"
    # Each convolution has stride 2 and rounds up.
    left = (frequencies + 3) // 4
    return (
        Tensor(f"{path}.{names[0]}.conv.weight", "audio", (first, 1, 3, 3)),
        Tensor(f"{path}.{names[0]}.norm.weight", "audio", (first,)),
        Tensor(f"{path}.{names[1]}.conv.weight", "audio", (second, first, 3, 3)),
        Tensor(f"{path}.{names[1]}.norm.weight", "audio", (second,)),
        Tensor(f"{path}.input_proj_linear.weight", "audio", (hidden, second * left)),
    )


def _conformer(path: str, hidden: int, head_dim: int, kernel: int) -> Tensors:
    """One conformer block: half a feed-forward, attention, a convolution, half a feed-forward."""
    matrices: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("feed_forward1.ffw_layer_1", (4 * hidden, hidden)),
        ("feed_forward1.ffw_layer_2", (hidden, 4 * hidden)),
        ("feed_forward1.pre_layer_norm", (hidden,)),
        ("feed_forward1.post_layer_norm", (hidden,)),
        ("self_attn.q_proj", (hidden, hidden)),
        ("self_attn.k_proj", (hidden, hidden)),
        ("self_attn.v_proj", (hidden, hidden)),
        ("self_attn.post", (hidden, hidden)),
        ("self_attn.relative_k_proj", (hidden, hidden)),
        ("self_attn.per_dim_scale", (head_dim,)),
        ("norm_pre_attn", (hidden,)),
        ("norm_post_attn", (hidden,)),
        ("lconv1d.linear_start", (2 * hidden, hidden)),
        ("lconv1d.linear_end", (hidden, hidden)),
        ("lconv1d.depthwise_conv1d", (hidden, 1, kernel)),
        ("lconv1d.pre_layer_norm", (hidden,)),
        ("lconv1d.conv_norm", (hidden,)),
        ("feed_forward2.ffw_layer_1", (4 * hidden, hidden)),
        ("feed_forward2.ffw_layer_2", (hidden, 4 * hidden)),
        ("feed_forward2.pre_layer_norm", (hidden,)),
        ("feed_forward2.post_layer_norm", (hidden,)),
        ("norm_out", (hidden,)),
    )
    return tuple(Tensor(f"{path}.{name}", "audio", shape) for name, shape in matrices)


def gemma4_audio(audio: Keys, text_hidden: int) -> Tensors:
    """A conformer behind two convolutions; 128 mel bands come in."""
    hidden = audio.whole("hidden_size")
    heads = audio.whole("num_attention_heads", high=1 << 12)
    channels = audio.wholes("subsampling_conv_channels", length=2, low=1, high=1 << 14) or []
    out = audio.whole("output_proj_dims")
    block = _conformer(
        "model.audio_tower.layers.*",
        hidden,
        audio.divide("hidden_size", hidden, "num_attention_heads", heads),
        audio.whole("conv_kernel_size", high=1 << 10),
    )
    return (
        *_subsampling(channels, hidden, 128, ("layer0", "layer1")),
        *times(audio.whole("num_hidden_layers", high=MAX_DEPTH), block),
        Tensor("model.audio_tower.output_proj.weight", "audio", (out, hidden)),
        Tensor("model.audio_tower.output_proj.bias", "audio", (out,)),
        Tensor("model.embed_audio.embedding_projection.weight", "audio", (text_hidden, out)),
    )


def gemma3n_vision() -> Tensors:
    """MobileNet-V5, as one row."""
    return (Tensor("model.vision_tower.timm_model", "vision", (MOBILENET_V5_PARAMETERS,)),)


def gemma3n_audio(audio: Keys) -> Tensors:
    """The same conformer, wider."""
    hidden = audio.whole("hidden_size")
    heads = audio.whole("conf_num_attention_heads", high=1 << 12)
    channels = audio.wholes("sscp_conv_channel_size", length=2, low=1, high=1 << 14) or []
    block = _conformer(
        "model.audio_tower.conformer.*",
        hidden,
        audio.divide("hidden_size", hidden, "conf_num_attention_heads", heads),
        audio.whole("conf_conv_kernel_size", high=1 << 10),
    )
    frequencies = audio.whole("input_feat_size", high=1 << 14)
    return (
        *_subsampling(channels, hidden, frequencies, ("conv_0", "conv_1")),
        *times(audio.whole("conf_num_hidden_layers", high=MAX_DEPTH), block),
    )


def gemma3n_bridge(tower: Keys, path: str, text_hidden: int, component: Component) -> Tensors:
    """From a tower's width into the text model's, with hard tokens of the modality's own."""
    hidden = tower.whole("hidden_size")
    return (
        Tensor(f"{path}.embedding.weight", component, (tower.whole("vocab_size"), hidden)),
        Tensor(f"{path}.hard_embedding_norm.weight", component, (hidden,)),
        Tensor(f"{path}.soft_embedding_norm.weight", component, (hidden,)),
        Tensor(f"{path}.embedding_projection.weight", component, (text_hidden, hidden)),
    )
