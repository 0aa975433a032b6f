"""The model is found from an optimizer's parameters alone, and every parameter gets the name its owner gives it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from steadytrain.capture.hooks.model_discovery import (
    find_model,
    living_modules,
    living_optimizers,
    module_names,
    name_parameters,
    optimizer_parameters,
    plain_name,
)

PLAIN_NAMES = {
    "weight": "weight",
    "_orig_mod.weight": "weight",
    "module.weight": "weight",
    "module._orig_mod.block.0.weight": "block.0.weight",
    "_orig_mod.module.block.0.weight": "block.0.weight",
    "block._orig_mod.0.weight": "block.0.weight",
    "block.0._fsdp_wrapped_module._checkpoint_wrapped_module.weight": "block.0.weight",
    "submodule.weight": "submodule.weight",
    "my_module.weight": "my_module.weight",
}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3)
        self.body = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.words.weight


class Lazy:
    """An object as lazy importers make them: looking at its class runs code."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("somebody asked")


@pytest.fixture(autouse=True)
def _no_old_models() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_names_are_freed_of_wrappers(name: str) -> None:
    assert plain_name(name) == PLAIN_NAMES[name]


def test_a_model_is_found_by_its_parameters_and_others_are_passed_over() -> None:
    model, other = Tied(), nn.Linear(3, 3)
    found = find_model(list(model.parameters()))
    assert found.roots == (model,)
    assert found.nameless == 0
    assert sorted(found.names.values()) == ["body.0.bias", "body.0.weight", "body.1.weight", "words.weight"]
    assert id(other.weight) not in found.names


def test_some_of_a_models_parameters_find_the_whole_model() -> None:
    model = Tied()
    found = find_model(list(model.head.parameters()))
    assert found.roots == (model,)
    assert found.names == {id(model.head.weight): "words.weight"}


def test_two_models_of_one_class_are_told_apart_in_the_order_of_the_optimizer() -> None:
    later, first = nn.Linear(2, 2), nn.Linear(2, 2)
    parameters = [*first.parameters(), *later.parameters()]
    model = find_model(parameters)
    assert model.roots == (first, later)
    assert [model.names[id(p)] for p in parameters] == [
        "Linear.weight",
        "Linear.bias",
        "Linear2.weight",
        "Linear2.bias",
    ]


def test_two_models_lead_names_with_their_class() -> None:
    first, second = Tied(), nn.Linear(3, 1)
    found = find_model([*first.parameters(), *second.parameters()])
    assert set(found.roots) == {first, second}
    assert {"Tied.body.0.weight", "Linear.weight"} <= set(found.names.values())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "wrap",
    [nn.DataParallel, torch.compile, lambda model: torch.compile(nn.DataParallel(model))],
    ids=["data-parallel", "compile", "both"],
)
def test_wrapped_models_keep_their_plain_names(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = Tied()
    wrapped = wrap(model)
    found = find_model(list(model.parameters()))
    assert found.roots == (wrapped,)
    assert sorted(found.names.values()) == ["body.0.bias", "body.0.weight", "body.1.weight", "words.weight"]


def test_tensors_that_no_module_holds_are_named_by_position() -> None:
    weights = [torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)]
    found = find_model(weights)
    assert found.roots == ()
    assert found.nameless == 2
    assert list(found.names.values()) == ["parameter.0", "parameter.1"]


def test_a_module_whose_init_has_not_run_and_objects_that_lie_about_their_class_break_nothing() -> None:
    unfinished, lazy, model = nn.Module.__new__(nn.Linear), Lazy(), Tied()
    assert find_model(list(model.parameters())).roots == (model,)
    del unfinished, lazy


def test_modules_and_optimizers_whose_init_raised_are_left_out() -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="learning rate") as refused:
        torch.optim.SGD(model.parameters(), lr=-1.0)
    unfinished = nn.Module.__new__(nn.Linear)
    modules, optimizers = living_modules(), living_optimizers()
    assert {id(one) for one in optimizers} & {id(optimizer), id(_made(refused))} == {id(optimizer)}
    assert {id(one) for one in modules} & {id(model), id(unfinished)} == {id(model)}


def _made(refused: pytest.ExceptionInfo[ValueError]) -> object:
    """The object in whose ``__init__`` the error was raised."""
    return refused.traceback[-1].frame.f_locals["self"]


def test_a_cycle_of_modules_is_found() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    first.partner = second
    second.partner = first
    found = find_model([first.weight, second.weight])
    assert set(found.roots) == {first, second}
    assert found.nameless == 0
    del first.partner


def test_the_parameters_of_optimizers_come_in_order_and_once() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    one = torch.optim.SGD([{"params": [first.bias]}, {"params": [first.weight]}], lr=0.1)
    two = torch.optim.SGD([first.weight, second.weight], lr=0.1)
    found = optimizer_parameters([one, two])
    assert [id(parameter) for parameter in found] == [id(first.bias), id(first.weight), id(second.weight)]


def test_every_module_has_a_path_and_a_shared_one_its_first() -> None:
    model = Tied()
    model.again = model.body
    names = module_names([model])
    assert names[model] == ""
    assert names[model.body] == "body"
    assert names[model.body[1]] == "body.1"


def test_naming_knows_only_what_was_asked_for() -> None:
    model = Tied()
    found = name_parameters([model], [model.head.weight])
    assert found.names == {id(model.head.weight): "words.weight"}
    assert found.nameless == 0
