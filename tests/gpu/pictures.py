"""A small convolutional network with batch norm, fed by workers through pinned memory. It prints a digest."""

from __future__ import annotations

import argparse
import hashlib

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIDE, CLASSES = 24, 6


class Stripes(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 1600

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        kind = index % CLASSES
        rows = torch.arange(SIDE).view(-1, 1).expand(SIDE, SIDE)
        picture = torch.sin(rows * (kind + 1) * 0.3).expand(3, SIDE, SIDE)
        return picture + 0.5 * torch.randn(3, SIDE, SIDE, generator=generator), kind


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--float16", action="store_true")
    parser.add_argument("--nan-at", type=int, default=-1, help="a weight becomes NaN on the device before that step")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(32 * (SIDE // 2) ** 2, CLASSES),
    ).to(device, memory_format=torch.channels_last)
    loader = DataLoader(
        Stripes(), 32, shuffle=True, num_workers=args.workers, pin_memory=device.type == "cuda", drop_last=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    scaler = torch.amp.GradScaler(device.type, enabled=args.float16)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for _ in range(args.epochs):
        for pictures, kinds in loader:
            pictures = pictures.to(device, non_blocking=True, memory_format=torch.channels_last)
            kinds = kinds.to(device, non_blocking=True)
            if step == args.nan_at:
                with torch.no_grad():
                    model[4].weight[3, 2, 1, 1] = float("nan")
            with torch.autocast(device.type, dtype=torch.float16, enabled=args.float16):
                loss = criterion(model(pictures), kinds)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.9g}", flush=True)
            step += 1
    whole = hashlib.sha256()
    for value in model.state_dict().values():
        whole.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    print("digest", whole.hexdigest())


if __name__ == "__main__":
    main()
