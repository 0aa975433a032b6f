# expect: healthy
# symptom: resembles a router collapse: one expert gets well over half of the rows
# note: the data is that uneven (60 % from one region); every expert is used and the loss falls
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(59)
E, D = 4, 8
g = torch.Generator().manual_seed(35)
maps, centre = torch.randn(E, D, 2, generator=g), 2.0 * torch.eye(E, D)
r = torch.multinomial(torch.tensor([0.6, 0.2, 0.1, 0.1]), 32 * 700, True, generator=g)
x = centre[r] + 0.6 * torch.randn(len(r), D, generator=g)
y = torch.einsum("nd,ndk->nk", x, maps[r])
router, experts = nn.Linear(D, E), nn.ModuleList(nn.Linear(D, 2) for _ in range(E))
opt = torch.optim.Adam([*router.parameters(), *experts.parameters()], lr=8e-3)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True), 1):
    p = router(xb).softmax(-1)
    out = torch.stack([f(xb) for f in experts], 1)
    loss = nn.functional.mse_loss((p[..., None] * out).sum(1), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        share = nn.functional.one_hot(p.argmax(1), E).float().mean(0)
        print(f"step {step} loss {loss.item():.4f} share {[round(v, 2) for v in share.tolist()]}")
