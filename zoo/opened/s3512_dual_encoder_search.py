# expect: sick
# symptom: the contrastive loss is nan from the first batch and recall stays at zero
# axis: model
# cause: left padding plus the causal mask leaves pad rows with every key at -inf, so softmax gives nan
# says: -?inf\b|(all|every|whole|fully)\w*.{0,50}(mask|key)|left.?pad|pad\w*.{0,40}(row|quer|softmax)
# onset_step: 0
# fix: fill masked scores with a large finite negative number, so that fully masked rows stay finite
# mended: the script applies that change if the environment has MENDED=1
import os, random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(3)
rnd = random.Random(3)

N_TOPIC, N_ATTR, SYN = 24, 24, 3
N_NOISE = 40
PAD, CLS = 0, 1
BASE_Q, BASE_D = 2, 2 + (N_TOPIC + N_ATTR) * SYN
BASE_N = BASE_D + (N_TOPIC + N_ATTR) * SYN
VOCAB = BASE_N + N_NOISE


def words(base, topic, attr, n_noise):
    w = [base + topic * SYN + rnd.randrange(SYN), base + (N_TOPIC + attr) * SYN + rnd.randrange(SYN)]
    w += [BASE_N + rnd.randrange(N_NOISE) for _ in range(n_noise)]
    rnd.shuffle(w)
    return w + [CLS]


all_keys = [(t, a) for t in range(N_TOPIC) for a in range(N_ATTR)]
rnd.shuffle(all_keys)
train_keys, test_keys = all_keys[:450], all_keys[450:]


def pad(seqs):
    n = max(map(len, seqs))
    ids = torch.tensor([[PAD] * (n - len(s)) + s for s in seqs])
    return ids, ids != PAD


def pair_batch(keys):
    q = [words(BASE_Q, t, a, rnd.randint(0, 2)) for t, a in keys]
    d = [words(BASE_D, t, a, rnd.randint(3, 7)) for t, a in keys]
    return pad(q), pad(d)


class CausalBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, allowed):
        B, T, C = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-2, -1) / (C // self.heads) ** 0.5
        score = score.masked_fill(~allowed, -1e9 if MENDED else float("-inf"))
        x = x + self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.n2(x))


class DualEncoder(nn.Module):
    """Decoder-style text embedder: the mean state of the tokens is the embedding."""

    def __init__(self, d=64, dim=48):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(16, d)
        nn.init.normal_(self.pos.weight, std=0.02)
        self.blocks = nn.ModuleList(CausalBlock(d, 4) for _ in range(2))
        self.norm, self.proj = nn.LayerNorm(d), nn.Linear(d, dim)
        self.log_scale = nn.Parameter(torch.tensor(2.65))

    def embed(self, ids, mask):
        T = ids.shape[1]
        allowed = torch.ones(T, T, dtype=torch.bool).tril() & mask[:, None, None, :]
        x = self.tok(ids) + self.pos((mask.cumsum(1) - 1).clamp(min=0))
        for block in self.blocks:
            x = block(x, allowed)
        m = mask.unsqueeze(-1).float()
        return F.normalize(self.proj((self.norm(x) * m).sum(1) / m.sum(1)), dim=-1)

    def forward(self, query, doc):
        return self.embed(*query) @ self.embed(*doc).t() * self.log_scale.exp().clamp(max=50)


def info_nce(logits):
    target = torch.arange(logits.size(0))
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


@torch.no_grad()
def recall(model, k=1):
    model.eval()
    q, d = pair_batch(test_keys)
    rank = (model.embed(*q) @ model.embed(*d).t()).topk(k, dim=1).indices
    model.train()
    return (rank == torch.arange(len(test_keys))[:, None]).any(1).float().mean().item()


model = DualEncoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
TOTAL = 300
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20))
running = None
for step in range(TOTAL):
    query, doc = pair_batch(rnd.sample(train_keys, 32))
    logits = model(query, doc)
    loss = info_nce(logits)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
    if step % 20 == 0 or step == TOTAL - 1:
        print(
            f"step {step} loss {loss.item():.4f} avg {running:.4f} scale {model.log_scale.exp().item():.2f}", flush=True
        )
    if step and step % 100 == 0:
        print(f"  recall@1 {recall(model):.3f} recall@5 {recall(model, 5):.3f}")
print(f"final avg loss {running:.4f} recall@1 {recall(model):.3f} recall@5 {recall(model, 5):.3f}")
