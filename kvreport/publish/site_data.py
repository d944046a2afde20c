"""What every page may ask: the catalog, the matrix, the release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.parallel import Layout
from kvreport.accounting.support_lookup import device_signature, lacks_class
from kvreport.accounting.weights import parameters
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.dataset.grid import Axes, Fleet, axes
from kvreport.errors import InputError
from kvreport.estimation.named import AUTO, refuse_unsupported, storable_on
from kvreport.publish.archive import ArchivedRelease
from kvreport.publish.capacities import Capacity, Outcome, capacity_of
from kvreport.publish.downloads import Downloads
from kvreport.publish.kept_values import Parts
from kvreport.publish.series import USEFUL_TOKENS, Config, Series
from kvreport.resources import read_table

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

KNOWN_GPUS: Final[tuple[str, ...]] = tuple(read_table("well-known accelerators"))
"""Accelerators that most readers know, the headline's first; those in the catalog are used."""

T = TypeVar("T")
_EVERY: Final = 50


@dataclass(frozen=True)
class SiteData:
    """Everything that pages are made from."""

    catalog: Catalog
    engine: Engine  # The engine whose answers the pages show.
    contexts: tuple[int, ...]
    models: tuple[Model, ...]  # Every published model, by name as people read it.
    accelerators: tuple[Accelerator, ...]
    # Each model's series in its released weights and its own KV format, by model id.
    released: Mapping[str, dict[Config, Series]]
    # Each model's series of all formats on the first of :data:`KNOWN_GPUS`.
    on_headline_gpu: dict[str, dict[Config, Series]]
    # For each (accelerator, weight format): (model id, weight bytes) that one device serves at
    # ``counted_context``.
    on_one: dict[tuple[str, str], tuple[tuple[str, int], ...]]
    version: str  # The data release, ``2026.11.21``.
    downloads: Downloads
    site_url: str = ""  # Where the site will stand, or "".
    releases: tuple[ArchivedRelease, ...] = ()  # Whole data releases that the site has, the latest first.
    progress: Callable[[str], None] = field(default=lambda _: None)
    parts: Parts = field(default_factory=lambda: Parts(None))  # Values of single models, kept between builds.

    @cached_property
    def gpus(self) -> tuple[Accelerator, ...]:
        """Every accelerator: the maker most people have first, then by memory, falling."""
        order = {"NVIDIA": 0, "AMD": 1}
        return tuple(
            sorted(
                self.accelerators,
                key=lambda a: (order.get(a.vendor, 2), a.vendor, -a.usable_bytes, a.id),
            )
        )

    @property
    def release_label(self) -> str:
        """The data release with a digest of its tables; the release alone for a site without tables."""
        return next((one.label for one in self.releases if one.version == self.version), self.version)

    @cached_property
    def known_gpus(self) -> tuple[str, ...]:
        """The well-known accelerators that this catalog has, or else its largest ones."""
        here = {accelerator.id for accelerator in self.accelerators}
        known = tuple(gpu for gpu in KNOWN_GPUS if gpu in here)
        return known or tuple(gpu.id for gpu in self.gpus[:6])

    @cached_property
    def headline(self) -> dict[str, Series | None]:
        """The series that each model's headline speaks of, by model id; None for one that the engine does not run.

        Rows of such a model are of engines that run where this one does not, as MLX does.
        """
        refused = {model.id for model in self.models if self.refusal(model)}
        return {
            model_id: None if model_id in refused else one.headline
            for model_id, one in self.capacities.items()
        }

    @cached_property
    def capacities(self) -> dict[str, Capacity]:
        """Each model's outcomes on every accelerator, by model id; kept between builds."""
        return self.capacities_of(self.models)

    def capacities_of(self, models: Sequence[Model]) -> dict[str, Capacity]:
        """The same of some models."""
        found = {}
        each = self.parts.each("capacities", models, self._capacity)
        for number, (model, capacity) in enumerate(each, start=1):
            found[model.id] = capacity
            if number % _EVERY == 0:
                self.progress(f"matrix: {number} of {len(self.models)} models")
        return found

    def _capacity(self, model: Model) -> Capacity:
        return capacity_of(model, self.gpus, self.known_gpus, self.released.get(model.id, {}), self.contexts)

    def local_engine(self, gpu: Accelerator) -> Engine | None:
        """The engine of an accelerator's rows where that is not the site's own, which has no platform for it."""
        name = self.catalog.grid.local_engines.get(gpu.vendor)
        return None if name in (None, self.engine.name) else self.catalog.engine(name)

    @cached_property
    def counted_context(self) -> int:
        """The context that sentences without another one count models at: 8K, or the grid's nearest below."""
        return counted_context(self.contexts)

    @cached_property
    def newest_first(self) -> tuple[Model, ...]:
        """Every published model, the newest release first."""
        return tuple(sorted(self.models, key=lambda model: (model.release or "", model.name), reverse=True))

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Parameters that an engine loads, by model id."""
        return {model.id: parameters(model) for model in self.models}

    @cached_property
    def copies(self) -> Counter[str]:
        """How many quantized copies of each model there are, by model id: what people run has many."""
        return Counter(model.quantized_from for model in self.models if model.quantized_from is not None)

    @cached_property
    def kv_names(self) -> tuple[str, ...]:
        """The grid's KV formats, and what ``auto`` means for the models that declare another."""
        listed = [name for name in self.catalog.grid.kv_formats if name != AUTO]
        declared = sorted({m.kv_format for m in self.models if m.kv_format} - set(listed))
        return (*listed, *declared)

    @cached_property
    def axes(self) -> Axes:
        """The axes that the JSON files cover: the grid, with every KV format that a model declares."""
        grid = axes(self.catalog, engine=self.engine.name, kv=list(self.kv_names))
        return replace(grid, models=self.models, fleet=Fleet(self.accelerators, self.engine))

    @cached_property
    def searched(self) -> Axes:
        """The same with the layouts that only a search for a deployment tries, after the published ones."""
        further = (Layout(**one.model_dump()) for one in self.catalog.grid.sizing_layouts)
        return replace(self.axes, layouts=tuple(dict.fromkeys((*self.axes.layouts, *further))))

    @cached_property
    def reserve_classes(self) -> dict[str, int]:
        """For each accelerator the number of its class: equal reserve whatever the model."""
        return _numbered({gpu.id: (rules(self.engine).device_class(gpu)[0],) for gpu in self.gpus})

    @cached_property
    def device_kinds(self) -> dict[str, int]:
        """For each accelerator the number of its kind: what the engine lays caches and weights out alike for."""
        formats, support = self.catalog.kv_formats.values(), self.catalog.support
        return _numbered(
            {
                gpu.id: (
                    rules(self.engine).scheduler(gpu),
                    rules(self.engine).device_class(gpu)[1],
                    tuple(storable_on(form, gpu) for form in formats),
                    () if support is None else device_signature(support, self.engine, gpu),
                )
                for gpu in self.gpus
            }
        )

    @cached_property
    def users_at_limit(self) -> dict[Config, int]:
        """Users at a model's own limit where it is no context of the grid; filled as charts ask for it."""
        return {}

    def under(self, name: str) -> SiteData:
        """Return the same site under another engine."""
        return self.once(f"under {name}", lambda: replace(self, engine=self.catalog.engine(name)))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what is made of the whole site, made when it is first asked for."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]  # type: ignore[return-value] # as the name says

    @cached_property
    def _made(self) -> dict[str, object]:
        return {}

    def refusal(self, model: Model) -> str:
        """Return why the engine does not run a model, or "" if it does."""
        for name in (self.engine.name, self.engine.family):
            if name in model.unsupported_by:
                return model.unsupported_by[name]
        support = self.catalog.support
        if support is None:
            return ""
        return lacks_class(support.ruling(self.engine.family, self.engine.version), self.engine, model)

    def runs(self, model: Model) -> bool:
        """Return whether the engine runs a model: some are not its own, as checkpoints that MLX quantized."""
        try:
            refuse_unsupported(model, self.engine)
        except InputError:
            return False
        return not self.refusal(model)

    def serving(self, model: Model, gpu: str) -> Series | None:
        """Return the released model on the fewest devices of this kind that serve it, or None."""
        known = self.capacities.get(model.id)
        outcome = known.outcomes.get(gpu) if known else None
        return outcome.serving if outcome else None  # a model that the site leaves out serves nowhere

    def outcome(self, model: Model, gpu: str) -> Outcome:
        """Return what an accelerator makes of the released model."""
        return self.capacities[model.id].outcomes[gpu]

    def on(self, model: Model, gpu: str) -> list[Series]:
        """Return the released model on this accelerator, one series per tensor-parallel size."""
        return [one for config, one in self.released.get(model.id, {}).items() if config.gpu == gpu]

    def gpu_name(self, gpu: str) -> str:
        """Return what people call an accelerator, short: ``H100`` where that alias is its own."""
        return short_name(self.catalog.accelerators[gpu])


