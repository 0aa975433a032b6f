"""Preflight checks as assertions of a project's own tests.

Installed with steadytrain as a pytest plug-in. Each fixture below is a function that takes what
``steadytrain.preflight`` takes (a model, batches, a loss function, an optimizer) and fails the test when the check
fails, or when it cannot be run: an assertion that was not made must not look like one that holds.

A test that takes ``steadytrain_check`` is made once for every check. Tests marked ``preflight`` run only under
``pytest --steadytrain``, since some take a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from steadytrain.checks.subject.model_check import Outcome

Assertion = Callable[..., Any]
MARK = "preflight"
EVERY_CHECK = "steadytrain_check"


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


@pytest.fixture
def assert_overfits_one_batch() -> Assertion:
    """The model learns a few rows by heart."""
    return _assertion("overfit-one-batch")


@pytest.fixture
def assert_causal() -> Assertion:
    """No prediction depends on a later token: by gradient, and by changing tokens."""
    return _assertion("causality", "causality-by-change")


@pytest.fixture
def assert_no_batch_leak() -> Assertion:
    """No row depends on another."""
    return _assertion("batch-leak")


@pytest.fixture
def assert_resumes_exactly() -> Assertion:
    """Saving, loading and going on gives the same weights as going on without."""
    return _assertion("resume-equivalence")


@pytest.fixture
def assert_accumulation_equivalent() -> Assertion:
    """Accumulated micro-batches give the gradient of one batch with the same rows."""

    def look(**given: Any) -> Outcome:
        return _made("accumulation-equivalence", {"accumulation": 2, **given})

    return look


@pytest.fixture
def assert_gradients_reach_everything() -> Assertion:
    """Every parameter that is trained gets a gradient, and is in the optimizer once."""
    return _assertion("gradient-coverage")


@pytest.fixture
def assert_labels_aligned() -> Assertion:
    """The target at each position is the next token."""
    return _assertion("label-alignment")


@pytest.fixture
def assert_initial_loss() -> Assertion:
    """The first loss is what a guess costs."""
    return _assertion("initial-loss")


@pytest.fixture
def assert_uses_inputs() -> Assertion:
    """The model learns more with its inputs than without, and does not see the labels without them."""
    return _assertion("input-independence")


@pytest.fixture
def assert_order_invariant() -> Assertion:
    """The loss does not depend on the order of the rows."""
    return _assertion("order-invariance")


@pytest.fixture
def assert_deterministic_eval() -> Assertion:
    """In evaluation mode the model says the same twice."""
    return _assertion("eval-determinism")


@pytest.fixture
def assert_batch_size_invariant() -> Assertion:
    """A row gets the same output alone as among others."""
    return _assertion("batch-size-invariance")


@pytest.fixture
def assert_padding_invariant() -> Assertion:
    """What is said of a token does not depend on the padding around it."""
    return _assertion("padding-invariance")


@pytest.fixture
def assert_loss_used_right() -> Assertion:
    """The loss function gets what it takes."""
    return _assertion("loss-misuse")


def _assertion(*names: str) -> Assertion:
    """What fails unless all of these checks were made and found nothing; it returns the outcome of the last."""

    def look(**given: Any) -> Outcome:
        for name in names:
            outcome = _made(name, given)
        return outcome

    return look


def _made(name: str, given: dict[str, Any]) -> Outcome:
    outcome = _checked(name, given)
    if outcome.status == "not-run":
        pytest.fail(f"{name} could not be checked: {outcome.message}", pytrace=False)
    return outcome


def _checked(name: str, given: dict[str, Any]) -> Outcome:
    from steadytrain.preflight_runs.in_code import check

    outcome = check(name, **given)
    if outcome.status == "fail":
        lines = [f"{name}: {outcome.message}", f"means: {outcome.meaning}", f"next: {outcome.next}"]
        pytest.fail("\n".join(lines), pytrace=False)
    return outcome
