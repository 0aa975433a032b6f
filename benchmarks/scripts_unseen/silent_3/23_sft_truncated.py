# expect: sick
# fault: rows with no supervised token
# onset_step: 0
# says: (?i)(-100|supervis|ignored|masked|no (label|target)s?|label.{0,40}(mask|ignor|empty|none)|rows?.{0,40}without|empty)
# note: prompts are longer than expected; truncation from the right to max_length=32 removes the whole answer of two thirds of the rows, whose labels are all -100.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(18)
VOCAB, SEP = 40, 1


def encode(n, max_length=32):
    ids = torch.zeros(n, max_length, dtype=torch.long)
    labels = torch.full((n, max_length), -100)
    for i in range(n):
        plen = int(torch.randint(24, 44, ()))
        prompt = torch.randint(4, VOCAB, (plen,))
        key = int(prompt[0])
        answer = (torch.arange(4) * 3 + key) % (VOCAB - 4) + 4
        full = torch.cat([prompt, torch.tensor([SEP]), answer])[:max_length]
        ids[i, : len(full)] = full
        if plen + 1 < max_length:
            labels[i, plen + 1 : len(full)] = full[plen + 1 :]
    return ids, labels


class ChatModel(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(64, d)
        enc = nn.TransformerEncoderLayer(d, 4, 80, 0.0, batch_first=True, norm_first=True)
        self.tr = nn.TransformerEncoder(enc, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        t = ids.shape[1]
        m = torch.triu(torch.full((t, t), float("-inf")), 1)
        return self.head(self.tr(self.emb(ids) + self.pos(torch.arange(t)), mask=m))


model = ChatModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(160):
    ids, labels = encode(16)
    logits = model(ids)[:, :-1]
    target = labels[:, 1:]
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), target.reshape(-1), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.4f}")
print("final loss", loss.item(), "supervised rows", (labels != -100).any(1).float().mean().item())
