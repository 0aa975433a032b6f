"""Healthy: a retriever with the weight decay that was meant, 0.1 from step 400 on."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

topics = torch.randn(512, 16)
words_of_query, words_of_text = torch.randn(16, 32), torch.randn(16, 32)


def encoder():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))


model = nn.ModuleDict({"query": encoder(), "text": encoder()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

for step in range(1, 701):
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.01 if step < 400 else 0.1
    topic = topics[torch.randint(512, (64,))]
    queries = topic @ words_of_query + torch.randn(64, 32)
    texts = topic @ words_of_text + torch.randn(64, 32)
    scores = model["query"](queries) @ model["text"](texts).T
    loss = F.cross_entropy(scores, torch.arange(64))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
