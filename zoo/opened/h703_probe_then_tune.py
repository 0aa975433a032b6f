# expect: healthy
# symptom: resembles frozen weights: most parameters do not move for a long time and the loss stays on a plateau, then it jumps in level
# axis: model
# cause: the backbone is frozen on purpose for 150 steps (head first) and then released with a smaller learning rate; afterwards everything learns
# says: none
# onset_step: none
# fix: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)

VOCAB, SEQ, D, MASK = 90, 16, 64, 1


def sentences(n):
    """Runs of words from one of eight word families, with a change of family somewhere."""
    fam = torch.randint(0, 8, (n, 2))
    cut = torch.randint(3, SEQ - 3, (n, 1))
    which = (torch.arange(SEQ)[None] >= cut).long()
    return 2 + fam.gather(1, which) * 11 + torch.randint(0, 11, (n, SEQ)), fam


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Parameter(torch.randn(SEQ, D) * 0.05)
        layer = nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(D), enable_nested_tensor=False)

    def forward(self, ids):
        return self.enc(self.tok(ids) + self.pos)


def pretrain(net, steps=200):
    out = nn.Linear(D, VOCAB)
    opt = torch.optim.AdamW([*net.parameters(), *out.parameters()], lr=1e-3)
    for step in range(1, steps + 1):
        ids, _ = sentences(32)
        hide = torch.rand(ids.shape) < 0.2
        logits = out(net(ids.masked_fill(hide, MASK)))
        loss = F.cross_entropy(logits[hide], ids[hide])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"pretrain {step} masked word loss {loss.item():.3f}")


def labelled(n):
    ids, fam = sentences(n)
    return ids, (fam[:, 0] * (fam[:, 0] > 2) + fam[:, 1] > 6).long()


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


def main():
    net = Backbone()
    pretrain(net)
    head = nn.Linear(D, 2)
    nn.init.zeros_(head.weight)
    set_trainable(net, False)
    opt = torch.optim.AdamW(
        [
            {"params": net.parameters(), "lr": 7e-4},
            {"params": head.parameters(), "lr": 3e-3},
        ],
        weight_decay=0.01,
    )
    x_test, y_test = labelled(500)
    mean = 0.0
    for step in range(1, 551):
        if step == 151:
            set_trainable(net, True)
            print("backbone released")
        x, y = labelled(32)
        logits = head(net(x).mean(1))
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        mean += loss.item() / 50
        if step % 50 == 0:
            with torch.no_grad():
                acc = (head(net(x_test).mean(1)).argmax(-1) == y_test).float().mean().item()
            print(f"step {step} loss {mean:.4f} test accuracy {acc:.3f}")
            mean = 0.0


if __name__ == "__main__":
    main()
