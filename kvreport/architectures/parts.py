"""Parts of models as listings: an encoder or a projector written down as rows, which code and classes refer to.

A part is a section of ``parts/*.txt`` with the rows of a listing (:mod:`kvreport.architectures.listing`). Its names begin
below the module that the part is built in, and its formulas are over the keys of one section of the config and over
what the caller gives. ``also: in_channels = in_chans`` names a key's aliases, ``derive: width = 4*hidden_size`` what a
missing key means, and ``let: merged = hidden_size*merge**2`` a formula that rows refer to.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from kvreport.architectures.blueprint import Weight
from kvreport.architectures.keys import MAX_LAYERS, MAX_WIDTH, Keys
from kvreport.architectures.listing import Listing, TensorRow, part_listing
from kvreport.architectures.listing_formulas import MAX_VALUE, evaluate
from kvreport.architectures.tensor_builders import Tensors
from kvreport.errors import InputError

UNSAID: Final = dict.fromkeys(
    ("bias_qkv", "bias_out", "bias_mlp", "bias_norm", "bias_experts", "bias_shared"), False
)
"""Terms of the parts in ``decoder_layers.txt`` that are false unless a listing or a caller says otherwise."""
_MOST_SIDES: Final = 4
_RATIOS: Final = (0.01, 64)
"""What a ratio of two widths may be."""
_LONGEST: Final = 1 << 10
"""The longest side of a window of patches."""
_HIGHEST: Final = (
    (
        re.compile(
            r"^(?:global_attn|max_window|num_dense_layers|first_k|decoder_sparse|moe_layer|attn_layer|expert_layer|interleave)|_pattern$"
        ),
        MAX_LAYERS,
    ),
    (re.compile(r"(?:^|_)(?:depth|layers|blocks|frequency)$"), 500),
    (
        re.compile(
            r"^(?:in|num)_ch|merge_size$|^temporal|_temporal$|^pooling|_multiplier$|mlp_ratio$|^(?:scale|downsample)_factor$"
        ),
        64,
    ),
    (re.compile(r"kernel_size$|_kernel_dim$|_d_conv$|^conv_L|^group_size$"), 1 << 10),
    (re.compile(r"patch_size$|(?:num|_attention)_heads$|^pos_?emb|^head_dim$"), 1 << 12),
    (re.compile(r"image_size$|_mel_bins$"), 1 << 16),
    (re.compile(r"^num_ln_in_parallel_attn$"), 2),
    (re.compile(r"^merger_times$"), 16),
    (re.compile(r"shared_experts?$"), 1 << 10),
    (re.compile(r"^index_(?:n_heads|head_dim)$"), 1 << 12),
    (re.compile(r"^(?:qk_nope|v)_head_dim$"), 1 << 14),
    (re.compile(r"^index_topk$"), 1 << 20),
    (re.compile(r"position_embedding|num_patches$"), 1 << 24),
)
"""The largest values of keys by their names, first match; of others it is that of any width."""
_LOWEST: Final = (
    (
        re.compile(
            r"shared_experts?$|^first_k_dense|^num_dense_layers$|^shared_intermediate|^max_window|_start_index$|_layer_offset$|^attention_chunk"
        ),
        0,
    ),
    (re.compile(r"nextn_predict_layers$|^num_local_experts$"), 0),
    (re.compile(r"_kernel_dim$|_d_conv$|^conv_L"), 2),
    (re.compile(r"_end_index$"), -1),
)
"""The smallest values of keys that may be less than 1, by their names."""


KERNEL: Final = "_kernel_size"
"""How keys end that state a window of patches, side by side; its area is the product of its sides."""

_SQUARE: Final = re.compile(r"^(?:patch|image)_size$")
"""Keys of encoders that some configs state as a pair of equal sides."""


class Formulas(ABC):
    """Evaluates the formulas of rows over the keys of a config."""

    def __init__(self, root: Keys) -> None:
        """Evaluate formulas over ``root``."""
        self.root = root

    @abstractmethod
    def look(self, path: str) -> Any:  # noqa: ANN401 - whatever the key holds, checked
        """Return the value of a key."""

    def value(self, formula: str, what: str) -> Any:  # noqa: ANN401 - a number, a truth value or a text
        """Evaluate a formula.

        Raises:
            InputError: If the keys that it refers to are not of the kind that it computes with.
        """
        try:
            return evaluate(formula, self.look)
        except InputError:
            raise
        except (ValueError, IndexError, KeyError) as error:
            raise self.root.fault(what, str(error), "sizes that fit together") from error

    def whole(self, formula: str, what: str, *, low: int = 0, high: int = MAX_VALUE) -> int:
        """Evaluate a formula to a whole number in range.

        Raises:
            InputError: If the config makes it no whole number or one beyond reason.
        """
        value = self.value(formula, what)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.root.fault(what, value, f"a whole number from {low:,} to {high:,} ({formula})")
        return value

    def holds(self, formula: str | None) -> bool:
        """Tell whether a condition is true; none always is.

        Raises:
            InputError: If the keys of the condition are not of the kind that it computes with.
        """
        try:
            return formula is None or bool(evaluate(formula, self.look))
        except InputError:
            raise
        except ValueError as error:
            raise self.root.fault(str(formula), str(error), "sizes that fit together") from error


class ConfigSection(Formulas):
    """The keys of one section with its class's defaults, and what the caller gives."""

    def __init__(self, keys: Keys, listed: Listing, given: Mapping[str, Any]) -> None:
        """Evaluate a listing's formulas over ``keys``, what is ``given`` before them."""
        super().__init__(keys)
        self.listed = listed
        self.given = given

    def look(self, path: str) -> Any:  # noqa: ANN401
        """Return what is given, a term of the listing, or a key: stated, else derived, else the class's default."""
        if path in self.given:
            return self.given[path]
        if path in self.listed.terms:
            return evaluate(self.listed.terms[path], self.look)
        return self.key(self.root, path)

    def key(self, keys: Keys, path: str) -> Any:  # noqa: ANN401
        """Return a key of ``keys``, whose name is the last part of ``path``."""
        name = path.rpartition(".")[2]
        names = (name, *self.listed.aliases.get(path, ()))
        high = next((most for pattern, most in _HIGHEST if pattern.search(name)), MAX_WIDTH)
        low = next((least for pattern, least in _LOWEST if pattern.search(name)), 1)
        if path in self.listed.derived:
            usual = evaluate(self.listed.derived[path], self.look)
            if usual is None:
                return None if keys.null(*names) else keys.optional(*names, low=low, high=high)
            if isinstance(usual, bool):
                return keys.flag(*names, default=usual)
            if isinstance(usual, list):
                if name.endswith(KERNEL):
                    return kernel(keys, *names, usual=usual)
                return keys.wholes(*names) or usual
            if isinstance(usual, float):
                return keys.number(*names, default=usual, low=_RATIOS[0], high=_RATIOS[1])
            return keys.whole(*names, default=usual, low=low, high=high)
        if _SQUARE.search(name) and isinstance(keys.raw(*names), list):
            return _equal_sides(keys, *names, high=high)
        match keys.defaults.get(name):
            case bool():
                return keys.flag(*names)
            case float():
                return keys.number(*names, low=_RATIOS[0], high=_RATIOS[1])
            case str():
                return keys.text(*names)
            case list() | tuple():
                return keys.wholes(*names)
        return keys.whole(*names, low=low, high=high)


