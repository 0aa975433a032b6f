# expect: healthy
# symptom: the loss has a sharp spike at step 180 that comes back within some steps (a few batches of a rare dialect), as if the run diverged
# axis: data
# cause: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(17)
V, T, D = 40, 24, 48
std = torch.randint(V, (V, 2))
dialect = torch.randint(V, (V, 2))


def lines(n, table):
    s = torch.randint(V, (n, T + 1))
    for k in range(1, T + 1):
        s[:, k] = table[s[:, k - 1], (torch.rand(n) < 0.3).long()]
    return s


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(V, D), nn.Parameter(0.02 * torch.randn(T, D))
        block = nn.TransformerEncoderLayer(
            D, 4, 4 * D, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.b = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.h = nn.Linear(D, V)
        self.register_buffer("m", nn.Transformer.generate_square_subsequent_mask(T))

    def forward(self, x):
        return self.h(self.b(self.e(x) + self.p, mask=self.m, is_causal=True))


lm = LM()
opt = torch.optim.AdamW(lm.parameters(), lr=2e-3, weight_decay=0.01)
for step in range(420):
    s = lines(24, dialect if 180 <= step < 183 else std)
    loss = F.cross_entropy(lm(s[:, :-1]).transpose(1, 2), s[:, 1:])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
    opt.step()
    if step % 30 == 0 or 179 <= step <= 186 or step == 419:
        print(f"step {step} loss {loss.item():.4f}")
