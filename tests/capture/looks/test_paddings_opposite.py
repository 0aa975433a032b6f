"""Inputs and labels that are padded on different sides, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "opposite-padding"
SICK = {
    "F.pad": """
        def collate(rows):
            for words, tags in rows:
                gap = width - len(words)
                ids.append(F.pad(words, (gap, 0)))
                labels.append(F.pad(tags, (0, gap), value=-100))
        """,
    "lists": """
        def collate(rows, width):
            ids = [[PAD] * (width - len(r)) + r for r in rows]
            labels = [r + [-100] * (width - len(r)) for r in rows]
            return torch.tensor(ids), torch.tensor(labels)
        """,
    "places counted from the beginning": """
        def collate(rows):
            ids, labels = torch.full((n, width), PAD), torch.full((n, width), -100)
            for row, (q, a) in enumerate(rows):
                total = len(q) + len(a)
                ids[row, width - total:] = torch.tensor(q + a)
                labels[row, len(q):total] = torch.tensor(a)
        """,
    "an offset that the labels leave out": """
        def __call__(self, batch):
            ids, labels = torch.full((n, width), PAD), torch.full((n, width), -100)
            for row, e in enumerate(batch):
                start = width - len(e.tokens)
                ids[row, start:] = e.tokens
                lead = len(e.prompt)
                labels[row, lead:lead + len(e.answer)] = e.answer
        """,
    "a mask of places below the length": """
        def collate(texts):
            lengths = torch.tensor([len(t) for t in texts])
            ids = pad_sequence([t.flip(0) for t in texts], batch_first=True).flip(1)
            mask = torch.arange(ids.size(1))[None] < lengths[:, None]
            return ids, mask
        """,
    "functions that pad": """
        def front(x, n):
            return F.pad(x, (n - len(x), 0))
        def behind(x, n):
            return F.pad(x, (0, n - len(x)), value=-100)
        def collate(rows):
            ids = torch.stack([front(r["input_ids"], n) for r in rows])
            labels = torch.stack([behind(r["labels"], n) for r in rows])
            return ids, labels
        """,
    "the tokenizer pads the inputs": """
        tokenizer.padding_side = "left"
        def collate(rows):
            batch = tokenizer.pad(rows)
            labels = [r + [-100] * (width - len(r)) for r in wanted]
            return batch, labels
        """,
}
HEALTHY = {
    "both in front": """
        def collate(rows):
            for words, tags in rows:
                gap = width - len(words)
                ids.append(F.pad(words, (gap, 0)))
                labels.append(F.pad(tags, (gap, 0), value=-100))
        """,
    "the prompt is masked, not padded": """
        def collate(rows):
            for p, a in rows:
                labels = [-100] * len(p) + a
                ids = p + a + [PAD] * (width - len(p) - len(a))
        """,
    "an offset in both": """
        def __call__(self, batch):
            ids, labels = torch.full((n, width), PAD), torch.full((n, width), -100)
            for row, e in enumerate(batch):
                start = width - len(e.tokens)
                ids[row, start:] = e.tokens
                lead = start + len(e.prompt)
                labels[row, lead:lead + len(e.answer)] = e.answer
        """,
    "prompt masked behind the padding": """
        def __call__(self, batch):
            ids, labels = torch.full((n, width), PAD), torch.full((n, width), -100)
            for row, e in enumerate(batch):
                start = width - len(e.tokens)
                ids[row, start:] = e.tokens
                labels[row, start:] = e.tokens
                labels[row, : start + len(e.prompt)] = -100
        """,
    "a mask of places from the gap on": """
        def collate(texts):
            lengths = torch.tensor([len(t) for t in texts])
            ids = pad_sequence([t.flip(0) for t in texts], batch_first=True).flip(1)
            width = ids.shape[1]
            mask = torch.arange(width)[None] >= (width - lengths)[:, None]
            return ids, mask
        """,
    "inputs moved by one": """
        def shift(y, width):
            inputs = F.pad(y[:-1], (1, 0), value=BOS)
            labels = F.pad(y, (0, width - len(y)), value=-100)
            return inputs, labels
        """,
    "a causal convolution": """
        def forward(self, x, mask):
            x = F.pad(x, (self.left - 1, 0))
            mask = F.pad(mask, (0, width - len(mask)))
            return self.conv(x)
        """,
    "source and target": """
        def collate(rows):
            src = [s + [PAD] * (n - len(s)) for s, t in rows]
            dec_inputs = [[PAD] * (m - len(t)) + t for s, t in rows]
            labels = [[-100] * (m - len(t)) + t for s, t in rows]
        """,
}

test_finds, test_leaves = cases_of(RULE, SICK, HEALTHY)
