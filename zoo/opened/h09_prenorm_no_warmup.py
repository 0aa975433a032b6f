# expect: healthy
# symptom: resembles a missing warm-up: Adam's full rate from the first step on a deep transformer
# note: pre-norm with a moderate rate needs no warm-up
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(5)
T, V, D = 12, 10, 32
ids = torch.randint(0, V, (32 * 220, T), generator=torch.Generator().manual_seed(6))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(V, D), nn.Parameter(0.5 * torch.randn(T, D))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(8)
        )
        self.ln, self.out = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, x):
        x = self.emb(x) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.out(self.ln(x))


net = Encoder()
opt = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.98))
for step, (x, y) in enumerate(DataLoader(TensorDataset(ids, ids.flip(1)), batch_size=32, shuffle=True), 1):
    loss = nn.functional.cross_entropy(net(x).transpose(1, 2), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
