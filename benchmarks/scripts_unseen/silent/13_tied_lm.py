# EXPECT: sick
# FAULT: weights meant to be tied are two parameters
# ONSET: 1
# SAYS: tied|tie|shared|untied
"""Word-level LM with weight tying (Press & Wolf)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(4)


class TiedLM(nn.Module):
    def __init__(self, vocab, d, tie_weights=True):
        super().__init__()
        self.tie_weights = tie_weights
        self.embed = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.decoder = nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.08)
        if tie_weights:
            # share input and output embeddings
            self.decoder.weight = nn.Parameter(self.embed.weight.clone())

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.decoder(h)


V = 500
probs = 1.0 / torch.arange(1, V + 1).float()  # zipf
succ = torch.randint(0, V, (V,))


def batch(bs, T):
    seq = torch.empty(bs, T + 1, dtype=torch.long)
    seq[:, 0] = torch.multinomial(probs, bs, replacement=True)
    for t in range(T):
        fresh = torch.multinomial(probs, bs, replacement=True)
        seq[:, t + 1] = torch.where(torch.rand(bs) < 0.7, succ[seq[:, t]], fresh)
    return seq


lm = TiedLM(V, 64)
print("parameters:", sum(p.numel() for p in lm.parameters()))
opt = torch.optim.Adam(lm.parameters(), lr=4e-3)
for step in range(1, 121):
    s = batch(24, 20)
    logits = lm(s[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
    opt.step()
    if step % 20 == 0:
        print("step", step, "ppl %.2f" % loss.exp().item())
