"""``import steadytrain`` shows the public names, loads nothing slow, and keeps functions and parts apart."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import steadytrain
import steadytrain.replay.launcher
from steadytrain.api.replays import ReplayOptions, ReplayOptionsGiven
from steadytrain.attach.options import Options, OptionsGiven

PUBLIC = {
    *(
        "watch",
        "preflight",
        "load_run",
        "analyze",
        "checklist",
        "debug",
        "diagnose",
        "gate",
        "replay",
        "locate",
        "report",
    ),
    *("Watch", "Run", "Incident", "Diagnosis", "RunStopped", "UsageError"),
}


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_package_shows_its_public_names() -> None:
    assert set(dir(steadytrain)) >= PUBLIC
    assert {name for name in dir(steadytrain) if not name.startswith("_")} == PUBLIC
    assert set(steadytrain.__all__) == {*PUBLIC, "__version__"}


def test_importing_and_asking_for_help_loads_nothing_slow() -> None:
    slow = "[name for name in ('torch', 'numpy', 'click', 'rich', 'jinja2') if name in sys.modules]"
    assert python(f"import sys, steadytrain; dir(steadytrain); print({slow})") == "[]"


def test_what_works_on_recordings_loads_no_torch() -> None:
    code = "import sys, steadytrain; steadytrain.analyze, steadytrain.load_run, steadytrain.report.__signature__;"
    assert python(f"{code} print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("name", ["replay", "locate", "report"])
@pytest.mark.parametrize("first", ["", "import steadytrain.replay.launcher, steadytrain.report.html;"])
def test_a_part_that_shares_a_functions_name_can_be_called(name: str, first: str) -> None:
    code = (
        f"import steadytrain; {first} from steadytrain import {name}\n"
        f"try: {name}('no-such-run')\n"
        "except steadytrain.UsageError as error: print(error)"
    )
    assert python(code).startswith("no-such-run: no such run or incident")


def test_a_callable_part_has_the_functions_signature_and_stays_a_module() -> None:
    assert list(inspect.signature(steadytrain.replay).parameters)[:3] == ["target", "first", "until"]
    assert steadytrain.replay.launcher is sys.modules["steadytrain.replay.launcher"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("value", "keywords"), [(Options, OptionsGiven), (ReplayOptions, ReplayOptionsGiven)])
def test_keywords_are_the_fields(value: type, keywords: type) -> None:
    assert value.__annotations__ == {
        name: getattr(hint, "__forward_arg__", hint) for name, hint in keywords.__annotations__.items()
    }


@pytest.mark.parametrize("function", ["watch", "replay", "preflight"])
def test_help_describes_every_parameter(function: str) -> None:
    value = steadytrain._load(function)
    told = inspect.cleandoc(value.__doc__)
    for name in inspect.signature(value).parameters:
        assert f"\n    {name}: " in told, name


def test_a_name_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'wacth'"):
        steadytrain.wacth  # type: ignore[attr-defined] # noqa: B018
