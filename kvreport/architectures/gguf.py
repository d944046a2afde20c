"""A GGUF file as a model record: dimensions from its metadata, weights from its tensor table.

No table of model classes: the keys are those that llama.cpp reads (``src/llama-arch.cpp``,
``src/llama-model.cpp`` of 0c1e57098), under the architecture's own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor, local_tensor
from kvreport.architectures.gguf_header import Header, read_header
from kvreport.catalog import caches as kinds
from kvreport.catalog.base import Source
from kvreport.catalog.model import Component, Experts, LayerGroup, Model, WeightGroup, compress
from kvreport.errors import InputError, shorten

_COMPONENTS: Final[tuple[tuple[str, Component], ...]] = (
    ("token_embd.", "embedding"), ("output.", "output_head"), ("per_layer_token_embd", "other"),
    ("_exps", "routed_experts"), ("_shexp", "shared_experts"), ("exp_probs_b", "router"),
    ("ffn_gate_inp", "router"), ("_norm", "norms"), ("ssm_", "recurrent"), ("shortconv", "recurrent"),
    ("time_mix", "recurrent"), ("attn_", "attention"), ("indexer", "attention"), ("ffn_", "dense_mlp"),
)  # fmt: skip


MAX_LAYERS: Final = 4096

_INERT: Final = re.compile(
    r"epsilon|scal|rope\.|vocab_size|feed_forward|expert_|dense_block|weights_norm|gating_func|causal|pooling|clamp|token"
)
"""Words of keys that decide how a model computes and not what it keeps."""

_ARCHITECTURE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""How llama.cpp names architectures (``llama-arch.cpp``)."""


@dataclass(frozen=True)
class GgufModel:
    """A GGUF file, read."""

    model: Model
    architecture: str  # ``general.architecture``.
    tensors: tuple[LocalTensor, ...]  # Every tensor with its type; prediction layers included.
    prediction_layers: int  # Layers at the end that are not loaded for plain decoding.
    missing_bytes: int = 0  # Bytes by which the file ends before its tensors do; 0 for a whole file.
    not_read: tuple[str, ...] = ()  # Keys of the architecture that hold numbers and were not used.


def read_gguf(path: str | Path) -> GgufModel:
    """Read a GGUF file's header.

    Raises:
        InputError: In one sentence, if the file or its metadata cannot be used.
    """
    header = read_header(path)
    try:
        return model_from_header(header)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{header.path.name}: {field}: {first['msg']}; allowed: a model in GGUF") from error


def model_from_header(header: Header) -> GgufModel:
    """Make a model record of a header.

    Raises:
        InputError: If a key that memory needs is missing.
    """
    keys = _Keys(header)
    tensors = tuple(local_tensor(one.name, one.shape, one.kind) for one in header.tensors)
    nextn = keys.number("nextn_predict_layers", 0)
    layers = keys.number("block_count") - nextn
    if not 0 < layers <= MAX_LAYERS:
        raise InputError(f"{header.path.name}: block_count: found {layers}; allowed: 1 to {MAX_LAYERS}")
    reader = _LayerCaches(keys, tensors, layers)
    model = Model(
        id=f"local/{_clean(header.path.stem)}",
        name=str(header.metadata.get("general.name") or header.path.stem)[:200],
        family=keys.architecture,
        maker="unknown",
        architecture=keys.architecture,
        context_tokens=keys.number("context_length"),
        weight_format=_usual_format(tensors),
        hidden_size=keys.number("embedding_length"),
        attention_heads=max(keys.each("attention.head_count", layers, 0), default=0),
        vocabulary=_vocabulary(header, keys, tensors),
        intermediate_size=max(keys.each("feed_forward_length", layers, 0), default=0) or None,
        experts=_experts(keys),
        layers=tuple(reader.groups()),
        weights=tuple(_weights(tensors, layers)),
        sources=(
            Source(
                covers=("layers", "weights", "context_tokens"), title=header.path.name, evidence="verbatim"
            ),
        ),
    )
    return GgufModel(model, keys.architecture, tensors, nextn, header.missing_bytes, keys.not_read())


