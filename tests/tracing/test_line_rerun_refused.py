"""Lines of a script that are not run again, because they do more than compute."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


from rerun_scenes import Scene  # noqa: E402

from steadytrain.capture.step.script_frames import LoopLines  # noqa: E402
from steadytrain.tracing.line_rerun import CannotRunAgainError, compile_lines  # noqa: E402

REFUSED = {
    "the next batch": (
        "batches = iter([(x, y)])\nout = model(x)\nx, y = next(batches)\nloss_fn(out, y).backward()",
        "next()",
    ),
    "a step in between": (
        """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = loss_fn(model(x), y)
        loss = loss * (optimizer.step() or 1)
        loss.backward()
        """,
        "step()",
    ),
    "a file": (
        """
        out = model(x)
        with open("/dev/null") as file:
            factor = len(file.read()) + 1
        (out.sum() * factor).backward()
        """,
        "open()",
    ),
    "backward of another loss": (
        """
        out = model(x)
        first = out.mean()
        out = out + (first.backward(retain_graph=True) or 0)
        out.sum().backward()
        """,
        None,
    ),
    "a return in between": (
        """
        def run():
            loss = model(x).sum()
            if step < 0:
                loss = None
                return
            loss.backward()

        run()
        """,
        "leaves the lines",
    ),
    "a loss from outside the loop that grows": (
        """
        total = torch.zeros(())
        for number in range(1):
            out = model(x)
            total = total + out.sum()
            total.backward()
        """,
        "total comes from outside the loop",
    ),
    "an argument that the caller has not in a variable": (
        """
        def run(batch):
            batch = [part * 2 for part in batch]
            loss = compute(model, batch)
            del batch
            loss.backward()

        def epoch():
            run((x, y))

        epoch()
        """,
        "batch comes from outside the loop",
    ),
    "an argument that another function put in": (
        """
        import functools

        def run(batch, scale):
            batch = [part * 2 for part in batch]
            loss = compute(model, batch)
            del batch
            (loss * scale).backward()

        def epoch():
            scale = 3.0
            functools.partial(run, (x, y))(scale)

        epoch()
        """,
        "batch comes from outside the loop",
    ),
    "a variable of a module, that anybody may have changed": (
        """
        def run(batch):
            global pair
            pair = None
            batch = [part * 2 for part in batch]
            loss = compute(model, batch)
            del batch
            loss.backward()

        pair = (x, y)
        run(pair)
        """,
        "batch comes from outside the loop",
    ),
    "a variable that an inner function changes": (
        """
        def epoch():
            def run(batch):
                nonlocal pair
                pair = None
                batch = [part * 2 for part in batch]
                loss = compute(model, batch)
                del batch
                loss.backward()

            pair = (x, y)
            run(pair)

        epoch()
        """,
        "batch comes from outside the loop",
    ),
    "a variable that the head of a with makes": (
        """
        def run():
            scale = 1.0
            with contextlib.nullcontext(3.0) as scale:
                out = model(x)
                scale = scale * 2
                (out * scale).sum().backward()

        run()
        """,
        "scale comes from outside the loop",
    ),
    "the model is called in the head of the loop around backward": (
        "for loss in [model(x).sum()]:\n    loss.backward()",
        "computed by the statement that calls backward",
    ),
    "an attribute of an object": (
        """
        class Trainer:
            def train_step(self):
                self.loss = model(x).sum()
                self.loss.backward()

        Trainer().train_step()
        """,
        "self comes from outside the loop",
    ),
    "a tensor from outside the loop, changed in place": (
        """
        for mask in [torch.ones(4, 1)]:
            out = model(x)
            mask.mul_(2)
            (out * mask).sum().backward()
        """,
        "mask comes from outside the loop",
    ),
    "a with statement that makes the loss": (
        """
        loss = model(x).sum()
        with contextlib.nullcontext(loss * 2) as scaled:
            scaled.backward()
        """,
        "computed by the statement that calls backward",
    ),
    "backward by another name": (
        "def go(loss):\n    torch.autograd.backward(loss)\nstart = go\nloss = model(x).sum()\nstart(loss)",
        "not a plain backward call",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_lines_that_do_more_than_compute_are_refused(name: str, tmp_path: Path) -> None:
    body, why = REFUSED[name]
    incident_context = Scene(tmp_path, body)
    _, again = incident_context.seen[0]
    if why is None:
        assert incident_context.unchanged
        return
    assert isinstance(again, str)
    assert why in again
    assert incident_context.unchanged


def test_a_script_that_changed_on_disk_is_refused_or_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "gone.py"
    code = compile("def run(probe):\n    probe()\n", str(path), "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)

    def probe() -> None:
        import sys

        frame = sys._getframe(1)
        with pytest.raises(CannotRunAgainError, match="not available"):
            compile_lines(LoopLines(frame, 2, 2))
        path.write_text("def run(probe:\n")
        linecache.checkcache(str(path))
        with pytest.raises(CannotRunAgainError, match="changed since"):
            compile_lines(LoopLines(frame, 2, 2))

    namespace["run"](probe)
