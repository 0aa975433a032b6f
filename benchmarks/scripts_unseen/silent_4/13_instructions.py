# expect: sick
# cause: Rows are cut at the maximum length from the right, so most rows lose their whole answer and carry no supervised label at all.
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(55)
torch.manual_seed(55)
VOCAB, MAX_LEN = 80, 32
PAD, SEP, EOS = 0, 1, 2
DIGITS = list(range(10, 20))
OPS = [3, 4, 5]
CONTEXT = list(range(30, 80))


def example():
    """operation, two digits, some context the user pasted, and a two-token answer"""
    a, b = random.randrange(10), random.randrange(10)
    op = random.choice(OPS)
    value = {3: a + b, 4: a * b, 5: abs(a - b)}[op]
    n_context = int(random.gammavariate(5, 9))
    prompt = [op, DIGITS[a], DIGITS[b]] + random.choices(CONTEXT, k=n_context)
    answer = [DIGITS[value // 10], DIGITS[value % 10], EOS]
    return prompt, answer


def to_row(prompt, answer):
    ids = (prompt + [SEP] + answer)[:MAX_LEN]
    labels = ([-100] * (len(prompt) + 1) + answer)[:MAX_LEN]
    fill = MAX_LEN - len(ids)
    return ids + [PAD] * fill, labels + [-100] * fill


class Decoder(nn.Module):
    def __init__(self, d=80):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Embedding(MAX_LEN, d)
        block = nn.TransformerEncoderLayer(d, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        t = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        return self.head(self.body(self.tok(ids) + self.pos.weight[:t], mask=mask, is_causal=True))


def lm_loss(logits, labels):
    per_token = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )
    return per_token / (labels[:, 1:] != -100).sum().clamp(min=1)


def exact_match(model, n=300):
    right = 0
    for _ in range(n):
        prompt, answer = example()
        prompt = prompt[: MAX_LEN - len(answer) - 1]
        ids = torch.tensor([prompt + [SEP] + answer])
        with torch.no_grad():
            pred = model(ids)[0, len(prompt) : -1].argmax(-1).tolist()
        right += pred == answer
    return right / n


data = [to_row(*example()) for _ in range(4000)]
ids = torch.tensor([d[0] for d in data])
labels = torch.tensor([d[1] for d in data])
model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
for step in range(1, 451):
    take = torch.randint(0, len(ids), (32,))
    loss = lm_loss(model(ids[take]), labels[take])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
print("exact answers", exact_match(model))
