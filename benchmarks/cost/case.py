"""What is trained in one run of the benchmark, and in which steps an arm looks deeper."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

LOOK_EVERY, RARE_EVERY = 5, 10
"""Rounds in which cadences fall due. An arm that looks every 50th step does so in every 5th here, and what it costs is
spread over 50 again; a second, slower cadence of the same arm falls due in every 10th."""

ORDINARY, LOOK, RARE = "ordinary", "look", "rare"
KINDS = (ORDINARY, LOOK, RARE)


@dataclass(frozen=True)
class Case:
    """A GPT, its batch, and how it is trained.

    Args:
        width: channels, in heads of 64.
        rows, context: ``rows`` times ``context`` tokens a step.
        clip: whether gradients are clipped by their norm.
        forwards: calls of the model before one backward, as in a rollout; the last one gives the loss.
    """

    name: str
    layers: int
    width: int
    vocab: int = 8192
    rows: int = 8
    context: int = 256
    clip: bool = True
    device: str = "cpu"
    dtype: str = "float32"
    compiled: bool = False
    forwards: int = 1

    @property
    def tokens(self) -> int:
        return self.rows * self.context

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Case:
        return Case(**json.loads(text))


def kind_of(number: int) -> str:
    """The kind of the round ``number``, counted from 1."""
    return RARE if number % RARE_EVERY == 0 else LOOK if number % LOOK_EVERY == 0 else ORDINARY
