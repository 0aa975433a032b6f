"""Preprocessing that is fitted anew to held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class RefittedPreprocessing(SourceRule):
    """Preprocessing is fitted anew to the held-out rows, so they do not mean what the training rows mean.

    Means:
        The source of the script fits a scaler, an encoder, or a mean and a spread to the training rows, and one more
        to the held-out rows. One value then becomes two numbers: a held-out row that is unlike the training rows looks
        usual after scaling, and codes of categories stand for others. The score on these rows says little of what the
        model will do on a single new row.

    Causes:
        - `scaler.fit_transform(x_test)` in place of `scaler.transform(x_test)`
        - one encoder for each part: `LabelEncoder().fit(test["city"])`
        - `(x_test - x_test.mean(0)) / x_test.std(0)`

    Next:
        1. Fit to the training rows once; only transform all others.
        2. Save what was fitted with the model: new rows need it, too.
    """

    kind: ClassVar[str] = "split-fit"
    says: ClassVar[str] = (
        "fits the preprocessing anew to held-out rows: one value means another number there than in training"
    )
