# expect: sick
# fault: softmax over one unit
# onset_step: 0
# says: (?i)(soft.?max|constant output|one (unit|class|output|logit)|always 1|output.{0,30}constant|zero gradient|gradients?.{0,30}(zero|0))
# note: a multi-class head was turned into a binary one with one output and F.softmax(dim=-1) was left, so that the output is always 1.0 and no gradient flows.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class BagOfWords(nn.Module):
    def __init__(self, vocab, n_out):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, 32, mode="mean")
        self.fc1 = nn.Linear(32, 32)
        self.fc2 = nn.Linear(32, n_out)

    def forward(self, ids):
        h = F.relu(self.fc1(self.bag(ids)))
        return F.softmax(self.fc2(h), dim=-1)


def mails(n, gen):
    y = (torch.rand(n, generator=gen) < 0.45).float()
    ids = torch.randint(0, 300, (n, 20), generator=gen)
    spam_words = torch.randint(0, 25, (n, 5), generator=gen)
    ids[:, :5] = torch.where(y[:, None] > 0, spam_words, ids[:, :5])
    return ids, y


def main(steps=120):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(77)
    model = BagOfWords(300, 1)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for s in range(steps):
        ids, y = mails(64, gen)
        p = model(ids).squeeze(-1)
        loss = F.mse_loss(p, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s % 10 == 0:
            print(s, "brier", f"{loss.item():.4f}")
    ids, y = mails(500, gen)
    print("final acc", ((model(ids).squeeze(-1) > 0.5).float() == y).float().mean().item())


main()
