"""Lists of what does not serve, grouped by reason: one sentence for all that share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One accelerator or model of a group.

    Attributes:
        note: Its own figure, or "".
    """

    anchor: str
    name: str
    href: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """What shares a reason."""

    reason: str
    members: tuple[Member, ...]


def grouped(groups: Mapping[str, Sequence[Member]], single: str = "") -> tuple[ReasonGroup, ...]:
    """Return groups, the smallest first: where little is missing, there are few.

    Args:
        groups: Members by reason.
        single: A reason that holds for all, whatever their own; or "".
    """
    if single:
        return (ReasonGroup(single, tuple(member for members in groups.values() for member in members)),)
    made = (ReasonGroup(reason, tuple(members)) for reason, members in groups.items())
    return tuple(sorted(made, key=lambda group: (len(group.members), group.reason)))
