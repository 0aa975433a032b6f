# expect: healthy
# symptom: resembles a corrupted batch: at step 620 the values are 500 times the usual
# note: the inputs are clipped to +-3 before the model, the spike is small and gone at once
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(38)
g = torch.Generator().manual_seed(23)
y = torch.randint(0, 5, (16 * 720,), generator=g)
x = 0.7 * torch.randn(5, 1, 6, 6, generator=g)[y] + torch.randn(len(y), 1, 6, 6, generator=g)
x[619 * 16 : 620 * 16] *= 500
net = nn.Sequential(nn.Hardtanh(-3, 3), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_size=16), 1):
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 40 == 0 or 617 < step < 623:
        print(f"step {step} loss {loss.item():.4f}")
