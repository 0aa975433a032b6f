# Small causal language model with tied embeddings, AdamW. Fault: the resume at step 455 loses the second moments (zeros) but
# keeps the first ones and the step count.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(24)
table = (torch.randn(24, 24, generator=fixed) * 1.5).softmax(-1)


def text(n, g=None):
    words = [torch.randint(0, 24, (n,), generator=g)]
    for _ in range(16):
        words.append(torch.multinomial(table[words[-1]], 1, generator=g)[:, 0])
    return torch.stack(words, 1)


class Gpt(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb, self.pos = nn.Embedding(24, d), nn.Parameter(torch.zeros(16, d))
        nn.init.normal_(self.emb.weight, std=0.1)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(d, 2, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)]
        )
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 24, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("mask", torch.triu(torch.full((16, 16), float("-inf")), 1))

    def forward(self, w):
        x = self.emb(w[:, :-1]) + self.pos
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), w[:, 1:].flatten())


test = text(500, fixed)
torch.manual_seed(args.seed)
model = Gpt()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1.0, (k + 1) / 40))
for step in range(480):
    if step == 455:
        saved = opt.state_dict()
        if not args.twin:
            for state in saved["state"].values():
                state["exp_avg_sq"] = torch.zeros_like(state["exp_avg_sq"])
        opt.load_state_dict(saved)
    loss = model(text(16))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 40 == 0:
        print(step, f"{loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", model(test).item())
