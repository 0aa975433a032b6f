"""What replays and traces say, from plain values: no process is launched here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.replay.determinism import (
    ALGORITHMS,
    COLLECTIVE,
    CUBLAS,
    MEMORY,
    NONE_KNOWN,
    NOT_TORCH,
    THREADS,
    switch_for,
)
from steadytrain.replay.environment_changes import changes
from steadytrain.replay.trace_comparison import TracedOperation, Value, first_part
from steadytrain.replay.verdict import COMPILED, DETERMINISTIC, Difference, Replayed, document, judge, lines, status

EXACT = Replayed(5, 7, 3, None, True, True)


def differing(replayed: str = "b", *, step: int = 6, symptom: bool | None = False) -> Replayed:
    return replace(EXACT, first_difference=Difference(step, "forward", "loss", "a", replayed), symptom=symptom)


def operation(
    name: str = "aten.mul.Tensor", line: int = 1, *, out: str = "o", random: bool = False, **inputs: str
) -> TracedOperation:
    values = tuple(Value(key, "number" if key == "other" else "tensor", text) for key, text in inputs.items())
    place = {"phase": "forward", "module": "", "file": "train.py", "line": line, "code": "x * y"}
    return TracedOperation(name, values, (Value("result", "tensor", out),), "cpu", random, place)


SAME = [operation(line=number, self=str(number)) for number in range(10)]


def test_equal_traces_do_not_part() -> None:
    assert first_part(SAME, list(SAME)) is None
    assert first_part([], []) is None


def test_what_the_script_prints_now_and_then_is_no_cause() -> None:
    extra = [operation("aten._to_copy.default", 50, self="7"), operation("aten.sum.default", 51, self="8")]
    assert first_part(SAME, [*SAME[:4], *extra, *SAME[4:]]) is None
    assert first_part([*SAME[:4], *extra, *SAME[4:]], SAME) is None


def test_an_operation_with_other_bits_from_the_same_input() -> None:
    part = first_part([*SAME, operation(self="x", out="1")], [*SAME, operation(self="x", out="2")])
    assert part is not None
    assert (part.parting, part.at, part.same_before, part.value, part.one, part.other) == (
        "operation",
        10,
        10,
        "result",
        "1",
        "2",
    )


def test_a_number_goes_before_the_result_that_it_makes_different() -> None:
    one, other = operation(self="x", other="0.1", out="1"), operation(self="x", other="0.2", out="2")
    part = first_part([*SAME, one], [*SAME, other])
    assert part is not None
    assert (part.parting, part.value) == ("number", "other")


def test_a_tensor_that_no_operation_made_different() -> None:
    part = first_part([*SAME, operation(self="x", out="1")], [*SAME, operation(self="y", out="2")])
    assert part is not None
    assert part.parting == "outside"


def test_another_way_through_the_script_is_the_cause_of_what_came_in_different_after_it() -> None:
    detour = [operation("aten.add_.Tensor", 50, self="7")]
    rest = [operation(line=20 + number, self=f"n{number}") for number in range(8)]
    moved = [operation(line=20, self="changed"), *rest[1:]]
    part = first_part([*SAME, *rest], [*SAME, *detour, *moved])
    assert part is not None
    assert (part.parting, part.other) == ("path", "aten.add_.Tensor at train.py:50")
    never_again = [operation("aten.cos.default", 90 + number, self="c") for number in range(5)]
    part = first_part(SAME[:5], [*SAME[:3], *never_again])
    assert part is not None
    assert part.parting == "path"


def test_memory_that_nobody_wrote_is_named_only_where_it_matters() -> None:
    def read(text: str, out: str) -> TracedOperation:
        value = Value("self", "tensor", text, known=True, unwritten=True)
        return replace(operation(out=out), inputs=(value,))

    assert first_part([read("x", "1"), *SAME], [read("y", "1"), *SAME]) is None
    part = first_part([read("x", "1"), operation(self="1")], [read("y", "2"), operation(self="2")])
    assert part is not None
    assert part.parting == "memory"
    judged = judge([differing("b"), differing("c")], changed=[], traced=True, part=part)
    assert (judged.kind, judged.switch) == ("nondeterministic-operation", MEMORY)


def test_a_trace_is_the_same_after_a_round_trip() -> None:
    for traced in [*SAME, operation(random=True, other="1")]:
        assert TracedOperation.from_json(traced.to_json()) == traced


@pytest.mark.parametrize(
    ("name", "device", "switch"),
    [
        ("aten.index_put_.default", "cpu", ALGORITHMS),
        ("aten.scatter_add_.default", "cuda", ALGORITHMS),
        ("aten.cumsum.default", "cuda", NONE_KNOWN),
        ("aten.upsample_bilinear2d_backward.default", "cuda", NONE_KNOWN),
        ("aten.mm.default", "cuda", CUBLAS),
        ("aten.mm.default", "cpu", THREADS),
        ("aten.empty.memory_format", "cpu", MEMORY),
        ("c10d.allreduce_.default", "cuda", COLLECTIVE),
        ("flash_attn._flash_attn_backward.default", "cuda", NOT_TORCH),
    ],
)
def test_switches(name: str, device: str, switch: str) -> None:
    assert switch_for(name, device) == switch


def test_exact_replays_have_no_kind() -> None:
    judged = judge([EXACT, EXACT], changed=["torch: 2.12 then, 2.13 now"])
    assert judged.kind is None
    written = document("i", [EXACT, EXACT], judged)
    assert (written["exact"], written["steps"], written["symptom"], written["times"]) == (True, 3, True, 2)
    assert any("3 of 3 steps" in line for line in lines(written))


def test_two_that_are_the_same_and_not_the_recorded_point_at_the_environment_or_say_that_nothing_explains_it() -> None:
    same = [differing("b"), differing("b")]
    assert judge(same, changed=["torch: 2.12 then, 2.13 now"]).kind == "environment-changed"
    assert judge(same, changed=[]).kind == "unknown"


def test_two_that_differ_are_transient_only_where_no_trace_names_an_operation() -> None:
    two = [differing("b"), differing("c")]
    assert judge(two, changed=[], traced=True).kind == "transient"
    part = first_part(
        [operation("aten.index_put_.default", self="x", out="1")],
        [operation("aten.index_put_.default", self="x", out="2")],
    )
    judged = judge(two, changed=["train.py: the file has changed"], traced=True, part=part)
    assert (judged.kind, judged.switch) == ("nondeterministic-operation", ALGORITHMS)
    assert judged.changed == ("train.py: the file has changed",)
    drawn = first_part(
        [operation("aten.rand.default", random=True, out="1")], [operation("aten.rand.default", random=True, out="2")]
    )
    assert judge(two, changed=[], traced=True, part=drawn).kind == "outside-value"


def test_one_exact_and_one_not_differ_from_each_other() -> None:
    assert judge([EXACT, differing()], changed=["x"], traced=True).kind == "transient"


def test_statuses_are_those_of_git_bisect() -> None:
    assert status([EXACT], looked_for=True) == 1
    assert status([differing(symptom=False)], looked_for=True) == 0
    assert status([differing(symptom=None)], looked_for=True) == 125
    assert status([differing(symptom=None), EXACT], looked_for=True) == 1
    quiet = replace(EXACT, symptom=None)
    assert status([quiet], looked_for=False) == 0
    assert status([differing(symptom=None)], looked_for=False) == 1


def test_a_result_document_reads_back_and_a_broken_one_is_told() -> None:
    replay = differing()
    written = document("i", [replay], judge([replay, replay], changed=[]))
    assert Replayed.from_json(written) == replay
    assert any("forward: loss" in line for line in lines(written))
    with pytest.raises(UsageError, match="not a replay result"):
        Replayed.from_json({"from_step": 3})


ENVIRONMENT = {
    "python": "3.11.2",
    "versions": {"torch": "2.13.0", "numpy": "2.0", "wandb": "0.19"},
    "device": {"machine": "x86_64", "processors": 8, "torch_threads": 4, "cuda": None, "gpus": []},
    "numerics": {"cudnn_benchmark": False},
    "environment": {"OMP_NUM_THREADS": "4", "SLURM_JOB_ID": "1"},
    "sources": {"/home/a/train.py": "aa", "/home/a/model.py": "bb"},
}


def test_an_environment_is_no_different_from_itself_or_by_what_does_not_count() -> None:
    assert changes(ENVIRONMENT, ENVIRONMENT) == []
    aside = {
        **ENVIRONMENT,
        "versions": {**ENVIRONMENT["versions"], "wandb": "0.20"},  # type: ignore[dict-item]
        "device": {**ENVIRONMENT["device"], "processors": 64},  # type: ignore[dict-item]
        "environment": {"OMP_NUM_THREADS": "4", "SLURM_JOB_ID": "2"},
    }
    assert changes(ENVIRONMENT, aside) == []


def test_each_change_is_a_line_files_first() -> None:
    present = {
        "python": "3.12.1",
        "versions": {"torch": "2.14.0"},
        "device": {"machine": "x86_64", "torch_threads": 2, "cuda": None, "gpus": [{"name": "H200"}]},
        "numerics": {"cudnn_benchmark": True},
        "environment": {},
        "sources": {"/home/a/train.py": "zz"},
    }
    told = changes(ENVIRONMENT, present)
    assert told == [
        "/home/a/train.py: the file has changed",
        "/home/a/model.py: the script imported this file then, and does not now",
        "Python: 3.11.2 then, 3.12.1 now",
        "numpy: 2.0 then, absent now",
        "torch: 2.13.0 then, 2.14.0 now",
        "threads of torch: 4 then, 2 now",
        "GPUs: none then, H200 now",
        "cudnn_benchmark: False then, True now",
        "$OMP_NUM_THREADS: 4 then, unset now",
    ]


def test_files_are_found_again_in_another_work_tree() -> None:
    moved = {**ENVIRONMENT, "sources": {"/tmp/tree/train.py": "aa", "/tmp/tree/model.py": "cc"}}
    assert changes(ENVIRONMENT, moved, moved=("/home/a", "/tmp/tree")) == ["/home/a/model.py: the file has changed"]


def test_a_strangers_document_breaks_nothing() -> None:
    assert changes({"sources": 3, "versions": [], "device": None}, {"device": {"gpus": 3}}) == []


def test_compiled_kernels_that_no_trace_shows_are_named_as_such() -> None:
    two = [differing("b"), differing("c")]
    part = first_part([*SAME, operation(self="x", out="1")], [*SAME, operation(self="y", out="2")])
    judged = judge(two, changed=[], traced=True, part=part, compiled=True)
    assert (judged.kind, judged.why, judged.switch) == ("nondeterministic-operation", COMPILED, DETERMINISTIC)
    same = [differing("b"), differing("b")]
    again = judge(same, changed=[], traced=True, part=part, compiled=True)
    assert (again.kind, "compiled again for the replay" in again.why) == ("nondeterministic-operation", True)
    assert judge(same, changed=["torch"], traced=True, part=None, compiled=True).kind == "environment-changed"
    named = first_part(
        [operation("aten.mm.default", self="x", out="1")], [operation("aten.mm.default", self="x", out="2")]
    )
    assert judge(two, changed=[], traced=True, part=named, compiled=True).operation is not None


def test_a_single_replay_agrees_with_nothing() -> None:
    assert judge([differing()], changed=[]).why.startswith("the replay differs from the recording: ")
    assert judge([differing()] * 2, changed=[]).why.startswith("2 replays agree to the last bit, but ")
