"""What llama.cpp's ``--fit`` chooses, replayed step by step.

``common/fit.cpp`` (``common_params_fit_impl``) of llama.cpp 0c1e57098: shorten a context that nobody stated, fill
devices back to front with layers (of a mixture without their experts), then give whole layers their experts front to
back, and part of one more. Only what the user left open is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, lay_out_local
from kvreport.accounting.engines.llama_cpp.network import Mixture
from kvreport.accounting.engines.llama_cpp.options import CELL_MULTIPLE, LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.reading import LocalModel

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
    """What ``--fit`` would choose.

    Attributes:
        options: The options after fitting.
        layout: The layout they give.
        changed: What was changed, in llama.cpp's own flags.
        refused: Why nothing more was changed although the target is missed; None otherwise.
    """

    options: LocalOptions
    layout: LocalLayout
    changed: tuple[str, ...] = ()
    refused: str | None = None


@dataclass(frozen=True)
class _Share:
    """Layers of one device.

    Attributes:
        layers: Layers in all.
        part: Layers of them that miss tensors.
        overflow: What the first of those keeps; the others keep all but their experts.
        to: Buffer type that its missing tensors go to.
    """

    layers: int = 0
    part: int = 0
    overflow: str = _MIXTURE
    to: str = "CPU"

    @property
    def full(self) -> int:
        return self.layers - self.part

    def moved(
        self, layers: int = 0, part: int = 0, overflow: str | None = None, to: str | None = None
    ) -> _Share:
        return _Share(self.layers + layers, self.part + part, overflow or self.overflow, to or self.to)


_Shares = tuple[_Share, ...]
_Step = Callable[[int], _Shares]


def fit(
    local: LocalModel,
    options: LocalOptions,
    devices: Sequence[LocalDevice],
    *,
    target: int = FIT_TARGET,
    context_given: bool = True,
    extra: Sequence[int] = (),
    least_context: int = FIT_MIN_CONTEXT,
) -> Fitted:
    """Replay ``--fit``.

    ``target``: bytes to leave free on each device. ``context_given``: False if the context may be
    lowered. ``extra``: bytes on each device that a projector or a draft model takes besides.
    ``least_context``: the shortest context to choose, per stream.
    """
    run = _Run(local, tuple(devices), target, tuple(extra) or (0,) * len(devices))
    layout = lay_out_local(local, options, devices)
    if not devices or run.meets(layout):
        return Fitted(options, layout)
    changed: list[str] = []
    if not context_given and sum(run.slack(layout)) < 0:
        options, done = run.shorter_context(options, layout, least_context)
        layout = lay_out_local(local, options, devices)
        changed.append(f"--ctx-size {options.context}")
        if done and len(devices) == 1:
            return Fitted(options, layout, tuple(changed))
    refused = _refusal(options, len(devices))
    if refused:
        return Fitted(options, layout, tuple(changed), refused)
    chosen = run.with_shares(options, run.fill(options))
    return Fitted(chosen, lay_out_local(local, chosen, devices), (*changed, *_flags(chosen)))


def would_change(
    options: LocalOptions, layout: LocalLayout, devices: Sequence[LocalDevice], target: int = FIT_TARGET
) -> bool:
    """True if ``--fit`` would place layers otherwise than a layout, for less than ``target`` bytes are left of a device.

    Further arguments as of :func:`fit`.
    """
    left = (device.usable - laid.total for device, laid in zip(devices, layout.devices, strict=True))
    return min(left, default=target) < target and _refusal(options, len(devices)) is None


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
    local: LocalModel
    devices: tuple[LocalDevice, ...]
    target: int
    extra: tuple[int, ...]

    @property
    def layers(self) -> int:
        return len(self.local.network.blocks)

    @property
    def experts(self) -> bool:
        return any(isinstance(block.feed, Mixture) for block in self.local.network.blocks)

    @property
    def targets(self) -> tuple[int, ...]:
        """Most bytes that model, caches and buffers may take on each device."""
        return tuple(device.usable - device.context - self.target for device in self.devices)

    def used(self, layout: LocalLayout) -> tuple[int, ...]:
        """What the dry run reports for each device."""
        return tuple(
            device.total - device.context + more
            for device, more in zip(layout.devices, self.extra, strict=True)
        )

    def slack(self, layout: LocalLayout) -> tuple[int, ...]:
        return tuple(most - used for most, used in zip(self.targets, self.used(layout), strict=True))

    def meets(self, layout: LocalLayout) -> bool:
        return min(self.slack(layout)) >= 0

    def shorter_context(
        self, options: LocalOptions, layout: LocalLayout, least: int
    ) -> tuple[LocalOptions, bool]:
        """The context on a straight line between the least and the model's own; True if that is enough."""
        streams = 1 if options.is_unified else options.slots
        most, least = self.local.model.context_tokens * streams, least * streams
        if most <= least:
            return options, False
        wanted = sum(self.targets)
        if len(self.devices) > 1:
            weights = sum(device.weights for device in layout.devices)
            wanted -= (len(self.devices) + 1) * (weights // (self.layers + 1)) // (6 if self.experts else 2)
        smallest = replace(options, context=least)
        low = sum(self.used(lay_out_local(self.local, smallest, self.devices)))
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
        return self.used(lay_out_local(self.local, self.with_shares(options, shares), self.devices))

    def fill(self, options: LocalOptions) -> _Shares:
        """Layers of each device: back to front, then experts front to back where the rest fits."""
        shares = tuple(_Share() for _ in self.devices)
        for index in reversed(range(len(self.devices))):
            shares = self._fill_back(options, shares, index)
        if not self.experts:
            return shares
        dense_only = replace(options, overrides=((_ALL_EXPERTS, "CPU"),))
        if sum(self.slack(lay_out_local(self.local, dense_only, self.devices))) <= 0:
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
            part = (count - 1 if last else count) if self.experts and count else 0
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
