"""Capacity under recorded traffic: traces, hit rates, and a replay over an engine's block pools.

``trace.py`` holds the record, ``readers.py`` and ``generate.py`` make it; ``reuse.py`` reduces a trace to
its reuse distances, ``hits.py`` turns those into hit-rate curves; ``block_pools.py`` and ``replay.py`` replay the
trace with an engine's admission, eviction and preemption.
"""
