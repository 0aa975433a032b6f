# expect: sick
# symptom: loss falls until step 620, then lies still: the weights no longer change
# axis: precision
# cause: from step 620 on the weights themselves are bfloat16 and the updates of the small rate round to zero
# says: (?i)bf16|bfloat16|\bround|lost update|half precision|low precision|master
# onset_step: 620
# fix: keep the weights in float32
# mended: MENDED=1 python s49_bf16_late_phase.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(56)
LATE = torch.float32 if os.environ.get("MENDED") == "1" else torch.bfloat16


def prices(n):
    g = torch.Generator().manual_seed(33)
    x = torch.randn(n, 6, generator=g)
    y = x @ torch.tensor([[30.0], [-40.0], [35.0], [50.0], [-30.0], [45.0]]) + torch.randn(n, 1, generator=g)
    return TensorDataset(x, y)


net = nn.Linear(6, 1)
opt = torch.optim.Adam(net.parameters(), lr=0.02)
step, window = 0, []
for epoch in range(2):
    for x, y in DataLoader(prices(32 * 620), batch_size=32, shuffle=True):
        step += 1
        if step == 620:
            net.to(LATE)
            opt = torch.optim.Adam(net.parameters(), lr=0.02)
        p = next(net.parameters())
        loss = nn.functional.mse_loss(net(x.to(p.dtype)).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        window.append(loss.item())
        if step % 60 == 0:
            print(f"step {step} mean loss {sum(window[-60:]) / 60:.4f}")
