"""Keeps operations away from their singular points, in a step or in the preparation of samples."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.trial_runs.changes import LiveChange, more_than
from steadytrain.trial_runs.decompositions import Shifted, decompositions, shift
from steadytrain.trial_runs.launched_script import Launched
from steadytrain.trial_runs.loader_reads import wrap_reads


@final
@dataclass
class SafeOperation(LiveChange):
    """log, sqrt, powers, division, the inverse trigonometric functions, logit, norm and their kin stay ``margin``
    away from their singular points, and exp and its kin (cosh, Bessel functions) from their overflow. 0 times Inf is 0,
    and so is the deviation of one number. Matrices that are decomposed get values that differ, and are not singular.
    """

    of_functions = True

    margin: float = 1e-6
    nothing = "no such operation comes near a singular point"

    def check(self) -> None:
        more_than("margin", self.margin, 0.0)

    def begin(self, process: Launched) -> None:
        replace = process.functions.replace
        replace(_of("log", "log2", "log10", "sqrt", "rsqrt"), self._above_zero)
        replace(_of("log1p"), self._above_minus_one)
        replace(_of("reciprocal", "__rtruediv__", "__rdiv__"), self._away_from_zero)
        replace(_of("acos", "asin", "arccos", "arcsin", "atanh", "arctanh", "erfinv"), self._inside_one)
        replace(_of("acosh", "arccosh"), self._above_one)
        replace(_of("logit"), self._between_zero_and_one)
        replace(_of("div", "true_divide", "__truediv__", "div_", "__itruediv__", "divide"), self._division)
        replace(_of("mul", "multiply", "__mul__", "__rmul__"), self._product)
        replace(_of("pow", "__pow__", "float_power"), self._power)
        replace(_of("exp", "expm1", "exp2"), self._exp)
        replace(_of("sinh", "cosh", "i0", "i1"), self._even)
        replace(_of("erfcx"), self._erfcx)
        replace((torch.nn.functional.poisson_nll_loss,), self._poisson)
        replace(_of("lgamma", "digamma", "psi", "gammaln"), self._above_zero)
        replace(_of("ndtri"), self._between_zero_and_one)
        replace(_of("std", "var"), self._spread)
        replace((*_of("norm"), torch.linalg.vector_norm, torch.linalg.norm), self._norm)
        for functions, shifted in decompositions():
            replace(functions, partial(self._decomposed, shifted))

    def _clamped(self, values: Tensor, low: float, high: float | None = None) -> Tensor:
        if not isinstance(values, Tensor) or not values.is_floating_point():
            return values
        limit = torch.finfo(values.dtype)
        low = max(low, limit.tiny) if low > 0 else low
        if bool((values < low).any()) or (high is not None and bool((values > high).any())):
            self.touch()
            return values.clamp(low, high)
        return values

    def _above_zero(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(self._clamped(values, self.margin), *args, **kwargs)

    def _poisson(
        self, original: Any, values: Tensor, target: Any, log_input: bool = True, *args: Any, **kwargs: Any
    ) -> Any:
        """With ``log_input=False`` it takes the logarithm of its input."""
        return original(values if log_input else self._clamped(values, self.margin), target, log_input, *args, **kwargs)

    def _above_minus_one(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(self._clamped(values, self.margin - 1), *args, **kwargs)

    def _above_one(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(self._clamped(values, 1 + self.margin), *args, **kwargs)

    def _between_zero_and_one(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(self._clamped(values, self.margin, 1 - self.margin), *args, **kwargs)

    def _power(self, original: Any, values: Any, exponent: Any, *args: Any, **kwargs: Any) -> Any:
        """A negative or fractional power, or one with a slope of infinity at 0, of a base that is not above 0."""
        if isinstance(exponent, (int, float)) and exponent < 1 and exponent != 0:
            whole = float(exponent).is_integer()
            values = self._apart(values) if whole else self._clamped(values, self.margin)
        elif isinstance(exponent, float) and not exponent.is_integer():
            values = self._clamped(values, 0.0)
        return original(values, exponent, *args, **kwargs)

    def _inside_one(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(self._clamped(values, self.margin - 1, 1 - self.margin), *args, **kwargs)

    def _exp(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        largest = math.log(torch.finfo(values.dtype).max) - 1 if values.is_floating_point() else None
        return original(values if largest is None else self._clamped(values, -math.inf, largest), *args, **kwargs)

    def _even(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        """A function that grows as exp does on both sides of 0."""
        largest = math.log(torch.finfo(values.dtype).max) - 1 if values.is_floating_point() else None
        return original(values if largest is None else self._clamped(values, -largest, largest), *args, **kwargs)

    def _erfcx(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        """It grows as 2 exp(x * x) does towards -Inf, and its derivative is 2 x times as large."""
        largest = math.log(torch.finfo(values.dtype).max / 2) - 6 if values.is_floating_point() else None
        return original(values if largest is None else self._clamped(values, -math.sqrt(largest)), *args, **kwargs)

    def _apart(self, values: Any) -> Any:
        if not isinstance(values, Tensor) or not values.is_floating_point():
            return values
        near = values.abs() < self.margin
        if not bool(near.any()):
            return values
        self.touch()
        return torch.where(near, torch.where(values < 0, -self.margin, self.margin).to(values.dtype), values)

    def _away_from_zero(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(self._apart(values), *args, **kwargs)

    def _division(self, original: Any, values: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(other, (int, float)) and other == 0 and isinstance(values, Tensor) and values.is_floating_point():
            self.touch()
            return original(values, self.margin, *args, **kwargs)
        return original(values, self._apart(other), *args, **kwargs)

    def _product(self, original: Any, values: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if all(isinstance(one, Tensor) and one.is_floating_point() for one in (values, other)):
            values, other = self._finite_beside_zero(values, other), self._finite_beside_zero(other, values)
        return original(values, other, *args, **kwargs)

    def _finite_beside_zero(self, values: Tensor, other: Tensor) -> Tensor:
        """``values`` with 0 in place of Inf, where ``other`` is 0."""
        infinite = torch.isinf(values)
        if not bool(infinite.any()) or not bool((infinite & (other == 0)).any()):
            return values
        self.touch()
        return torch.where(infinite & (other == 0), torch.zeros_like(values), values)

    def _norm(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        zero = values == 0
        if bool(zero.all()) or (values.dim() > 1 and bool(zero.all(-1).any())):
            self.touch()
            return original(values + self.margin, *args, **kwargs)
        return original(values, *args, **kwargs)

    def _decomposed(self, shifted: Shifted, original: Any, *args: Any, **kwargs: Any) -> Any:
        name = next((one for one in ("A", "input") if not args and one in kwargs), None)
        if not args and name is None:
            return original(*args, **kwargs)
        matrix = args[0] if name is None else kwargs[name]
        more = shift(matrix, shifted, upper=bool(kwargs.get("upper")) or kwargs.get("UPLO") == "U")
        if more is None:
            return original(*args, **kwargs)
        self.touch()
        if name is None:
            return original(matrix + more, *args[1:], **kwargs)
        return original(*args, **{**kwargs, name: matrix + more})

    def _spread(self, original: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        """The deviation of one number is 0: with the usual correction it is 0/0."""
        spread = original(values, *args, **kwargs)
        if all(isinstance(one, Tensor) for one in (values, spread)) and 0 < spread.numel() == values.numel():
            self.touch()
            return torch.zeros_like(spread)
        return spread


@final
@dataclass
class SafeSamples(LiveChange):
    """A sample or a batch that a data set or a collate function makes with NaN or Inf is made again, from the same
    random state, with its torch operations ``margin`` away from their singular points (see ``safe-operation``)."""

    is_early = True
    own_batches = True
    nothing = "no torch operation of a data set or a collate function came near a singular point"

    margin: float = 1e-6

    def early(self, process: Launched) -> None:
        wrap_reads(self._making, self._making)

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, updated=())
        def make(*args: Any) -> Any:
            before = random.getstate(), np.random.get_state(), torch.get_rng_state()
            made = original(*args)
            if _is_finite(made) or not _is_finite(args):
                return made
            after = random.getstate(), np.random.get_state(), torch.get_rng_state()
            _restore(before)
            holder, safe = Launched(), SafeOperation(margin=self.margin)
            safe.begin(holder)
            try:
                again = original(*args)
            finally:
                holder.functions.end()
                _restore(after)
            if not safe.touched or not _is_finite(again):
                return made
            self.touch()
            return again

        return make


def _of(*names: str) -> tuple[Callable[..., Any], ...]:
    """The functions of these names in torch, in ``torch.special`` and of a tensor."""
    places = (torch, torch.special, Tensor)
    return tuple(getattr(place, name) for name in names for place in places if hasattr(place, name))


def _is_finite(made: Any) -> bool:
    """Whether the tensors and the arrays in ``made`` are finite, as far as a batch nests them."""
    if isinstance(made, np.ndarray):
        return made.dtype.kind not in "fc" or bool(np.isfinite(made).all())
    if isinstance(made, (list, tuple)) and any(isinstance(one, (np.ndarray, list, tuple)) for one in made):
        return all(map(_is_finite, made))
    return all(bool(torch.isfinite(one).all()) for one in tensors_in(made) if one.is_floating_point())


def _restore(states: tuple[Any, Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
