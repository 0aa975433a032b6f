# expect: healthy
# fault: sign updates, weight decay 1.0 that looks enormous
# note: Lion by hand: the usual Lion weight decay is large (0.3) because its rate is small; sign updates never get small.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(24)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in (q for q in g["params"] if q.grad is not None):
                st = self.state[p]
                if not st:
                    st["m"] = torch.zeros_like(p)
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.add_((st["m"] * b1 + p.grad * (1 - b1)).sign_(), alpha=-g["lr"])
                st["m"].mul_(b2).add_(p.grad, alpha=1 - b2)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(80, 24)
        self.rnn = nn.GRU(24, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 5)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


model = Tagger()
opt = Lion(model.parameters(), lr=1e-3, weight_decay=0.3)
for step in range(150):
    x = torch.randint(0, 80, (24, 14))
    y = (x + torch.roll(x, 1, 1) // 40) % 5
    loss = nn.functional.cross_entropy(model(x)[:, 1:].reshape(-1, 5), y[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(step, f"{loss.item():.4f}")
