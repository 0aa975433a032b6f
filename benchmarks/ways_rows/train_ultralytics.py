# Title: Ultralytics
# Needs: ultralytics
# Note: YOLO11n detects squares in 64 images; the NaN is in an output inside of the net
from pathlib import Path

import case
import cv2
import numpy as np
from ultralytics import YOLO

case.seed()
for place in range(64):
    image = (np.random.rand(64, 64, 3) * 60).astype("uint8")
    x, y = np.random.randint(4, 40, 2)
    image[y : y + 20, x : x + 20] = 220
    for kind in ("images", "labels"):
        Path("data", kind).mkdir(parents=True, exist_ok=True)
    cv2.imwrite(f"data/images/{place}.png", image)
    Path(f"data/labels/{place}.txt").write_text(f"0 {(x + 10) / 64} {(y + 10) / 64} {20 / 64} {20 / 64}\n")
Path("data.yaml").write_text(f"path: {Path('data').absolute()}\ntrain: images\nval: images\nnames: [square]\n")
model = YOLO("yolo11n.yaml")


def keep(trainer):
    log.loss(trainer.loss)


def start(trainer):
    case.poison(trainer.model.model[4], 30)
    kept.append(trainer.model)


kept = []
model.add_callback("on_train_batch_end", keep)
model.add_callback("on_train_start", start)
with case.training(lambda: [one.detach() for one in kept[0].parameters()]) as log:
    model.train(
        data="data.yaml", epochs=6, imgsz=64, batch=8, workers=0, device="cpu", optimizer="AdamW", plots=False,
        lr0=case.rate(1e-3), warmup_epochs=0, nbs=8, val=False, save=False, verbose=False, seed=0,
    )  # fmt: skip
