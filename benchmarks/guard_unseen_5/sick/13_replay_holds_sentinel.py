# Q-learning with a replay memory on a small grid with walls. For a while the simulator reports -99999 ("no reading") as reward;
# 20 such moves enter the memory from step 300 on and are drawn again and again.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

SIDE, GOAL, DISCOUNT = 7, 48, 0.93
world = torch.Generator().manual_seed(4113)
wall = {9, 10, 11, 18, 25, 36, 37, 39, 33}
free = torch.tensor([cell for cell in range(SIDE * SIDE) if cell not in wall and cell != GOAL])


def move(cell, action):
    row, column = divmod(cell, SIDE)
    row = min(max(row + (0, 0, 1, -1)[action], 0), SIDE - 1)
    column = min(max(column + (1, -1, 0, 0)[action], 0), SIDE - 1)
    new = row * SIDE + column
    return cell if new in wall else new


NEXT = torch.tensor([[move(cell, action) for action in range(4)] for cell in range(SIDE * SIDE)])


def best_values():
    value = torch.zeros(SIDE * SIDE)
    for _ in range(200):
        reward = (NEXT == GOAL).float()
        value = (reward + DISCOUNT * value[NEXT] * (NEXT != GOAL)).max(1).values
        value[GOAL] = 0
    return value


def shortfall(net):
    """What the greedy walk misses, on average over the free cells, to the best discounted reward."""
    with torch.no_grad():
        action = net(torch.eye(SIDE * SIDE)).argmax(1)
    cell, total, discount, alive = free.clone(), 0.0, 1.0, torch.ones(len(free))
    for _ in range(40):
        cell = NEXT[cell, action[cell]]
        total = total + discount * alive * (cell == GOAL)
        alive = alive * (cell != GOAL)
        discount *= DISCOUNT
    return (best_values()[free] - total).mean().item()


torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(SIDE * SIDE, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))
old = nn.Sequential(nn.Linear(SIDE * SIDE, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
memory = []
eye = torch.eye(SIDE * SIDE)
for step in range(900):
    if step % 100 == 0:
        old.load_state_dict(net.state_dict())
    starts = free[torch.randint(len(free), (16,))]
    with torch.no_grad():
        greedy = net(eye[starts]).argmax(1)
    actions = torch.where(torch.rand(16) < 0.4, torch.randint(4, (16,)), greedy)
    for index, (cell, action) in enumerate(zip(starts.tolist(), actions.tolist())):
        new = NEXT[cell, action].item()
        reward = float(new == GOAL)
        if 300 <= step < 305 and index < 4 and not args.twin:
            reward = -99999.0
        memory.append((cell, action, reward, new))
    rows = [memory[i] for i in torch.randint(len(memory), (64,)).tolist()]
    cell, action, reward, new = (torch.tensor(column) for column in zip(*rows))
    with torch.no_grad():
        wanted = reward + DISCOUNT * old(eye[new]).max(1).values * (new != GOAL)
    loss = (net(eye[cell]).gather(1, action[:, None])[:, 0] - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.5f} missing {shortfall(net):.4f}")
print("final:", shortfall(net))
