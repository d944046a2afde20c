"""The budget of one device: what an engine may take, what it keeps, and the pool it leaves.

    pool = ceil(usable memory * utilization) - weights - activations - non-framework - graphs

``usable memory`` is what a process can use (not the label on the box). The ``ceiling`` is no
engine: it reserves nothing, and its utilization is a share of what the weights leave.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Where one device's memory goes, in bytes."""

    total_bytes: int  # Memory that a process can use on the device.
    utilization: float  # Share of it that the engine may take (of what weights leave, for ``ceiling``).
    weights: int  # Weights on the device.
    activations: int  # Activation peak.
    non_framework: int  # Driver context, communication buffers, workspaces.
    graphs: int  # Captured graphs.
    kv_pool_bytes: int  # What is left for the cache; never below 0.
    uncertainty_bytes: int  # Half width of the pool's error band.

    @property
    def requested_bytes(self) -> int:
        """What the engine asks for: weights, reserve and pool together."""
        return self.weights + self.activations + self.non_framework + self.graphs + self.kv_pool_bytes
