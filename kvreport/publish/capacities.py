"""What pages about all models ask of one: its series on each accelerator, reduced to what is shown.

A model's series are many and its outcomes few: one for each accelerator. Outcomes are kept between builds, so that
a page about all models reads them without computing a model's rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.model import Model
from kvreport.publish.series import Config, ModelRefusal, Series, refusal_of, smallest_serving


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one kind of accelerator makes of a model as released."""

    serving: Series | None  # The fewest devices that serve it; None if no number does.
    refusal: ModelRefusal | None  # Why none does; None if one does.
    # For each context of the grid, the fewest devices that hold one request of it; 0 if no number does.
    fewest: tuple[int, ...]

    @property
    def why(self) -> ModelRefusal:
        """Why no number of devices serves the model."""
        return self.refusal or ModelRefusal("support", 0, 0)


@dataclass(frozen=True, slots=True)
class Capacity:
    """One model's outcomes."""

    outcomes: dict[str, Outcome]
    headline: Series | None  # The series that its headline speaks of; None where nothing serves it.
    single: Series | None  # Its first series on one device, whichever; None if it cannot run on one.
    known: Series | None  # The same on the first of the well-known accelerators.
    runs: bool


class Released(Mapping[str, dict[Config, Series]]):
    """Each model's series by model id, computed when it is first asked for."""

    def __init__(self, models: Iterable[Model], make: Callable[[Model], dict[Config, Series]]) -> None:
        """Take the models and what computes the series of one."""
        self._models = {model.id: model for model in models}
        self._make = make
        self._made: dict[str, dict[Config, Series]] = {}

    def __getitem__(self, name: str) -> dict[Config, Series]:
        if name not in self._made:
            self._made[name] = self._make(self._models[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._models and bool(self[str(name)])

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)


def capacity_of(
    model: Model,
    gpus: Iterable[Accelerator],
    known: tuple[str, ...],
    released: Mapping[Config, Series],
    contexts: Sequence[int],
) -> Capacity:
    """Reduce a model's series to its outcomes; both lists of accelerators are in the order of preference for a headline."""
    on: dict[str, list[Series]] = {gpu.id: [] for gpu in gpus}
    for config, one in released.items():
        on[config.gpu].append(one)
    outcomes = {}
    for gpu in gpus:
        many = on[gpu.id]
        serving = smallest_serving(many)
        outcomes[gpu.id] = Outcome(
            serving,
            None if serving is not None else refusal_of(many, gpu.usable_bytes),
            _fewest(many, len(contexts)),
        )
    return Capacity(
        outcomes,
        headline=_headline(model, gpus, known, on),
        single=next((one for one in released.values() if one.config.tensor_parallel == 1), None),
        known=next((one for one in on[known[0]] if one.config.tensor_parallel == 1), None),
        runs=bool(released),
    )


def _fewest(many: Iterable[Series], contexts: int) -> tuple[int, ...]:
    """The fewest devices that hold one request of each context, 0 where no series does."""
    holding = [[one.config.tensor_parallel for one in many if one.holds(place)] for place in range(contexts)]
    return tuple(min(sizes, default=0) for sizes in holding)


def _headline(
    model: Model, gpus: Iterable[Accelerator], known: tuple[str, ...], on: Mapping[str, list[Series]]
) -> Series | None:
    """The fewest devices that hold one request of the model's full context; where none does, the fewest that serve.

    Among equals the best-known accelerator. Where no well-known one serves, those that several clouds rent out come before
    the others, some of which nobody has yet.
    """
    every = list(gpus)
    rented = [gpu.id for gpu in every if gpu.is_commonly_rented]
    groups = (known, rented, [gpu.id for gpu in every])
    serving = next(
        (found for names in groups if (found := [one for gpu in names for one in on[gpu] if one.serves])), []
    )

    def order(one: Series) -> tuple[bool, int]:
        return (one.longest < model.context_tokens, one.config.tensor_parallel)

    return min(serving, key=order) if serving else None
