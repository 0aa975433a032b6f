"""A load of a checkpoint passed weights over because their names differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnloadedWeights(ScriptRule):
    """A load of a checkpoint passed weights over, because they have other names in the model.

    Means:
        `load_state_dict(..., strict=False)` ignores each name that the model does not have. These weights kept the
        values that they were made with, and the training begins without them. It is a warning if nothing of the
        checkpoint was loaded, or if a part of the model that is no head stands in the checkpoint under another name,
        with equal shapes. A part that the checkpoint lacks, and a head of another shape or at the model's end, is how
        fine-tuning begins: a note, or nothing. What a later load or the script itself writes before the next update
        does not count.

    Causes:
        - a prefix that a wrapper put before the names: `module.` (DDP), `_orig_mod.` (torch.compile), `model.`
        - the whole checkpoint was given (`{"model": ..., "epoch": ...}`) in place of its part for the model
        - modules that were renamed, or wrapped (LoRA, a new base class), after the checkpoint was saved

    Next:
        1. Print `missing_keys` and `unexpected_keys`, which `load_state_dict` returns.
        2. Strip the prefix, for example with `torch.nn.modules.utils.consume_prefix_in_state_dict_if_present`.
        3. Load strictly wherever the checkpoint should fit.
    """

    tensors_min: int = threshold(4, "renamed tensors in a checkpoint that was loaded in part, for a warning")
    model_share: float = threshold(
        0.125, "share of the model's tensors that was renamed in such a checkpoint, for a warning. Less is a small part"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        measures = ("renamed-tensors", "checkpoint-tensors", "model-tensors", "only-head")
        beside = {name: {row.place: row for row in script_rows(window, name)} for name in measures}
        found = []
        for row in script_rows(window, "unloaded"):
            if not all(row.place in rows for rows in beside.values()):
                continue
            renamed, given, own, head = (float(beside[name][row.place].values[0]) for name in measures)
            step, unloaded = int(row.steps[0]), float(row.values[0])
            sure = unloaded == given or (renamed >= max(self.tensors_min, self.model_share * own) and not head)
            severity: Severity = "warning" if sure else "note"
            model, _, example = row.place.partition(" ")
            names = f": its names differ {example}" if example else ": it has none of these names"
            found.append(
                Symptom(
                    name="unloaded-weights",
                    severity=severity,
                    first_step=step,
                    last_step=step,
                    message=f"{model} was given a checkpoint before step {step} and did not load {unloaded:.0f} of its "
                    f"{given:.0f} tensors{names}",
                    signals=("script.value",),
                    numbers={"unloaded": unloaded, "checkpoint": given, "renamed": renamed},
                )
            )
        return tuple(sorted(found, key=lambda one: one.first_step))
