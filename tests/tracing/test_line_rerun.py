"""The script's own lines, run again: which are cut out, which are refused, and that the script's variables stay."""

from __future__ import annotations

import linecache
import math
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.capture.step.script_frames import FrameLine, LoopLines, loop_lines, user_frames  # noqa: E402
from steadytrain.tracing.line_rerun import CannotRunAgainError, compile_lines, run_lines  # noqa: E402

HEAD = """
import contextlib
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Linear(3, 1)
x, y = torch.randn(4, 3), torch.randn(4, 1)
log, counts, step = [], {}, 5
loss_fn = nn.MSELoss()

class Scaler:
    def scale(self, loss):
        return loss * 4

class Accelerator:
    def backward(self, loss, **kwargs):
        loss.backward(**kwargs)

scaler, accelerator = Scaler(), Accelerator()

def compute(model, batch):
    return loss_fn(model(batch[0]), batch[1])
"""


class Scene:
    """A script that is stopped inside backward: what ``loop_lines`` finds there, and what the lines give."""

    def __init__(self, folder: Path, body: str) -> None:
        path = folder / "script.py"
        path.write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
        linecache.checkcache(str(path))
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.seen: list[tuple[float, float | str]] = []
        self.unchanged = True
        forward: list[tuple[FrameLine, ...]] = []

        def called(module: nn.Module, args: Any) -> None:
            if any(True for _ in module.parameters()):
                forward.append(user_frames())

        before = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if not self.seen:
                self._again(tensors, loop_lines(forward[-1], user_frames()))
            before(tensors, *args, **kwargs)

        handle = nn.modules.module.register_module_forward_pre_hook(called)
        torch.autograd.backward = backward
        try:
            exec(compile(path.read_text(), str(path), "exec"), self.namespace)
        finally:
            torch.autograd.backward = before
            handle.remove()

    def _again(self, loss: Any, loop: LoopLines | None) -> None:
        assert loop is not None
        state = torch.get_rng_state()
        variables = {**loop.frame.f_globals, **loop.frame.f_locals}
        versions = {name: value._version for name, value in variables.items() if isinstance(value, torch.Tensor)}
        sizes = {name: len(value) for name, value in variables.items() if isinstance(value, (list, dict))}
        try:
            again: float | str = run_lines(loop, compile_lines(loop)).item()
        except CannotRunAgainError as refusal:
            again = str(refusal)
        after = {**loop.frame.f_globals, **loop.frame.f_locals}
        self.unchanged = (
            list(after) == list(variables)
            and all(after[name] is value for name, value in variables.items())
            and all(after[name]._version == version for name, version in versions.items())
            and all(len(after[name]) == size for name, size in sizes.items() if name != "variables")
        )
        torch.set_rng_state(state)
        self.seen.append((loss.item(), again))


