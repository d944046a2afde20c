"""Inverse answers for llama.cpp: the longest context, the most slots, the fewest experts on the CPU; and ``--fit``.

``common/fit.cpp`` (``common_params_fit_impl``) of llama.cpp 0c1e57098, replayed step by step: shorten a context that
nobody stated, fill devices back to front with layers (of a mixture without their experts), then give whole layers
their experts front to back, and part of one more. Only what the user left open is changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, Setup
from kvreport.accounting.engines.llama_cpp.options import CELL_MULTIPLE, LocalOptions

MOST_SLOTS: Final = 256
"""Sequences that llama.cpp keeps apart at most (``LLAMA_MAX_SEQ``)."""


def longest_context(setup: Setup) -> int:
    """The largest ``--ctx-size`` that fits, up to the model's own context; 0 if none does."""
    limit = setup.local.model.context_tokens
    step = CELL_MULTIPLE * (1 if setup.options.is_unified else setup.options.slots)

    def slack(steps: int) -> int:
        return _slack(setup, setup.lay_out(context=steps * step))

    return min(_largest(slack, max(limit // step, 1)) * step, limit)


def longest_of_slots(setup: Setup, slots: int) -> int:
    """The longest context that each of so many slots with cells of its own can have; 0 if none."""
    if slots > MOST_SLOTS:
        return 0
    limit = setup.local.model.context_tokens

    def slack(steps: int) -> int:
        each = min(steps * CELL_MULTIPLE, limit)
        return _slack(setup, setup.lay_out(context=each * slots, parallel=slots, unified=False))

    return min(_largest(slack, -(-limit // CELL_MULTIPLE)) * CELL_MULTIPLE, limit)


def _slack(setup: Setup, layout: LocalLayout) -> int:
    """The fewest bytes left free on a device, or on a host of known memory; below 0 where some are missing."""
    on_host = [] if setup.host_memory is None else [setup.host_memory - layout.host.total]
    return min([*(one.free for one in layout.devices), *on_host], default=0)


def _largest(slack: Callable[[int], int], most: int) -> int:
    """The largest number up to ``most`` whose slack is not negative; 0 if there is none.

    Slack falls almost evenly, so the next guess is where a straight line between the bounds crosses zero.
    """
    low, high = 1, most
    at_low, at_high = slack(low), slack(high)
    if at_high >= 0:
        return high
    if at_low < 0:
        return 0
    while high - low > 1:
        guess = low + int((high - low) * at_low / max(at_low - at_high, 1))
        guess = min(max(guess, low + 1), high - 1)
        found = slack(guess)
        if found >= 0:
            low, at_low = guess, found
            above = slack(low + 1)
            if above < 0:
                return low
            low, at_low = low + 1, above
        else:
            high, at_high = guess, found
    return low


def most_slots(setup: Setup, context: int, guess: int = MOST_SLOTS // 2) -> int:
    """How many slots of ``context`` tokens each fit (``-c context*N -np N``), at most 256.

    ``context``: tokens of one slot. ``guess``: where to look first.
    """

    def holds(slots: int) -> bool:
        return setup.lay_out(context=context * slots, parallel=slots, unified=False).fits

    low, high, step = 0, MOST_SLOTS + 1, 1
    middle = min(max(guess, 1), MOST_SLOTS)
    # Steps double away from the guess until both bounds are known, then halve between them.
    while high - low > 1:
        if holds(middle):
            low = middle
            middle = low + step if high > MOST_SLOTS else (low + high) // 2
        else:
            high = middle
            middle = high - step if low == 0 else (low + high) // 2
        middle, step = min(max(middle, low + 1), high - 1), 2 * step
    return low


def fewest_cpu_experts(setup: Setup) -> int | None:
    """The smallest ``--n-cpu-moe`` that fits; None if no number of them helps."""

    def laid(layers: int) -> LocalLayout:
        return setup.lay_out(cpu_moe=layers)

    if not setup.local.has_experts or _nothing_to_gain(setup):
        return 0 if laid(setup.options.cpu_moe).fits else None
    every = range(len(setup.local.network.blocks))
    fewest = bisect_left(every, 1, key=lambda layers: laid(layers).fits_devices)
    # The fewest that devices need are the fewest that the host has to hold.
    return fewest if laid(fewest).fits else None


def most_gpu_layers(setup: Setup) -> int:
    """The largest ``--n-gpu-layers`` that fits; 0 if none does."""

    def laid(layers: int) -> LocalLayout:
        return setup.lay_out(gpu_layers=layers)

    every = len(setup.local.network.blocks) + 1
    if _nothing_to_gain(setup):
        return every if laid(every).fits else 0
    most = bisect_left(range(1, every + 1), 1, key=lambda layers: not laid(layers).fits_devices)
    # The most that devices hold are those that leave the host the least.
    return most if laid(most).fits else 0


def in_part(setup: Setup) -> dict[str, int]:
    """The options that leave the fewest experts, or else layers, in host memory; empty where neither helps."""
    experts = fewest_cpu_experts(setup)
    if experts:
        return {"cpu_moe": experts}
    layers = most_gpu_layers(setup)
    return {"gpu_layers": layers} if layers else {}


def _nothing_to_gain(setup: Setup) -> bool:
    """True where the host's memory is a device's already: what leaves the device stays in the same memory."""
    return bool(setup.devices) and all(device.has_all for device in setup.devices)


FIT_TARGET: Final = 1 << 30
"""Memory that ``--fit`` leaves free on each device (``--fit-target``)."""

FIT_MIN_CONTEXT: Final = 4096
"""The shortest context that ``--fit`` chooses by itself (``--fit-ctx``)."""

_ATTENTION, _UP, _GATE, _MIXTURE = "attention", "up", "gate", "mixture"
_PATTERNS: Final = {
    _ATTENTION: r"blk\.{}\.ffn_(gate|up|gate_up|down).*",
    _UP: r"blk\.{}\.ffn_(gate|gate_up|down).*",
    _GATE: r"blk\.{}\.ffn_down.*",
    _MIXTURE: r"blk\.{}\.ffn_(up|down|gate_up|gate)_(ch|)exps",
}
"""Tensors of a layer that leave the device, by what stays (``get_overflow_pattern``)."""

_ALL_EXPERTS: Final = r"blk\.\d+\.ffn_(up|down|gate_up|gate)_(ch|)exps"


@dataclass(frozen=True)
class Fitted:
    """What ``--fit`` would choose."""

    options: LocalOptions  # The options after fitting.
    layout: LocalLayout  # The layout they give.
    changed: tuple[str, ...] = ()  # What was changed, in llama.cpp's own flags.
    refused: str | None = None  # Why nothing more was changed although the target is missed; None otherwise.


@dataclass(frozen=True)
class _Share:
    """Layers of one device."""

    layers: int = 0  # Layers in all.
    part: int = 0  # Layers of them that miss tensors.
    overflow: str = _MIXTURE  # What the first of those keeps; the others keep all but their experts.
    to: str = "CPU"  # Buffer type that its missing tensors go to.

    @property
    def full(self) -> int:
        return self.layers - self.part

    def moved(
        self, layers: int = 0, part: int = 0, overflow: str | None = None, to: str | None = None
    ) -> _Share:
        return _Share(self.layers + layers, self.part + part, overflow or self.overflow, to or self.to)


_Shares = tuple[_Share, ...]
_Step = Callable[[int], _Shares]


def fit(setup: Setup, *, target: int = FIT_TARGET, context_given: bool = True) -> Fitted:
    """Replay ``--fit``, which does not ask what the host has.

    ``target``: bytes to leave free on each device. ``context_given``: False if the context may be lowered.
    """
    run, options = _Run(replace(setup, host_memory=None), target), setup.options
    layout = run.lay_out(options)
    if not setup.devices or run.meets(layout):
        return Fitted(options, layout)
    changed: list[str] = []
    if not context_given and sum(run.slack(layout)) < 0:
        options, done = run.shorter_context(options, layout)
        layout = run.lay_out(options)
        changed.append(f"--ctx-size {options.context}")
        if done and len(setup.devices) == 1:
            return Fitted(options, layout, tuple(changed))
    refused = _refusal(options, len(setup.devices))
    if refused:
        return Fitted(options, layout, tuple(changed), refused)
    chosen = run.with_shares(options, run.fill(options))
    return Fitted(chosen, run.lay_out(chosen), (*changed, *_flags(chosen)))


def would_change(setup: Setup, layout: LocalLayout, target: int) -> bool:
    """True if ``--fit`` would place layers otherwise than a layout, for less than ``target`` bytes are left of a device."""
    left = (device.usable - laid.total for device, laid in zip(setup.devices, layout.devices, strict=True))
    return min(left, default=target) < target and _refusal(setup.options, len(setup.devices)) is None


def _refusal(options: LocalOptions, devices: int) -> str | None:
    if options.gpu_layers is not None:
        return "--n-gpu-layers is set"
    if devices > 1 and options.tensor_split:
        return "--tensor-split is set"
    if devices > 1 and options.split_mode == "row":
        return "--split-mode row is set"
    return "--n-cpu-moe or --override-tensor is set" if options.overrides or options.cpu_moe else None


def _flags(options: LocalOptions) -> tuple[str, ...]:
    found = [f"--n-gpu-layers {options.gpu_layers}"]
    if options.tensor_split:
        found.append("--tensor-split " + ",".join(f"{share:g}" for share in options.tensor_split))
    if options.overrides:
        rules = ",".join(f"{pattern}={buffer}" for pattern, buffer in options.overrides)
        found.append(f'--override-tensor "{rules}"')
    return tuple(found)


@dataclass(frozen=True)
class _Run:
    setup: Setup
    target: int

    @property
    def layers(self) -> int:
        return len(self.setup.local.network.blocks)

    @property
    def targets(self) -> tuple[int, ...]:
        """Most bytes that model, caches and buffers may take on each device."""
        return tuple(device.usable - device.context - self.target for device in self.setup.devices)

    def lay_out(self, options: LocalOptions) -> LocalLayout:
        return replace(self.setup, options=options).lay_out()

    def used(self, layout: LocalLayout) -> tuple[int, ...]:
        """What the dry run reports for each device."""
        return tuple(device.total - device.context for device in layout.devices)

    def slack(self, layout: LocalLayout) -> tuple[int, ...]:
        return tuple(most - used for most, used in zip(self.targets, self.used(layout), strict=True))

    def meets(self, layout: LocalLayout) -> bool:
        return min(self.slack(layout)) >= 0

    def shorter_context(self, options: LocalOptions, layout: LocalLayout) -> tuple[LocalOptions, bool]:
        """The context on a straight line between the least and the model's own; True if that is enough."""
        streams = 1 if options.is_unified else options.slots
        most, least = self.setup.local.model.context_tokens * streams, FIT_MIN_CONTEXT * streams
        if most <= least:
            return options, False
        wanted = sum(self.targets)
        if len(self.setup.devices) > 1:
            weights = sum(device.weights for device in layout.devices)
            wanted -= (
                (len(self.setup.devices) + 1)
                * (weights // (self.layers + 1))
                // (6 if self.setup.local.has_experts else 2)
            )
        smallest = replace(options, context=least)
        low = sum(self.used(self.lay_out(smallest)))
        if wanted <= low:
            return smallest, False
        context = least + (most - least) * (wanted - low) // max(sum(self.used(layout)) - low, 1)
        context = max(context - context % (CELL_MULTIPLE * streams), least)
        return replace(options, context=context), True

    def with_shares(self, options: LocalOptions, shares: _Shares) -> LocalOptions:
        """Options that give every device its layers (``set_ngl_tensor_split_tbo``)."""
        total = sum(share.layers for share in shares)
        index = self.layers + 1 - total
        rules: list[tuple[str, str]] = []
        bare: list[int] = []
        for share in shares:
            index += share.full
            if share.part and (share.overflow, share.to) != (_MIXTURE, "CPU"):
                rules.append((_PATTERNS[share.overflow].format(index), share.to))
                bare += range(index + 1, index + share.part)
            else:
                bare += range(index, index + share.part)
            index += share.part
        if bare:
            # llama.cpp lists one pattern per layer; one with all of them matches the same tensors.
            named = str(bare[0]) if len(bare) == 1 else f"({'|'.join(map(str, bare))})"
            rules.append((_PATTERNS[_MIXTURE].format(named), "CPU"))
        split = tuple(float(share.layers) for share in shares) if len(shares) > 1 and total else ()
        return replace(options, gpu_layers=total, tensor_split=split, overrides=tuple(rules))

    def memory(self, options: LocalOptions, shares: _Shares) -> tuple[int, ...]:
        return self.used(self.lay_out(self.with_shares(options, shares)))

    def fill(self, options: LocalOptions) -> _Shares:
        """Layers of each device: back to front, then experts front to back where the rest fits."""
        shares = tuple(_Share() for _ in self.setup.devices)
        for index in reversed(range(len(self.setup.devices))):
            shares = self._fill_back(options, shares, index)
        if not self.setup.local.has_experts:
            return shares
        dense_only = replace(options, overrides=((_ALL_EXPERTS, "CPU"),))
        if sum(self.slack(self.lay_out(dense_only))) <= 0:
            return shares
        start = next((i for i, share in enumerate(shares) if share.layers), len(shares) - 1)
        index = 0
        while index <= start:
            shares, start = self._fill_experts(options, shares, index, start)
            shares, start = self._part_of_one_more(options, shares, index, start)
            index += 1
        return shares

    def _search(
        self, options: LocalOptions, index: int, low: _Shares, high: _Shares, most: int, step: _Step
    ) -> int:
        """The method of false position: how many of ``most`` steps keep device ``index`` within its target."""
        at_low, at_high = self.memory(options, low)[index], self.memory(options, high)[index]
        if at_high <= self.targets[index]:
            return most
        done, delta = 0, most
        while delta > 1:
            size = delta * (self.targets[index] - at_low) // max(at_high - at_low, 1)
            size = min(max(size, 1), delta - 1)
            found = self.memory(options, step(done + size))[index]
            if found <= self.targets[index]:
                done, at_low, delta = done + size, found, delta - size
            else:
                at_high, delta = found, size
        return done

    def _fill_back(self, options: LocalOptions, shares: _Shares, index: int) -> _Shares:
        left = self.layers + 1 - sum(share.layers for share in shares[index + 1 :])
        if left <= 0:
            return shares
        last = index == len(shares) - 1

        def with_layers(count: int) -> _Shares:
            # The output layer is never in part.
            part = (count - 1 if last else count) if self.setup.local.has_experts and count else 0
            return _put(shares, index, _Share(count, part))

        done = self._search(options, index, shares, with_layers(left), left, with_layers)
        return with_layers(done)

    def _fill_experts(
        self, options: LocalOptions, shares: _Shares, index: int, start: int
    ) -> tuple[_Shares, int]:
        convertible = sum(share.part for share in shares[start:])

        def with_converted(count: int) -> _Shares:
            return _converted(shares, index, start, count)[0]

        done = self._search(options, index, shares, with_converted(convertible), convertible, with_converted)
        return _converted(shares, index, start, done)

    def _part_of_one_more(
        self, options: LocalOptions, shares: _Shares, index: int, start: int
    ) -> tuple[_Shares, int]:
        last = len(shares) - 1
        if shares[start].layers <= (0 if index < last else 1) or shares[start].part == 0:
            return shares, start
        to = f"GPU{index + 1}" if index < last else "CPU"
        tried = _put(shares, start, shares[start].moved(-1, -1))
        after = start + (1 if tried[start].part == 0 and start < last else 0)

        def works(overflow: str) -> _Shares | None:
            test = _put(tried, index, tried[index].moved(1, 1, overflow, to))
            used = self.memory(options, test)
            ahead = index == last or used[index + 1] < self.targets[index + 1]
            return test if used[index] < self.targets[index] and ahead else None

        up = works(_UP)
        best = (works(_GATE) or up) if up else works(_ATTENTION)
        return (best, after) if best else (shares, start)


def _put(shares: _Shares, index: int, share: _Share) -> _Shares:
    return (*shares[:index], share, *shares[index + 1 :])


def _converted(shares: _Shares, index: int, start: int, count: int) -> tuple[_Shares, int]:
    """Give ``count`` layers their experts on device ``index``, taken from the front of the layers without."""
    done = 0
    for place in range(start, len(shares)):
        taken = min(count - done, shares[place].part)
        shares = _put(shares, place, shares[place].moved(-taken, -taken))
        shares = _put(shares, index, shares[index].moved(taken))
        done += taken
        if shares[place].part:
            return shares, place
    return shares, len(shares) - 1
