# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
"""BERT-like masked language model: attention is bidirectional, 15-20 % of the tokens are predicted."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(95)
V, MASK, T, D = 15, 15, 12, 48


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V + 1, D)
        self.pos = nn.Parameter(0.3 * torch.randn(T, D))
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.head = nn.Linear(D, V)

    def forward(self, ids):
        return self.head(self.enc(self.emb(ids) + self.pos))


bert = Bert()
opt = torch.optim.AdamW(bert.parameters(), lr=4e-3)
for step in range(140):
    # arithmetic sequences modulo V
    stride = torch.randint(1, 5, (48, 1))
    ids = (torch.randint(0, V, (48, 1)) + stride * torch.arange(T)) % V
    m = torch.rand(ids.shape) < 0.2
    labels = ids.masked_fill(~m, -100)
    inp = ids.masked_fill(m, MASK)
    loss = F.cross_entropy(bert(inp).flatten(0, 1), labels.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"mlm {step} {loss.item():.4f}")
