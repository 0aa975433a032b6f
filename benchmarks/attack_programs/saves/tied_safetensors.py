# EXPECT {"options": [], "last_good_step": 40, "flagged_steps": [], "good_steps": [20, 40], "exit_status": 0}
"""Output weights tied to the embedding, saved once by safetensors; healthy."""

import torch
from safetensors.torch import save_file
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
tokens = torch.randint(0, 20, (32, 9))
embedding = nn.Embedding(20, 16)
head = nn.Linear(16, 20, bias=False)
head.weight = embedding.weight
model = nn.Sequential(embedding, nn.Linear(16, 16), nn.Tanh(), head)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 41):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        weights = {name: value for name, value in model.state_dict().items() if name != "3.weight"}
        save_file(weights, "model.safetensors")
print(loss.item())
