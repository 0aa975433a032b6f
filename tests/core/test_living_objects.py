"""Living objects are found by their class, and no thread of the script is hurt by the search."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from steadytrain.core import living_objects
from steadytrain.core.living_objects import instances, living, one_search

SEARCHES = 60


class Kind:
    pass


class Derived(Kind):
    pass


class Pretends:
    """Says that it is another class, as proxies do."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("it was asked for its class")


class Unused:
    pass


def test_objects_of_a_class_and_of_those_below_it_are_found() -> None:
    one, two, other = Kind(), Derived(), Pretends()
    assert {id(thing) for thing in living(Kind)} == {id(one), id(two)}
    assert living(Derived) == [two]
    assert {id(thing) for thing in living(Derived, Pretends)} == {id(two), id(other)}
    assert living(Unused) == []


def test_a_tuple_that_another_thread_is_filling_is_left_alone() -> None:
    stopping, broken, kept = threading.Event(), [], Kind()

    def fill() -> None:
        while not stopping.is_set():
            try:
                tuple(number for number in range(300))
            except SystemError as error:
                broken.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        found = [living(Kind) for _ in range(SEARCHES)]
    finally:
        stopping.set()
        thread.join()
    assert found == [[kept]] * SEARCHES
    assert broken == []


def test_a_search_leaves_the_collector_as_the_script_has_set_it() -> None:
    was = gc.isenabled()
    try:
        for wanted in (False, True):
            gc.enable() if wanted else gc.disable()
            living(Kind)
            assert gc.isenabled() == wanted
    finally:
        gc.enable() if was else gc.disable()


def test_within_a_block_the_process_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, other = Kind(), Derived(), Pretends()
    searches: list[int] = []
    found = living_objects._found
    monkeypatch.setattr(living_objects, "_found", lambda wanted: searches.append(len(wanted)) or found(wanted))
    with one_search(Kind, Unused):
        assert instances(Derived) == [two]  # cheaper than the search, so it begins none
        assert searches == []
        assert {id(thing) for thing in living(Kind)} == {id(one), id(two)}
        assert living(Derived) == instances(Derived) == [two]
        assert living(Unused) == []
        assert searches == [3]
        assert living(Pretends) == [other]  # not among those of the block
        assert len(searches) == 2
        later = Kind()
        assert later not in living(Kind)
    assert later in living(Kind)


def test_after_a_block_nothing_is_kept_alive() -> None:
    held = Kind()
    alive = weakref.ref(held)
    with one_search(Kind):
        assert living(Kind) == [held]
    del held
    assert alive() is None
