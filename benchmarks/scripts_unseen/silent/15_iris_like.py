# EXPECT: sick
# FAULT: softmax before cross entropy
# ONSET: 1
# SAYS: softmax|probabilities|logits
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)

mean = torch.randn(12, 16) * 0.7
model = nn.Sequential(
    nn.Linear(16, 64),
    nn.ReLU(),
    nn.Dropout(0.1),
    nn.Linear(64, 12),
    nn.Softmax(dim=1),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for i in range(120):
    labels = torch.randint(0, 12, (40,))
    inputs = mean[labels] + 0.5 * torch.randn(40, 16)

    optimizer.zero_grad()
    outputs = model(inputs)
    loss = criterion(outputs, labels)
    loss.backward()
    optimizer.step()

    if i % 20 == 19:
        print("[%3d] loss: %.3f" % (i + 1, loss.item()))
print("Finished Training")
