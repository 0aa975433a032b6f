from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.unloaded_weights import UnloadedWeights
from steadytrain.testing import newest


def loaded(renamed: float, unloaded: float, given: float, own: float, head: float = 0.0, at: str = "GPT") -> Window:
    values = {
        "renamed_tensors": renamed,
        "unloaded": unloaded,
        "checkpoint_tensors": given,
        "model_tensors": own,
        "only_head": head,
    }
    return looked(**{f"{measure}__{at}": [value, NAN] for measure, value in values.items()})


NOTHING_LOADED = loaded(12.0, 12.0, 12.0, 12.0, at="GPT (module.head.weight for head.weight)")
NO_NAME_KNOWN = loaded(0.0, 12.0, 12.0, 12.0)
PART_RENAMED = loaded(8.0, 10.0, 20.0, 22.0)
ONE_RENAMED = loaded(1.0, 1.0, 20.0, 20.0)
SMALL_PART = loaded(4.0, 4.0, 60.0, 60.0)
OTHER_HEAD = loaded(4.0, 4.0, 20.0, 20.0, head=1.0)
QUIET = (looked(),)
SICK = (NOTHING_LOADED, NO_NAME_KNOWN, PART_RENAMED)
HEALTHY = (*QUIET, ONE_RENAMED, SMALL_PART, OTHER_HEAD)


def test_quiet() -> None:
    assert [UnloadedWeights().check(window) for window in QUIET] == [()] * len(QUIET)


def test_nothing_was_loaded() -> None:
    symptom = newest(UnloadedWeights(), NOTHING_LOADED)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == (
        "GPT was given a checkpoint before step 1 and did not load 12 of its 12 tensors: its names differ "
        "(module.head.weight for head.weight)"
    )


def test_what_may_be_meant_is_a_note() -> None:
    told = [newest(UnloadedWeights(), window) for window in (ONE_RENAMED, SMALL_PART, OTHER_HEAD)]
    assert [one.severity for one in told if one is not None] == ["note"] * 3
