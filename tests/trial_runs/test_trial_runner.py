"""A schedule of recorded steps: the ordinary one is the replay, others are what they say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from parameters import telling  # noqa: E402
from replaying import Loop, plain_process, record  # noqa: E402
from steadytrain.experiments.specs import Change, Entry, Outcome  # noqa: E402
from steadytrain.storage.tape_files import Recording  # noqa: E402
from trying import attempt, losses, trained  # noqa: E402

STEPS, EVERY, WORDS = 16, 4, 11


@pytest.fixture(scope="module", autouse=True)
def _plain_process() -> Iterator[None]:
    """Before the recordings of the module are made, so that they have one thread as well."""
    with plain_process():
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.head = nn.Linear(8, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.norm(self.words(ids))))


def draws_its_batches() -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(STEPS):
        x, y = torch.randint(0, WORDS, (6,)), torch.randint(0, WORDS, (6,))
        loss = functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def shuffled_loader() -> None:
    """Labels come from the loader and never pass the model, so that a wrong batch would show in the loss."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(torch.arange(18) % WORDS, torch.arange(18) * 7 % WORDS), 6, shuffle=True)
    step = 0
    while step < STEPS:
        for x, y in loader:
            if step < STEPS:
                loss = functional.cross_entropy(net(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1


def read_ahead() -> None:
    """The next batch is fetched before this one is used, as Accelerate does it."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    data = TensorDataset(torch.arange(600) % WORDS, torch.arange(600) * 7 % WORDS)
    batches = iter(DataLoader(data, batch_size=6, shuffle=True))
    following = next(batches)
    for _ in range(STEPS):
        (x, y), following = following, next(batches)
        loss = functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def accumulation() -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        for _ in range(3):
            x, y = torch.randint(0, WORDS, (6,)), torch.randint(0, WORDS, (6,))
            (functional.cross_entropy(net(x), y) / 3).backward()
        optimizer.step()
        optimizer.zero_grad()


def accumulated_batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    data = TensorDataset(torch.arange(600) % WORDS, torch.arange(600) * 7 % WORDS)
    yield from DataLoader(data, batch_size=6, shuffle=True)


def accumulation_of_a_loader() -> None:
    torch.manual_seed(0)
    accumulate(accumulated_batches())


def accumulation_that_reads_ahead() -> None:
    """As Accelerate does it: what follows is fetched before a batch is given."""
    torch.manual_seed(0)
    accumulate(batch for batch, _ in pairwise(accumulated_batches()))


def accumulate(batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        for x, y in islice(batches, 2):
            (functional.cross_entropy(net(x), y) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()


def gradient_scaler() -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)
    for _ in range(STEPS):
        x, y = torch.randint(0, WORDS, (6,)), torch.randint(0, WORDS, (6,))
        with torch.autocast("cpu", dtype=torch.float16):
            loss = functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


LOOPS: list[Loop] = [draws_its_batches, shuffled_loader, read_ahead, accumulation, gradient_scaler]
LOOPS += [accumulation_of_a_loader, accumulation_that_reads_ahead]
TELLING = {"shuffled_loader", "gradient_scaler", "accumulation_that_reads_ahead"}


@pytest.fixture(scope="module", params=telling(LOOPS, TELLING, lambda loop: loop.__name__))
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Loop, Recording]:
    loop: Loop = request.param
    return loop, record(loop, tmp_path_factory.mktemp("recorded") / "run", every=EVERY)


def plain(outcome: Outcome) -> Outcome:
    assert outcome.ran, outcome.why_not
    return outcome


def test_the_ordinary_schedule_is_the_replay(recorded: tuple[Loop, Recording]) -> None:
    loop, recording = recorded
    for begin, own_steps in ((1, 1), (5, 1), (5, 5), (9, 9)):
        outcome = plain(
            attempt(loop, recording, trained(*range(begin + 1, STEPS + 1)), begin=begin, own_steps=own_steps)
        )
        assert outcome.exact is True
        assert len(outcome.steps) == STEPS - begin
        assert outcome.ended is None


def test_probes_and_refused_steps_leave_no_trace(recorded: tuple[Loop, Recording]) -> None:
    loop, recording = recorded
    probes = [Entry(3, "probe"), Entry(4, "probe")]
    schedule = [*probes, *trained(6, 7), *probes, *trained(8, 9), Entry(12, "refused"), *probes]
    outcome = plain(attempt(loop, recording, schedule, own_steps=1))
    assert outcome.exact is True  # steps 6 to 9 are those recorded, to the last bit, whatever was between them
    assert [seen.entry for seen in outcome.steps] == [2, 3, 6, 7]
    assert [(seen.entry, seen.step) for seen in outcome.probes] == [(0, 3), (1, 4), (4, 3), (5, 4), (9, 3), (10, 4)]
    without = plain(attempt(loop, recording, [*schedule[:8], *probes], own_steps=1))
    assert [seen.loss for seen in without.probes] == [seen.loss for seen in outcome.probes]


def test_a_step_that_is_left_out_changes_those_after_it_and_not_those_before(recorded: tuple[Loop, Recording]) -> None:
    loop, recording = recorded
    whole = plain(attempt(loop, recording, trained(*range(6, 13))))
    without = plain(attempt(loop, recording, [*trained(6, 7), Entry(8, "refused"), *trained(*range(9, 13))]))
    assert losses(without)[:2] == losses(whole)[:2]
    assert losses(without)[3:] != losses(whole)[4:]
    assert without.exact is False


def test_an_earlier_batch_gives_its_own_loss_in_the_state_of_the_snapshot(recorded: tuple[Loop, Recording]) -> None:
    """The loss of a batch in a state is the same, whichever way it came there."""
    loop, recording = recorded
    one = plain(attempt(loop, recording, trained(8, 6, 7), own_steps=1))
    other = plain(attempt(loop, recording, [Entry(8, "probe"), *trained(6)], own_steps=1))
    assert one.steps[0].loss == other.probes[0].loss


def test_beyond_the_tape_the_script_goes_on_by_itself(recorded: tuple[Loop, Recording]) -> None:
    loop, recording = recorded
    outcome = plain(attempt(loop, recording, trained(6, 7, None, None), own_steps=5))
    assert outcome.exact is True
    assert len(outcome.steps) == 4


def test_a_loop_that_is_over_is_told(recorded: tuple[Loop, Recording]) -> None:
    loop, recording = recorded
    outcome = plain(attempt(loop, recording, [*trained(*range(10, STEPS + 1)), *trained(*[None] * 40)], begin=9))
    assert outcome.ended is not None
    assert outcome.ended.startswith("the script's loop was over after ")
    assert len(outcome.steps) == STEPS - 9


def test_from_its_own_beginning_nothing_is_restored(recorded: tuple[Loop, Recording]) -> None:
    loop, recording = recorded
    outcome = plain(attempt(loop, recording, trained(*[None] * 4), begin=None))
    assert outcome.exact is None
    assert len(outcome.steps) == 4


def test_where_a_process_cannot_be_copied_the_first_probes_leave_the_script_its_first_data(tmp_path: Path) -> None:
    recording = record(draws_its_batches, tmp_path / "run", every=EVERY)
    probes = [Entry(step, "probe") for step in (2, 5)]
    outcome = plain(attempt(draws_its_batches, recording, [*probes, *trained(*range(1, 5)), *probes], begin=None))
    assert outcome.exact, outcome.notes
    assert [(one.entry, one.step) for one in outcome.probes] == [(6, 2), (7, 5)]


def test_a_schedule_of_a_step_that_is_not_there_is_not_run(tmp_path: Path) -> None:
    recording = record(draws_its_batches, tmp_path / "run", every=EVERY)
    outcome = attempt(draws_its_batches, recording, trained(6, 400))
    assert (outcome.ran, outcome.why_not) == (False, "step 400 is not on the tape")


def test_a_change_that_touches_nothing_is_not_run(tmp_path: Path) -> None:
    recording = record(draws_its_batches, tmp_path / "run", every=EVERY)
    outcome = attempt(draws_its_batches, recording, trained(6, 7), Change("loss-scale", {"factor": 2.0}))
    assert (outcome.ran, outcome.why_not) == (False, "there is no gradient scaler")


def test_a_value_that_is_not_finite_ends_the_trial(tmp_path: Path) -> None:
    recording = record(draws_its_batches, tmp_path / "run", every=EVERY)
    outcome = attempt(draws_its_batches, recording, trained(*range(6, 13)), Change("learning-rate", {"factor": 1e38}))
    assert outcome.ran
    assert outcome.first_nonfinite == outcome.steps[-1].entry < 6
