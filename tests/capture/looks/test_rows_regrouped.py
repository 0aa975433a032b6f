"""Rows that are computed in another order and not put back, read in the source, and what resembles them."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

RULE = "rows-regrouped"
SICK = {
    "sorted by expert": """
        def forward(self, x):
            gate, chosen = self.router(x).softmax(-1).max(-1)
            order = chosen.argsort()
            sizes = torch.bincount(chosen).tolist()
            y = torch.cat([f(rows) for f, rows in zip(self.experts, x[order].split(sizes))])
            return y * gate[order, None]
        """,
    "masks in a loop": """
        def forward(self, x):
            out = []
            for e, expert in enumerate(self.experts):
                mask = chosen == e
                if mask.any():
                    out.append(expert(x[mask]) * gate[mask].unsqueeze(1))
            return torch.cat(out, 0)
        """,
    "heads of tasks": """
        def forward(self, x, task):
            h = self.trunk(x)
            return torch.cat([self.heads[t](h[task == t]) for t in range(4)])
        """,
    "indices of tasks": """
        def forward(self, x, task):
            h, preds = self.trunk(x), []
            for t in task.unique().tolist():
                rows = (task == t).nonzero(as_tuple=True)[0]
                preds.append(self.heads[str(t)](h.index_select(0, rows)))
            return torch.vstack(preds).flatten()
        """,
    "an order without a name": """
        def forward(self, x, domain):
            pieces = x[domain.argsort()].split(sizes)
            return torch.cat([norm(p) for norm, p in zip(self.norms, pieces)])
        """,
    "sorted by length": """
        def forward(self, x, lengths):
            lengths, order = lengths.sort(descending=True)
            packed = pack_padded_sequence(self.embed(x[order]), lengths, batch_first=True)
            _, h = self.rnn(packed)
            return self.head(h[-1])
        """,
}
HEALTHY = {
    "the inverse order": """
        def forward(self, x):
            order = chosen.argsort()
            y = torch.cat([f(rows) for f, rows in zip(self.experts, x[order].split(sizes))])
            return y[order.argsort()]
        """,
    "written to its place": """
        def forward(self, x):
            out = torch.zeros_like(x)
            for e, expert in enumerate(self.experts):
                mask = chosen == e
                out[mask] = expert(x[mask])
            return out
        """,
    "rows kept beside the results": """
        def forward(self, x, task):
            outs, rows = [], []
            for t in range(4):
                mask = task == t
                outs.append(self.heads[t](x[mask]))
                rows.append(mask.nonzero())
            return torch.cat(outs)[torch.cat(rows).argsort()]
        """,
    "labels in the same order": """
        def forward(self, x, lengths, labels):
            lengths, order = lengths.sort(descending=True)
            packed = pack_padded_sequence(self.embed(x[order]), lengths, batch_first=True)
            return self.head(self.rnn(packed)[1][-1]), labels[order]
        """,
    "labels joined by group elsewhere": """
        def forward(self, x, task):
            return torch.cat([self.heads[t](x[task == t]) for t in range(4)])
        def step(x, task, y):
            return loss(model(x, task), torch.cat([y[task == t] for t in range(4)]))
        """,
    "the order is returned": """
        def forward(self, x, lengths):
            lengths, order = lengths.sort(descending=True)
            packed = pack_padded_sequence(x[order], lengths, batch_first=True)
            return self.rnn(packed)[0], order
        """,
    "a mean over all rows": """
        def forward(self, x, task):
            joined = torch.cat([self.heads[t](x[task == t]) for t in range(4)])
            return joined.square().mean()
        """,
    "rows of noise": """
        def forward(self, n):
            z = torch.randn(n, 8)
            return torch.cat([self.parts[k](z[which == k]) for k in range(4)])
        """,
    "prototypes": """
        def prototypes(self, x, y):
            return torch.stack([self.net(x)[y == c].mean(0) for c in range(5)])
        """,
    "sorted samples": """
        def distance(a, b):
            return (a.sort(0).values - b.sort(0).values).square().mean()
        """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == RULE]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_rows_that_are_not_put_back(source: str) -> None:
    assert found(source) == [RULE]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
