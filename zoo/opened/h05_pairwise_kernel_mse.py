# expect: healthy
# symptom: resembles a broadcast (B,1) against (B,): the residual is (B,B)
# note: all pairs are wanted: distances of embeddings are fitted to all pairwise distances of the batch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(7)
g = torch.Generator().manual_seed(2)
flat = torch.randn(48 * 250, 1, generator=g)
x = torch.cat([flat.sin(), flat.cos(), flat**2 / 4, 0.1 * torch.randn(len(flat), 3, generator=g)], 1)
embed = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 1))
opt = torch.optim.Adam(embed.parameters(), lr=4e-3)
for step, (xb, pos) in enumerate(DataLoader(TensorDataset(x, flat.squeeze(1)), batch_size=48, shuffle=True), 1):
    z = embed(xb)
    got = z - z.squeeze(1)
    want = pos[:, None] - pos
    loss = (got - want).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"[{step}] stress {loss.item():.4f}")
