from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "places of the rarest": """
        import torch

        def restart(table, counts, loss, keep):
            loss.backward()
            _, places = counts.sort()
            table[places[:keep]].normal_()
    """,
    "a mask": """
        import torch

        class Pruned(torch.nn.Linear):
            def prune(self, share):
                small = self.weight.abs() < share
                self.weight.data[small].zero_()
    """,
    "a mask that is given": """
        import torch

        class Cell(torch.nn.Module):
            def reset(self, done_mask):
                self.state[:, done_mask].fill_(0.0).mul_(2)
    """,
    "written there": """
        def clip(model, loss):
            loss.backward()
            for p in model.parameters():
                p.grad[p.grad.isnan() | (p.grad > 10)].zero_()
    """,
}
HEALTHY = {
    "assigned": """
        def compress(residual, loss, keep):
            loss.backward()
            places = residual.abs().topk(keep).indices
            residual[places] = 0
    """,
    "a number, a slice and a name": """
        import torch

        class Buffers(torch.nn.Module):
            def clear(self, buffers, number):
                buffers["mean"].zero_()
                buffers[number].zero_()
                self.state[0].zero_()
                self.state[:, 2:].mul_(0.5)
    """,
    "one place at a time": """
        import torch

        def clear(table, loss):
            loss.backward()
            for place in torch.nonzero(table.sum(1) > 3).flatten():
                table[place].zero_()
            best = table.argmax(0)
            for number in best.tolist():
                table[number].mul_(0.1)
    """,
    "its result is used": """
        def clipped(x, loss, mask):
            loss.backward()
            return x[mask].clamp_(0, 1)
    """,
    "a slice of places": """
        def first(rows, loss):
            loss.backward()
            number = rows.argsort()[0]
            rows[number].zero_()
    """,
}

test_finds, test_leaves = cases_of("changed-copy", SICK, HEALTHY)
