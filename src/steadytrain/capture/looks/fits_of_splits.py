"""Finds preprocessing that is fitted to training rows, and anew to held-out ones.

The mistake has two parts in one scope: a scaler, an encoder, or a mean and a spread, of training rows, and one of the
same class of rows that are named as held out. Rows of both parts together are none, and neither are numbers for classes
of targets, pictures of embeddings, or a mean of each row alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from steadytrain.capture.looks.preprocessing_fits import BY_HAND, CODES, COPIES_ROWS, Fit, classes_made, fits
from steadytrain.capture.looks.split_names import HELD_OUT, TARGETS, TRAINED, holds_held_out, holds_trained, words
from steadytrain.capture.looks.syntax_trees import scopes, statements

SHOWN = frozenset(
    {"emb", "embs", "embedding", "embeddings", "feat", "feats", "latent", "latents", "hidden", "z", "tsne"}
)
NO_TRAINING = re.compile(r"(?i).*(plot|visual|show|draw|display).*")


def fits_of_splits(tree: ast.Module) -> Iterator[int]:
    """The line of the fit to held-out rows."""
    made = classes_made(tree)
    for scope in scopes(tree):
        if not isinstance(scope, ast.Module) and NO_TRAINING.fullmatch(scope.name):
            continue
        given = {
            id(one.value): set().union(*map(words, one.targets))
            for one in statements(scope)
            if isinstance(one, ast.Assign)
        }
        found = [one for one in fits(scope, made) if _counts(one, given)]
        trained = {key for one in found if _is_trained(one, given) for key in (one.of, one.name) if key}
        both = _of_both_splits(scope)
        for one in found:
            in_loop = isinstance(one.rows, ast.Name) and one.rows.id in both
            if in_loop or (_is_held_out(one, given) and {one.of, one.name} & trained):
                yield one.line
                break


def _is_trained(fit: Fit, given: Mapping[int, set[str]]) -> bool:
    """Whether the rows of a fit, or what it gives them to, are named as those to train on."""
    named = given.get(id(fit.call), set())
    return holds_trained(fit.rows) or bool(named & TRAINED and not (named | words(fit.rows)) & HELD_OUT)


def _is_held_out(fit: Fit, given: Mapping[int, set[str]]) -> bool:
    named = given.get(id(fit.call), set())
    return holds_held_out(fit.rows) or bool(named & HELD_OUT and not (named | words(fit.rows)) & TRAINED)


def _counts(fit: Fit, given: Mapping[int, set[str]]) -> bool:
    """Whether a fit of its own changes the meaning of the rows that it gives."""
    said = words(fit.rows) | given.get(id(fit.call), set())
    if COPIES_ROWS.fullmatch(fit.of) or said & SHOWN:
        return False
    gives_codes = CODES.fullmatch(fit.of) is not None or not (fit.of == BY_HAND or fit.of[:1].isupper())
    return not (gives_codes and said & TARGETS)


def _of_both_splits(scope: ast.AST) -> set[str]:
    """Variables of loops over training rows and held-out ones: ``for part in (train, test)``."""
    found: set[str] = set()
    for one in statements(scope):
        if not isinstance(one, ast.For) or not isinstance(one.iter, (ast.Tuple, ast.List)):
            continue
        parts = [words(each) for each in one.iter.elts if isinstance(each, (ast.Name, ast.Attribute))]
        if isinstance(one.target, ast.Name) and any(p & TRAINED for p in parts) and any(p & HELD_OUT for p in parts):
            found.add(one.target.id)
    return found
