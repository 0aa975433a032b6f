from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "the whole sum": """
        import torch

        class Compressor:
            def send(self, number, grad):
                corrected = grad + self.memory[number]
                flat = corrected.flatten()
                places = flat.abs().topk(8).indices
                sent = torch.zeros_like(flat)
                sent[places] = flat[places]
                self.memory[number] = corrected
                return sent
    """,
    "a copy before the sent part is set to 0": """
        import torch

        class Compressor:
            def send(self, name, grad):
                total = self.residual[name].add(grad)
                places = total.abs().topk(8).indices
                values = total[places]
                self.residual[name] = total.clone()
                total[places] = 0.0
                return places, values
    """,
    "a copy is cleared": """
        import torch

        class Compressor:
            def send(self, memory, grad):
                memory.add_(grad)
                flat = memory.view(-1)
                places = flat.abs().topk(8).indices
                values = flat[places]
                flat[places].zero_()
                return places, values
    """,
}
HEALTHY = {
    "the rest": """
        import torch

        class Compressor:
            def send(self, number, grad):
                corrected = grad + self.memory[number]
                places = corrected.abs().topk(8).indices
                sent = torch.zeros_like(corrected)
                sent[places] = corrected[places]
                self.memory[number] = corrected - sent
                return sent
    """,
    "set to 0 in the sum": """
        import torch

        class Compressor:
            def send(self, name, grad):
                total = self.residual[name] + grad
                flat = total.view(-1)
                places = flat.abs().topk(8).indices
                values = flat[places].clone()
                flat[places] = 0.0
                self.residual[name] = total
                return places, values
    """,
    "set to 0 in the residual": """
        import torch

        class Compressor:
            def send(self, name, grad):
                total = self.residual[name] + grad
                places = total.abs().topk(8).indices
                self.residual[name] = total.clone()
                self.residual[name][places] = 0.0
                return places, total[places]
    """,
    "no residual": """
        import torch

        def best(self, scores):
            self.memory = scores + self.memory
            return scores.topk(3)
    """,
}

test_finds, test_leaves = cases_of("kept-residual", SICK, HEALTHY)
