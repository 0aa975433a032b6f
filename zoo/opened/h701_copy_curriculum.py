# expect: healthy
# symptom: resembles a loss spike: the loss jumps up suddenly several times during the run
# axis: harness
# cause: a planned curriculum adds longer sequences at steps 150 and 300; each jump is the new difficulty and the loss comes down again
# says: none
# onset_step: none
# fix: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)

SYMBOLS = 12
SEP, PAD = SYMBOLS, SYMBOLS + 1
VOCAB = SYMBOLS + 2
STAGES = [(1, 3), (150, 6), (300, 9)]  # (from step, longest word)
STEPS, BATCH, MAX_WORD = 700, 48, 9


def longest_at(step):
    return [n for start, n in STAGES if step >= start][-1]


def batch_of(longest, n=BATCH, only_longest=False):
    """word SEP word: the model has to say the word again."""
    length = torch.full((n,), longest) if only_longest else torch.randint(max(1, longest - 2), longest + 1, (n,))
    word = torch.randint(0, SYMBOLS, (n, MAX_WORD))
    ids = torch.full((n, 2 * MAX_WORD + 1), PAD)
    target = torch.full((n, 2 * MAX_WORD + 1), -100)
    for r, k in enumerate(length.tolist()):
        w = word[r, :k]
        ids[r, :k], ids[r, k], ids[r, k + 1 : 2 * k + 1] = w, SEP, w
        target[r, k : 2 * k] = w
    return ids, target


class Copier(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.encoder = nn.GRU(d, 96, batch_first=True)
        self.query, self.key = nn.Linear(96, 64), nn.Linear(96, 64)
        self.pos = nn.Parameter(torch.randn(2 * MAX_WORD + 1, 64) * 0.1)
        self.out = nn.Sequential(nn.Linear(96 + d, 96), nn.ReLU(), nn.Linear(96, VOCAB))

    def forward(self, ids):
        e = self.emb(ids)
        h, _ = self.encoder(e)
        t = ids.size(1)
        q, k = self.query(h) + self.pos[:t], self.key(h) + self.pos[:t]
        score = q @ k.transpose(1, 2) / 8
        score = score.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        read = score.softmax(-1) @ e
        return self.out(torch.cat([h, read], -1))


def loss_fn(model, ids, target):
    return F.cross_entropy(model(ids).transpose(1, 2), target, ignore_index=-100)


@torch.no_grad()
def word_accuracy(model, longest):
    ids, target = batch_of(longest, 200, only_longest=True)
    ok = (model(ids).argmax(-1) == target) | (target == -100)
    return ok.all(1).float().mean().item()


def main():
    model = Copier()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, eta_min=2e-4)
    for step in range(1, STEPS + 1):
        longest = longest_at(step)
        loss = loss_fn(model, *batch_of(longest))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0 or step in (150, 300):
            print(
                f"step {step} longest {longest} loss {loss.item():.4f} words right {word_accuracy(model, longest):.3f}"
            )


if __name__ == "__main__":
    main()