def _equal_sides(keys: Keys, *names: str, high: int) -> int:
    first, second = keys.wholes(*names, length=2, low=1, high=high) or (0, 0)
    if first != second:
        raise keys.fault(names[0], [first, second], "two equal sides")
    return first


def kernel(keys: Keys, *names: str, usual: Sequence[int]) -> Sequence[int]:
    """Return the sides of a window of patches; ``usual`` where the config states none, and as many as there are of these.

    Raises:
        InputError: If the key does not hold as many whole numbers in range.
    """
    sides = keys.raw(*names)
    if sides is None:
        return usual
    whole = isinstance(sides, list) and all(type(side) is int and 1 <= side <= _LONGEST for side in sides)
    if not whole or len(sides) != len(usual):
        raise keys.fault(names[0], sides, f"a list of {len(usual)} whole numbers from 1 to {_LONGEST:,}")
    return [int(side) for side in sides]


def part(name: str, keys: Keys, prefix: str = "", /, **given: Any) -> Tensors:  # noqa: ANN401 - numbers, texts, flags
    """Return the tensors of a section under ``parts/``, built in the module ``prefix`` and sized by keys and by what is given.

    Raises:
        InputError: If the config does not state what the part needs.
    """
    listed = part_listing(name)
    scope = ConfigSection(keys, listed, {**UNSAID, **given})
    for condition, why in listed.refused:
        if scope.holds(condition):
            path = condition.split()[0]
            raise keys.fault(path, scope.look(path), why)
    base = f"{prefix}." if prefix else ""
    rows = [row for row in listed.rows if scope.holds(row.condition)]
    tensors = [tensor for row in rows for tensor in row_tensors(row, scope, empty=True)]
    if not base and all("<" not in tensor.name for tensor in tensors):
        return tuple(tensors)
    return tuple(replace(tensor, name=_filled(f"{base}{tensor.name}", given)) for tensor in tensors)


def _filled(name: str, given: Mapping[str, Any]) -> str:
    """Put the caller's words in the place of those in angle brackets."""
    return re.sub(r"<(\w+)>", lambda match: str(given[match[1]]), name) if "<" in name else name


def row_tensors(row: TensorRow, scope: Formulas, *, empty: bool = False) -> list[Weight]:
    """Return the tensors of one row; those without elements only if ``empty``, to be refused later."""
    what = row.names[0]
    count = scope.whole(row.count, what)
    if not count:
        return []
    # A tensor without sides holds one number.
    shape = tuple(scope.whole(side, what, low=0) for side in row.shape) or (1,)
    if 0 in shape and not empty:
        return []
    if len(shape) > _MOST_SIDES:
        # A record has four sides at most: what a convolution over frames begins with is one of them.
        shape = (shape[0], prod(shape[1 : len(shape) - 2]), *shape[-2:])
    split, heads = row.split, None
    if row.heads is not None:
        heads = scope.whole(row.heads, what) or None
        split = split if heads else "replicated"
    each = [
        Weight(
            name,
            row.component,
            shape,
            split,
            heads,
            count,
            linear=row.linear,
            looked_up=row.table,
            stored=row.stored,
        )
        for name in row.names
    ]
    if row.bias is not None and scope.holds(row.bias or None):
        # A row-parallel projection keeps its bias whole.
        whole = split == "rows" or (heads is not None and shape[0] % heads != 0)
        each += [
            replace(
                tensor,
                name="bias" if tensor.name == "weight" else tensor.name.removesuffix(".weight") + ".bias",
                shape=shape[:1],
                linear=False,
                split="replicated" if whole else split,
                heads=None if whole else heads,
            )
            for tensor in each
        ]
    return each
