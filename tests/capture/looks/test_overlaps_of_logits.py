"""Overlaps of masks that a loss computes of logits, in the source of a script."""

from __future__ import annotations

from rule_of_source import cases_of

MODEL = """
        class Net(nn.Module):
            def forward(self, x):
                return self.head(self.body(x))
"""
DICE = """
        def dice_loss(pred, target, smooth=1.0):
            pred, target = pred.view(-1), target.view(-1)
            inter = (pred * target).sum()
            return 1 - (2 * inter + smooth) / (pred.sum() + target.sum() + smooth)
"""
LOOP = """
        loss.backward()
"""

SICK = {
    "beside a cross entropy, in a class": """
        class Loss(nn.Module):
            def forward(self, output, target):
                bce = F.binary_cross_entropy_with_logits(output, target)
                inter = (output * target).sum((1, 2, 3))
                dice = (2 * inter + 1) / (output.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
                return bce + (1 - dice).mean()
        """,
    "beside a module": DICE
    + """
        bce = nn.BCEWithLogitsLoss()
        def train(x, y):
            logits = net(x)
            loss = bce(logits, y) + dice_loss(logits, y)
            loss.backward()
            torch.sigmoid(logits)
        """,
    "alone, no sigmoid in the file": MODEL + DICE + "        loss = dice_loss(net(x), y)" + LOOP,
    "iou": MODEL
    + """
        def iou_loss(out, mask):
            inter = torch.sum(out * mask)
            union = torch.sum(out) + torch.sum(mask) - inter
            return 1.0 - (inter + 1e-6) / (union + 1e-6)
        loss = iou_loss(net(x), y)
"""
    + LOOP,
}

HEALTHY = {
    "sigmoid inside": DICE.replace("pred.view(-1)", "torch.sigmoid(pred).view(-1)")
    + """
        bce = nn.BCEWithLogitsLoss()
        loss = bce(logits, y) + dice_loss(logits, y)
        """,
    "sigmoid in the caller": DICE
    + """
        bce = nn.BCEWithLogitsLoss()
        logits = net(x)
        loss = bce(logits, y) + dice_loss(torch.sigmoid(logits), y)
        """,
    "sigmoid under another name": DICE
    + """
        logits = net(x)
        probs = logits.sigmoid()
        loss = F.binary_cross_entropy_with_logits(logits, y) + dice_loss(probs, y)
        """,
    "sigmoid in the model": MODEL.replace("self.head(self.body(x))", "torch.sigmoid(self.head(x))")
    + DICE
    + "        loss = dice_loss(net(x), y)"
    + LOOP,
    "a metric": MODEL
    + """
        @torch.no_grad()
        def dice(pred, target):
            pred = pred.round()
            inter = (pred * target).sum()
            return 2 * inter / (pred.sum() + target.sum())
        score = dice(net(x), y)
"""
    + LOOP,
    "a threshold": MODEL
    + """
        def dice(pred, target):
            pred = (pred > 0).float()
            inter = (pred * target).sum()
            return 2 * inter / (pred.sum() + target.sum())
        score = dice(net(x), y)
"""
    + LOOP,
    "a cosine": MODEL
    + """
        def cosine(pred, target):
            return (pred * target).sum() / (pred.norm() * target.norm())
        loss = 1 - cosine(net(x), y)
"""
    + LOOP,
    "a mean over a mask": MODEL
    + """
        def masked(out, mask):
            return (out * mask).sum() / mask.sum()
        loss = masked(net(x), y)
"""
    + LOOP,
}

test_finds, test_leaves = cases_of("overlap-of-logits", SICK, HEALTHY)
