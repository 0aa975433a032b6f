"""The picture as lines: it fits any terminal, names states in words, and shows hostile text as text."""

from __future__ import annotations

import pytest

import builders
from live_runs import LiveRun
from steadytrain.live.amounts import duration, pace, share
from steadytrain.live.drawing import Frame, lines_of, summary_line
from steadytrain.live.follower import RunFollower
from steadytrain.live.picture import Picture
from steadytrain.live.view import View, held, pressed

EVIL = "[red]evil\x1b[31m\u202e[/red].weight"


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    run = LiveRun(
        tmp_path_factory.mktemp("runs") / "run", names=(EVIL, *(f"body.{index}.weight" for index in range(30)))
    )
    run.run.set_fact("planned_steps", 4000)
    for step in range(40):
        run.train(loss_scale=65536.0, scaler_skips=2.0, underflow_share=0.001)
        run.read("gradients", ["norm"], [[9.0 if step == 39 else 1.0], *[[0.5]] * 30])
    for step in range(9):
        message = f"\x1b]0;title\x07 [bold]message[/bold] {'long ' * 60}"
        run.run.raise_symptom(builders.symptom(step + 1, name="loss-spike", severity="warning", message=message))
    columns = ["busy_share", "memory_used_bytes", "memory_total_bytes", "slowed_by_heat"]
    run.read("machine", columns, [[0.9, 2**34, 2**35, 1]], rows=["cuda:0"])
    return RunFollower(run.path).poll(run.began + 4.5)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (60, 16), (40, 6), (300, 200)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_line_fits_and_the_keys_stand_last(picture: Picture, size: tuple[int, int], ascii_only: bool) -> None:
    width, height = size
    lines, _ = lines_of(picture, View(), Frame(width, height, ascii_only=ascii_only))
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    assert lines[-1].plain.startswith("q quit")
    text = "\n".join(line.plain for line in lines)
    assert not ascii_only or text.isascii()
    assert "running" in lines[0].plain


def test_hostile_text_is_shown_as_text(picture: Picture) -> None:
    lines, _ = lines_of(picture, View(), Frame(120, 60))
    text = "\n".join(line.plain for line in lines)
    assert "[red]evil\\x1b[31m\\u202e[/red].weight" in text
    assert "\\x1b]0;title\\x07 [bold]message[/bold] long" in text
    assert "\x1b" not in text


def test_the_picture_says_what_a_person_asks_at_night(picture: Picture) -> None:
    lines, _ = lines_of(picture, View(), Frame(80, 40))
    text = "\n".join(line.plain for line in lines)
    for said in (
        "running",
        "step 40 of 4,000 (1%)",
        "10 steps/s",
        "6 min 36 s left",
        "9 warning",
        "loss scale 65,536 (2 steps skipped)",
        "0.1 % of gradients underflow",
        "cuda:0 90 % busy, 16 of 32 GiB, SLOWED BY HEAT",
        "symptoms, newest first (9)",
        "layers, worst first at step 40 (31)",
    ):
        assert said in text, said
    assert summary_line(picture).startswith("run · running · step 40 of 4,000 · loss 1.2 · 10 steps/s")


def test_keys_scroll_filter_pause_and_quit(picture: Picture) -> None:
    frame = Frame(80, 24)

    def shown(view: View) -> str:
        return "\n".join(line.plain for line in lines_of(picture, view, frame)[0])

    view = pressed(View(), "G")
    view = held(view, lines_of(picture, view, frame)[1])
    assert "step 1\n" in shown(view)
    assert "0 below" in shown(view)
    assert pressed(view, "up").offset("symptoms") == view.offset("symptoms") - 1
    assert pressed(view, "g").offset("symptoms") == 0
    other = pressed(view, "tab")
    assert "▶ layers" in shown(other)
    assert pressed(other, "down").offset("layers") == 1
    view = View()
    for key in ["/", *"body.7", "backspace", *"77", "backspace", "enter"]:
        view = pressed(view, key)
    assert (view.filter, view.typing) == ("body.7", False)
    assert "(1 of 31)" in shown(view)
    assert "filter: body.7" in shown(view)
    assert pressed(view, "escape").filter == ""
    assert pressed(pressed(View(), "/"), "q").filter == "q"
    assert pressed(View(), "q").quit
    assert "PAUSED" in shown(pressed(View(), " "))
    assert "steps 1 to 40" in shown(pressed(View(), "z"))
    assert "quit; the last picture stays" in shown(pressed(View(), "?"))
    assert not pressed(pressed(View(), "?"), "j").help
    assert pressed(View(), "unknown") == View()


def test_amounts_are_short_and_never_round_to_nothing() -> None:
    told = [duration(seconds) for seconds in (0.34, 45, 60, 3720, 187_000, 86_400)]
    assert told == ["0.3 s", "45 s", "1 min", "1 h 2 min", "2 d 3 h", "1 d"]
    assert (pace(12.3), pace(0.05)) == ("12.3 steps/s", "20 s a step")
    assert (share(0), share(0.00012), share(0.5)) == ("0 %", "0.012 %", "50 %")
