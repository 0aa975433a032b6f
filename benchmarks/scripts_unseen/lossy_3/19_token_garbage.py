# expect: sick
# fault: batches of random tokens for a while
# onset_step: 150
# says: (?i)(loss|token|batch|data|input|gradient|progress|spike|diverg)
# note: a broken shard: documents of steps 150 to 169 are binary rubbish read as tokens; with lr 6e-3 the model loses what it had learnt.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(19)
V, T, D = 40, 20, 32
rule = torch.stack([torch.randperm(V)[:2] for _ in range(V)])


def docs(step, n=16):
    if 150 <= step < 170:
        return torch.randint(0, V, (n, T + 1))
    s = torch.randint(0, V, (n, 1))
    for _ in range(T):
        s = torch.cat([s, rule[s[:, -1], torch.randint(0, 2, (n,))][:, None]], 1)
    return s


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(V, D), nn.Embedding(T, D)
        self.tr = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, 4, 96, 0.0, "gelu", batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.o = nn.Linear(D, V)
        self.register_buffer("m", torch.triu(torch.full((T, T), float("-inf")), 1))

    def forward(self, x):
        return self.o(self.tr(self.e(x) + self.p.weight, mask=self.m))


gpt = GPT()
opt = torch.optim.AdamW(gpt.parameters(), lr=6e-3)
for step in range(230):
    d = docs(step)
    loss = F.cross_entropy(gpt(d[:, :-1]).flatten(0, 1), d[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
    opt.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.4f}")
