"""Categories that are numbered anew for each part of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class RenumberedCategories(SourceRule):
    """Categories are numbered anew for each file, day, batch or split, so one number means another category in each.

    Means:
        The source of the script numbers the values of a column in the order in which they occur in a part of the data,
        does not keep that order, and does so for several parts. An embedding that was learned for number 3 of one part
        is read for another category in the next: the loss leaps at each part, and held-out scores are those of a guess.

    Causes:
        - `codes, _ = pd.factorize(column)` for each chunk that is read
        - `column.astype("category").cat.codes` of the training rows, and again of the held-out ones
        - `LabelEncoder().fit_transform(column)` in a loop, or a dictionary that starts empty for each batch

    Next:
        1. Number the categories once, over all parts or over the training rows with one number for unknown values.
        2. Save the mapping beside the weights, or fix it with `pd.CategoricalDtype(categories)`.
    """

    kind: ClassVar[str] = "codes-of-parts"
    says: ClassVar[str] = (
        "numbers the categories anew for each part of the data (file, batch or split) and keeps no mapping: one code "
        "means another category in each"
    )
