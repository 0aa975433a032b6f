"""The script's own lines, run again: which are cut out, and that the script's variables stay."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


from rerun_scenes import Scene  # noqa: E402

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
