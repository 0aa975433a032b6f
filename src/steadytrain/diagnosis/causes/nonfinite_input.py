"""NaN or Inf in the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from steadytrain.core.incident import CONSTANT, Located
from steadytrain.diagnosis.cause import CERTAIN, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS, DROP_BATCH
from steadytrain.diagnosis.row_signs import bad_rows, holds_nan_from_before
from steadytrain.diagnosis.script_signs import (
    made_before_model,
    made_by_script,
    made_in_half,
    made_in_preparation,
)
from steadytrain.diagnosis.signs import Signs, fact, not_finite, operation, ruled_out, surveyed, when
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.facts import of_loader
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

ENTRIES_SHOWN_MAX = 4


@final
class NonfiniteInput(Cause):
    """The batch itself holds NaN or Inf, in its inputs or its targets.

    Means:
        The loader's output is not finite before any operation uses it, so no setting of the run helps. One such row is
        enough: the mean over the batch spreads it to every gradient.

    Causes:
        - features that divide by a count or deviation of zero
        - missing values read as NaN; empty audio or images (Megatron-LM #780: "Some zero data caused it")
        - augmentation or normalisation at the edge of its range

    Next:
        1. Remove the named rows from the data set and check that the step is finite.
        2. Add a check of `isfinite` to the data set, once and offline.
        3. Find the field that holds them and the preprocessing that made it.
    """

    axis = "data"
    base_rate = 18.0
    rivals = ("bad-batch", "singular-operation", "half-precision-overflow", "uninitialized-parameters")
    expects = like(
        "data",
        persists=(*RATE_CUTS, "clip"),
    )
    confirming = ("drop-batch",)
    spared = ("float32",)
    interventions = (DROP_BATCH, CLEAN_ROWS)
    grade = "A"
    source = "Megatron-LM #780; Marigold #111; openscene #75; ColossalAI #3439"

    def signature(self, case: Case) -> Signature:
        written = _written_by_script(case)
        made = "" if written else made_before_model(case) or made_in_preparation(case)
        refused = _refused(case)
        return Signature(
            (
                *_held_before(case),
                *when(bool(written), CERTAIN, written, "finding", invariant=True),
                *when(bool(refused), CERTAIN, refused, "fact nonfinite_refused", invariant=True),
                *when(bool(made), -CERTAIN, f"the data were finite when they were read: {made}", "fact nonfinite_made"),
                *when(_came_in_bad(case) and not made, STRONG, _why(case), "finding"),
                *operation(
                    case,
                    -STRONG,
                    "the first bad value came out of {operation} from finite inputs",
                    lambda found: not written and not _came_with_data(case, found),
                ),
                *when(
                    surveyed(case) and not fact(case, "batch_nonfinite") and not _came_in_bad(case),
                    -STRONG,
                    "all values of the batches were finite",
                    "fact batch_nonfinite",
                ),
                *ruled_out(not not_finite(case) and not refused, "everything stayed finite", "symptoms"),
                *ruled_out(
                    made_in_half(case),
                    "the script's own operation made it in float16, out of finite numbers",
                    "fact half_overflow",
                ),
            ),
            batch_rows=_rows(case) or _rows_refused(case),
        )


HELD = "the batch held NaN or Inf before the model touched it"


def _held_before(case: Case) -> Signs:
    """A broken rule if the data held it, and no operation of the script made it before it called the model."""
    held = fact(case, "batch_nonfinite")
    if not held or made_before_model(case) or made_in_preparation(case):
        return ()
    made = made_by_script(case)
    rows = "; ".join(map(bad_rows, held[:ENTRIES_SHOWN_MAX]))
    more = f" and {len(held) - ENTRIES_SHOWN_MAX} more" if len(held) > ENTRIES_SHOWN_MAX else ""
    whose = "targets" if " as target" in _why(case) else ""
    held_it = f"the {whose} of the batch held NaN or Inf" if whose else HELD
    what = f"{held_it}{f' ({made})' if made else ''}: {rows}{more}"
    return when(True, CERTAIN, what, "fact batch_nonfinite", invariant=True, batch_nonfinite=float(len(held)))


def _written_by_script(case: Case) -> str:
    """The line that writes NaN or Inf as a number into what the model gets, in words; "" if there is none."""
    found = case.finding.located if case.finding is not None else None
    if found is None or found.phase != "preprocessing" or not _why(case).startswith(CONSTANT):
        return ""
    value = "NaN" if found.produced == "nan" else "Inf"
    return f"the script itself writes {value} into the batch: {found.file}:{found.line}: {found.code}"


def _refused(case: Case) -> str:
    """What the batch held in the step in which the script raised, in words; "" if that is not known."""
    found = fact(case, "nonfinite_refused")
    if not isinstance(found, dict):
        return ""
    rows = found.get("rows") or []
    named = ", ".join(f"row {one['row']}{_of_sample(one)}" for one in rows)
    held = of_loader(str(found["tensor"])) if found.get("from") == "batch" else f"{found['tensor']}"
    at = f" at {found['line']}" if found.get("line") else ""
    where = f" in {named}" if named else ""
    return f"{held} held {found['made']}{where} of step {found['step']}, and the script ended{at}: {found['message']}"


def _of_sample(row: dict[str, Any]) -> str:
    return f" ({row['sample']})" if row.get("sample") else ""


def _rows_refused(case: Case) -> tuple[int, ...]:
    found = fact(case, "nonfinite_refused")
    rows = found.get("rows") or () if isinstance(found, dict) else ()
    return tuple(one["row"] for one in rows)


def _came_with_data(case: Case, found: Located) -> bool:
    """Whether the operation that made the first NaN had an Inf among its inputs, as data held it: Inf / Inf."""
    return bool(fact(case, "batch_nonfinite")) and any(one.inf or one.nan for one in found.inputs)


def _came_in_bad(case: Case) -> bool:
    """Whether the search for the first bad operation ended at the batch, or at a tensor of the script."""
    return "the batch already h" in _why(case) or holds_nan_from_before(case)


def _why(case: Case) -> str:
    return case.finding.why if case.finding is not None else ""


def _rows(case: Case) -> tuple[int, ...]:
    """The rows of the latest non-finite batch."""
    found = fact(case, "batch_nonfinite")
    entry = found[-1] if isinstance(found, list) and found else None
    rows = entry.get("rows") if isinstance(entry, dict) else None
    return tuple(int(row) for row in rows) if isinstance(rows, list) else ()
