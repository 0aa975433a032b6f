"""A retriever whose schedule of weight decay goes to 100 in place of 0.1 at step 400: all embeddings meet at zero."""

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
        group["weight_decay"] = 0.01 if step < 400 else 100.0
    topic = topics[torch.randint(512, (64,))]
    queries = topic @ words_of_query + torch.randn(64, 32)
    texts = topic @ words_of_text + torch.randn(64, 32)
    scores = model["query"](queries) @ model["text"](texts).T
    loss = F.cross_entropy(scores, torch.arange(64))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