def counted_context(contexts: Sequence[int]) -> int:
    """Return the longest of some contexts that is no longer than :data:`USEFUL_TOKENS`, else the first.

    >>> (
    ...     counted_context((1024, 4096, 8192, 16384)),
    ...     counted_context((1024, 4096, 16384)),
    ...     counted_context((16384,)),
    ... )
    (8192, 4096, 16384)
    """
    return max((one for one in contexts if one <= USEFUL_TOKENS), default=contexts[0])


def page_format(model: Model) -> str:
    """Return the weight format that a model's page takes where nothing is chosen.

    As released; where nobody has read which formats the repository stores, the one that its name or its maker
    says, among those that every model is computed in.
    """
    if model.release_known:
        return RELEASED
    if model.weight_format.startswith(("int4", "awq", "gptq", "nvfp4", "mxfp4")):
        return "int4"
    return "fp8" if model.weight_format.startswith("fp8") else "bf16"


def short_name(accelerator: Accelerator) -> str:
    """Return what people call an accelerator: its shortest alias that is written as a name."""
    return accelerator.short_name


def devices(number: int, name: str) -> str:
    """Return ``one H100`` or ``8 × H100``."""
    return f"one {name}" if number == 1 else f"{number} × {name}"


def _numbered(keys: dict[str, tuple[object, ...]]) -> dict[str, int]:
    order: dict[tuple[object, ...], int] = {}
    return {name: order.setdefault(key, len(order)) for name, key in keys.items()}
