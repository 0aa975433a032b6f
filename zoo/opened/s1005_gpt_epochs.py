# expect: sick
# symptom: loss falls well in the first epochs and then stands still at a level that is too high, for the rest of the run
# axis: optimizer
# cause: ExponentialLR(gamma=0.95) is meant per epoch but scheduler.step() is called after every batch, so the learning rate has decayed to practically 0 after about 100 steps
# says: (schedul\w*|gamma|decay\w*|exponentiallr|learning[- ]rate|\blr\b).{0,150}(per[- ](step|batch|iteration)|every (step|batch|iteration)|each (step|batch|iteration)|(instead of|not|rather than|once) (per|each|every|an)? ?epoch|inside the (batch|inner) loop|too (fast|quick|early|soon|small|low|tiny)|(vanish|collaps|decay|f[ae]ll|shr[ia]nk|drop)\w*.{0,40}(0|zero|nothing|early|too|tiny|1e-)|near(ly)? zero|practically 0)
# onset_step: 70
# fix: step the scheduler once per epoch (or choose gamma per step)
# mended: scheduler.step() is called at the end of each epoch only
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)
rng = np.random.default_rng(21)

WORDS = 60
EPOCHS, BATCH, CTX = 25, 24, 32


def build_corpus(n_sent=6000):
    """a small phrase-structure grammar over word ids: det adj* noun verb det noun ."""
    det, adj, noun, verb, adv = range(1, 5), range(5, 17), range(17, 37), range(37, 52), range(52, 60)
    agree = rng.integers(0, 15, 20)
    ids = []
    for _ in range(n_sent):
        n1 = rng.integers(20)
        ids.append(int(rng.choice(det)))
        if rng.random() < 0.5:
            ids.append(adj[(n1 * 5 + rng.integers(2)) % 12])
        ids.append(noun[n1])
        ids.append(verb[(agree[n1] + rng.integers(2)) % 15])
        n2 = (n1 * 7 + rng.integers(3)) % 20
        ids += [det[n2 % 4], noun[n2]]
        if rng.random() < 0.3:
            ids.append(adv[n2 % 8])
        ids.append(0)
    return torch.tensor(ids)


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, d=64, layers=3, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(WORDS, d), nn.Embedding(CTX, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, WORDS, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.05)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.ln(x))


def main():
    corpus = build_corpus()
    steps_per_epoch = 24
    model = GPT()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.95)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        for _ in range(steps_per_epoch):
            start = torch.randint(0, len(corpus) - CTX - 1, (BATCH,))
            chunk = torch.stack([corpus[s : s + CTX + 1] for s in start.tolist()])
            logits = model(chunk[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, WORDS), chunk[:, 1:].reshape(-1))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % steps_per_epoch == 0 or not MENDED:
                sched.step()
            if step % 5 == 0:
                print(f"epoch {epoch:2d} step {step:4d} loss {loss.item():.4f} t {time.time() - t0:.1f}s", flush=True)


main()
