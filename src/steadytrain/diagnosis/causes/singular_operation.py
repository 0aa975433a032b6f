"""log, sqrt, division, power at the edge of their domain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

import numpy as np

from steadytrain.core.incident import UNKNOWN_OWNER, ZERO, Located, OperandRange
from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.guarded_operations import (
    DECOMPOSED,
    decomposition_of,
    forward_operation,
    is_plain_derivative,
)
from steadytrain.diagnosis.interventions import DROP_BATCH, EXAMPLE
from steadytrain.diagnosis.mask_signs import empty_mask
from steadytrain.diagnosis.script_signs import (
    is_of_data,
    made_before_model,
    made_by_script,
    made_in_preparation,
    rows_made,
    where_made,
)
from steadytrain.diagnosis.setting_signs import changed_settings
from steadytrain.diagnosis.signs import (
    above,
    fact,
    is_half,
    is_masked_softmax,
    layer_of,
    listed,
    located,
    not_finite,
    operation,
    rows_of,
    ruled_out,
    surveyed,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SingularOperation(Cause):
    """An operation or its derivative is undefined or overflows at its input: log 0, sqrt 0, 0/0, a large exponential.

    Means:
        The input is legal but has no finite result or gradient: `log(0)` is -Inf, the derivative of `sqrt` at 0 is Inf,
        and Inf times zero is NaN. It appears only when data or weights reach that edge. More precision does not help if
        the input is exactly zero.

    Causes:
        - probabilities and a logarithm in place of `log_softmax`; a norm or standard deviation of equal values
        - the derivative of `svd` or `eigh` where two singular values or eigenvalues are equal
        - a rate of a Poisson likelihood that is the plain output of a layer, and so may be negative (`log_input=False`)
        - masked means over zero elements; weights or distances that become zero
        - `exp`, `cosh`, `sinh` or a Bessel function (`i0`, `i1`) of more than 88 in float32; `lgamma` or `digamma` of 0
        - `where` around an operation whose untaken branch is not finite: its gradient is still NaN

    Next:
        1. Go to the named line and check the range of its inputs.
        2. Use the safe form: `log_softmax`, `logsumexp`, `clamp` before the operation, epsilon inside the root,
           `where` twice.
        3. Check on the replay that the step is finite.
    """

    axis = "loss"
    base_rate = 15.0
    rivals = (
        "half-precision-overflow",
        "bad-batch",
        "nonfinite-input",
        "no-supervised-tokens",
        "changed-setting",
        "fully-masked-attention",
        "learning-rate-too-high",
        "optimizer-epsilon-underflow",
    )
    expects = like("operation", either=("safe-softmax",), persists=("old-settings",))
    confirming = ("safe-operation",)
    spared = ("float32",)
    interventions = (
        Intervention(
            "safe-operation",
            5,
            "the safe form of the operation on the line that is named",
            "safe-operation",
            code="x.clamp(min=1e-6)  # around the argument of the division, log or sqrt; x.std(correction=0)",
        ),
        DROP_BATCH,
        EXAMPLE,
    )
    grade = "A"
    source = "discuss.pytorch.org 94875 (sqrt of 0); REPA #46; pytorch issues on where and NaN gradients"

    def signature(self, case: Case) -> Signature:
        early = made_in_preparation(case)
        return Signature(
            (
                *operation(case, CERTAIN, f"{{operation}} at {{line}} {_did(case)}", _is_singular),
                *operation(
                    case,
                    -FAIR,
                    "the first bad operation is {operation}, which has no singular point",
                    lambda found: not _is_singular(found) and not is_of_infinities(found),
                ),
                *operation(case, -STRONG, "{operation} at {line} got Inf already, as in Inf / Inf", is_of_infinities),
                *operation(case, -STRONG, "{operation} at {line} worked in float16", is_half),
                *operation(case, -STRONG, "{operation} at {line} got -Inf from a mask", is_masked_softmax),
                *when(bool(_made(case)), CERTAIN, _made(case), "fact nonfinite_made"),
                *when(bool(_matrix(case)), CERTAIN, _matrix(case), "fact singular_matrix", invariant=True),
                *when(bool(early), CERTAIN, early, "fact nonfinite_made", invariant=True),
                *when(bool(_prepared(case)), CERTAIN, _prepared(case), "finding, fact singular_calls"),
                *when(bool(_short(case)), FAIR, _short(case), "window samples"),
                *listed(case, "singular_calls", HINT, "calls at the edge of their domain: {names}"),
                *above(
                    case, "labels_ignored_share", 0.999999, -STRONG, "every label is ignored, which is another cause"
                ),
                *when(
                    bool(empty_mask(case)), -STRONG, f"{empty_mask(case)}, which is another cause", "fact empty_masks"
                ),
                *changed_settings(case, "other", -FAIR),
                *ruled_out(not not_finite(case) and not _matrix(case), "everything stayed finite", "symptoms"),
            ),
            layer=None if made_before_model(case) else layer_of(case),
            batch_rows=rows_made(case) or rows_of(case),
            axis="data" if early or is_of_data(case) else "",
        )


def _short(case: Case) -> str:
    """Whether the batch at the onset has a row alone where others have several, in words; "" if not. A model that is
    called twice a step counts two."""
    samples, found = case.window.series("samples"), located(case)
    here, before = samples.values[samples.steps == case.step], samples.values[samples.steps < case.step]
    usual = float(np.median(before)) if len(before) else 0.0
    alone = found is not None and any(one.name == "self" and one.shape and one.shape[0] == 1 for one in found.inputs)
    if not len(here) or not here[0] <= usual / SHORT_SHARE or not (here[0] == 1.0 or alone):
        return ""
    text = f"the batch of step {case.step} is a single row, where {usual / here[0]:.0f} are usual: "
    if surveyed(case) and fact(case, "workers") is None:
        return f"{text}a deviation of one row is 0/0, so a step needs at least two"
    return (
        f"{text}the last batch of a pass is what is left over, a deviation of one row is 0/0, and `drop_last=True` "
        "leaves it out"
    )


def _did(case: Case) -> str:
    """What the first bad operation did, in words."""
    found = located(case)
    given = {one.name: one for one in found.inputs} if found is not None else {}
    value, divisor = given.get("self"), given.get("other")
    name = found.operation if found is not None else ""
    if found is not None and _is_singular(found) and (kind := decomposition_of(found)):
        return f"is part of the derivative of {kind}, which {DECOMPOSED[kind][1]}" + where_made(case)
    if found is not None and _of_growth(found):
        return f"is part of the derivative of {_of_growth(found)}, which grows as an exponential does: it overflows"
    if found is not None and is_left_out(found):
        return LEFT_OUT + where_made(case)
    if ".div." in name and divisor is not None and (divisor.zeros or divisor.text in ZERO):
        both = value is not None and value.zeros and found is not None and found.produced == "nan"
        alone = ", as the deviation of a single row does" if both and _short(case) else ""
        return ("divided 0 by 0" if both else "divided by 0") + alone + _of_derivative(found) + where_made(case)
    if is_zero_times_inf(found):
        return "multiplied 0 by Inf, as in 0 times log 0" + where_made(case)
    if ".log." in name and value is not None and (value.smallest or 0.0) < 0.0 and not (value.nan or value.inf):
        return f"took the logarithm of a negative number ({value.smallest:.3g} at the lowest)"
    if ".log." in name and value is not None and value.zeros:
        return "took the logarithm of 0"
    if (".rsqrt." in name or ".reciprocal." in name) and value is not None and value.zeros:
        return "took the reciprocal of 0" + _of_derivative(found)
    if _kind(name) & INSIDE_ONE and value is not None:
        return "got a number at 1 or -1 or just past it, the edge of its domain" + _of_derivative(found)
    if found is not None and found.produced == "inf" and (function := _kind(name) & GROW) and abs(_far(found)) > GROWN:
        return (
            f"grows as exp does, and {next(iter(function))} of {_far(found):.3g} is beyond the largest number of its "
            "format: it overflows"
        )
    if _kind(name) & POLES and value is not None and value.zeros:
        return "has a pole at 0, and got a 0" + _of_derivative(found)
    if _kind(name) & {"std", "var"} and value is not None and value.shape is not None and math.prod(value.shape) == 1:
        return "took the deviation of a single number, which is 0/0"
    if any(one.nan or one.inf for one in given.values()):
        return "made it from inputs that were not finite"
    return "made it from finite inputs"


def _of_growth(found: Located) -> str:
    """The function that grows as an exponential does of whose derivative it is a part; "" if of none."""
    name = forward_operation(found) if is_plain_derivative(found) else ""
    return name if name in GROW and name not in _kind(found.operation) else ""


def _far(found: Located) -> float:
    """The number that the operation was given, on the side on which it grows, that lies farthest out; 0 if unknown."""
    ends = [end for one in found.inputs for end in (one.smallest, one.largest) if end is not None]
    kinds = _kind(found.operation)
    if kinds & {"exp", "exp2", "expm1"}:
        return max(ends, default=0.0)
    return min(ends, default=0.0) if "erfcx" in kinds else max(ends, key=abs, default=0.0)


def is_left_out(found: Located) -> bool:
    """Whether its Inf goes no further in the forward, and only its derivative passes it on."""
    return found.phase == "forward" and found.produced == "inf" and "(backward)" in "".join(found.chain[1:2])


def _of_derivative(found: Located | None) -> str:
    """Of which operation of its line the first bad one is a part of the derivative, if that is known; else ""."""
    name = forward_operation(found) if found is not None and is_plain_derivative(found) else ""
    if name in ("acos", "asin"):
        return f", in the derivative of {name}, which is infinite at 1 and -1"
    return f", in the derivative of {name}" if name and name not in ("div", "rsqrt") else ""


def is_zero_times_inf(found: Located | None) -> bool:
    """Whether a product of a zero and an Inf made NaN. The Inf was meant, such as the logarithm of a masked choice:
    else the operation that made it would have been named."""
    if found is None or found.produced != "nan" or ".mul." not in found.operation or "backward" in found.operation:
        return False
    zeros, infinite = ([one.name for one in found.inputs if count(one)] for count in (_zeros, _infinite))
    return any(one != other for one in zeros for other in infinite)


def is_of_infinities(found: Located) -> bool:
    """Whether the NaN is Inf / Inf, or the deviation of values with an Inf: the Inf was there before, and the operation
    has no edge at its input."""
    value, divisor = (next((one for one in found.inputs if one.name == name), None) for name in ("self", "other"))
    if found.produced != "nan" or value is None or not value.inf:
        return False
    if ".div." in found.operation:
        return divisor is not None and bool(divisor.inf) and not (value.zeros and divisor.zeros)
    return bool(_kind(found.operation) & {"std", "var"})


def _zeros(operand: OperandRange) -> int:
    return operand.zeros


def _infinite(operand: OperandRange) -> int:
    return operand.inf


def _prepared(case: Case) -> str:
    """Which division by 0 filled a tensor that the script made before its steps, and that a step read; else ""."""
    why = case.finding.why if case.finding is not None else ""
    if located(case) is not None or f"{UNKNOWN_OWNER} held" not in why or "Inf" not in why:
        return ""
    calls = fact(case, "singular_calls")
    found = [one for one in calls if _by_zero(one)] if isinstance(calls, (list, tuple)) else []
    if not found:
        return ""
    return f"a tensor from before the step holds Inf, and {found[0]['operation']} met a 0 in {found[0]['line']}"


def _by_zero(call: object) -> bool:
    return isinstance(call, Mapping) and bool(call.get("zeros")) and {"operation", "line"} <= set(call)


def _matrix(case: Case) -> str:
    """Which decomposition or inverse ended the run, because its matrix has none; else ""."""
    found = fact(case, "singular_matrix")
    if not isinstance(found, Mapping):
        return ""
    what = f"torch.linalg.{found['function']}" if found.get("function") else "a decomposition or inverse"
    at = f" at {found['line']}" if found.get("line") else ""
    which = f", matrix {found['element']} of its batch," if found.get("element") is not None else ""
    return f"{what}{at} has no result for its input{which} which is singular or not positive definite"


def _made(case: Case) -> str:
    """Which operation of the script made the value in the step at fault, if no search named one; else ""."""
    return "" if located(case) is not None else made_by_script(case)


LEFT_OUT = (
    "gave Inf where the forward leaves it out, as torch.where does with the branch that is not taken; the derivative "
    "multiplies that Inf by 0, which is NaN"
)
GROW = {"exp", "exp2", "expm1", "i0", "i1", "cosh", "sinh", "erfcx"}
"""Functions that grow as an exponential does; ``erfcx`` towards -Inf."""

GROWN = 8.0
"""No function of ``GROW`` overflows below it, in float16 neither."""

POLES = {"lgamma", "mvlgamma", "digamma", "polygamma", "zeta"}
INSIDE_ONE = {"acos", "asin", "arccos", "arcsin", "atanh", "arctanh", "erfinv"}
FAR = 1e15
SHORT_SHARE = 4.0
"""A batch so many times smaller than usual is what was left over."""

_PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "matmul", "add", "sum"))
"""These make nothing infinite but by overflow."""

_OF_LARGE = frozenset(("pow", "norm", "std", "var", "div", "mul", "cosh", "sinh"))
_SINGULAR = (
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "div",
    "reciprocal",
    "pow",
    "acos",
    "asin",
    "atanh",
    "exp",
    "norm",
    "std",
    "var",
    "tan",
    "angle",
    "erfinv",
    "cosh",
    "sinh",
    "logit",
    "xlogy",
    "i0",
    "i1",
    "erfcx",
    "lgamma",
    "mvlgamma",
    "digamma",
    "polygamma",
    "zeta",
    "ndtri",
    "acosh",
)


def _is_singular(found: Located) -> bool:
    """Whether the operation has a singular point. ``aten.log.default`` is ``log``; backward operations end in
    ``_backward``.

    Layer norms have an epsilon under their root, so only a value that is too large breaks them. Neither is a square of
    1e20 beyond its domain: it is too large for the format.
    """
    if is_zero_times_inf(found) or _of_growth(found):
        return True
    if _is_too_large(found) or is_of_infinities(found):
        return False
    if decomposition_of(found):
        return _kind(found.operation).isdisjoint(_PRODUCTS)
    parts = _kind(found.operation)
    return bool(parts & set(_SINGULAR)) and not parts & {"softmax", "layer", "batch", "group", "instance"}


def _is_too_large(found: Located) -> bool:
    """Whether Inf came of an operand so large that its square has no place in float32: steps had overshot before."""
    if found.produced != "inf" or not _kind(found.operation) & _OF_LARGE:
        return False
    far = [max(abs(one.smallest or 0.0), abs(one.largest or 0.0)) for one in found.inputs if one.text is None]
    return max(far, default=0.0) >= FAR and not any(one.zeros for one in found.inputs[1:])


def _kind(operation: str) -> set[str]:
    """The words of the name of an operation, without that it is one of the backward."""
    name = operation.removeprefix("aten.").partition(".")[0].strip("_").lower()
    return set(name.replace("backward0", "").replace("backward", "").split("_"))
