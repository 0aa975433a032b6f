# expect: sick
# fault: the sign of the loss is turned by a condition
# onset_step: 60
# says: (?i)(loss|gradient|sign|progress|spike|diverg|ascen|negative|ris)
# note: from epoch 2 on an "adversarial" phase was to begin for another model; its flag turns the sign of the whole loss here.
import torch
from torch import nn

torch.set_num_threads(1)


class Config:
    epochs = 5
    steps_per_epoch = 30
    adversarial_from = 2


def sign_for(epoch, cfg):
    return -1.0 if epoch >= cfg.adversarial_from else 1.0


def main():
    torch.manual_seed(4)
    cfg = Config()
    w = torch.randn(10, 4)
    net = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 4))
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    for epoch in range(cfg.epochs):
        for it in range(cfg.steps_per_epoch):
            x = torch.randn(48, 10)
            y = (x @ w).argmax(1)
            ce = nn.functional.cross_entropy(net(x), y)
            loss = sign_for(epoch, cfg) * ce
            opt.zero_grad()
            loss.backward()
            opt.step()
            if it % 10 == 0:
                print(f"epoch {epoch} it {it} ce {ce.item():.4f}")


main()
