"""What a search for deployments may choose from, and what it finds: offers, choices, one deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from kvreport.accounting import kernel
from kvreport.accounting.deployment import Deployment
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.sizing import Binds, Load
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.catalog.support import Support


@dataclass(frozen=True, slots=True)
class Offer:
    """An accelerator that may be used, or a machine of unequal ones."""

    accelerator: Accelerator  # The device; of unequal ones the smallest, by the name of all of them.
    available: int | None = None  # How many there are, or None for as many as it takes.
    # Price of one device, in any currency, or None; of unequal ones the mean.
    price_per_hour: float | None = None
    # The devices of one machine, place by place, where they differ; else empty.
    machine: tuple[Accelerator, ...] = ()

    @property
    def devices(self) -> tuple[Accelerator, ...]:
        """The devices of the machine, place by place; the accelerator alone where all are the same."""
        return self.machine or (self.accelerator,)

    @classmethod
    def unequal(cls, machine: tuple[Accelerator, ...], available: int | None, price: float | None) -> Offer:
        """A machine of unequal devices, each copy of a model spread over all of them."""
        least = min(machine, key=lambda one: one.usable_bytes)
        names = Counter(one.id for one in machine)
        joined = "+".join(name if number == 1 else f"{name}*{number}" for name, number in names.items())
        shown = " + ".join(
            one.name if names[one.id] == 1 else f"{names[one.id]} x {one.name}"
            for one in {device.id: device for device in machine}.values()
        )
        return cls(
            least.model_copy(update={"id": joined, "name": shown}),
            None if available is None else available * len(machine),
            price,
            machine,
        )


@dataclass(frozen=True, slots=True)
class Choices:
    """What may be combined beside the offers."""

    engine: Engine  # The engine whose rules apply.
    formats: Mapping[str, WeightFormat]  # Weight formats by name, for what released tensors carry.
    weight_formats: Mapping[str, WeightFormat | None]  # Formats to try by name; None is "as released".
    # KV formats to try by name; None is what the engine takes by itself.
    kv_formats: Mapping[str, KvFormat | None]
    all_kv_formats: Mapping[str, KvFormat]  # KV formats by name, for what checkpoints declare.
    tensor_parallel: tuple[int, ...] = (1, 2, 4, 8)  # Sizes to try.
    layouts: tuple[Layout, ...] = ()  # Further layouts, tried for the models that they suit.
    # False to try them for every model whose shapes allow them, as they were asked for by name.
    suiting: bool = True
    utilization: float | None = None  # Share of memory, or None for the engine's default.
    max_seqs: int | None = None  # Requests at once per data rank, or None for the engine's default.
    max_batched_tokens: int | None = None  # Tokens of one step, or None for the engine's default.
    # Commonly rented accelerators come first, those that came out since this month before older ones, then
    # few devices; None to rank all alike by the memory that they take.
    current_since: str | None = None
    support: Support | None = None  # What engines' releases run on; None not to judge it.


@dataclass(frozen=True, slots=True)
class Solution:
    """One way to serve the workload. Sizes are bytes per device, of the pipeline stage that holds least."""

    model: Model
    offer: Offer  # The device and its price.
    layout: Layout  # How one replica is spread over devices.
    weight_format: str  # Name of the weight format.
    kv_format: str  # Name of the KV format.
    # The pipeline stages, on each kind of device that they have, the one that holds least first.
    ranks: tuple[Deployment, ...]
    request_bytes: int  # What an average request holds.
    shared_bytes: int  # What the shared prefix holds, once for all.
    users_held: int  # Average requests that one replica's memory holds, on all its data ranks.
    users_each: int  # Requests that one replica serves: held, fast enough, and allowed at once.
    # Requests that one replica surely serves: with a pool smaller by the error of the estimate.
    sure_each: int
    sure: bool  # True if the requests still fit when the pool is smaller by its own uncertainty.
    replicas: tuple[int, int, int]  # Replicas for the average, the peak, and the peak with spares.
    binds: Binds  # What keeps one more request from a replica.
    tpot_bound_s: float  # Lower bound of a decode step with a replica's share of the peak; NaN if unknown.
    ttft_bound_s: float  # Lower bound of a prefill; NaN if unknown.

    @property
    def plan(self) -> BlockPlan:
        """The engine's block plan."""
        return self.ranks[0].plan

    @property
    def total_bytes(self) -> int:
        """Memory that a process can use."""
        return int(self.ranks[0].total_bytes)

    @property
    def weight_bytes(self) -> int:
        """Weights as loaded."""
        return int(self.ranks[0].resident_bytes)

    @property
    def reserve_bytes(self) -> int:
        """Activations, non-framework memory and graphs."""
        return int(self.ranks[0].reserve.total)

    @property
    def pool_bytes(self) -> int:
        """Left for the cache."""
        return int(self.ranks[0].pool_bytes)

    @property
    def tensor_parallel(self) -> int:
        """Ranks that share each layer."""
        return self.layout.tensor

    @property
    def devices(self) -> int:
        """Devices in all, spares included."""
        return self.layout.devices * self.replicas[-1]

    @property
    def memory_bytes(self) -> int:
        """Memory of all devices."""
        if self.offer.machine:
            return self.replicas[-1] * sum(one.usable_bytes for one in self.offer.machine)
        return self.devices * self.total_bytes

    @property
    def price_per_hour(self) -> float | None:
        """Price of all devices, or None."""
        each = self.offer.price_per_hour
        return None if each is None else each * self.devices

    def price_per_million(self, load: Load) -> float | None:
        """Price of a million output tokens at the average load, with its prompts, spares and idle time; None if unknown."""
        seconds = load.latency_s or kernel.request_seconds(
            self.ttft_bound_s, self.tpot_bound_s, load.output_tokens, load.efficiency
        )
        if self.price_per_hour is None or isnan(seconds):
            return None
        return kernel.price_per_million(self.price_per_hour, load.concurrent * load.output_tokens / seconds)

    @property
    def users_at_peak(self) -> int:
        """Requests that the replicas of the peak serve, spares not counted."""
        return self.replicas[1] * self.users_each

    def headroom(self, peak: int) -> float:
        """Requests that could come on top of the peak, spares not counted, as a share of the peak."""
        return kernel.headroom(self.replicas[1], self.users_each, peak)
