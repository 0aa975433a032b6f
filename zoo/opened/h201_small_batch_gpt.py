# expect: healthy
# symptom: resembles a rate that is too high: the loss of single steps hops between 0.5 and 3 and rises every other step
# note: batches of three short lines of very different difficulty; the mean over 40 steps falls all the time
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(231)
V, T, D = 20, 12, 32
gen = torch.Generator().manual_seed(31)


def lines(n):
    a, d = torch.randint(0, V, (n, 1), generator=gen), torch.randint(1, 4, (n, 1), generator=gen)
    ids = (a + d * torch.arange(T + 1)) % V
    rough = torch.rand(n, 1, generator=gen) < 0.3
    noise = (torch.rand(n, T + 1, generator=gen) < 0.7) & rough
    return torch.where(noise, torch.randint(0, V, (n, T + 1), generator=gen), ids)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Parameter(0.02 * torch.randn(T, D))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.ln, self.head = nn.LayerNorm(D), nn.Linear(D, V)
        self.register_buffer("mask", torch.ones(T, T).triu(1).bool())

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for b in self.blocks:
            x = b(x, src_mask=self.mask)
        return self.head(self.ln(x))


net = Gpt()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
mean = []
for step in range(1, 401):
    ids = lines(3)
    loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    mean.append(loss.item())
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} mean of 40 {sum(mean[-40:]) / len(mean[-40:]):.4f}")
