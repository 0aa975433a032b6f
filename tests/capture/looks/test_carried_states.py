"""A recurrent state that is carried between unrelated batches, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "carried-state"
SICK = {
    "in the loop": """
        rnn = nn.GRU(3, 8)
        loader = DataLoader(data, batch_size=8, shuffle=True)
        for epoch in range(3):
            h = None
            for x, y in loader:
                out, h = model(x, h)
                h = h.detach()
                loss(out, y).backward()
        """,
    "drawn rows": """
        rnn = nn.LSTM(3, 8)
        hidden = None
        for step in range(100):
            rows = torch.randint(0, 900, (8,))
            x, y = X[rows], Y[rows]
            out, hidden = model(x, hidden)
            hidden = tuple(one.detach() for one in hidden)
            loss(out, y).backward()
        """,
    "kept in the module": """
        class Net(nn.Module):
            def __init__(self):
                self.rnn, self.hidden = nn.GRU(3, 8), None
            def forward(self, x):
                out, hidden = self.rnn(x, self.hidden)
                self.hidden = hidden.detach()
                return out
        loader = DataLoader(data, shuffle=True)
        for x, y in loader:
            opt.zero_grad()
            loss(net(x), y).backward()
        """,
    "rows in a random order": """
        rnn = nn.LSTM(3, 8)
        order = torch.randperm(len(docs))
        hidden = model.init_hidden(8)
        for i in range(0, len(docs), 8):
            data = docs[order[i : i + 8]]
            hidden = repackage_hidden(hidden)
            out, hidden = model(data, hidden)
            loss(out, data).backward()
        """,
}
HEALTHY = {
    "a stream in order": """
        rnn = nn.GRU(3, 8)
        loader = DataLoader(data, shuffle=False)
        h = None
        for x, y in loader:
            out, h = model(x, h)
            h = h.detach()
            loss(out, y).backward()
        """,
    "made anew in each batch": """
        rnn = nn.GRU(3, 8)
        loader = DataLoader(data, shuffle=True)
        for x, y in loader:
            h = torch.zeros(1, len(x), 8)
            out, h = model(x, h)
            loss(out, y).backward()
        """,
    "chunks of one batch": """
        rnn = nn.GRU(3, 8)
        loader = DataLoader(data, shuffle=True)
        for batch in loader:
            h = None
            for x in batch.split(10, 1):
                out, h = model(x, h)
                h = h.detach()
                loss(out).backward()
        """,
    "no recurrent state": """
        rnn = nn.GRU(3, 8)
        loader = DataLoader(data, shuffle=True)
        for x, y in loader:
            value, opt_state = update(x, opt_state)
            value.backward()
        """,
    "an agent in its world": """
        cell = nn.GRUCell(3, 8)
        for step in range(100):
            explore = torch.randint(0, 4, (8,))
            q, h = model(seen, h)
            seen = world.step(torch.where(greedy, q.argmax(1), explore))
            q.mean().backward()
        """,
}

test_the_mistake, test_what_resembles_it = cases_of(RULE, SICK, HEALTHY)
