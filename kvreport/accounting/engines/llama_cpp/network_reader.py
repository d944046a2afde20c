"""From a model record to the network that llama.cpp builds: dimensions from shapes, traits from tensors.

And what is loaded with it. A draft model is a second model with a context of the same size and 16-bit caches
(``common_base_params_to_speculative`` in ``common/speculative.cpp``). Prediction blocks (NextN, MTP) are in the
model's own file; their context shares the trunk's embedding and head and has a cache of those blocks only
(``create_memory`` in ``src/llama-model.cpp``). A projector is a model of its own on the first device
(``tools/mtmd/clip.cpp``). llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kvreport.accounting.engines.llama_cpp.inventory import LayerSets, LocalTensor, layer_sets, tensors_of
from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.network import (
    Attention,
    Block,
    BlockIndexer,
    FeedForward,
    Hyper,
    IndexKeys,
    LatentAttention,
    Mixture,
    Network,
    Ngram,
    QkNorm,
    Recurrence,
)
from kvreport.catalog import caches as kinds
from kvreport.catalog.local_architectures import LocalArchitecture
from kvreport.catalog.model import Model

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor

_OUT_SCALES = ("layer_scalar", "layer_output_scale")
"""Gemma 4's weight on the output of a layer, as a checkpoint and as a GGUF file name it."""

_SECOND = ("second_norm", "ffn_norm", "post_attention_norm")
Roles = Mapping[str, LocalTensor]


def read_local(
    model: Model, architecture: LocalArchitecture, tensors: tuple[LocalTensor, ...] | None = None
) -> LocalModel:
    """Read a model the way llama.cpp does.

    ``model``: the model; from the catalog, a config or a GGUF header. ``tensors``: the tensor table of a
    file; None lists the model's weights.
    """
    listed = tensors_of(model) if tensors is None else tensors
    roles: dict[int, dict[str, LocalTensor]] = {}
    for tensor in listed:
        roles.setdefault(tensor.layer, {}).setdefault(tensor.role, tensor)
    reader = _NetworkReader(model, architecture, roles, layer_sets(model))
    return LocalModel(model, architecture, reader.network(), listed)


