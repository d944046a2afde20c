"""The colours: told apart by everybody, readable in light and in dark."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from kvreport import resources

SCHEMES = ("default", "slate")
ROLES = ("weights", "cache", "state", "reserve")
# Severe deficiency matrices of Machado, Oliveira and Fernandes (2009), table 1, severity 1.0, linear RGB.
DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def tokens(scheme: str) -> dict[str, str]:
    css = (resources.assets_dir() / "kvreport.css").read_text(encoding="utf-8")
    block = re.search(rf'\[data-md-color-scheme="{scheme}"\] \{{(.*?)\n\}}', css, re.DOTALL)[1]
    return dict(re.findall(r"--kv-([\w-]+): (#[0-9a-f]{6});", block))


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Contrast as WCAG 2 defines it."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted((float(linear(one) @ weights), float(linear(other) @ weights)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b*, D65."""
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    ratio = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one: str, other: str, deficiency: str) -> float:
    seen = [lab(DEFICIENCIES[deficiency] @ linear(colour)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_roles_are_told_apart_by_everybody(scheme, deficiency):
    known = tokens(scheme)
    for one, other in itertools.combinations((*ROLES, "free"), 2):
        # 10 is far beyond a just noticeable difference (2.3) for areas that touch.
        assert difference(known[one], known[other], deficiency) > 10, (one, other)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_areas_and_lines_stand_out_from_the_paper(scheme):
    known = tokens(scheme)
    for name in (*ROLES, "free-edge", "l1", "l2", "l3", "l4", "l5", "l6"):
        assert contrast(known[name], known["paper"]) >= 3, name  # WCAG 1.4.11, graphics


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_is_readable_on_everything_it_stands_on(scheme):
    known = tokens(scheme)
    pairs = [("ink", "paper"), ("soft", "paper"), ("soft", "wash"), ("ink", "wash"), ("brand", "paper")]
    pairs += [(f"u{n}-ink", f"u{n}") for n in range(1, 9)]
    for ink, ground in pairs:
        assert contrast(known[ink], known[ground]) >= 4.5, (ink, ground)  # WCAG 1.4.3, text


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_users_scale_only_grows(scheme):
    known = tokens(scheme)
    light = [lab(linear(known[f"u{n}"]))[0] for n in range(1, 9)]
    steps = np.diff(light) * (1 if scheme == "slate" else -1)
    assert (steps > 2).all()
