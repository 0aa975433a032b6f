# expect: sick
# cause: The model is fine-tuned with pure bfloat16 weights and no float32 master copy at a small rate, so nearly all updates round to nothing.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(71)
VOCAB, CLASSES, LEN = 500, 6, 24
topic_words = torch.stack([torch.randperm(VOCAB)[:40] for _ in range(CLASSES)])


def documents(n, purity, shift=0):
    y = torch.randint(0, CLASSES, (n,))
    noise = torch.randint(0, VOCAB, (n, LEN))
    topical = topic_words[y].gather(1, torch.randint(0, 40, (n, LEN)))
    x = torch.where(torch.rand(n, LEN) < purity, topical, noise)
    return x, (y + shift) % CLASSES


class Classifier(nn.Module):
    def __init__(self, d=192):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.block = nn.TransformerEncoderLayer(d, 4, 384, dropout=0.0, batch_first=True)
        self.fc = nn.Linear(d, d)
        self.out = nn.Linear(d, CLASSES)

    def forward(self, x):
        h = self.block(self.emb(x)).mean(1)
        return self.out(torch.relu(self.fc(h)))


def train(model, lr, steps, purity, shift, name):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    for i in range(steps):
        x, y = documents(24, purity, shift)
        loss = F.cross_entropy(model(x).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 40 == 0 or i == steps - 1:
            print(f"{name} step {i} loss {loss.item():.4f}")


model = Classifier()
train(model, 5e-4, 40, 0.4, 0, "pretraining")

model = model.to(torch.bfloat16)  # saves half of the memory
train(model, 3e-5, 320, 0.4, 1, "fine-tuning")
with torch.no_grad():
    x, y = documents(500, 0.4, 1)
    logits = model(x).float()
print(f"new labels: loss {F.cross_entropy(logits, y):.4f} accuracy {(logits.argmax(1) == y).float().mean():.3f}")