class _Keys:
    """Values under the architecture's name."""

    def __init__(self, header: Header) -> None:
        self.metadata, self.file = header.metadata, header.path.name
        found = self.metadata.get("general.architecture")
        if not isinstance(found, str) or not found:
            raise InputError(f"{self.file}: general.architecture is missing; allowed: a model in GGUF")
        if found == "clip":
            raise InputError(
                f"{self.file}: found a vision projector; allowed: a language model, with this file as --mmproj"
            )
        if not _ARCHITECTURE.fullmatch(found):
            raise InputError(
                f"{self.file}: general.architecture: found {shorten(found)}; allowed: letters, digits and -._, as in 'llama'"
            )
        self.architecture = found
        self.used: set[str] = set()

    def get(self, key: str) -> Any:  # noqa: ANN401
        self.used.add(key)
        return self.metadata.get(f"{self.architecture}.{key}")

    def not_read(self) -> tuple[str, ...]:
        """Keys of the architecture that hold numbers other than zero and were not used, sorted."""
        own = f"{self.architecture}."
        return tuple(
            sorted(
                name
                for name, value in self.metadata.items()
                if name.startswith(own)
                and name.removeprefix(own) not in self.used
                and isinstance(value, int | list)
                and value
                and not _INERT.search(name)
            )
        )

    def number(self, key: str, default: int | None = None) -> int:
        found = self.get(key)
        if isinstance(found, list) and found:
            found = max(found)
        if isinstance(found, bool) or not isinstance(found, int):
            if default is None:
                raise InputError(
                    f"{self.file}: {self.architecture}.{key}: found {shorten(found)}; allowed: a whole number"
                )
            return default
        return found

    def each(self, key: str, layers: int, default: int) -> list[int]:
        """One value per layer: a file holds one number for all, or an array."""
        found = self.get(key)
        if isinstance(found, list):
            return [int(item) for item in found[:layers]] + [default] * (layers - len(found))
        return [int(found) if isinstance(found, int) else default] * layers


