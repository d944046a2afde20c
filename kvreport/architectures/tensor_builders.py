"""Builders of the tensors that code puts together itself; what layers of one shape have is listed in ``parts/``.

Shapes are those of the published checkpoints, output dimension first. The split is what serving
engines do with tensor parallelism: column-parallel into the heads or the wide side, row-parallel
back out of it, with a row-parallel bias whole on every rank.
"""

from __future__ import annotations

from dataclasses import replace

from kvreport.architectures.blueprint import Weight
from kvreport.catalog.model import Component, Split

Tensors = tuple[Weight, ...]


def linear(
    name: str,
    component: Component,
    outputs: int,
    inputs: int,
    split: Split = "replicated",
    *,
    heads: int | None = None,
    bias: bool = False,
) -> Tensors:
    """A linear layer."""
    weight = Weight(f"{name}.weight", component, (outputs, inputs), split, heads, linear=True)
    return (weight, Weight(f"{name}.bias", component, (outputs,), split, heads)) if bias else (weight,)


def norm(name: str, width: int, *, bias: bool = False, component: Component = "norms") -> Tensors:
    """A normalization's weight, and its bias where it is a LayerNorm."""
    weight = Weight(f"{name}.weight", component, (width,))
    return (weight, Weight(f"{name}.bias", component, (width,))) if bias else (weight,)


def norms(*names: str, width: int) -> Tensors:
    """Several normalizations of one width."""
    return tuple(tensor for name in names for tensor in norm(name, width))


def embedding(vocabulary: int, width: int, name: str) -> Tensors:
    """The token embedding."""
    return (Weight(f"{name}.weight", "embedding", (vocabulary, width), "vocabulary"),)


def output_head(vocabulary: int, width: int, name: str = "lm_head", *, bias: bool = False) -> Tensors:
    """The output head of a model that does not share it with the embedding."""
    weight = Weight(f"{name}.weight", "output_head", (vocabulary, width), "vocabulary", linear=True)
    return (weight, Weight(f"{name}.bias", "output_head", (vocabulary,), "vocabulary")) if bias else (weight,)


def hyper_connection(
    name: str, inputs: int, outputs: int, scales: int = 1, *, stored: str | None = None
) -> Tensors:
    """What mixes parallel residual streams: a matrix, an offset for each of its rows, and a few scales."""
    shapes = {"fn": (outputs, inputs), "base": (outputs,), "scale": (scales,)}
    return tuple(Weight(f"{name}{part}", "other", shape, stored=stored) for part, shape in shapes.items())


def placed(tensors: Tensors, module: str, *, component: Component | None = None, times: int = 1) -> Tensors:
    """The same tensors inside a module, each ``times`` as often, and of another component where one is given."""
    return tuple(
        replace(
            tensor,
            name=f"{module}{tensor.name}",
            component=component or tensor.component,
            count=tensor.count * times,
        )
        for tensor in tensors
    )
