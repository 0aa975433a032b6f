# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(38)
VOCAB, DIM = 200, 24
topic_of_word = torch.randint(0, 4, (VOCAB,))
glove = torch.randn(4, DIM)[topic_of_word] + 1.6 * torch.randn(VOCAB, DIM)  # stands for pre-trained vectors


class BagClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding.from_pretrained(glove, freeze=True)
        self.mlp = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))

    def forward(self, ids):
        return self.mlp(self.emb(ids).mean(1))


def docs(n):
    y = torch.randint(0, 4, (n,))
    w = torch.rand(n, VOCAB) + 0.6 * (topic_of_word[None] == y[:, None])
    return w.topk(15, 1).indices, y


m = BagClassifier()
opt = torch.optim.Adam(filter(lambda p: p.requires_grad, m.parameters()), lr=3e-3)
for s in range(120):
    ids, y = docs(48)
    loss = nn.functional.cross_entropy(m(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 15 == 0:
        print(s, f"{loss.item():.4f}")
