"""A filter of names is the wrong way round: only biases are trained, and the loss stands."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

teacher = torch.randn(64, 5)
model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 5))
for name, one in model.named_parameters():
    one.requires_grad_("bias" in name)  # <- bites: it should say "not in"
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=3e-3)

for step in range(1, 145):
    x = torch.randn(256, 64)
    loss = F.cross_entropy(model(x), (x @ teacher).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
