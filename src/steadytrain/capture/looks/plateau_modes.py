"""Finds a ``ReduceLROnPlateau`` whose mode is the opposite of the metric that the script steps it with.

The names in the call say which way the metric goes: ``scheduler.step(val_acc)`` gives one that should rise. The default
mode, ``min``, takes each of its improvements for none, and cuts the rate.
"""

from __future__ import annotations

import ast
import linecache
import re
import weakref
from collections.abc import Iterator

from torch.optim.lr_scheduler import ReduceLROnPlateau

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import user_frames
from steadytrain.core.living_objects import living

SEARCH_STEPS = (8, 64, 256)
"""Steps of a stream after which the process is searched for such a schedule."""

TOLD_EVERY = 16
LINES_MAX = 20_000
CLASS = "ReduceLROnPlateau"

RISES = re.compile(
    r"(?:^|_)(acc|accuracy|accuracies|f1|auc|auroc|ap|map|iou|miou|dice|bleu|rouge|recall|precision|score|scores|reward|"
    r"rewards|return|returns|r2|ndcg|mrr|psnr|ssim|hits?|success)\d*(?:_|$)"
)
FALLS = re.compile(
    r"(?:^|_)(loss|losses|nll|err|error|errors|mse|rmse|mae|perplexity|ppl|wer|cer|fid|kl|bpb|bpc)\d*(?:_|$)"
)


class PlateauModes:
    """Follows one stream."""

    def __init__(self) -> None:
        self._found: weakref.ref[ReduceLROnPlateau] | None = None
        self._name = ""
        self._rate = 0.0
        self._counted = 0

    def rows(self, stream: Stream) -> Iterator[tuple[str, float]]:
        """``metric-against-mode:METRIC`` is the rate as a share of the one at the search, each time the schedule has
        counted on. METRIC is the mode and the names of the call, with its line."""
        if stream.own_steps in SEARCH_STEPS and self._found is None:
            self._search(stream)
        if self._found is None or stream.own_steps % TOLD_EVERY:
            return
        schedule = self._found()
        if schedule is None or schedule.last_epoch <= self._counted:
            return
        self._counted = schedule.last_epoch
        yield f"metric-against-mode:{self._name}", _rate(stream) / self._rate if self._rate else 1.0

    def _search(self, stream: Stream) -> None:
        for file in dict.fromkeys(frame.code.co_filename for frame in user_frames()):
            lines = linecache.getlines(file)
            if len(lines) > LINES_MAX or not any(CLASS in line for line in lines):
                continue
            metrics = list(metrics_of("".join(lines)))
            held = {id(one) for one in stream.optimizers}
            for one in living(ReduceLROnPlateau) if metrics else ():
                against = [(line, name) for line, name, falls in metrics if falls is (one.mode == "max")]
                if id(one.optimizer) in held and len(against) == len(metrics):
                    line, name = against[0]
                    self._found, self._rate = weakref.ref(one), _rate(stream)
                    self._name = f"{one.mode} of {name} at {file.rpartition('/')[2]}:{line}"
                    return


def metrics_of(source: str) -> Iterator[tuple[int, str, bool]]:
    """The line and the names of what each ``step`` of a schedule is given, and whether it should fall.

    Calls whose names say neither, or both, or that subtract, are left out.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
            continue
        given = [*call.args, *(one.value for one in call.keywords if one.arg == "metrics")][:1]
        parts = [part for one in given for part in ast.walk(one)]
        if not parts or any(isinstance(part, ast.Sub | ast.USub) for part in parts):
            continue
        names = [name for part in parts if (name := _name_of(part))]
        if not any(kind.search(name.lower()) for name in names for kind in (RISES, FALLS)):
            names = [name for part in parts if isinstance(part, ast.Name) for name in _made_by(tree, part.id)]
        rises, falls = (any(kind.search(name.lower()) for name in names) for kind in (RISES, FALLS))
        if rises != falls:
            yield call.lineno, ast.unparse(given[0])[:40], falls


def mentions(pattern: str) -> bool:
    """Whether a file of the running functions has a line with this regular expression."""
    for file in dict.fromkeys(frame.code.co_filename for frame in user_frames()):
        lines = linecache.getlines(file)
        if len(lines) <= LINES_MAX and any(re.search(pattern, line) for line in lines):
            return True
    return False


def _name_of(part: ast.AST) -> str:
    if isinstance(part, ast.Name):
        return part.id
    if isinstance(part, ast.Attribute):
        return part.attr
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""


def _made_by(tree: ast.AST, variable: str) -> list[str]:
    """The functions whose result ``variable`` is: ``recall_at`` of ``r = recall_at(model, rows)``."""
    values = [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and any(_name_of(target) == variable for target in one.targets)
    ]
    return [_name_of(one.func) for one in values if isinstance(one, ast.Call)]


def _rate(stream: Stream) -> float:
    return max((float(group.get("lr") or 0.0) for one in stream.optimizers for group in one.param_groups), default=0.0)
