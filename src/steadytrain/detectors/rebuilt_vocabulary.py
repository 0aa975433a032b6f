"""A vocabulary that is built anew for each text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class RebuiltVocabulary(SourceRule):
    """A vocabulary is built anew for each text, file or split, so an id means another token in each of them.

    Means:
        The source of the script gives ids to the tokens of one text by their order there, and reads that text with
        them; the next text gets ids of its own. A single new character moves all ids that come after it. What the model
        learned of one text is then noise for the next, and a held-out score says nothing.

    Causes:
        - `stoi = {c: i for i, c in enumerate(sorted(set(text)))}` inside the loop over files
        - a data set that builds its vocabulary in the making, once for training rows and once for held-out ones
        - `vocab = {}` at the top of a function that is called again in each epoch

    Next:
        1. Build one vocabulary over all texts, or over the training texts with an id for unknown tokens.
        2. Save it beside the weights, and pass it to whatever reads a text.
    """

    kind: ClassVar[str] = "rebuilt-vocabulary"
    says: ClassVar[str] = "builds the vocabulary anew for each text that is read: one id means another token in each"