AGAIN = {
    "statements between": """
        prediction = model(x)
        errors = (prediction - y).pow(2)
        loss = errors.mean()
        loss.backward()
    """,
    "one line": "loss_fn(model(x), y).backward()",
    "several statements on a line": "prediction = model(x); loss = loss_fn(prediction, y); loss.backward()",
    "several statements on a line, backward in the middle": "loss = model(x).sum(); loss.backward(); done = True",
    "a call over several lines": """
        loss = loss_fn(
            model(
                x,
            ),
            y,
        )
        (
            loss
            / 2
        ).backward()
    """,
    "scaled": "loss = loss_fn(model(x), y)\nscaler.scale(loss).backward()",
    "scaled in one line": "scaler.scale(loss_fn(model(x), y) / 2).backward()",
    "accelerator": "loss = loss_fn(model(x), y)\naccelerator.backward(loss)",
    "accelerator with options": "loss = loss_fn(model(x), y)\naccelerator.backward(loss, retain_graph=True)",
    "retain_graph": "loss = loss_fn(model(x), y)\nloss.backward(retain_graph=True)",
    "gradient given": "loss = loss_fn(model(x), y)\nloss.backward(gradient=torch.tensor(2.0))",
    "in a with block": """
        with contextlib.nullcontext():
            loss = loss_fn(model(x), y)
            loss.backward()
    """,
    "model in a with block, backward outside": """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = model(x)
            loss = loss_fn(prediction, y.to(prediction.dtype))
        loss.backward()
    """,
    "if and else around backward": """
        loss = loss_fn(model(x), y)
        if step % 2:
            loss.backward()
        else:
            (loss * 3).backward()
    """,
    "if in between": """
        loss = loss_fn(model(x), y)
        if step > 3:
            loss = loss * 2
        loss.backward()
    """,
    "loop in between": """
        hidden = model(x)
        total = 0
        for part in (1, 2, 3):
            total = total + hidden.sum() * part
        total.backward()
    """,
    "an overwritten variable starts further up": """
        weights = torch.arange(1.0, 5.0)
        prediction = model(x)
        weights = weights / weights.sum()
        loss = (prediction.squeeze(-1) * weights).sum()
        loss.backward()
    """,
    "an updated variable starts further up": """
        for _ in range(1):
            total = 1.0
            prediction = model(x)
            total += prediction.sum()
            total.backward()
    """,
    "changed in place": """
        noise = torch.zeros(4, 1)
        prediction = model(x)
        noise = prediction * 1
        noise.clamp_(-0.1, 0.1)
        noise.sum().backward()
    """,
    "helper function": "loss = compute(model, (x, y))\nloss.backward()",
    "method with self": """
        class Trainer:
            def __init__(self):
                self.model, self.weight = model, 0.5

            def train_step(self, batch):
                inputs, targets = batch
                output = self.model(inputs)
                loss = F.mse_loss(output, targets) * self.weight
                loss.backward()

        Trainer().train_step((x, y))
    """,
    "comprehension": """
        def run():
            scale = 2.0
            parts = model(x)
            loss = sum(part.sum() * scale for part in parts) + torch.stack([p * scale for p in parts]).sum()
            loss.backward()

        run()
    """,
    "lambda": """
        def run():
            factor = 3.0
            weigh = lambda value: value * factor
            loss = weigh(model(x)).sum()
            loss.backward()

        run()
    """,
    "logging is not executed": """
        def explode():
            if log:
                raise RuntimeError("logged twice")
            log.append(1)

        loss = loss_fn(model(x), y)
        explode()
        log.append(loss.item())
        counts["steps"] = counts.get("steps", 0) + 1
        print(end="")
        loss.backward()
    """,
    "a method that logs is not executed": """
        class Trainer:
            def __init__(self):
                self.model = model

            def log(self, name, value):
                log.append((name, value))

            def train_step(self):
                loss = self.model(x).sum()
                self.log("loss", loss.item())
                loss.backward()

        Trainer().train_step()
    """,
    "a list of losses that is begun before": """
        losses = []
        losses.append(model(x).sum())
        losses.append(losses[0] * 2)
        sum(losses).backward()
    """,
    "a function that ends in an underscore": """
        mask = torch.ones(4, 1)
        mask = mask * 2
        loss = model(x)
        nn.init.constant_(mask, 3.0)
        (loss * mask).sum().backward()
    """,
    "out=": """
        buffer = torch.ones(3)
        scale = torch.zeros(3)
        loss = model(x).sum()
        torch.mul(buffer, 3, out=scale)
        (loss * scale.sum()).backward()
    """,
    "a batch that is made and deleted again": """
        for number in range(1):
            batch = (x + number, y)
            batch = (batch[0] * 2, batch[1])
            loss = compute(model, batch)
            del batch
            loss.backward()
    """,
    "an argument that is overwritten and deleted, in a method that is called through": """
        class Trainer:
            def training_step(self, model, batch, scale=1.0):
                with contextlib.nullcontext(), torch.no_grad():
                    batch = [part + 1 for part in batch]
                with contextlib.nullcontext():
                    if scale:
                        batch = [part * 2 for part in batch]
                        with contextlib.nullcontext():
                            loss = compute(model, batch)
                        batch = None
                        del batch
                        loss = loss / scale
                        accelerator.backward(loss)

        class Wrapped(Trainer):
            def training_step(self, *args, **kwargs):
                return super().training_step(*args, **kwargs)

        def epoch():
            for inputs in [(x, y)]:
                Wrapped().training_step(model, inputs, scale=3.0)

        epoch()
    """,
    "an argument by name, its caller's variable of another name": """
        def run(compute, *, rows):
            rows = [row * 2 for row in rows]
            loss = compute(model, rows)
            del rows
            loss.backward()

        def epoch():
            pair = (x, y)
            run(compute, rows=pair)

        epoch()
    """,
    "dictionary of losses": """
        losses = {}
        output = model(x)
        losses["a"] = output.sum()
        losses["b"] = output.pow(2).sum()
        sum(losses.values()).backward()
    """,
}


@pytest.mark.parametrize("name", AGAIN)
def test_lines_give_the_same_loss_again(name: str, tmp_path: Path) -> None:
    incident_context = Scene(tmp_path, AGAIN[name])
    ((loss, again),) = incident_context.seen
    assert isinstance(again, float), again
    assert math.isclose(again, loss, rel_tol=1e-6), (again, loss)
    assert incident_context.unchanged


def test_loops_in_a_function_keep_its_local_variables(tmp_path: Path) -> None:
    incident_context = Scene(
        tmp_path,
        """
        def main():
            kept = []
            for number in range(2):
                inputs = x + number
                loss = model(inputs).sum()
                kept = [number]
                loss.backward()
            return kept, loss.item()

        result = main()
        """,
    )
    assert incident_context.unchanged
    assert incident_context.namespace["result"][0] == [1]


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
