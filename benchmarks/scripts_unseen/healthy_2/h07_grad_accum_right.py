# expect: healthy
# fault: none
# note: gradient accumulation divided by the number of micro-batches, scheduler stepped per update, bf16 autocast.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)
X = torch.randn(6400, 20)
Y = (X @ torch.randn(20, 5)).argmax(1)
dl = DataLoader(TensorDataset(X, Y), 16, shuffle=True)
net = nn.Sequential(nn.Linear(20, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 5))
ACC = 4
opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
sch = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=100)
for i, (x, y) in enumerate(dl):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x).float(), y) / ACC
    loss.backward()
    if (i + 1) % ACC == 0:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sch.step()
        opt.zero_grad()
        if (i + 1) % 40 == 0:
            print((i + 1) // ACC, "loss", round(loss.item() * ACC, 4))