@dataclass(frozen=True)
class _NetworkReader:
    model: Model
    architecture: LocalArchitecture
    roles: Mapping[int, Roles]
    sets: LayerSets

    def network(self) -> Network:
        outside = self.roles.get(-1, {})
        rows = self.architecture.rows
        head = outside.get("output")
        return Network(
            hidden=self.model.hidden_size,
            vocabulary=head.rows if head is not None else self.model.vocabulary,
            blocks=tuple(self._blocks()),
            tied=head is None,
            per_layer=self._per_layer_width(),
            streams=self._rows_of("modality_router", "altup_router") or 1,
            low_rank=self._rows_of("linear_left", "laurel_l"),
            late_rows=rows == "after_norm",
            late_before_norm=rows == "before_norm",
            hidden_output=self.architecture.hidden_output and rows != "last_layer",
            rollback=self.architecture.rollback,
            positions=self.architecture.positions,
            learned_positions="position_embd" in outside,
            hyper=self._hyper,
        )

    @property
    def _hyper(self) -> Hyper | None:
        """Hyper-connections: two sets per layer, which a checkpoint keeps in one tensor each."""
        shares, rank = self._rows_of("hc_attn_inject"), self._rows_of("hc_attn_down")
        if not shares:
            shares = self._rows_of("block_inject_weight") // 2
            rank = self._rows_of("input_mix_weight_down") // 2
        return Hyper(shares, rank) if shares and rank else None

    def _rows_of(self, *names: str) -> int:
        """Rows of the first layer's tensor with one of these names; 0 if it has none."""
        roles = self.roles.get(0, {})
        return next((roles[name].rows for name in names if name in roles), 0)

    def _per_layer_width(self) -> int:
        gate = self.roles.get(0, {}).get("inp_gate")
        return gate.rows if gate is not None else 0

    def _blocks(self) -> Iterator[Block]:
        groups = {index: group for group in self.model.layers for index in group.indices}
        for index in range(self.model.layer_count):
            roles = self.roles.get(index, {})
            mixers = sorted(
                self._mixers(index, groups[index].caches, roles), key=lambda one: isinstance(one, Recurrence)
            )
            first = mixers[0] if mixers else None
            second = next((m for m in mixers[1:] if isinstance(m, Recurrence)), None)
            feed = self._feed(roles)
            block = self._block(roles, first, second, feed)
            yield block if self._hyper is None else self._connected(block, roles)

    def _connected(self, block: Block, roles: Roles) -> Block:
        """A layer of a model with hyper-connections: a second short convolution is that of its n-grams."""
        mixer = block.mixer
        if isinstance(mixer, Recurrence):
            mixer = replace(mixer, copied_columns=True)
        key = roles.get("ple_key") or roles.get("key_proj")
        taps = roles.get("ple_conv1d") or roles.get("conv1d")
        table = next(
            (
                found["per_layer_token_embd"]
                for found in self.roles.values()
                if "per_layer_token_embd" in found
            ),
            None,
        )
        if block.second is None or key is None or taps is None or table is None:
            return replace(block, mixer=mixer)
        ngram = Ngram(key.columns, table.columns, taps.columns, block.second.conv)
        return replace(block, mixer=mixer, ngram=ngram)

    def _block(
        self,
        roles: Roles,
        mixer: Attention | LatentAttention | Recurrence | None,
        second: Recurrence | None,
        feed: FeedForward | Mixture | None,
    ) -> Block:
        names = frozenset(role for role in roles if role.endswith("norm"))
        single = "attn_norm" in names and names.isdisjoint(_SECOND)
        parallel = self.architecture.parallel != "no" or (single and mixer is not None and feed is not None)
        alone = mixer is None and not names.isdisjoint(_SECOND)
        return Block(
            mixer=mixer,
            second=second,
            feed=feed,
            parallel=parallel,
            own_norm=parallel and not single,
            mixer_first=self.architecture.parallel == "mixer_first",
            residual_first=self.architecture.residual_first,
            post_norms="post_ffw_norm" in names,
            pre_norms="attn_norm" in names or not names or alone,
            out_scaled=any(role in roles for role in _OUT_SCALES),
            normal="layer" if self.architecture.layer_norm else "rms",
        )

    def _mixers(
        self, index: int, cached: tuple[kinds.Cache, ...], roles: Roles
    ) -> list[Attention | LatentAttention | Recurrence]:
        found: list[Attention | LatentAttention | Recurrence] = []
        indexer = next((c for c in cached if isinstance(c, kinds.Indexer)), None)
        for cache in cached:
            match cache:
                case kinds.FullAttention() | kinds.SlidingWindow() | kinds.ChunkedAttention():
                    found.append(self._indexed(self._attention(cache, roles), indexer, roles))
                case kinds.Latent() if any(isinstance(one, LatentAttention) for one in found):
                    continue
                case kinds.Latent():
                    latent = self._compressed(self._latent(cache, roles, indexer), cached)
                    found.append(_unfolded(latent) if self.architecture.unfolded else latent)
                case kinds.Shared():
                    found.append(self._shared(index, cache, roles))
                case kinds.RecurrentState():
                    found.append(_recurrence(cache, roles))
                case _:
                    continue
        return found

    def _indexed(self, attention: Attention, indexer: kinds.Indexer | None, roles: Roles) -> Attention:
        kept = self.architecture.index_keys
        if indexer is None or kept == "no":
            return attention
        cached = replace(attention, index_dim=indexer.index_dim, index_values=kept == "keys_and_values")
        if self._hyper is None or not indexer.top_k:
            return cached
        query, key = roles.get("indexer.q_proj"), roles.get("attn_k")
        rows = 0 if query is None else query.rows
        if query is None and key is not None:
            # A checkpoint keeps keys, index keys and index queries in one matrix.
            rows = key.rows - attention.kv_heads * attention.key_dim - indexer.index_dim
        heads = max(1, rows // indexer.index_dim)
        return replace(
            cached, picker=BlockIndexer(heads, indexer.index_dim, max(1, indexer.stride), indexer.top_k)
        )

    def _compressed(self, latent: LatentAttention, cached: tuple[kinds.Cache, ...]) -> LatentAttention:
        """The caches of one layer together: a window, compressed cells, and what the compressors keep."""
        parts = [cache for cache in cached if isinstance(cache, kinds.Latent)]
        window = next((cache.window for cache in parts if cache.window), None)
        if window is None or not self.architecture.windows:
            return latent
        rings = [cache for cache in cached if isinstance(cache, kinds.Ring)]
        return replace(
            latent,
            window=window,
            strides=tuple(cache.stride for cache in parts if cache.window is None),
            ring_elements=sum(ring.elements_per_token * ring.window for ring in rings),
        )

    def _rotates(self, cache: object) -> bool:
        if self.architecture.rotary_windows_only and self._has_windows:
            return self._window(cache) is not None
        return self.architecture.rotary

    @property
    def _has_windows(self) -> bool:
        return any(self._window(cache) for cache in self.model.every_cache)

    def _window(self, cache: object) -> int | None:
        if not self.architecture.windows:
            return None
        if isinstance(cache, kinds.SlidingWindow):
            return cache.window
        return cache.chunk if isinstance(cache, kinds.ChunkedAttention) else None

    def _attention(
        self,
        cache: kinds.FullAttention | kinds.SlidingWindow | kinds.ChunkedAttention,
        roles: Roles,
        *,
        owns_cache: bool = True,
    ) -> Attention:
        heads, doubled = self._query_heads(cache.key_dim, roles)
        gate = roles.get("attn_gate")
        return Attention(
            heads=heads,
            kv_heads=cache.kv_heads,
            key_dim=cache.key_dim,
            value_dim=cache.value_dim,
            window=self._window(cache),
            owns_cache=owns_cache,
            qk_norm=_qk_norm(roles, cache.key_dim),
            value_norm=any(role in roles for role in _OUT_SCALES),
            biased="attn_q.bias" in roles or "attn_qkv.bias" in roles,
            out_bias="attn_output.bias" in roles,
            fused="attn_qkv" in roles and "attn_q" not in roles,
            gate="doubled" if doubled else ("own" if gate is not None else "none"),
            gate_width=0 if gate is None else gate.rows,
            sinks="attn_sinks" in roles,
            rotary=self._rotates(cache),
            same_kv=owns_cache and "attn_k" in roles and "attn_v" not in roles,
        )

    def _query_heads(self, key_dim: int, roles: Roles) -> tuple[int, bool]:
        """Query heads, and whether the query projection holds a gate as well."""
        known = self.model.attention_heads
        query = roles.get("attn_q")
        if query is None or key_dim == 0:
            return known, False
        heads = query.rows // key_dim
        out = roles.get("attn_output")
        if heads == 2 * known and (out is None or out.columns == known * key_dim):
            return known, True
        return max(1, heads), False

    def _shared(self, index: int, cache: kinds.Shared, roles: Roles) -> Attention:
        """A layer that reads the last earlier cache of its kind."""
        wanted = cache.reads if cache.reads in ("sliding", "chunked") else "full"
        for group in reversed(self.model.layers):
            for other in group.caches:
                if (
                    isinstance(other, kinds.FullAttention | kinds.SlidingWindow | kinds.ChunkedAttention)
                    and other.kind == wanted
                    and min(group.indices) < index
                ):
                    return self._attention(other, roles, owns_cache=False)
        width = max(1, self.model.hidden_size // max(1, self.model.attention_heads))
        plain = kinds.FullAttention(kv_heads=1, key_dim=width, value_dim=width)
        return self._attention(plain, roles, owns_cache=False)

    def _latent(self, cache: kinds.Latent, roles: Roles, indexer: kinds.Indexer | None) -> LatentAttention:
        down, up = roles.get("attn_k_b"), roles.get("attn_v_b")
        heads = self.model.attention_heads
        rank = roles.get("attn_q_a")
        proj = roles.get("indexer.proj")
        owned = indexer
        if indexer is None and self.architecture.shared_picks:
            indexer = self._any_indexer
        return LatentAttention(
            heads=heads,
            query_rank=0 if rank is None else rank.rows,
            latent=cache.latent_dim,
            rotary=cache.rope_dim,
            nope=down.columns if down is not None else 128,
            value_dim=up.rows // heads if up is not None else 128,
            rotates=self.architecture.rotary,
            indexer=None
            if indexer is None
            else IndexKeys(proj.rows if proj is not None else 64, indexer.index_dim, indexer.top_k or 2048),
            owns_indexer=owned is not None,
        )

    @property
    def _any_indexer(self) -> kinds.Indexer | None:
        """The indexer whose picks layers without one of their own use."""
        caches = self.model.every_cache
        return next((cache for cache in caches if isinstance(cache, kinds.Indexer)), None)

    def _feed(self, roles: Roles) -> FeedForward | Mixture | None:
        dense = _dense(roles, "ffn_up", "ffn_gate", "ffn_down")
        down = roles.get("ffn_down_exps")
        if down is None or self.model.experts is None:
            return dense
        up = roles.get("ffn_up_exps")
        fused = "ffn_gate_up_exps" in roles or (self.architecture.fused_experts and "ffn_gate_exps" in roles)
        gated = fused or "ffn_gate_exps" in roles
        softmax_after = "ffn_gate_inp.bias" in roles and "attn_sinks" in roles
        return Mixture(
            experts=self.model.experts.routed,
            used=self.model.experts.per_token,
            width=down.columns,
            gated=gated,
            fused=fused,
            biased="ffn_down_exps.bias" in roles,
            probs_bias="exp_probs_b" in roles or "exp_probs_b.bias" in roles,
            softmax_after=softmax_after,
            normed=not (softmax_after or self.architecture.weighted_inputs),
            weight_first=self.architecture.weighted_inputs,
            shared=_dense(roles, "ffn_up_shexp", "ffn_gate_shexp", "ffn_down_shexp"),
            shared_gate="ffn_gate_inp_shexp" in roles,
            dense_beside=dense,
            squared=up is not None and not gated,
        )


def _unfolded(latent: LatentAttention) -> Attention:
    """Keys and values of every head, cached as such (``minicpm3.cpp``, ``plm.cpp``)."""
    return Attention(
        heads=latent.heads,
        kv_heads=latent.heads,
        key_dim=latent.nope + latent.rotary,
        value_dim=latent.value_dim,
        rotary=latent.rotates,
        latent=latent,
    )


def _qk_norm(roles: Roles, key_dim: int) -> QkNorm:
    found = roles.get("attn_q_norm")
    if found is None:
        return "none"
    return "head" if found.columns * found.rows == key_dim or found.columns == key_dim else "full"


def _dense(roles: Roles, up: str, gate: str, down: str) -> FeedForward | None:
    found = roles.get(down)
    if found is None:
        return None
    rows = (
        roles[up].rows
        if up in roles
        else (roles["ffn_gate_up_shexp"].rows if "ffn_gate_up_shexp" in roles else 0)
    )
    return FeedForward(
        width=found.columns,
        gated=gate in roles,
        fused=gate not in roles and rows == 2 * found.columns,
        biased=f"{down}.bias" in roles,
    )


def _recurrence(cache: kinds.RecurrentState, roles: Roles) -> Recurrence:
    """Dimensions of a recurrent layer from its state tensors and its weights."""
    conv = next((t for t in cache.tensors if t.name == "conv"), None)
    state = next((t for t in cache.tensors if t.name == "recurrent"), None)
    columns = conv.columns if conv is not None else 0
    conv_elements = conv.channels * conv.columns if conv is not None else 0
    if conv is not None and conv.groups:
        conv_elements = (conv.channels + conv.groups * conv.channels_per_group) * conv.columns
    elements = state.channels * state.columns if state is not None else 0
    make = partial(Recurrence, conv=columns, conv_elements=conv_elements, state_elements=elements)
    match cache.mechanism:
        case "gated_deltanet":
            out = roles.get("ssm_out")
            heads = state.channels if state is not None else 1
            inner = out.columns if out is not None else 0
            width = elements // max(1, inner)
            groups = ((conv.channels if conv is not None else 0) - inner) // max(1, 2 * width)
            return make("gated_deltanet", inner=inner, state=width, heads=heads, groups=max(1, groups))
        case "kda":
            out = roles.get("attn_output")
            heads = state.channels if state is not None else 1
            inner = out.columns if out is not None else 0
            return make("kda", inner=inner, state=max(1, inner // heads), heads=heads, groups=heads)
        case "mamba2":
            return _mamba2(roles, conv, state, make)
        case "mamba1":
            rest, step = roles.get("ssm_x"), roles.get("ssm_dt")
            inner = state.channels if state is not None else 0
            width = state.columns if state is not None else 0
            rank = step.columns if step is not None else (rest.rows - 2 * width if rest is not None else 0)
            normed = any("layernorm" in role for role in roles)
            return make("mamba1", inner=inner, state=width, heads=inner, groups=1, rank=rank, normed=normed)
        case "short_conv":
            return make("short_conv", inner=0, state=0, heads=1, groups=1)
        case "rwkv":
            return make("rwkv", inner=0, state=0, heads=1, groups=1)
        case _:
            out = roles.get("attn_output") or roles.get("ssm_out")
            inner = out.columns if out is not None else 0
            return make("lightning", inner=inner, state=0, heads=1, groups=1)


def _mamba2(
    roles: Roles,
    conv: kinds.StateTensor | None,
    state: kinds.StateTensor | None,
    make: Callable[..., Recurrence],
) -> Recurrence:
    out = roles.get("ssm_out")
    inner = out.columns if out is not None else 0
    heads = state.channels if state is not None else 1
    width = (state.channels * state.columns if state is not None else 0) // max(1, inner)
    groups = 1
    if conv is not None and conv.groups:
        groups = conv.groups
    elif conv is not None and width:
        groups = max(1, (conv.channels - inner) // (2 * width))
    return make("mamba2", inner=inner, state=width, heads=heads, groups=groups, normed="ssm_norm" in roles)


DEFAULT_DRAFT_TOKENS: Final = 3
"""Draft tokens per step where nobody states them (``common_params_speculative_draft::n_max``, ``common/common.h``)."""
