# expect: sick
# fault: accumulated gradients not averaged
# onset_step: 0
# says: (?i)(accumulat|micro.?batch|not (averaged|divided|scaled)|sum(med)? (of|over))
# note: 8 micro-batches are summed with no division by 8 after accumulation was introduced for memory; SGD so takes steps eight times too long (lr had been tuned for one batch of 64).
import torch
from torch import nn

torch.set_num_threads(1)


class Args:
    batch = 8
    grad_accum = 8
    lr = 0.11
    updates = 90


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=80, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
        self.norm = nn.LayerNorm(d)
        self.cls = nn.Linear(d, 5)

    def forward(self, ids):
        x = self.emb(ids)
        a, _ = self.attn(x, x, x, need_weights=False)
        return self.cls(self.norm(x + a).mean(1))


def get(n):
    y = torch.randint(0, 5, (n,))
    ids = torch.randint(0, 80, (n, 10))
    ids[:, 2:6] = torch.randint(0, 16, (n, 4)) * 5 + y[:, None]
    return ids, y


args = Args()
torch.manual_seed(25)
model = SentenceEncoder()
opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
lossf = nn.CrossEntropyLoss()
for update in range(args.updates):
    opt.zero_grad()
    shown = 0.0
    for micro in range(args.grad_accum):
        ids, y = get(args.batch)
        loss = lossf(model(ids), y)
        loss.backward()
        shown += loss.item() / args.grad_accum
    opt.step()
    if update % 10 == 0:
        print(f"update {update} loss {shown:.4f}")
ids, y = get(600)
print("final acc", (model(ids).argmax(1) == y).float().mean().item())
