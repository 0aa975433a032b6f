# expect: sick
# cause: The network ends with a softmax and its probabilities go into cross entropy, which applies softmax again, so the loss is stuck near its floor and learning is weak.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(23)
NUM_GLYPHS = 40
prototypes = (F.interpolate(torch.rand(NUM_GLYPHS, 1, 7, 7), size=16, mode="bilinear") > 0.5).float()


def draw(n):
    idx = torch.randint(0, NUM_GLYPHS, (n,))
    x = prototypes[idx]
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1
    theta += 0.08 * torch.randn(n, 2, 3)
    x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)
    return x + 0.3 * torch.randn_like(x), idx


class GlyphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.fc1 = nn.Linear(32 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, NUM_GLYPHS)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        x = F.adaptive_max_pool2d(x, 4)
        x = F.relu(self.fc1(x.flatten(1)))
        x = self.fc2(x)
        return F.softmax(x, dim=1)


net = GlyphNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
criterion = nn.CrossEntropyLoss()

net.train()
for i in range(450):
    inputs, labels = draw(64)
    optimizer.zero_grad()
    outputs = net(inputs)
    loss = criterion(outputs, labels)
    loss.backward()
    optimizer.step()
    if i % 50 == 0:
        print("[%4d] loss: %.3f" % (i, loss.item()))

net.eval()
with torch.no_grad():
    inputs, labels = draw(1000)
    correct = (net(inputs).argmax(1) == labels).sum().item()
print("accuracy on 1000 fresh glyphs: %.1f %%" % (correct / 10))
