"""One accelerator: three sizes of memory kept apart, rates, and the evidence of every figure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from kvreport.catalog.base import (
    Contradiction,
    Evidence,
    LongText,
    Positive,
    Record,
    Slug,
    Source,
    Text,
    VersionedRecord,
    YearMonth,
)
from kvreport.errors import InputError, shorten

MAX_FIGURE: Final = 10**18
"""Any size or rate: two hundred times the fastest in the catalog (5 * 10^15 operations per second)."""

MAX_MEMORY_BYTES: Final = 1 << 50
"""Memory of one device."""

_CUDA_CAPABILITY: Final = re.compile(r"[1-9][0-9]?\.[0-9]")


class Figure(Record):
    """A number with the evidence for it."""

    value: Annotated[int, Field(gt=0, le=MAX_FIGURE)]  # The number, in the unit that the field's name says.
    evidence: Evidence  # How far it can be trusted; pages mark ``unverified``.
    # Where it was read: an address, or the title of one of the record's sources.
    source: LongText | None = None
    quote: LongText | None = None  # The words or the log line it was read from.
    note: LongText | None = None  # How it was derived, or how other readings differ.

    @model_validator(mode="after")
    def _traceable(self) -> Self:
        if self.source is None and self.note is None:
            raise ValueError("a figure needs 'source' (where it was read) or 'note' (how it follows)")
        return self


class Memory(Record):
    """The three answers to "how much memory", each in bytes, per device."""

    # The maker's figure for one device. Makers print "GB" and mean binary sizes (an "80 GB" H100 shows 85.5 *
    # 10^9 bytes to its driver); ``advertised_unit`` is what is meant.
    advertised: Figure
    advertised_unit: Literal["GB", "GiB"]
    advertised_label: Text | None = None  # The maker's words for the whole package, ``80 GB``.
    driver_visible: Figure | None = None  # What the driver reports as total.
    # What a process can use as total (``torch.cuda.mem_get_info`` and the like): the figure that an engine
    # multiplies its utilisation with.
    usable: Figure
    # What is free of it when an engine starts and nothing else runs; None where it is all but a context's
    # memory.
    free_at_start: Figure | None = None
    free_band: Positive | None = None  # How much less than ``free_at_start`` logs have.
    # The most that a log shows to have been free; None for ``free_band`` more.
    free_most: Figure | None = None
    # For memory that processor and device share by a setting: the most that a device has been given of it.
    # Device and processor together take no more. None where there is no such setting.
    settable_to: Figure | None = None

    def having(self, usable: Figure) -> Memory:
        """The same memory of which a process can use something else, and nothing is known of what is free."""
        unknown = dict.fromkeys(("driver_visible", "free_at_start", "free_band", "free_most"))
        return self.model_copy(update={"usable": usable, **unknown})


class Rates(Record):
    """Dense peak rates per device, in operations per second; None where unknown or absent."""

    # 16-bit matrix rate (FP16 where the architecture has no BF16; the note says so).
    bf16: Figure | None = None
    fp8: Figure | None = None  # 8-bit floating-point matrix rate.
    int8: Figure | None = None  # 8-bit integer matrix rate.
    fp4: Figure | None = None  # 4-bit floating-point matrix rate.


class Slice(Record):
    """A part of a device that its driver shows as a device of its own (NVIDIA's multi-instance GPU)."""

    name: Annotated[str, Field(pattern=r"^[1-7]g\.[0-9]{1,3}gb$")]  # The profile's name, ``1g.10gb``.
    memory: tuple[Positive, Positive]  # Its parts of the device's memory, and how many parts that has.
    compute: tuple[Positive, Positive]  # The same of its multiprocessors.
    instances: Positive  # How many of them one device can be divided into.
    # What the driver lists as its memory, in bytes; None where only its share is known.
    usable: Positive | None = None

    def usable_of(self, usable_bytes: int) -> int:
        """What a process can use of it, in bytes, on a device with so much.

        A share that no driver's list is known of is cut to the smallest that lists of other devices have: up to a
        quarter of the memory, slices lack up to 8.4 % of their share (H200, B200, H100 NVL).
        """
        part, whole = self.memory
        if self.usable is not None:
            return min(self.usable, usable_bytes)
        if 4 * part <= whole and whole == _HBM_PARTS:
            return usable_bytes * part * _SMALL_SHARE[0] // (whole * _SMALL_SHARE[1])
        return usable_bytes * part // whole - SLICE_SHORT_BYTES


_HBM_PARTS: Final = 8
"""Parts that memory of data-center GPUs is divided into; those of GDDR cards and of A30 are quarters without a shortage."""
_SMALL_SHARE: Final = (916, 1000)
SLICE_SHORT_BYTES: Final = 204_010_947
"""0.19 GiB: what slices of an H100 lack at most of their share of its memory, as its driver lists them (9.75, 19.62
and 39.50 GiB of 79.25)."""


class Accelerator(VersionedRecord):
    """An accelerator as an engine sees it: one *device*, even where two share a package."""

    id: Slug  # Slug, the name on the command line and in the dataset.
    name: Text
    vendor: Text
    aliases: tuple[Text, ...] = ()  # Other names, each unambiguous over the catalog (``H100``).
    architecture: Text
    # The class of NVIDIA's devices whose logs make the error band; None for cards of servers, and for memory
    # that is shared with a processor, which is a class of its own.
    error_band: Literal["workstation"] | None = None
    form_factor: Text | None = None
    compute_capability: Text | None = None  # CUDA capability (``9.0``) or gfx name; None for others.
    release: YearMonth | None = None
    devices_per_package: Positive = 1  # Devices that one package shows to software (2 for MI250X).
    devices_per_node: Positive | None = None  # How many devices the usual server holds.
    memory: Memory
    memory_type: Text | None = None
    bandwidth_bytes_per_s: Figure | None = None
    rates: Rates = Rates()
    native_formats: tuple[Text, ...] = ()
    interconnect_bytes_per_s: Figure | None = None  # Scale-up link of one device, both directions together.
    # What ports that the device is sold with pass to other machines, in one direction.
    network_bytes_per_s: Figure | None = None
    pcie: Text | None = None
    power_watts: Figure | None = None
    notes: tuple[LongText, ...] = ()
    slices: tuple[Slice, ...] = ()  # Parts that it can be divided into, each a device of its own to software.
    slice_of: Slug | None = None  # The device that this is a slice of; None for whole devices.
    # Machine types of large public clouds that have it, one for each provider.
    rented_as: tuple[Text, ...] = ()
    # Devices of the smallest machine that is rented out: a tray of a rack has several.
    rented_devices: Positive = 1
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @property
    def slug(self) -> str:
        """File name and address of the accelerator."""
        return self.id

    def with_usable(self, usable_bytes: int) -> Accelerator:
        """The same accelerator with another amount of usable memory, where that can be set."""
        figure = Figure(value=usable_bytes, evidence="derived", note="set by the caller")
        return self.model_copy(update={"memory": self.memory.having(figure)})

    def with_held(self, held_bytes: int, band_bytes: int = 0) -> Accelerator:
        """The same accelerator with less free at start: other processes hold some of its memory.

        Raises:
            InputError: If they hold all that is free.
        """
        free, less, more = self.free_at_start
        if held_bytes >= free:
            raise InputError(
                f"held-by-others: found {held_bytes:,} bytes; allowed: less than the {free:,} that are free on "
                f"{self.name} when an engine starts"
            )
        left = Figure(value=free - held_bytes, evidence="derived", note="less what other processes hold")
        most = Figure(value=left.value + more + band_bytes, evidence="derived", note="the same at most")
        memory = self.memory.model_copy(
            update={"free_at_start": left, "free_band": less + band_bytes, "free_most": most}
        )
        return self.model_copy(update={"memory": memory})

    def sliced(self, name: str) -> Accelerator:
        """One slice of the device, as a device: its share of memory, bandwidth and rates, and no link to others.

        Raises:
            InputError: If it has no such slice, with those that it has.
        """
        found = next((one for one in self.slices if one.name == name.lower()), None)
        if found is None:
            known = ", ".join(one.name for one in self.slices)
            raise InputError(
                f"accelerator: found slice {shorten(name)} of {self.id}; allowed: "
                + (known or "the whole device, as it has no slices that are known")
            )
        part, whole = found.memory
        figure = Figure(
            value=found.usable_of(self.usable_bytes),
            evidence="derived" if found.usable is None else "observed",
            note=f"{part}/{whole} of the device's, less what slices of other devices lack of their share"
            if found.usable is None
            else "as the driver lists the profile",
        )

        def share(rate: Figure | None, parts: tuple[int, int]) -> Figure | None:
            if rate is None:
                return None
            return rate.model_copy(update={"value": rate.value * parts[0] // parts[1], "evidence": "derived"})

        rates = {
            name: share(getattr(self.rates, name), found.compute) for name in type(self.rates).model_fields
        }
        return self.model_copy(
            update={
                "id": f"{self.id}-{found.name}",
                "name": f"{self.name}, MIG {found.name}",
                "aliases": (),
                "slice_of": self.id,
                "slices": (),
                "devices_per_node": found.instances,
                "memory": self.memory.having(figure),
                "bandwidth_bytes_per_s": share(self.bandwidth_bytes_per_s, found.memory),
                "rates": self.rates.model_copy(update=rates),
                "interconnect_bytes_per_s": None,
                "network_bytes_per_s": None,
                "rented_as": (),
            }
        )

    def as_found(self, total_bytes: float | None, *, wsl: bool = False) -> Self:
        """The same with the memory that an engine found, where that is not this device as it is.

        Slices of a device, and devices of a virtual machine, go by the name of the whole. Under WSL an engine finds all that
        the driver reports, of which Linux keeps a part.

        Args:
            total_bytes: Its memory as printed; None where it is not, and a device without memory is none.
            wsl: True if the engine runs under Windows' subsystem for Linux.
        """
        visible = self.memory.driver_visible
        if total_bytes is not None and round(total_bytes) < 1:
            total_bytes = None
        if total_bytes is None and wsl and visible is not None:
            total_bytes = visible.value
        if total_bytes is None or abs(total_bytes / self.usable_bytes - 1) <= _SAME_DEVICE_WITHIN:
            return self
        usable = self.memory.usable.model_copy(update={"value": round(total_bytes)})
        memory = self.memory.model_copy(update={"usable": usable, "driver_visible": None})
        return self.model_copy(update={"memory": memory})

    @property
    def usable_bytes(self) -> int:
        """Memory that a process can use, in bytes."""
        return self.memory.usable.value

    @property
    def free_at_start(self) -> tuple[int, int, int]:
        """Memory that is free when an engine starts, how much less it may be, and how much more, in bytes."""
        free, band, most = self.memory.free_at_start, self.memory.free_band or 0, self.memory.free_most
        if free is None:
            return self.usable_bytes - CONTEXT_BYTES, CONTEXT_BAND, CONTEXT_BAND
        return free.value, band, band if most is None else most.value - free.value

    @property
    def is_unified(self) -> bool:
        """True if the device computes in the computer's own memory."""
        return "unified" in (self.memory_type or "")

    @property
    def shared_bytes(self) -> int | None:
        """What device and processor can hold together, in bytes; None for a device with memory of its own.

        What a process can use of an installed size is what the system leaves. Only where the device's part is a
        setting does the processor have more: up to the largest part that the device can be given.
        """
        if not self.is_unified:
            return None
        most = self.memory.settable_to
        return max(self.usable_bytes, 0 if most is None else most.value)

    @property
    def is_computer(self) -> bool:
        """True for a computer's own chip, which cannot be put beside others in one machine."""
        return self.form_factor in _COMPUTERS or (self.form_factor is None and self.is_unified)

    @property
    def is_card(self) -> bool:
        """True for a card in a slot, of which a machine has as many as somebody put there."""
        return self.form_factor in _CARD_FORMS and not self.is_computer

    @property
    def is_confined(self) -> bool:
        """True for a card or computer that stays in one machine, as far as stated: it has no link and no port.

        A form that nobody stated, and a cloud's device, are not.
        """
        linked = self.interconnect_bytes_per_s is not None or self.network_bytes_per_s is not None
        return not linked and self.form_factor in _CONFINED

    @property
    def most_per_machine(self) -> int:
        """How many devices one machine can hold: what a board, a tray or a computer has; eight cards or more."""
        usual = self.devices_per_node or _CARDS
        return max(usual, _CARDS) if self.is_card else usual

    @property
    def short_name(self) -> str:
        """What people call it: its shortest alias that is written as a name."""
        names = [alias for alias in self.aliases if alias[0].isupper() and self.vendor not in alias]
        return min([*names, self.name], key=len)

    @property
    def is_commonly_rented(self) -> bool:
        """Whether more than one provider rents it out by the hour."""
        return len(self.rented_as) > 1

    def rental_class(self, since: str) -> int:
        """2 for what several providers rent out and came out since a month, 1 for older ones, 0 for others."""
        if not self.is_commonly_rented:
            return 0
        return 2 if (self.release or "") >= since else 1

    def billed(self, devices: int) -> int:
        """Devices that are paid for where so many are needed: whole machines."""
        return -(-devices // self.rented_devices) * self.rented_devices

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        visible = self.memory.driver_visible
        if visible is not None and self.memory.usable.value > visible.value:
            raise ValueError("memory: usable cannot be larger than driver_visible")
        return self

    def contradictions(self) -> Iterable[Contradiction]:
        """Return what the maker, the capability and the sizes of memory say against one another."""
        usable, advertised = self.memory.usable.value, self.memory.advertised.value
        if max(usable, advertised) > MAX_MEMORY_BYTES:
            found = f"{max(usable, advertised):,} bytes"
            yield Contradiction("memory", found, f"at most {MAX_MEMORY_BYTES:,} bytes per device")
        capability = self.compute_capability
        if self.vendor.upper() == "NVIDIA" and capability and not _CUDA_CAPABILITY.fullmatch(capability):
            yield Contradiction(
                "compute_capability", shorten(capability), "a CUDA capability such as '9.0', for NVIDIA"
            )


_COMPUTERS: Final = frozenset({"SoC", "SoM", "APU", "Desktop"})
_CARD_FORMS: Final = frozenset({None, "PCIe", "PCIe LP"})
_CONFINED: Final = (_COMPUTERS | _CARD_FORMS) - {None}
"""Forms of devices that leave their machine only by a network that somebody adds, unless a record states their ports."""
_SAME_DEVICE_WITHIN: Final = 0.005
"""A device whose memory differs by more than this from the catalog's is not that device as it is."""
_CARDS: Final = 8
"""Cards that a server or a self-made rig holds, whatever is usual for them."""

CONTEXT_BYTES: Final = 569_083_166
"""What a process's context takes before an engine measures what is free: 0.53 GiB of an H100 ("78.66/79.19 GiB")."""

CONTEXT_BAND: Final = 268_435_456
"""Half the width of its band: contexts of 0.3 to 0.8 GiB are logged."""

_CURRENT_YEARS: Final = 5
"""How long a generation counts as current: about two generations of data-center GPUs (A100 2020, H100 2022, B200 2024)."""


def current_since(accelerators: Iterable[Accelerator]) -> str:
    """The month since which accelerators count as current, by the newest of them."""
    newest = max((one.release or "" for one in accelerators), default="")
    return f"{int(newest[:4]) - _CURRENT_YEARS}{newest[4:]}" if newest else ""
