# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(207)
V, D, T = 24, 48, 16


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(T, D)
        self.h = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.ln, self.head = nn.LayerNorm(D), nn.Linear(D, V)
        self.register_buffer("m", torch.triu(torch.ones(T, T, dtype=torch.bool), 1))

    def forward(self, x):
        x = self.wte(x) + self.wpe.weight
        for b in self.h:
            x = b(x, src_mask=self.m)
        return self.head(self.ln(x))


gpt = GPT()
opt = torch.optim.AdamW(gpt.parameters(), lr=3e-3)
for step in range(160):
    s = (torch.randint(0, V, (24, 1)) + torch.randint(1, 4, (24, 1)) * torch.arange(T + 1)) % V
    loss = F.cross_entropy(gpt(s[:, :-1]).flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
    opt.step()
    if step % 10 == 0:
        print(f"step {step:03d} loss {loss.item():.4f}")
