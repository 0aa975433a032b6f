"""A time limit is kept as the end of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class LimitAsEnd(SourceRule):
    """The time limit of an environment goes into the buffer as the end of an episode, and the true end does not.

    Means:
        An environment gives two flags: `terminated`, after which nothing follows, and `truncated`, where a time limit
        cut the episode short. The source of the script stores the second alone. The value of the next state is then
        added after a true end, so that falling or crashing costs nothing, and left out at the time limit.

    Causes:
        - the fourth value of `env.step()` taken for `done`, as in versions of gym with four values
        - a script that was moved to the five values of gymnasium by changing one line

    Next:
        1. Store `terminated` for the target, and use `terminated or truncated` to begin the next episode.
        2. At a time limit the value of the next state is right: bootstrap from it.
    """

    kind: ClassVar[str] = "limit-as-end"
    says: ClassVar[str] = (
        "stores the time limit (the fourth value of `step`) as the end of an episode, and not whether it ended: values "
        "are bootstrapped past true ends"
    )
