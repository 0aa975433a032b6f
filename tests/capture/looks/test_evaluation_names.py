"""Which lines of a script name a held-out set."""

from __future__ import annotations

from pathlib import Path

import pytest

from steadytrain.capture.looks.evaluation_names import named_as_held_out

LINES = {
    "told(x_test)": "x_test",
    "told(val_loader)": "val_loader",
    "told(testloader)": "testloader",
    "print(f'epoch {told(self.valid_ds)} of the test')": "valid_ds",
    "told(dev_set)": "dev_set",
    "told(x.to(dev))": "",
    "told(train_loader)  # val": "",
    "told('test', train)": "",
    "test(told(train))": "",
    "told(values, latest, device)": "",
    "print(f'test {told(train)}')": "",
}


@pytest.mark.parametrize(("line", "name"), LINES.items())
def test_the_line_of_the_call(tmp_path: Path, line: str, name: str) -> None:
    assert run(tmp_path, line) == name


def test_the_head_of_a_loop_around_it(tmp_path: Path) -> None:
    assert run(tmp_path, "for x in val_loader:\n    y = x\n    if True:\n        told(y)") == "val_loader"


def test_a_loop_beside_it(tmp_path: Path) -> None:
    assert run(tmp_path, "for x in val_loader:\n    y = x\ntold(y)") == ""


def run(folder: Path, source: str) -> str:
    """What is found while ``source`` calls ``told``."""
    found: list[str] = []

    class Anything(list[int]):
        valid_ds = 0

    def told(*_: object) -> str:
        found.append(named_as_held_out())
        return ""

    names = [
        "x_test",
        "val_loader",
        "testloader",
        "x",
        "dev",
        "dev_set",
        "train_loader",
        "train",
        "values",
        "latest",
        "device",
        "y",
    ]
    file = folder / "script.py"
    file.write_text(source)
    code = compile(source, str(file), "exec")
    x = Anything([1])
    x.to = lambda device: device  # type: ignore[attr-defined]
    exec(code, {**dict.fromkeys(names, x), "self": x, "told": told, "test": print})
    return found[0]
