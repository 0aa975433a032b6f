from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "two towers": """
        def in_batch(user, item, log_q):
            scores = user @ item.T / 0.05 + log_q
            return cross_entropy(scores, torch.arange(len(user)))
    """,
    "popularity that a counter holds": """
        labels = torch.arange(len(batch), device=device)
        logits = queries.matmul(keys.t())
        logits += torch.log(counter.frequency[ids])
        loss = criterion(logits, labels)
    """,
    "drawn negatives": """
        log_noise = torch.log_softmax(unigram_counts, 0)
        logits = torch.einsum("bd,bkd->bk", hidden, emb(cand)) + log_noise[cand]
        loss = cross_entropy(logits, torch.zeros(len(hidden), dtype=torch.long))
    """,
    "a method that returns them": """
        class Tower(nn.Module):
            def forward(self, a, b, ids):
                sims = a @ b.T
                return sims.add(self.log_popularity[ids])

        loss = -F.log_softmax(model(a, b, ids), 1).diagonal().mean()
    """,
}
HEALTHY = {
    "subtracted": """
        scores = user @ item.T - log_q
        loss = cross_entropy(scores, torch.arange(len(user)))
    """,
    "its negative is added": """
        scores = user @ item.T + (-1.0 * log_q)
        other = user @ item.T + log_q.neg()
        loss = cross_entropy(scores, torch.arange(len(user)))
    """,
    "logits adjusted by a prior of the classes": """
        logits = model(x) + tau * log_prior
        loss = cross_entropy(logits, y)
    """,
    "a full softmax with an offset": """
        logits = hidden @ emb.T + log_unigram
        loss = cross_entropy(logits, targets)
    """,
    "a bias": """
        scores = user @ item.T + bias
        loss = cross_entropy(scores, torch.arange(len(user)))
    """,
    "a density that grows": """
        log_q = log_q + log_det
        loss = cross_entropy(a @ b.T, torch.arange(len(a)))
    """,
}

test_finds, test_leaves = cases_of("added-correction", SICK, HEALTHY)
