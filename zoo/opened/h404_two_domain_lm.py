# expect: healthy
# symptom: resembles a bad shard: at step 250 a planned second domain with another grammar joins the mix, loss and gradient norm jump at once and take about 100 steps to come down
# axis: data
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed; after the jump both domains are learned (0.88 and 0.88, source entropy 0.857) and the first is not forgotten
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)

V, T, BATCH, STEPS, SWITCH, D = 60, 40, 32, 520, 250, 96


class Source:
    """A Markov text source over a part of the vocabulary, entropy about 0.9 nat a token."""

    def __init__(self, seed, lo, hi):
        g = torch.Generator().manual_seed(seed)
        self.lo, self.hi, self.g = lo, hi, g
        n = hi - lo
        self.succ = torch.stack([torch.randperm(n, generator=g)[:3] + lo for _ in range(n)])
        self.probs = torch.tensor([0.65, 0.25, 0.10])

    def sample(self, n, length):
        out = torch.zeros(n, length, dtype=torch.long)
        out[:, 0] = torch.randint(self.lo, self.hi, (n,), generator=self.g)
        for t in range(1, length):
            pick = torch.multinomial(self.probs, n, replacement=True, generator=self.g)
            out[:, t] = self.succ[out[:, t - 1] - self.lo, pick]
        return out


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.rnn = nn.LSTM(D, D, batch_first=True)
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V)
        for name, p in self.rnn.named_parameters():
            if "weight_hh" in name:
                nn.init.orthogonal_(p)
            elif "bias" in name:
                nn.init.zeros_(p)
        self.rnn.bias_ih_l0.data[D : 2 * D] = 1.0

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.head(self.norm(h))


def lm_loss(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1))


news = Source(1, 0, 40)
code = Source(2, 20, 60)
test_news, test_code = news.sample(128, T), code.sample(128, T)

model = CharLSTM()
opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20) * (1.0 if s < 400 else 0.3))


@torch.no_grad()
def evaluate():
    model.eval()
    a, b = lm_loss(model, test_news).item(), lm_loss(model, test_code).item()
    model.train()
    return a, b


for step in range(1, STEPS + 1):
    if step <= SWITCH:
        ids = news.sample(BATCH, T)
    else:
        ids = torch.cat([news.sample(BATCH // 2, T), code.sample(BATCH // 2, T)])
    loss = lm_loss(model, ids)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 25 == 0 or step in (1, SWITCH + 1, SWITCH + 5):
        print(f"step {step:4d}  loss {loss.item():.4f}  grad norm {norm.item():.3f}")

a, b = evaluate()
ent = -(news.probs * news.probs.log()).sum().item()
print(f"final news {a:.4f}  code {b:.4f}  (source entropy {ent:.3f})")
