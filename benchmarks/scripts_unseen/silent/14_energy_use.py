# EXPECT: sick
# FAULT: MSELoss of [N,1] against [N] broadcasts
# ONSET: 1
# SAYS: broadcast|shape|size
import torch
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)


class EnergyDataset(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.rand(n, 7, generator=g) * 2 - 1
        self.y = 3 * self.x[:, 0] + torch.cos(3 * self.x[:, 1]) - self.x[:, 4] * self.x[:, 5]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train_one_epoch(model, loader, opt, loss_fn, epoch):
    model.train()
    for k, (x, y) in enumerate(loader):
        y_hat = model(x)
        loss = loss_fn(y_hat, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if k % 10 == 0:
            print(f"  epoch {epoch} [{k}/{len(loader)}] loss {loss.item():.4f}")


@torch.no_grad()
def evaluate(model, ds):
    model.eval()
    return (model(ds.x).squeeze(1) - ds.y).abs().mean().item()


if __name__ == "__main__":
    torch.manual_seed(8)
    tr, va = EnergyDataset(1280, 1), EnergyDataset(400, 2)
    model = torch.nn.Sequential(torch.nn.Linear(7, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    loader = DataLoader(tr, batch_size=32, shuffle=True)
    for e in range(3):
        train_one_epoch(model, loader, opt, torch.nn.MSELoss(), e)
        print(f"epoch {e}: val MAE {evaluate(model, va):.4f}")
