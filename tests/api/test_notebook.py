"""In a notebook values are small escaped tables, and a refused update ends the cell with one line."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

import steadytrain  # noqa: E402
from steadytrain.core.notebook import as_html  # noqa: E402
from steadytrain.diagnosis.answer import Diagnosis, RankedCause  # noqa: E402


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> object:
    """What IPython shows of itself to code that is typed into it."""
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: ipython  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    return ipython


def train(runs_dir: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, runs_dir=runs_dir, name="run"):
        (model(torch.ones(2, 4)) / 0).mean().backward()
        optimizer.step()


def stopped(runs_dir: Path) -> steadytrain.RunStopped:
    with pytest.raises(steadytrain.RunStopped) as caught:
        train(runs_dir)
    return caught.value


def test_in_a_notebook_a_refused_update_is_one_line_and_no_exit(tmp_path: Path, shell: object) -> None:
    error = stopped(tmp_path)
    assert not isinstance(error, (SystemExit, Exception))
    shown = f"RunStopped: {error}; next: steadytrain.load_run({str(tmp_path / 'run')!r})"
    assert error._render_traceback_() == [shown]  # type: ignore[attr-defined]
    assert "refused the update of step 1" in str(error)
    assert type(error).__name__ == "RunStopped"


def test_in_a_script_it_ends_the_process_with_70(tmp_path: Path) -> None:
    error = stopped(tmp_path)
    assert isinstance(error, SystemExit)
    assert error.code == 70
    assert "refused the update of step 1" in str(error)


def test_a_script_that_ipython_runs_exits_as_a_script(shell: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)
    assert isinstance(steadytrain.RunStopped("why"), SystemExit)


def test_it_travels_between_processes() -> None:
    again = pickle.loads(pickle.dumps(steadytrain.RunStopped("why")))
    assert isinstance(again, steadytrain.RunStopped)
    assert again.message == "why"


def test_a_table_is_escaped_and_short() -> None:
    page = as_html("<run>", {"a&b": "<script>", "long": "x" * 1000, "none": None, "empty": ""})
    assert "<script>" not in page
    assert "&lt;run&gt;" in page
    assert "a&amp;b" in page
    assert len(page) < 700
    assert "none" not in page
    assert "empty" not in page


def test_a_run_and_its_incident_print_in_a_line(tmp_path: Path) -> None:
    stopped(tmp_path)
    run = steadytrain.load_run(tmp_path / "run")
    assert repr(run) == "<Run 'run': steps 1, ended stopped, symptoms nonfinite-gradient, nonfinite-loss, incidents 1>"
    assert str(tmp_path / "run") in run._repr_html_()
    (incident,) = run.open_incidents()
    assert repr(incident).startswith("<Incident at step 1 of 'run': nonfinite-loss")
    assert "aten.div" in incident._repr_html_()


def test_a_diagnosis_prints_in_a_line() -> None:
    cause = RankedCause("bad-batch", "a <row>", "likely", 0.7, (), None, (), ())
    diagnosis = Diagnosis("runs/a", "loss-spike", "exact", "", "bad-batch", "likely", "why", (cause,), ())
    assert repr(diagnosis) == "<Diagnosis of 'runs/a': likely: bad-batch; replay exact>"
    assert "a &lt;row&gt;" in diagnosis._repr_html_()


def test_bad_use_is_one_line_in_a_notebook() -> None:
    assert steadytrain.UsageError("what")._render_traceback_() == ["UsageError: what"]
