"""Colours of heat maps: a scale with equal perceptual steps, and a colour for non-finite values that is not on the
scale.

The scale is a straight line in OKLab (Ottosson 2020) from dark blue to light yellow. Equal steps look equally far
apart, and lightness alone orders them, so no reader has to distinguish red from green.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadytrain.report.heat import ABSENT, HIGHEST, LOWEST, NOT_FINITE

DARK_BLUE = (0.30, -0.005, -0.115)
LIGHT_YELLOW = (0.945, -0.02, 0.105)
"""OKLab coordinates: lightness, green to red, blue to yellow."""

NOT_FINITE_COLOUR = (255, 0, 255)
"""Magenta: of nine bright colours the farthest from the scale, also for eyes without red, green or blue cones."""

Palette = NDArray[np.uint8]


def heat_palette() -> Palette:
    """Red, green, blue and opacity of each level of a heat map. ``ABSENT`` is transparent."""
    palette = np.zeros((256, 4), np.uint8)
    palette[LOWEST : HIGHEST + 1] = _opaque(scale(HIGHEST - LOWEST + 1))
    palette[NOT_FINITE] = (*NOT_FINITE_COLOUR, 255)
    assert not palette[ABSENT].any()
    return palette


def scale(count: int) -> NDArray[np.uint8]:
    """``count`` colours from the smallest value to the largest, shape ``(count, 3)``."""
    along = np.linspace(0, 1, count)[:, None]
    return _to_rgb(np.array(DARK_BLUE) * (1 - along) + np.array(LIGHT_YELLOW) * along)


def hexadecimal(colours: NDArray[np.uint8]) -> list[str]:
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in colours.tolist()]


def _to_rgb(oklab: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Convert OKLab to sRGB: to cone responses, to linear light, to the display's curve."""
    cones = oklab @ np.array(
        [[1, 1, 1], [0.3963377774, -0.1055613458, -0.0894841775], [0.2158037573, -0.0638541728, -1.2914855480]]
    )
    light = cones**3 @ np.array(
        [
            [4.0767416621, -1.2684380046, -0.0041960863],
            [-3.3077115913, 2.6097574011, -0.7034186147],
            [0.2309699292, -0.3413193965, 1.7076147010],
        ]
    )
    light = np.clip(light, 0, 1)
    curved = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    colours: NDArray[np.uint8] = np.rint(curved * 255).astype(np.uint8)
    return colours


def _opaque(colours: NDArray[np.uint8]) -> Palette:
    return np.concatenate([colours, np.full((len(colours), 1), 255, np.uint8)], axis=1)
