"""The small pictures: files that any reader of PNG takes, and colours that are told apart."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from steadytrain.report.colours import NOT_FINITE_COLOUR, Palette, heat_palette, hexadecimal, scale
from steadytrain.report.heat import ABSENT, HIGHEST, LOWEST, NOT_FINITE
from steadytrain.report.png import data_address, indexed_png


def chunks(file: bytes) -> dict[str, bytes]:
    """The chunks of a PNG file, each with the right sum of check."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = {}, 8
    while at < len(file):
        (length,) = struct.unpack(">I", file[at : at + 4])
        kind, data = file[at + 4 : at + 8], file[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", file[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(kind + data)
        found[kind.decode()] = data
        at += 12 + length
    assert at == len(file)
    assert [*found] == ["IHDR", "PLTE", "tRNS", "IDAT", "IEND"]
    return found


def pixels(file: bytes) -> NDArray[np.uint8]:
    """The levels of an indexed picture without filters."""
    parts = chunks(file)
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", parts["IHDR"])
    assert (kind, rest) == (3, [0, 0, 0])
    lines = np.frombuffer(zlib.decompress(parts["IDAT"]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    if depth == 8:
        return lines[:, 1:]
    assert depth == 4
    return np.stack([lines[:, 1:] >> 4, lines[:, 1:] & 15], axis=2).reshape(height, -1)[:, :width]


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (7, 5), (200, 200)])
@pytest.mark.parametrize("colours", [10, 256])
def test_a_picture_holds_its_levels(shape: tuple[int, int], colours: int) -> None:
    levels = np.random.default_rng(2).integers(0, colours, shape).astype(np.uint8)
    palette: Palette = np.full((colours, 4), 255, np.uint8)
    palette[0] = 0
    file = indexed_png(levels, palette)
    assert (pixels(file) == levels).all()
    assert chunks(file)["PLTE"] == palette[:, :3].tobytes()
    assert chunks(file)["tRNS"] == b"\0"


def test_the_address_holds_the_file() -> None:
    levels = np.zeros((2, 3), np.uint8)
    head, _, data = data_address(levels, heat_palette()).partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data, validate=True) == indexed_png(levels, heat_palette())


def test_the_scale_grows_lighter_evenly_and_its_marks_are_no_part_of_it() -> None:
    palette = heat_palette()
    assert palette[ABSENT].tolist() == [0, 0, 0, 0]
    assert palette[NOT_FINITE].tolist() == [*NOT_FINITE_COLOUR, 255]
    steps = palette[LOWEST : HIGHEST + 1]
    assert (steps[:, 3] == 255).all()
    light = steps[:, :3] @ np.array([0.2126, 0.7152, 0.0722])
    assert (np.diff(light) > -1).all()
    assert light[-1] - light[0] > 150
    distance = np.abs(steps[:, :3].astype(int) - NOT_FINITE_COLOUR).max(axis=1)
    assert distance.min() > 80
    assert hexadecimal(scale(2))[0].startswith("#")
