"""Streams that are folded into lanes the wrong way round, and folds that are right or of something else."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

WRONG = {
    "a function": """
        def batchify(data, bsz):
            n = data.size(0) // bsz
            data = data.narrow(0, 0, n * bsz)
            return data.view(n, bsz).contiguous()
        def get_batch(source, i):
            return source[i : i + T], source[i + 1 : i + 1 + T].reshape(-1)
        train = batchify(corpus, 20)
        for i in range(0, len(train) - 1, T):
            x, y = get_batch(train, i)
    """,
    "an attribute": """
        class Lanes:
            def __init__(self, ids, lanes):
                n = len(ids) // lanes
                ids = ids[: n * lanes]
                self.grid = ids.reshape(-1, lanes)
            def __iter__(self):
                for i in range(0, len(self.grid), T):
                    yield self.grid[i : i + T], self.grid[i + 1 : i + T + 1]
    """,
    "numpy": """
        data = np.reshape(ids[: len(ids) // batch_size * batch_size], (-1, batch_size))
        for i in range(0, len(data) - 1 - T, T):
            x, y = data[i : i + T], data[i + 1 : i + 1 + T]
    """,
    "narrow": """
        ids = ids.narrow(0, 0, n * args.n_seqs)
        ids = ids.view(-1, args.n_seqs)
        for i in range(0, n - T, T):
            x, y = ids.narrow(0, i, T), ids.narrow(0, i + 1, T)
    """,
}
RIGHT = {
    "transposed": """
        ids = ids[: n * lanes]
        grid = ids.view(lanes, n).t()
        for i in range(0, n - T, T):
            x, y = grid[i : i + T], grid[i + 1 : i + 1 + T]
    """,
    "transposed later": """
        ids = ids[: n * lanes].reshape(-1, lanes)
        ids = ids.t()
        for i in range(0, n - T, T):
            x, y = ids[i : i + T], ids[i + 1 : i + 1 + T]
    """,
    "windows along the lanes": """
        grid = ids[: n * lanes].view(lanes, n)
        for i in range(0, n - T, T):
            x, y = grid[:, i : i + T], grid[:, i + 1 : i + 1 + T]
    """,
    "an order of rows": """
        order = torch.randperm(len(rows))[: n * batch_size].view(n, batch_size)
        for i in order:
            x = rows[i]
        x, y = ids[i : i + T], ids[i + 1 : i + 1 + T]
    """,
    "channels": """
        series = flat[: n * channels].reshape(n, channels)
        for i in range(0, n - T, T):
            x, y = series[i : i + T], series[i + 1 : i + 1 + T]
    """,
    "blocks": """
        rows = ids[: n * block].view(-1, block)
        x, y = rows[:, :-1], rows[:, 1:]
        for i in range(9):
            pass
    """,
    "not cut": """
        obs = storage.obs.view(steps, n_streams)
        for i in range(0, steps - T, T):
            x, y = obs[i : i + T], obs[i + 1 : i + 1 + T]
    """,
}


def found(source: str) -> list[int]:
    return [line for rule, line in mistakes(textwrap.dedent(source), {}) if rule == "folded-stream"]


@pytest.mark.parametrize("source", WRONG.values(), ids=list(WRONG))
def test_lanes_that_jump(source: str) -> None:
    (line,) = found(source)
    code = textwrap.dedent(source).splitlines()[line - 1]
    assert "view(" in code or "reshape(" in code


@pytest.mark.parametrize("source", RIGHT.values(), ids=list(RIGHT))
def test_lanes_that_do_not(source: str) -> None:
    assert found(source) == []
