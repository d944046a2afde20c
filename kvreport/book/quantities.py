"""The words of our expressions: what ``kv_per_token("llama-3.1-8b")`` means.

Each word is a thin name for a function of the package, so that a figure in prose, a recomputed
claim and a row of the dataset come from the same arithmetic. Sizes are bytes per device unless a
docstring says otherwise; the table of these words on the method page is made from the docstrings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from kvreport import estimation, units
from kvreport.accounting import kv_cache, roofline, weights
from kvreport.accounting.demand import Demand, demand
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice, local_device
from kvreport.accounting.engines.vllm.towers import Tower
from kvreport.accounting.extras import eagle3_bytes
from kvreport.accounting.kernel import whole_blocks
from kvreport.accounting.profile import CacheProfile
from kvreport.book.expressions import Value, evaluate
from kvreport.book.mistakes import grows, mistaken
from kvreport.catalog.caches import ChunkedAttention, FullAttention, SlidingWindow
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.errors import InputError
from kvreport.estimation.at_home import AtHome, at_home
from kvreport.estimation.first_sight import first_sight
from kvreport.query import SERVER_ENGINE
from kvreport.resources import read_table

if TYPE_CHECKING:
    from kvreport.book.reader_case import Reader
    from kvreport.catalog.accelerator import Accelerator
    from kvreport.catalog.formats import KvFormat
    from kvreport.catalog.model import Model

N = TypeVar("N", int, float)

_MIX: Final = "q4_k_m"

FAR: Final = 1 << 29
"""A context beyond every window: where one further token costs its long-run price."""

CONSTANTS: Final[Mapping[str, float]] = {
    "KiB": units.KIB,
    "MiB": units.MIB,
    "GiB": units.GIB,
    "TiB": units.TIB,
    "KB": units.KB,
    "MB": units.MB,
    "GB": units.GB,
    "TB": units.TB,
    "K": 1024,
}


def quantities(path: Path | None = None) -> Quantities:
    """Return the functions that compute pages and claims, as methods of one object.

    Args:
        path: Folder of the catalog; None for the public catalog in the package.

    >>> q = quantities()
    >>> q.kv_per_token("llama-3.1-8b"), q.kv_request("llama-3.1-8b", tokens=8192) == 2**30
    (131072.0, True)
    >>> q.compute("weights('llama-3.1-8b') / parameters('llama-3.1-8b')")
    2.0
    """
    return Quantities(open_catalog(path))


@dataclass(frozen=True)
class Quantities:
    """Functions that compute a model's bytes, tokens, requests and times from one catalog.

    Models and GPUs have the same names as in ``estimate``. ``weights`` and ``kv`` are formats; None means the model's format.

    Attributes:
        catalog: The catalog of models, accelerators, formats and engines.
        reader: The configuration that ``MODEL``, ``GPU`` and similar names refer to, or None.
    """

    catalog: Catalog
    reader: Reader | None = None

    @cached_property
    def vocabulary(self) -> Mapping[str, Value]:
        """The names in expressions, with their functions and values."""
        words: dict[str, Value] = {name: getattr(self, name) for name in WORDS}
        words |= {
            "min": min,
            "max": max,
            "floor": math.floor,
            "ceil": math.ceil,
            "round": round,
            "sqrt": math.sqrt,
        }
        return words | dict(CONSTANTS) | (dict(self.reader.values) if self.reader else {})

    def about(self, reader: Reader | None) -> Quantities:
        """Return these quantities for the configuration that a reader of the site entered."""
        return self if reader is None else replace(self, reader=reader)

    def compute(self, expression: str) -> float:
        """Compute an expression with these functions."""
        return evaluate(expression, self.vocabulary)

    # What the cache formula needs, and the formula itself ------------------------------------------

    def kv_bytes(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        bytes: float = 2,  # noqa: A002 (the formula's own word)
        tokens: int = 1,
        requests: int = 1,
    ) -> float:
        """Bytes of the cache by the formula: 2 × layers × KV heads × head dim × bytes × tokens × requests."""
        return 2 * layers * kv_heads * head_dim * bytes * tokens * requests

    def kv_per_token(
        self, model: str, kv: str | None = None, *, tp: int = 1, at: int = FAR, mistake: str | None = None
    ) -> float:
        """Bytes of one additional token at a context length. Without ``at``, the context is longer than every window."""
        return float(self._profile(model, kv, tp, mistake).marginal_bytes(at))

    def kv_request(
        self, model: str, kv: str | None = None, *, tokens: int, tp: int = 1, mistake: str | None = None
    ) -> int:
        """Bytes of one request at a context length, states included, before an engine rounds them."""
        return int(self._profile(model, kv, tp, mistake).request_bytes(tokens))

    def state(self, model: str, *, tp: int = 1) -> int:
        """Bytes of the recurrent states of one request, which do not depend on its length."""
        return self._profile(model, None, tp).constant_bytes

    def layers(self, model: str) -> int:
        """Number of layers."""
        return self._model(model).layer_count

    def growing_layers(self, model: str) -> int:
        """Number of layers whose cache grows with every token."""
        return sum(group.count for group in self._model(model).layers if any(map(grows, group.caches)))

    def kv_heads(self, model: str) -> int:
        """Number of KV heads per attention layer (the maximum over all layers)."""
        return max(cache.kv_heads for cache in self._attention(model))

    def head_dim(self, model: str) -> int:
        """Number of elements of one key head (the maximum over all layers)."""
        return max(cache.key_dim for cache in self._attention(model))

    def window(self, model: str) -> int:
        """Window of the sliding-window layers in tokens (the longest one)."""
        windows = [cache.window for cache in self._attention(model) if isinstance(cache, SlidingWindow)]
        if not windows:
            raise InputError(f"window: {model!r} has no sliding layer")
        return max(windows)

    def heads(self, model: str) -> int:
        """Number of query heads per layer."""
        return self._model(model).attention_heads

    def hidden(self, model: str) -> int:
        """Hidden size: the number of elements of the vector that passes through the layers."""
        return self._model(model).hidden_size

    def context_limit(self, model: str) -> int:
        """Longest context that the model supports, in tokens."""
        return self._model(model).context_tokens

    # Weights ---------------------------------------------------------------------------------------

    def parameters(self, model: str) -> int:
        """Number of parameters, encoders included, without layers for multi-token prediction."""
        return weights.parameters(self._model(model))

    def active_parameters(self, model: str) -> int:
        """Number of parameters that one token passes through."""
        return weights.active_parameters(self._model(model))

    def component(self, model: str, name: str) -> int:
        """Number of parameters in one component, such as ``embedding``, ``routed_experts`` or ``vision``; 0 if it does not exist."""
        counted = weights.parameters_by_component(self._model(model))
        return sum(number for component, number in counted.items() if component == name)

    def draft_weights(self, model: str, *, tp: int = 1) -> int:
        """Bytes per GPU of a draft head (EAGLE-3) that is trained for a dense model, in 16 bits."""
        head = eagle3_bytes(self._model(model), tp)
        if head is None:
            raise InputError(
                f"draft_weights: the sizes of a head for {model!r} are not known; name the draft with --draft"
            )
        return head

    def image_side(self, model: str) -> int:
        """Pixels per side of the square of an image that becomes one token, by the tensors of the vision encoder."""
        tower = Tower.of(self._model(model))
        if tower is None or not tower.side:
            raise InputError(
                f"image_side: the tensors of {model!r} do not state the pixels of an image token"
            )
        return tower.side

    def image_tokens(self, model: str, *, wide: int, high: int) -> int:
        """Tokens of an image, whose sides are rounded to whole squares, without those that mark its beginning and end."""
        side = self.image_side(model)
        return math.floor(wide / side + 0.5) * math.floor(high / side + 0.5)

    def weights(self, model: str, format: str | None = None, *, tp: int = 1) -> int:  # noqa: A002
        """Bytes of the weights in a format. Without a format, the weights are as released."""
        found = self._model(model)
        chosen = self.catalog.weight_format(format) if format is not None else None
        return weights.weight_bytes(found, chosen, self.catalog.weight_formats, tp)

    # Accelerators ----------------------------------------------------------------------------------

    def memory(self, gpu: str) -> int:
        """Bytes of accelerator memory that a process can use."""
        return self._gpu(gpu).usable_bytes

    def label_memory(self, gpu: str) -> int:
        """Bytes of memory that the product label states: ``80 GB`` is 80 × 10^9."""
        found = self._gpu(gpu).memory
        return units.parse_bytes(found.advertised_label or f"{found.advertised.value} B")

    def bandwidth(self, gpu: str) -> int:
        """Bytes per second between the accelerator and its memory."""
        figure = self._gpu(gpu).bandwidth_bytes_per_s
        if figure is None:
            raise InputError(f"bandwidth: {gpu!r} has no published bandwidth")
        return figure.value

    def peak(self, gpu: str, precision: str = "bf16") -> int:
        """Peak dense operations per second at a precision (bf16, fp8, int8, fp4)."""
        figure = getattr(self._gpu(gpu).rates, precision, None)
        if figure is None:
            raise InputError(f"peak: {gpu!r} has no published rate for {precision!r}")
        return int(figure.value)

    # Time: lower bounds from the roofline ----------------------------------------------------------

    def decode_time(
        self,
        model: str,
        gpu: str,
        *,
        batch: int = 1,
        tokens: int = 1024,
        tp: int = 1,
        weights: str | None = None,
        kv: str | None = None,
    ) -> float:
        """Lower bound on the duration of one decode step in seconds, for a batch of requests of a given length (``tokens``)."""
        asked = self._demand(model, weights, kv, tp)
        return float(roofline.decode(asked, self._peaks(gpu), batch, tokens).seconds)

    def prefill_time(
        self,
        model: str,
        gpu: str,
        *,
        tokens: int,
        tp: int = 1,
        weights: str | None = None,
        kv: str | None = None,
        cached: int = 0,
    ) -> float:
        """Lower bound on the prefill time of a prompt in seconds, not counting the ``cached`` tokens at its start."""
        asked = self._demand(model, weights, kv, tp)
        return float(roofline.prefill(asked, self._peaks(gpu), tokens, cached_tokens=cached).seconds)

    def knee(self, model: str, gpu: str, *, tokens: int = 0, tp: int = 1, weights: str | None = None) -> int:
        """The smallest batch at which compute, and not memory bandwidth, limits a decode step.

        Without ``tokens``, requests have no cache and no state.
        """
        asked = self._demand(model, weights, None, tp)
        if not tokens:
            asked = replace(asked, state_bytes_touched=0)
        found = roofline.knee(asked, self._peaks(gpu), tokens)
        if found is None:
            raise InputError(f"knee: reading limits {model!r} on {gpu!r} at every batch")
        return found

    # An engine's answer ----------------------------------------------------------------------------

    def fits(self, model: str, gpu: str, *, tokens: int, **options: object) -> int:
        """Number of requests of this context length that fit in the memory of a server."""
        return self._estimate(model, gpu, tokens, options).max_concurrent_requests_by_memory

    def concurrency(self, model: str, gpu: str, *, tokens: int, **options: object) -> float:
        """Maximum concurrency as the engine prints it, with decimals."""
        return _limited(self._estimate(model, gpu, tokens, options).max_concurrency)

    def pool(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Bytes per device that an engine can use for the KV cache."""
        return self._estimate(model, gpu, tokens, options).budget.kv_pool_bytes

    def pool_tokens(self, model: str, gpu: str, *, tokens: int, **options: object) -> int:
        """Size of the pool in tokens, as the engine prints it at start-up."""
        return _limited(self._estimate(model, gpu, tokens, options).kv_pool_tokens)

    def reserved(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Bytes per device that an engine reserves for activations, overhead and captured graphs."""
        found = self._estimate(model, gpu, tokens, options).budget
        return found.activations + found.non_framework + found.graphs

    def runs(self, model: str, gpu: str, *, tokens: int, **options: object) -> int:
        """Number of requests that the engine runs at once, limited by memory, ``max_num_seqs`` and state slots."""
        return self._estimate(model, gpu, tokens, options).max_concurrent_requests

    def uncertainty(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Uncertainty of the estimated pool in bytes per device, in either direction (80% band)."""
        return self._estimate(model, gpu, tokens, options).budget.uncertainty_bytes

    def budget_weights(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Bytes per device of the loaded weights in a layout, including what loading adds."""
        return self._estimate(model, gpu, tokens, options).budget.weights

    def activations(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Bytes per device of activations (in llama.cpp, the compute buffer)."""
        return self._estimate(model, gpu, tokens, options).budget.activations

    def share(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> float:
        """Share of the device memory that the engine may use."""
        return self._estimate(model, gpu, tokens, options).budget.utilization

    def state_slots(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Number of blocks in the pool. The states of each running sequence take one block."""
        found = self._estimate(model, gpu, tokens, options)
        return whole_blocks(found.budget.kv_pool_bytes, found.plan.block_bytes)

    def shortfall(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Bytes per device that are missing for one request; 0 if it fits."""
        return self._estimate(model, gpu, tokens, options).shortfall_bytes

    def host(
        self, model: str, gpu: str, part: str = "weights", *, tokens: int = 8192, **options: object
    ) -> int:
        """Bytes in main memory, by part: ``weights``, ``cache`` or ``compute``."""
        return int(self._estimate(model, gpu, tokens, options).to_dict()["host_bytes"][part])

    def loaded(self, model: str, gpu: str, part: str, *, tokens: int = 8192, **options: object) -> int:
        """Bytes per device that loading adds, by purpose, such as ``lora_adapters``."""
        return int(self._estimate(model, gpu, tokens, options).loading_bytes.get(part, 0))

    def request(self, model: str, gpu: str, *, tokens: int, **options: object) -> int:
        """Bytes per device that an engine reserves for one request, in whole blocks."""
        return self._estimate(model, gpu, tokens, options).kv_bytes_per_request_per_gpu

    def longest(self, model: str, gpu: str, **options: object) -> int:
        """Length in tokens of the longest single request that fits."""
        return self._estimate(model, gpu, 8192, options).max_context_tokens

    def layers_on_gpu(self, model: str, gpu: str, *, tokens: int = 8192, **options: object) -> int:
        """Layers that llama.cpp or Ollama puts on the device; the output layer is one of them."""
        return int(self._estimate(model, gpu, tokens, options).to_dict()["layers_on_device"])

    def first_sight(self, engine: str, figure: str) -> float:
        """Error of the predictions made before an engine's logs influenced any rule: ``median``, ``p90``, or the number of ``logs``."""
        found = first_sight(engine)
        if found is None or figure not in ("median", "p90", "logs"):
            raise InputError(
                f"first_sight: found {engine!r}, {figure!r}; allowed: an engine with enough logs"
            )
        return float(getattr(found, figure))

    # One slot of llama.cpp, all layers on one device, 4-bit weights (Q4_K_M) -------------------------

    def slot_context(self, model: str, gpu: str, *, cache: str = "f16") -> int:
        """The longest context of one llama.cpp slot with Q4_K_M weights, rounded down to a multiple of 1K, or the model's limit.

        ``cache``: ``f16`` or ``q8_0``.
        """
        return self._at_home(model, cache).longest(_MIX, self._device(gpu))

    def slot_free(self, model: str, gpu: str, *, tokens: int, cache: str = "f16") -> int:
        """Minimum number of bytes that one slot with Q4_K_M weights leaves free on a device."""
        left = self._at_home(model, cache).free(_MIX, self._device(gpu), tokens)
        if left < 0:
            raise InputError(f"slot_free: {model!r} does not fit {gpu!r} with {tokens} tokens")
        return left

    def slot_weights(self, model: str) -> int:
        """Bytes of Q4_K_M weights that llama.cpp puts on the device."""
        return self._at_home(model).weights[_MIX]

    def slot_memory(self, model: str, *, tokens: int) -> int:
        """Bytes of main memory that one slot takes on a computer without a GPU, at most, with Q4_K_M weights."""
        return self._at_home(model).in_main_memory(_MIX, tokens)

    def slot_experts(self, model: str, gpu: str, *, tokens: int) -> int:
        """The smallest ``--n-cpu-moe`` with which a context fits, with Q4_K_M weights."""
        device = self._device(gpu)
        found = self._at_home(model).cpu_experts(_MIX, device, tokens)
        if found and device.has_all:
            raise InputError(f"slot_experts: {gpu!r} has one memory, so experts on the CPU free none of it")
        if found is None:
            raise InputError(f"slot_experts: {model!r} does not fit {gpu!r} with all experts on the CPU")
        return found

    def _at_home(self, model: str, cache: str = "f16") -> AtHome:
        found = at_home(self._model(model))
        if found is not None and cache == "q8_0":
            found = found.quantized
        if found is None:
            raise InputError(f"llama.cpp does not convert {model!r}")
        return found

    def _device(self, gpu: str) -> LocalDevice:
        return local_device(self._gpu(gpu), self.catalog.engine("llama-cpp").coefficients)

    def _estimate(
        self, model: str, gpu: str, tokens: int, options: Mapping[str, object]
    ) -> estimation.Estimate:
        unknown = set(options) - {*_OPTIONS, "images"}
        if unknown:
            raise InputError(f"found {', '.join(sorted(unknown))}; allowed: {', '.join(_OPTIONS)}")
        renamed = {_OPTIONS[name]: value for name, value in options.items() if name in _OPTIONS}
        if "images" in options:
            renamed["limit_mm_per_prompt"] = {"image": options["images"], "video": 0}
        return estimation.estimate(
            self._model(model),
            gpu=[self._gpu(name) for name in gpu.split(" + ")] if " + " in gpu else self._gpu(gpu),
            context_tokens=tokens,
            catalog=self.catalog,
            # Pages compute the same in the browser, for the site's engine on every accelerator.
            **{"engine": SERVER_ENGINE, **renamed},
        )

    def _demand(self, model: str, format: str | None, kv: str | None, tp: int) -> Demand:  # noqa: A002
        key, found = (model, format, kv, tp), self._model(model)
        if key not in self._demands:
            chosen = self.catalog.weight_format(format) if format is not None else None
            formats = self.catalog.weight_formats
            self._demands[key] = demand(found, chosen, formats, self._kv(found, kv), tensor_parallel=tp)
        return self._demands[key]

    @cached_property
    def _demands(self) -> dict[tuple[str, str | None, str | None, int], Demand]:
        return {}

    def _model(self, name: str) -> Model:
        return self.catalog.model(name)

    def _gpu(self, name: str) -> Accelerator:
        if name not in self._gpus:
            self._gpus[name] = self.catalog.accelerator(name)
        return self._gpus[name]

    @cached_property
    def _gpus(self) -> dict[str, Accelerator]:
        return {}

    def _peaks(self, gpu: str) -> roofline.Peaks:
        return roofline.Peaks.of(self._gpu(gpu))

    def _profile(self, model: str, kv: str | None, tp: int, mistake: str | None = None) -> CacheProfile:
        found = self._model(model)
        if mistake is not None:
            found = mistaken(found, mistake)
        return kv_cache.held(found, self._kv(found, kv), tensor_parallel=tp)

    def _kv(self, model: Model, kv: str | None) -> KvFormat | None:
        name = kv if kv is not None else model.kv_format
        return None if name in (None, "bf16", "fp16") else self.catalog.kv_format(name)

    def _attention(self, model: str) -> list[FullAttention | SlidingWindow | ChunkedAttention]:
        kinds = (FullAttention, SlidingWindow, ChunkedAttention)
        found = [
            cache for group in self._model(model).layers for cache in group.caches if isinstance(cache, kinds)
        ]
        if not found:
            raise InputError(f"{model!r} has no layer with keys and values per head")
        return found


def _limited(value: N | None) -> N:
    if value is None:
        raise InputError("the requests of this model hold nothing, so nothing limits their number")
    return value


_OPTIONS: Final[Mapping[str, str]] = read_table("options of expressions")
"""Words of expressions, and the options of an estimate that they set."""
WORDS: Final = tuple(
    name
    for name, value in vars(Quantities).items()
    if isfunction(value) and name[0] != "_" and name not in ("about", "compute")
)
"""Names of the functions of the vocabulary, in the order in which they are documented."""
