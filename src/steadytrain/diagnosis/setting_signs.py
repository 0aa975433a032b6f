"""Signs about plain numbers that changed near the onset: which cause a number speaks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from steadytrain.diagnosis.signs import Signs, fact, when

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

Subject = Literal["decay", "dropout", "other"]
SHOWN_MAX = 3
_DROPOUT = re.compile(r"dropout|drop_?path|stochastic_?depth|smoothing", re.IGNORECASE)


def changed_settings(case: Case, subject: Subject, weight: float) -> Signs:
    """A sign if a number of this subject changed near the onset, with what it was and became."""
    found = fact(case, "settings_changed")
    about = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    about = [one for one in about if subject_of(one) == subject]
    texts = list(dict.fromkeys(map(_told, about)))
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    what = "; ".join(texts[:SHOWN_MAX]) + more
    return when(bool(about), weight, what, "fact settings_changed", changed=float(len(about)))


def subject_of(setting: Mapping[str, Any]) -> Subject:
    """What a number of the fact ``settings_changed`` is about."""
    if setting.get("option") == "weight_decay":
        return "decay"
    words = f"{setting.get('of', '')} {setting.get('name', '')} {setting.get('function', '')}"
    return "dropout" if _DROPOUT.search(words) else "other"


def _told(one: Mapping[str, Any]) -> str:
    before, after = float(one["before"]), float(one["after"])  # "inf" and "nan" are strings in a document
    went = f"went from {before:.3g} to {after:.3g} at step {one['step']}"
    if "each" in one:
        turned = "grew" if one["each"] > 1 else "shrank"
        went = f"{turned} by a factor of {one['each']:.4g} in each step, to {after:.3g} at step {one['step']}"
    return f"{_named(one)} {went}"


def _named(one: Mapping[str, Any]) -> str:
    if one["kind"] == "module":
        return f"{one['attribute']} of {one['of']}"
    if one["kind"] == "optimizer":
        return f"{one['option']} of the optimizer"
    return f"{one['name'] or 'the number'} in {one['line']}"
