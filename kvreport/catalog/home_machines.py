"""Machines and cards of every memory size that is sold, as accelerators that names find.

They are not in the published matrix, which has one size of each chip: a size is a name on the command line, a choice
on pages about local machines, and ``--memory`` states any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.accelerator import Accelerator, Figure, Memory
from kvreport.catalog.base import Positive, Record, Slug, Source, Text, YearMonth
from kvreport.catalog.shelf import CatalogFile

GIB: Final = 1 << 30
MIB: Final = 1 << 20
_UNCHECKED: Final = "Manufacturer's figures from general knowledge, not checked against a data sheet"


class HardwareRecord(Record):
    """What chips, cards and machines have."""

    id: Slug
    name: Text
    architecture: Text
    release: YearMonth
    bandwidth_gb_s: Positive


class AppleChip(HardwareRecord):
    """One chip with its memory sizes, in GB as sold."""

    sizes: Annotated[tuple[Positive, ...], Field(min_length=1)]


class WorkingSet(Record):
    """What Metal lets a process use: MiB of an installed size in GB."""

    size: Positive
    mib: Positive


class AppleChips(Record):
    """Apple's chips, and what Metal lets a process use of each installed size."""

    working_set: tuple[WorkingSet, ...]  # MiB by installed GB.
    # Sizes whose figure is from logs; the others follow from their neighbors' share.
    observed: tuple[Positive, ...]
    # Names of computers by the class of their chip, which is a word of the chip's name; "other" for those without one.
    computers: dict[Text, tuple[Text, ...]] = Field(default_factory=dict)
    chips: tuple[AppleChip, ...]

    def computers_of(self, device: Accelerator) -> tuple[str, ...]:
        """The computers that have an Apple chip; none for other devices."""
        if device.vendor != "Apple":
            return ()
        own = next((word for word in device.name.split() if word in self.computers), "other")
        return self.computers.get(own, ())


class Card(HardwareRecord):
    """One card, or one machine that shares its memory."""

    vendor: Text
    error_band: Literal["workstation"] | None = None
    capability: Text | None = None
    memory_gib: Positive  # Installed memory, in GiB.
    memory_type: Text = "LPDDR5X unified"
    usable_mib: Positive | None = None  # What a process can use, where known.
    like: Slug | None = None  # For shared memory: the accelerator whose share applies.
    # For shared memory whose split is a setting: the most that the device can be given.
    settable_mib: Positive | None = None


class Cards(Record):
    """Cards with memory of their own."""

    # Share of installed memory that a process can use, by maker.
    share_found: dict[Text, Annotated[float, Field(gt=0, le=1)]]
    share_from: dict[Text, Slug]  # The accelerator whose logs it is from.
    list: tuple[Card, ...]


class HomeMachines(CatalogFile):
    """The content of ``home/machines.yaml``."""

    FILE = "home/machines.yaml"
    also: tuple[Slug, ...] = ()  # Accelerators of the matrix that people have at home, too.
    local_first: tuple[Slug, ...] = ()  # Those of them that people run with local engines.
    apple: AppleChips
    cards: Cards  # Cards with memory of their own.
    shared: tuple[Card, ...]  # Other machines whose GPU shares the computer's memory.
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    def accelerators(self) -> Iterator[Accelerator]:
        """Every entry and size as an accelerator."""
        for chip in self.apple.chips:
            for size in chip.sizes:
                yield self._apple(chip, size)
        for card in self.cards.list:
            yield self._card(card)
        for card in self.shared:
            yield _accelerator(
                card, (card.usable_mib or 0) * MIB, "derived", f"The share that {card.like} shows."
            )

    def _apple(self, chip: AppleChip, size: int) -> Accelerator:
        seen = size in self.apple.observed
        note = (
            f"This is Metal's recommended working set for {size} GB in recent versions of macOS. The system uses the same memory."
            if seen
            else "We found no log of a Mac with this much memory, so the share of the next smaller size with a log is used."
        )
        card = Card(
            id=f"{chip.id}-{size}",
            name=f"{chip.name} {size}GB",
            vendor="Apple",
            architecture=chip.architecture,
            release=chip.release,
            memory_gib=size,
            bandwidth_gb_s=chip.bandwidth_gb_s,
        )
        usable = next(one.mib for one in self.apple.working_set if one.size == size) * MIB
        return _accelerator(card, usable, "observed" if seen else "derived", note)

    def _card(self, card: Card) -> Accelerator:
        if card.usable_mib is not None:
            return _accelerator(
                card, card.usable_mib * MIB, "observed", "The value is from a log of llama.cpp."
            )
        usable = int(card.memory_gib * GIB * self.cards.share_found[card.vendor])
        note = (
            f"Computed as the installed memory times the usable share in logs of other {card.vendor} cards."
        )
        return _accelerator(card, usable, "derived", note)


def _accelerator(card: Card, usable: int, evidence: Literal["observed", "derived"], note: str) -> Accelerator:
    unverified = {"evidence": "unverified", "source": _UNCHECKED}
    return Accelerator(
        id=card.id,
        name=card.name,
        vendor=card.vendor,
        aliases=_aliases(card),
        architecture=card.architecture,
        error_band=card.error_band,
        compute_capability=card.capability,
        release=card.release,
        devices_per_node=1,
        memory=Memory(
            advertised=Figure.model_validate({"value": card.memory_gib * GIB, **unverified}),
            advertised_unit="GiB",
            advertised_label=f"{card.memory_gib} GB",
            usable=Figure(value=usable, evidence=evidence, note=note),
            settable_to=_settable_to(card),
        ),
        memory_type=card.memory_type,
        bandwidth_bytes_per_s=Figure.model_validate({"value": card.bandwidth_gb_s * 10**9, **unverified}),
        sources=(
            Source(
                covers=("memory.advertised", "bandwidth_bytes_per_s", "release", "memory_type"),
                title=_UNCHECKED,
                evidence="unverified",
            ),
        ),
    )


def _settable_to(card: Card) -> Figure | None:
    if card.settable_mib is None:
        return None
    return Figure(
        value=card.settable_mib * MIB, evidence="derived", note=f"The share that {card.like} shows."
    )


_OF_MAKERS: Final = frozenset({"Blackwell", "GeForce", "Instinct", "Radeon", "Tesla"})
"""Words of a card's name that people leave out."""


def _aliases(card: Card) -> tuple[str, ...]:
    """What people call a card: without its maker's line, without its size, without ``RTX`` or ``PRO``; what drivers print of a laptop's."""
    if card.vendor == "Apple" or "Ryzen" in card.name:
        return ()
    words = [word for word in card.name.split() if word not in _OF_MAKERS]
    names = [" ".join(words), " ".join(words[:-1])]
    plain = [word for word in words if word != "(modified)"]
    if plain[0] in {"GTX", "RTX"}:
        names.append(" ".join(plain[1:]))
    if plain[0] == "PRO":
        names += [" ".join(plain[1:]), " ".join(plain[1:-1])]
    if plain[-2] == "Laptop":
        names.append(" ".join((*plain[:-1], "GPU")))
    if "D" in words:
        names += [name.replace(" D", "D") for name in names]
    return tuple(names)


@lru_cache(maxsize=4)
def home_accelerators(folder: Path | None = None) -> Mapping[str, Accelerator]:
    """Accelerators of ``home/machines.yaml`` by id; none for a catalog without that file.

    Raises:
        CatalogError: If the file has a fault.
    """
    machines = HomeMachines.read(folder)
    return MappingProxyType({} if machines is None else {one.id: one for one in machines.accelerators()})
