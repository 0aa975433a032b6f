from __future__ import annotations

import textwrap

from rule_of_source import cases_of

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a mask of attention": """
        import torch

        def attend(q, k, v, future):
            scores = q @ k.transpose(-1, -2)
            scores.masked_fill(future, float("-inf"))
            return scores.softmax(-1) @ v
    """,
    "a state that is to be reset": """
        import torch

        def run(model, flow, h, ended):
            h = h.detach()
            h.index_fill(0, ended, 0.0)
            return model(flow, h)
    """,
    "a state that is to be detached": """
        def train(cell, chunks, h, loss):
            for x in chunks:
                out, h = cell(x, h)
                loss(out).backward()
                h.detach()
    """,
    "both parts of a state": """
        def train(model, chunks, hidden):
            for x, y in chunks:
                out, hidden = model(x, hidden)
                (out - y).square().mean().backward()
                hidden[0].detach()
    """,
    "weights that are to be bounded": """
        def bound(critic, loss):
            loss.backward()
            for p in critic.parameters():
                p.data.clamp(-0.01, 0.01)
    """,
    "an update by hand": """
        import torch

        def step(model, loss, lr):
            loss.backward()
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p.sub(p.grad, alpha=lr)
    """,
    "gradients": """
        def clean(weight, loss):
            loss.backward()
            weight.grad.nan_to_num(0.0)
    """,
    "functions": """
        import torch

        def forward(conv, x):
            y = conv(x)
            torch.clamp(y, 0, 1)
            return y
    """,
    "a function of torch.nn.functional": """
        import torch.nn.functional as F

        def embed(net, x):
            z = net(x)
            F.normalize(z, dim=-1)
            return z
    """,
    "an array": """
        import numpy as np
        import torch

        x = np.load("x.npy")
        np.clip(x, -3, 3)
    """,
    "a table": """
        import pandas
        from sklearn.linear_model import Ridge

        table = pandas.read_csv("a.csv")
        table.dropna(subset=["price"])
    """,
    "a column": """
        import pandas
        import torch

        table = pandas.read_csv("a.csv")
        table["price"].fillna(0)
    """,
    "rows that are to be shuffled": """
        import numpy as np
        import torch

        rng = np.random.default_rng(0)
        rows = np.arange(100)
        rng.permutation(rows)
    """,
    "rows that are shuffled by the module": """
        import numpy as np
        import torch

        def epoch(rows):
            np.random.permutation(rows)
            return rows
    """,
    "names in order": """
        import torch

        def names(found):
            sorted(found)
            return found
    """,
    "a branch, and a try around the loop": """
        import torch

        def train(loader, acc, sent):
            try:
                for rows in loader:
                    if rows is not None:
                        acc.scatter_add(0, sent, rows)
            except KeyboardInterrupt:
                pass
    """,
    "an annotated argument": """
        import torch
        from torch import Tensor

        def squash(x: Tensor) -> Tensor:
            x.clamp(min=0.0)
            return x
    """,
}
HEALTHY = {
    "in place": """
        import torch

        def attend(scores, future, x, rows, rng, table):
            scores.masked_fill_(future, -1e9)
            torch.clamp(x, 0, 1, out=x)
            torch.nn.functional.relu(x, inplace=True)
            rng.shuffle(rows)
            rows.sort()
            table.dropna(inplace=True)
    """,
    "assigned, returned and given on": """
        import torch

        def attend(scores, future):
            scores = scores.masked_fill(future, -1e9)
            print(scores.clamp(0, 1))
            return scores.nan_to_num(0.0)
    """,
    "methods of the script": """
        import torch

        class Columns:
            def clamp(self, lo, hi):
                self.values.clamp_(lo, hi)

            def fillna(self, value):
                self.values[self.values.isnan()] = value

        def clean(columns: torch.Tensor, raw):
            columns.clamp(0, 1)
            columns.fillna(0)
    """,
    "objects of other libraries": """
        import matplotlib.pyplot as plt
        import torch
        import torch.distributed as dist

        def draw(ax, x, y, process, seen, scene):
            plt.scatter(x, y)
            ax.scatter(x, y, 3)
            dist.scatter(x, [y], 0)
            process.detach()
            seen.add(3)
            scene.clip()
            scene.transpose(1, 2)
            scene.roll(2)
    """,
    "modules and devices": """
        import torch

        def place(model, device):
            model.to(device)
            model.half()
            model.cuda().float()
    """,
    "a call that warms up": """
        import time
        import torch

        def measure(x):
            for _ in range(3):
                torch.softmax(x, -1)
            start = time.perf_counter()
            torch.softmax(x, -1)
            return time.perf_counter() - start
    """,
    "a call that is tried": """
        import torch

        def can(x, places):
            try:
                x.index_fill(0, places, 0.0)
            except RuntimeError:
                return False
            return True
    """,
    "a call that should fail": """
        import pytest
        import torch

        def refuse(x, mask):
            with pytest.raises(RuntimeError):
                x.masked_fill(mask, "a")

        def test_it_runs(x, mask):
            x.masked_fill(mask, 0.0)
    """,
    "an array that is given": """
        import numpy as np
        import torch

        def bound(x, y):
            np.clip(x, 0, 1, x)
            np.clip(x, 0, 1, out=y)
            np.nan_to_num(x, copy=False)
            np.exp(x, x)
            np.array([1.0]).clip(0, np.inf, x)
    """,
    "inherited methods": """
        import torch
        from mine import Masked

        class Other(Masked):
            def apply(self, mask):
                self.masked_fill(mask, 0.0)
                super().index_fill(0, mask, 0.0)
    """,
    "another function of that name": """
        import torch
        from mine import sorted

        sorted([2, 1])
    """,
    "no names, and a generator that goes on": """
        import numpy as np
        import torch

        rng = np.random.default_rng(0)
        rng.permutation(10)
        torch.empty(3, device="meta").add(1)
    """,
    "a model that is called": """
        import torch

        def prepare(net, relu, x):
            net(x)
            relu(x)
            net.normalize(x)
            net.forward(x)
    """,
    "a set beside tensors": """
        import torch

        def count(rows):
            seen = torch.zeros(3)
            seen = set()
            for one in rows:
                seen.add(one)
    """,
}

test_finds, test_leaves = cases_of("dropped-result", SICK, HEALTHY)


def test_the_call_is_named() -> None:
    source = textwrap.dedent(SICK["a mask of attention"])
    assert list(mistakes(source, {})) == [("dropped-result", "6:scores.masked_fill")]
