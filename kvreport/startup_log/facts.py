"""What a start-up log can state: the facts of ``data/log_lines/shared.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvreport.catalog.log_lines import Fact, log_lines

__all__ = ["FACTS", "Fact"]

FACTS: Final[Mapping[str, Fact]] = {name: fact for one in log_lines() for name, fact in one.facts.items()}
"""Every fact by name."""
