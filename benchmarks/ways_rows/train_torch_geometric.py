# Title: PyTorch Geometric
# Needs: torch_geometric
import case
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

case.seed()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(16, 256), GCNConv(256, 256)
        self.head = torch.nn.Linear(256, 1)

    def forward(self, data):
        hidden = self.first(data.x, data.edge_index).relu()
        hidden = self.second(hidden, data.edge_index).relu()
        return self.head(global_mean_pool(hidden, data.batch))


graphs = []
for place in range(3200):
    nodes = torch.randn(20, 16)
    if place == 1234:
        case.rows(nodes, 3)
    graphs.append(Data(x=nodes, edge_index=torch.randint(0, 20, (2, 60)), y=nodes.mean().view(1, 1)))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=case.rate(1e-3))
with case.training(model) as log:
    for batch in DataLoader(graphs, batch_size=32, shuffle=True):
        loss = torch.nn.functional.mse_loss(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.loss(loss)