class _LayerCaches:
    """What each layer keeps."""

    def __init__(self, keys: _Keys, tensors: tuple[LocalTensor, ...], layers: int) -> None:
        self.keys, self.layers = keys, layers
        self.roles: dict[int, dict[str, LocalTensor]] = {}
        for tensor in tensors:
            self.roles.setdefault(tensor.layer, {})[tensor.role] = tensor
        self.kv_heads = keys.each("attention.head_count_kv", layers, 0)
        self.heads = keys.each("attention.head_count", layers, 0)
        if not any(self.kv_heads):
            self.kv_heads = list(self.heads)
        self.windows = self._windows()
        shared = keys.number("attention.shared_kv_layers", 0)
        self.first_shared = layers - shared if shared else layers

    def groups(self) -> Iterator[LayerGroup]:
        by_caches: dict[tuple[kinds.Cache, ...], list[int]] = {}
        for index in range(self.layers):
            by_caches.setdefault(tuple(self._caches(index)), []).append(index)
        for number, (cached, indices) in enumerate(by_caches.items()):
            name = " + ".join(cache.kind for cache in cached) or "no cache"
            yield LayerGroup(name=f"{name} {number + 1}", layers=compress(indices), caches=cached)

    def _windows(self) -> list[int]:
        """The window of each layer, 0 for full attention."""
        width = self.keys.number("attention.sliding_window", 0)
        if not width:
            return [0] * self.layers
        pattern = self.keys.get("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            return [width if flag else 0 for flag in pattern[: self.layers]]
        period = pattern if isinstance(pattern, int) and not isinstance(pattern, bool) else 0
        period = period or _WINDOW_PERIODS.get(self.keys.architecture, 0)
        if period == 0:
            self.keys.used.discard("attention.sliding_window")
            return [0] * self.layers
        return [width if index % period < period - 1 else 0 for index in range(self.layers)]

    def _caches(self, index: int) -> Iterator[kinds.Cache]:
        roles = self.roles.get(index, {})
        ratios = self.keys.get("attention.compress_ratios")
        if "attn_kv" in roles and isinstance(ratios, list):
            yield from self._compressed(int(ratios[index]))
            return
        if any(role.startswith(("ssm_", "shortconv", "time_mix")) for role in roles):
            yield self._state(index, roles)
            if "ple_conv1d" in roles:
                yield self._grams()
            if "attn_k" not in roles or "ssm_conv1d_q" in roles:
                return
        if self.keys.get("attention.key_length_mla") is not None or "attn_k_b" in roles:  # noqa: SIM102
            if "attn_kv_a_mqa" in roles:
                yield kinds.Latent(
                    latent_dim=self.keys.number("attention.kv_lora_rank"),
                    rope_dim=self.keys.number("rope.dimension_count", 64),
                )
                if "indexer.attn_k" in roles:
                    yield self._indexer(1)
                return
        if not any(role.startswith(("attn_k", "attn_qkv", "attn_q")) for role in roles):
            return
        yield self._attention(index)
        if "indexer.k_proj" in roles:
            yield self._indexer(1)

    def _indexer(self, stride: int) -> kinds.Indexer:
        return kinds.Indexer(
            index_dim=self.keys.number("attention.indexer.key_length", 128),
            top_k=self.keys.number("attention.indexer.top_k", 2048),
            stride=stride,
        )

    def _grams(self) -> kinds.RecurrentState:
        """The convolution over embeddings of n-grams, as far back as its dilation reaches (``qwen4exp.cpp``)."""
        number = self.keys.number
        columns = (number("ple.conv_kernel") - 1) * number("ple.ngram_size")
        channels = number("hyper_connection.count") * number("embedding_length")
        conv = kinds.StateTensor(name="conv", channels=channels, columns=columns)
        return kinds.RecurrentState(mechanism="short_conv", tensors=(conv,))

    def _compressed(self, ratio: int) -> Iterator[kinds.Cache]:
        """A window, compressed cells and the compressors' sums (``llama-kv-cache-dsv4.cpp``)."""
        number = self.keys.number
        width, rotary = number("attention.key_length"), number("rope.dimension_count", 64)
        latent = partial(kinds.Latent, latent_dim=width - rotary, rope_dim=rotary)
        yield latent(window=number("attention.sliding_window"))
        if not ratio:
            return
        yield latent(stride=ratio)
        if ratio != _OVERLAPPING:
            yield kinds.Ring(elements_per_token=2 * width, window=ratio)
            return
        index = self._indexer(ratio)
        yield index
        yield kinds.Ring(elements_per_token=4 * width, window=2 * ratio)
        yield kinds.Ring(elements_per_token=4 * index.index_dim, window=2 * ratio)

    def _attention(self, index: int) -> kinds.Cache:
        window = self.windows[index] if index < len(self.windows) else 0
        if index >= self.first_shared:
            return kinds.Shared(reads="sliding" if window else "full")
        suffix = "_swa" if window else ""
        usual = self.keys.number("embedding_length") // max(1, max(self.heads, default=1))
        key = self.keys.number(
            f"attention.key_length{suffix}", self.keys.number("attention.key_length", usual)
        )
        value = self.keys.number(
            f"attention.value_length{suffix}", self.keys.number("attention.value_length", usual)
        )
        heads = self.kv_heads[index] or self.heads[index] or 1
        if window:
            return kinds.SlidingWindow(kv_heads=heads, key_dim=key, value_dim=value, window=window)
        return kinds.FullAttention(kv_heads=heads, key_dim=key, value_dim=value)

    def _state(self, index: int, roles: Mapping[str, LocalTensor]) -> kinds.RecurrentState:
        number = self.keys.number
        columns = number("ssm.conv_kernel", 4) - 1
        if "shortconv.conv" in roles:
            columns = number("shortconv.l_cache", 3) - 1
            conv = kinds.StateTensor(name="conv", channels=number("embedding_length"), columns=columns)
            return kinds.RecurrentState(mechanism="short_conv", tensors=(conv,))
        if "ssm_conv1d_q" in roles:
            dim = number("kda.head_dim", 128)
            heads = self.heads[index]
            return _state("kda", 3 * heads * dim, columns, heads, dim * dim)
        inner, width = number("ssm.inner_size", 0), number("ssm.state_size", 0)
        groups, rank = number("ssm.group_count", 0), number("ssm.time_step_rank", 0)
        if inner == 0:
            raise InputError(
                f"{self.keys.file}: {self.keys.architecture}: the state of layer {index} cannot be read"
            )
        if "ssm_x" in roles:
            return _state("mamba1", inner, columns, inner, width)
        channels = inner + 2 * groups * width
        delta = "attn_gate" in roles or "ssm_beta" in roles or "ssm_ba" in roles or "ssm_alpha" in roles
        if delta:
            return _state("gated_deltanet", channels, columns, rank, inner // max(1, rank) * width)
        return _state("mamba2", channels, columns, rank, inner // max(1, rank) * width)


_OVERLAPPING: Final = 4
"""The ratio whose windows overlap: twice the width and twice the tokens, and index keys of its own."""

_WINDOW_PERIODS: Final = {
    "gemma2": 2,
    "gemma3": 6,
    "gpt-oss": 2,
    "cohere2": 4,
    "olmo2": 4,
    "exaone4": 4,
    "gemma3n": 5,
}
"""Layers per window pattern where a file states only the window (``load_arch_hparams`` of each model)."""


def _state(
    mechanism: Any,  # noqa: ANN401
    channels: int,
    columns: int,
    heads: int,
    each: int,
) -> kinds.RecurrentState:
    return kinds.RecurrentState(
        mechanism=mechanism,
        tensors=(
            kinds.StateTensor(name="conv", channels=channels, columns=columns, precision="float32"),
            kinds.StateTensor(name="recurrent", channels=heads, columns=each, precision="float32"),
        ),
    )


def _experts(keys: _Keys) -> Experts | None:
    routed = keys.number("expert_count", 0)
    if not routed:
        return None
    return Experts(routed=routed, per_token=keys.number("expert_used_count", 1))


def _vocabulary(header: Header, keys: _Keys, tensors: tuple[LocalTensor, ...]) -> int:
    table = next((tensor for tensor in tensors if tensor.role == "token_embd"), None)
    if table is not None:
        return table.rows
    found = header.metadata.get("tokenizer.ggml.tokens")
    return found if isinstance(found, int) else keys.number("vocab_size")


def _usual_format(tensors: tuple[LocalTensor, ...]) -> str:
    """The type that most bytes of matrices have."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.kind is not None:
            sizes[tensor.kind.name] = sizes.get(tensor.kind.name, 0) + tensor.nbytes
    return max(sizes, key=lambda name: sizes[name], default="f16")


def _weights(tensors: tuple[LocalTensor, ...], layers: int) -> Iterator[WeightGroup]:
    """Tensors of like name and shape, counted, with the bytes that the file's header states."""
    counts: dict[tuple[str, tuple[int, ...], Component], int] = {}
    sizes: dict[tuple[str, tuple[int, ...], Component], int] = {}
    for tensor in tensors:
        name = f"blk.*.{tensor.role}.weight" if tensor.layer >= 0 else f"{tensor.role}.weight"
        if tensor.layer >= layers:
            name = f"nextn.{name}"
        shape = (tensor.rows, tensor.columns) if tensor.rows > 1 else (tensor.columns,)
        component: Component = "mtp" if tensor.layer >= layers else _component(f"{tensor.role}.")
        key = (name, shape, component)
        counts[key] = counts.get(key, 0) + 1
        sizes[key] = sizes.get(key, 0) + tensor.nbytes
    for (stem, size, part), count in counts.items():
        stored = sizes[stem, size, part]
        yield WeightGroup(name=stem, component=part, shape=size, count=count, stored_bytes=stored or None)


def _component(role: str) -> Component:
    for part, component in _COMPONENTS:
        if role.startswith(part) if part.endswith(".") else part in role:
            return component
    return "other"


def _clean(text: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._-" else "-" for char in text)
    return kept.strip("-.")[:90] or "model"
