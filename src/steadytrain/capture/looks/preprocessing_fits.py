"""Where preprocessing is fitted: a scaler, an encoder, a selector, or a mean and a spread that are computed by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steadytrain.capture.looks.syntax_trees import Scope, dotted, last_name, statements, walk

SCALERS = re.compile(
    r"(Standard|MinMax|MaxAbs|Robust)Scaler|PowerTransformer|QuantileTransformer|KBinsDiscretizer"
    r"|(Simple|KNN|Iterative)Imputer|(Incremental|Sparse|Kernel|Truncated)?(PCA|SVD)|(Tfidf|Count)Vectorizer"
)
CODES = re.compile(r"(Label|Ordinal|OneHot)Encoder|(Multi)?Label(Binarizer)|factorize|build_vocab|unique")
"""What gives numbers to values: numbers of targets are the same anew, where all classes occur."""

READS_LABELS = re.compile(
    r"Select(KBest|Percentile|FromModel|Fpr|Fdr|Fwe)|RFE(CV)?|TargetEncoder|LinearDiscriminantAnalysis|PLSRegression"
)
COPIES_ROWS = re.compile(r"\w*SMOTE\w*|ADASYN|RandomOverSampler")
BY_NAME = re.compile(r"(?i)(.*[._])?(scaler|imputer|encoder|vectorizer|pca|le|ohe|tfidf)(_.*|\d*)")
"""Objects whose class is not seen, as parameters of a function."""

FITS = frozenset({"fit_transform", "fit", "fit_resample", "fit_sample"})
LEVELS = frozenset({"mean", "min", "amin", "median", "average", "nanmean"})
SPREADS = frozenset({"std", "max", "amax", "var", "ptp", "nanstd"})
BY_HAND = "mean and spread"


@dataclass(frozen=True)
class Fit:
    """A fit: the class, or else the name, of what is fitted, the object by its name, the rows, and the line."""

    of: str
    name: str
    rows: ast.expr
    line: int
    call: ast.expr
    """The expression whose value are the changed rows, if there is one."""


def classes_made(tree: ast.AST) -> dict[str, str]:
    """The variables that hold an object of a class by that name: ``scaler``, ``self.scaler``."""
    return {
        dotted(target): "" if _is_given_words(one.value) else last_name(one.value.func)
        for one in walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
        for target in one.targets
        if dotted(target) and not _has_rows(one.value)
    }


def fits(scope: Scope, made: Mapping[str, str]) -> Iterator[Fit]:
    """The fits of a scope in the order of the source."""
    kept: dict[str, ast.expr] = {}
    for node in statements(scope):
        if isinstance(node, ast.Assign):
            kept |= dict(_statistics(node))
        if isinstance(node, ast.Call):
            yield from _of_call(node, made)
        elif isinstance(node, ast.BinOp):
            yield from _by_hand(node, kept)


def _of_call(call: ast.Call, made: Mapping[str, str]) -> Iterator[Fit]:
    name = last_name(call.func)
    if name in FITS and isinstance(call.func, ast.Attribute) and call.args:
        holder = call.func.value
        of = made.get(dotted(holder), "") if dotted(holder) else ""
        of = last_name(holder.func) if isinstance(holder, ast.Call) else of
        unknown = (
            dotted(holder) not in made and not of and name != "fit" and BY_NAME.fullmatch(dotted(holder)) is not None
        )
        if unknown or any(one.fullmatch(of) for one in (SCALERS, CODES, READS_LABELS, COPIES_ROWS)):
            yield Fit(of or dotted(holder), dotted(holder), call.args[0], call.lineno, call)
    elif name == "factorize" or (name == "unique" and any(one.arg == "return_inverse" for one in call.keywords)):
        held = call.func.value if isinstance(call.func, ast.Attribute) and not call.args else None
        rows = call.args[0] if call.args else held
        if rows is not None:
            yield Fit(name, "", rows, call.lineno, call)


def _by_hand(node: ast.BinOp, kept: Mapping[str, ast.expr]) -> Iterator[Fit]:
    """``(x - x.mean(0)) / x.std(0)``, also where the two were computed before."""
    if not (isinstance(node.op, ast.Div) and isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Sub)):
        return
    rows, level = node.left.left, _resolved(node.left.right, kept)
    spreads = [
        one
        for each in (*walk(node.right), *(kept[name] for name in _names(node.right) if name in kept))
        for one in walk(each)
        if isinstance(one, ast.Call) and last_name(one.func) in SPREADS
    ]
    of_rows = ast.unparse(rows)
    if (
        isinstance(level, ast.Call)
        and last_name(level.func) in LEVELS
        and dotted(rows)
        and _given(level) == of_rows
        and any(_given(one) == of_rows for one in spreads)
        and all(map(_over_rows, (level, *spreads)))
    ):
        yield Fit(BY_HAND, "", rows, node.lineno, node)


def _statistics(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    for target in node.targets:
        names, values = (one.elts if isinstance(one, ast.Tuple) else [one] for one in (target, node.value))
        for name, value in zip(names, values, strict=False):
            yield dotted(name), value


def _resolved(value: ast.expr, kept: Mapping[str, ast.expr]) -> ast.expr:
    return kept.get(dotted(value), value)


def _names(node: ast.AST) -> set[str]:
    return {dotted(one) for one in walk(node) if isinstance(one, (ast.Name, ast.Attribute))}


def _given(call: ast.Call) -> str:
    """``x`` of ``x.mean(0)`` and of ``np.mean(x, 0)``, as text."""
    if isinstance(call.func, ast.Attribute) and dotted(call.func.value) not in ("np", "numpy", "torch", "jnp"):
        return ast.unparse(call.func.value)
    return ast.unparse(call.args[0]) if call.args else ""


def _over_rows(call: ast.Call) -> bool:
    """Whether a mean is over the rows, with or without other axes: each row alone is another matter."""
    of_method = isinstance(call.func, ast.Attribute) and dotted(call.func.value) not in ("np", "numpy", "torch", "jnp")
    given = [*call.args[0 if of_method else 1 :][:1]]
    given += [one.value for one in call.keywords if one.arg in ("axis", "dim")]
    axes = [one for each in given for one in (each.elts if isinstance(each, (ast.Tuple, ast.List)) else [each])]
    return not axes or any(isinstance(one, ast.Constant) and one.value in (0, None) for one in axes)


def _is_given_words(call: ast.Call) -> bool:
    """Whether a vectorizer is made with its vocabulary, so that a fit changes nothing."""
    return any(one.arg == "vocabulary" for one in call.keywords)


def _has_rows(call: ast.Call) -> bool:
    return last_name(call.func) in FITS
