"""Tells from the names in a script's code that it trains a policy: it draws actions, takes their log probability, and
has rewards.

The loss of a policy is no measure of what it has learned: its data are what the policy does, and change as it learns.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType

from steadytrain.capture.step.script_frames import user_frames

LOG_PROBABILITY = re.compile(r"log_?probs?|logp|log_pis?")
DRAWN = re.compile(r"sample|rsample|multinomial")
GAINED = re.compile(r"rewards?|returns|advantages?")
CODES_MAX = 512
NAMES_MAX = 20_000


def policy_rows() -> Iterator[tuple[str, float]]:
    """``policy-code:FILE``, 1, for the innermost file of the script's running functions that trains a policy."""
    running = [frame.code for frame in user_frames()]
    for file in dict.fromkeys(code.co_filename for code in running):
        codes = (code for code in running if code.co_filename == file)
        if trains_policy(_names([*codes, *_codes_of_module(file)])):
            yield f"policy-code:{file.rpartition('/')[2]}", 1.0
            return


def trains_policy(names: set[str]) -> bool:
    """Whether all three kinds of names are among those of a file's code."""
    return all(any(kind.fullmatch(name) for name in names) for kind in (LOG_PROBABILITY, DRAWN, GAINED))


def _codes_of_module(file: str) -> Iterator[CodeType]:
    """Functions and methods of the module that was read from ``file``. Nothing of another kind is touched: a module may
    hold proxies and lazy objects.
    """
    for module in list(sys.modules.values()):
        names = module.__dict__ if type(module) is ModuleType else {}
        if names.get("__file__") != file:
            continue
        for one in list(names.values()):
            for function in (one, *(vars(one).values() if issubclass(type(one), type) else ())):
                if type(function) is FunctionType and function.__code__.co_filename == file:
                    yield function.__code__


def _names(codes: list[CodeType]) -> set[str]:
    """Names of variables, attributes and arguments in ``codes`` and in the functions that they define."""
    names: set[str] = set()
    for _ in range(CODES_MAX):
        if not codes or len(names) > NAMES_MAX:
            break
        code = codes.pop()
        names.update(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        codes.extend(one for one in code.co_consts if isinstance(one, CodeType))
    return names
