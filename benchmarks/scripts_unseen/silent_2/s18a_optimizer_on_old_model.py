# expect: sick
# fault: optimizer holds the parameters of a model that was re-created
# onset_step: 0
# says: (?i)(optimi[sz]er|stale|old (model|param|copy)|not in|not (updat|mov|chang)|never (updat|mov|chang|step)|param.*(without|no) grad|re-?creat|different|unchanged|nothing (moves|changes))
# note: the model is rebuilt with the right number of classes after the optimizer was made, so each step updates the old copy and the loss stays flat.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def build_model(num_classes=10):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, num_classes),
    )


model = build_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 60, 0.5)

templates = torch.randn(6, 1, 12, 12)
n_classes = len(templates)
if n_classes != 10:
    model = build_model(n_classes)

model.train()
for step in range(150):
    y = torch.randint(0, n_classes, (32,))
    x = templates[y] + 0.3 * torch.randn(32, 1, 12, 12)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 15 == 0:
        print("step %d loss %.4f" % (step, loss.item()))
