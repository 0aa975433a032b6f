# expect: healthy
# symptom: the student's loss starts near 1.6 and hardly falls, the teacher never moves, and the gradients are clipped at every step (resembles a model that does not learn)
# axis: loss
# cause: soft cross-entropy against a softened teacher cannot fall below the teacher's entropy, the teacher is frozen on purpose, and Adam's step does not depend on the clipped length; the student comes close to the teacher's accuracy
# says: none
# onset_step: none
# fix: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(17)
KINDS = ["ball", "box", "cylinder", "cone", "torus"]
TEMPERATURE = 5.0


def surface(kind, n):
    u, v = torch.rand(n) * 6.283, torch.rand(n)
    if kind == 0:
        z = 2 * v - 1
        r = (1 - z**2).sqrt()
        pts = torch.stack([r * u.cos(), r * u.sin(), z], 1)
    elif kind == 1:
        pts = torch.rand(n, 3) * 2 - 1
        face = torch.randint(0, 3, (n,))
        pts[torch.arange(n), face] = torch.randint(0, 2, (n,)).float() * 2 - 1
        pts = pts * 0.8
    elif kind == 2:
        pts = torch.stack([0.8 * u.cos(), 0.8 * u.sin(), 2 * v - 1], 1)
    elif kind == 3:
        pts = torch.stack([v * u.cos(), v * u.sin(), 1 - 2 * v], 1)
    else:
        w = torch.rand(n) * 6.283
        pts = torch.stack([(0.8 + 0.3 * w.cos()) * u.cos(), (0.8 + 0.3 * w.cos()) * u.sin(), 0.3 * w.sin()], 1)
    return pts


def random_rotation():
    q, r = torch.linalg.qr(torch.randn(3, 3))
    return q * torch.sign(torch.diagonal(r))


def make_clouds(n, points=64):
    kinds = torch.randint(0, len(KINDS), (n,))
    clouds = []
    for k in kinds.tolist():
        scale = 0.7 + 0.6 * torch.rand(3)
        clouds.append((surface(k, points) * scale) @ random_rotation().t() + 0.05 * torch.randn(points, 3))
    return torch.stack(clouds), kinds


class PointNet(nn.Module):
    def __init__(self, width, feat):
        super().__init__()
        self.local = nn.Sequential(
            nn.Conv1d(3, width, 1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, feat, 1),
        )
        self.head = nn.Sequential(nn.Linear(2 * feat, feat), nn.ReLU(), nn.Linear(feat, len(KINDS)))

    def forward(self, pts):
        h = self.local(pts.transpose(1, 2))
        return self.head(torch.cat([h.amax(2), h.mean(2)], 1))


@torch.no_grad()
def accuracy(model, x, y):
    was = model.training
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was)
    return acc


def train_teacher(loader, x_val, y_val):
    teacher = PointNet(48, 96)
    opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for epoch in range(8):
        for x, y in loader:
            loss = F.cross_entropy(teacher(x), y, label_smoothing=0.1)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(
            f"teacher epoch {epoch} loss {loss.item():.4f} val accuracy {accuracy(teacher, x_val, y_val):.3f}",
            flush=True,
        )
    teacher.eval()
    return teacher.requires_grad_(False)


def train_student(teacher, loader, x_val, y_val):
    student = PointNet(32, 64)
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 18 * len(loader), eta_min=1e-4)
    step = 0
    for epoch in range(18):
        for x, _ in loader:
            soft = F.softmax(teacher(x) / TEMPERATURE, dim=1)
            loss = F.cross_entropy(student(x) / TEMPERATURE, soft)
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(student.parameters(), 0.01)
            opt.step()
            sched.step()
            step += 1
            if step % 30 == 0:
                print(f"student step {step} loss {loss.item():.4f} grad_norm {norm.item():.4f}", flush=True)
        if epoch % 3 == 2:
            print(f"student epoch {epoch} val accuracy {accuracy(student, x_val, y_val):.3f}", flush=True)


def main():
    x, y = make_clouds(1440)
    x_val, y_val = make_clouds(400)
    loader = DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True)
    teacher = train_teacher(loader, x_val, y_val)
    train_student(teacher, loader, x_val, y_val)


if __name__ == "__main__":
    main()
