"""The pytest plug-in: preflight checks as fixtures of a project's own tests. No check lives here, only the call of
`preflight_runs`.

Each fixture of ``ASSERTIONS`` is called ``steadytrain_assert_...``. It is a function that takes what
``steadytrain.preflight`` takes (a model, batches, a loss function, an optimizer) and fails the test when the check
fails, or when it cannot be run: an assertion that was not made must not look like one that holds.

A test that takes ``steadytrain_check`` is made once for every check. Tests marked ``steadytrain_preflight`` run only
under ``pytest --steadytrain``, since some take a minute. All names begin with ``steadytrain``, so that none is a
project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from steadytrain.checks.subject.model_check import Outcome

Assertion = Callable[..., Any]
MARK = "steadytrain_preflight"
EVERY_CHECK = "steadytrain_check"
MICRO_BATCHES = 2
"""So many are accumulated where the test does not say."""

ASSERTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "overfits_one_batch": (("overfit-one-batch",), "The model learns a few rows by heart."),
    "causal": (
        ("causality", "causality-by-change"),
        "No prediction depends on a later token: by gradient, and by changing tokens.",
    ),
    "no_batch_leak": (("batch-leak",), "No row depends on another."),
    "resumes_exactly": (
        ("resume-equivalence",),
        "Saving, loading and going on gives the same weights as going on without.",
    ),
    "accumulation_equivalent": (
        ("accumulation-equivalence",),
        "Accumulated micro-batches give the gradient of one batch with the same rows.",
    ),
    "gradients_reach_everything": (
        ("gradient-coverage",),
        "Every parameter that is trained gets a gradient, and is in the optimizer once.",
    ),
    "labels_aligned": (("label-alignment",), "The target at each position is the next token."),
    "initial_loss": (("initial-loss",), "The first loss is what a guess costs."),
    "uses_inputs": (
        ("input-independence",),
        "The model learns more with its inputs than without, and does not see the labels without them.",
    ),
    "order_invariant": (("order-invariance",), "The loss does not depend on the order of the rows."),
    "deterministic_eval": (("eval-determinism",), "In evaluation mode the model says the same twice."),
    "batch_size_invariant": (("batch-size-invariance",), "A row gets the same output alone as among others."),
    "padding_invariant": (
        ("padding-invariance",),
        "What is said of a token does not depend on the padding around it.",
    ),
    "loss_used_right": (("loss-misuse",), "The loss function gets what it takes."),
}
"""By what follows ``steadytrain_assert_`` in the fixture's name: its checks, and what holds where they pass."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("steadytrain")
    group.addoption(
        "--steadytrain", action="store_true", help=f"run the tests that are marked {MARK}: checks of models and data"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: a preflight of a model; runs under --steadytrain only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--steadytrain"):
        return
    for item in items:
        if item.get_closest_marker(MARK) is not None:
            item.add_marker(pytest.mark.skip(reason="a preflight: pytest --steadytrain runs it"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if EVERY_CHECK in metafunc.fixturenames:
        from steadytrain.checks.subject.model_check import CHECKS

        metafunc.parametrize(EVERY_CHECK, CHECKS.names(), indirect=True)


@pytest.fixture
def steadytrain_check(request: pytest.FixtureRequest) -> Assertion:
    """One check after the other; a check that does not apply to this model skips the test."""
    name = request.param

    def look(**given: Any) -> Outcome:
        outcome = _checked(name, given)
        if outcome.status == "not-run":
            pytest.skip(outcome.message)
        return outcome

    return look


def _assertion(name: str) -> Assertion:
    """The fixture: what fails unless all its checks were made and found nothing; it returns the last one's outcome."""
    checks, holds = ASSERTIONS[name]

    def look(**given: Any) -> Outcome:
        if name == "accumulation_equivalent":
            given = {"accumulation": MICRO_BATCHES, **given}
        for check in checks:
            outcome = _checked(check, given)
            if outcome.status == "not-run":
                pytest.fail(f"{check} could not be checked: {outcome.message}", pytrace=False)
        return outcome

    def given_to_the_test() -> Assertion:
        return look

    given_to_the_test.__doc__ = holds
    return pytest.fixture(name=f"steadytrain_assert_{name}")(given_to_the_test)


globals().update({f"steadytrain_assert_{name}": _assertion(name) for name in ASSERTIONS})


def _checked(name: str, given: dict[str, Any]) -> Outcome:
    from steadytrain.preflight_runs.in_code import check

    outcome = check(name, **given)
    if outcome.status == "fail":
        lines = [f"{name}: {outcome.message}", f"means: {outcome.meaning}", f"next: {outcome.next}"]
        pytest.fail("\n".join(lines), pytrace=False)
    return outcome
