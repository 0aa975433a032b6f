# expect: healthy
# symptom: the loss is a sum over tokens, backward runs four times without zero_grad, the gradients are cleared after the step, labels are shifted inside the model, the schedule is stepped per update
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(19)

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
LETTERS, MAXLEN = 16, 9
VOCAB = FIRST + LETTERS
ACCUM, MICRO, UPDATES, WARMUP = 4, 12, 300, 30


def make_batch(n, gen=None):
    """Translate a string: sorted order of its letters, then the end mark. Lengths vary."""
    src = torch.full((n, MAXLEN), PAD)
    tgt = torch.full((n, MAXLEN + 1), -100)
    for i, k in enumerate(torch.randint(4, MAXLEN + 1, (n,), generator=gen).tolist()):
        s = torch.randint(FIRST, VOCAB, (k,), generator=gen)
        src[i, :k] = s
        tgt[i, :k] = s.sort().values
        tgt[i, k] = EOS
    return src, tgt


class Seq2Seq(nn.Module):
    def __init__(self, d=64, heads=4, layers=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.pos = nn.Embedding(MAXLEN + 1, d)
        enc = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        dec = nn.TransformerDecoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(enc, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(dec, layers, norm=nn.LayerNorm(d))
        self.out = nn.Linear(d, VOCAB)

    def embed(self, ids):
        return self.emb(ids) + self.pos.weight[: ids.shape[1]]

    def encode(self, src):
        blank = src == PAD
        return self.encoder(self.embed(src), src_key_padding_mask=blank), blank

    def decode(self, ids, memory, blank):
        t = ids.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).triu(1)
        return self.out(self.decoder(self.embed(ids), memory, tgt_mask=causal, memory_key_padding_mask=blank))

    def forward(self, src, labels):
        ids = torch.full_like(labels, PAD)
        ids[:, 0] = BOS
        ids[:, 1:] = labels[:, :-1].clamp(min=0)
        logits = self.decode(ids, *self.encode(src))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        return loss, logits

    @torch.no_grad()
    def greedy(self, src):
        memory, blank = self.encode(src)
        ids = torch.full((len(src), 1), BOS)
        for _ in range(MAXLEN + 1):
            nxt = self.decode(ids, memory, blank)[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, nxt], 1)
            if ids.shape[1] > MAXLEN:
                break
        return ids[:, 1:]


def exact(model, n=200):
    model.eval()
    src, tgt = make_batch(n, torch.Generator().manual_seed(77))
    hyp = model.greedy(src)
    ref = tgt[:, : hyp.shape[1]]
    model.train()
    return ((hyp == ref) | (ref == -100)).all(-1).float().mean().item()


model = Seq2Seq()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda u: min((u + 1) / WARMUP, max(0.0, (UPDATES - u) / (UPDATES - WARMUP)))
)

update, total = 0, 0.0
while update < UPDATES:
    micro = [make_batch(MICRO) for _ in range(ACCUM)]
    n_tokens = sum(int((t != -100).sum()) for _, t in micro)
    for src, tgt in micro:
        loss, _ = model(src, tgt)
        (loss / n_tokens).backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad()
    if update % 25 == 0:
        print(
            f"update {update:4d} sum loss {total:9.2f} per token {total / n_tokens:.4f} lr {sched.get_last_lr()[0]:.2e}"
        )
    if update % 150 == 149:
        print(f"   exact sequences {exact(model):.3f}")
    update += 1
    total = 0.0
