# expect: sick
# fault: target network never updated
# onset_step: 0
# says: (?i)(target (net|q|model|copy|param)|copy|ema|never (updat|chang|sync|mov)|not (updat|sync|chang)|stale|frozen|stagnant|constant)
# note: the update interval counts episodes but is compared with a step bound that is never reached, so the target network keeps its random initial weights.
import copy
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(1)
torch.manual_seed(1)


class QNet(nn.Module):
    def __init__(self, s, a):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(s, 64), nn.Linear(64, 64), nn.Linear(64, a)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class PointEnv:
    def reset(self):
        self.p, self.v, self.t = random.uniform(-1, 1), 0.0, 0
        return [self.p, self.v]

    def step(self, a):
        self.v = 0.9 * self.v + 0.1 * (a - 1)
        self.p += self.v
        self.t += 1
        return [self.p, self.v], -abs(self.p), self.t >= 30 or abs(self.p) > 3


TARGET_UPDATE = 1000
policy_net = QNet(2, 3)
target_net = copy.deepcopy(policy_net)
target_net.eval()
optimizer = torch.optim.Adam(policy_net.parameters(), lr=1e-3)
memory, env = [], PointEnv()
updates = 0
for episode in range(40):
    s, done, ret = env.reset(), False, 0.0
    while not done:
        if random.random() < max(0.1, 1 - episode / 20):
            a = random.randrange(3)
        else:
            with torch.no_grad():
                a = int(policy_net(torch.tensor(s)).argmax())
        s2, r, done = env.step(a)
        memory.append((s, a, r, s2, float(done)))
        s = s2
        ret += r
        if len(memory) > 200 and len(memory) % 4 == 0:
            S, A, R, S2, D = map(torch.tensor, zip(*random.sample(memory, 32)))
            q = policy_net(S).gather(1, A.unsqueeze(1)).squeeze(1)
            with torch.no_grad():
                y = R + 0.98 * target_net(S2).max(1)[0] * (1 - D)
            loss = F.smooth_l1_loss(q, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
    if (episode + 1) % TARGET_UPDATE == 0:
        target_net.load_state_dict(policy_net.state_dict())
    if episode % 5 == 0:
        print(f"episode {episode} return {ret:.2f} updates {updates}")
