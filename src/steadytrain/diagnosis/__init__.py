"""From what was seen and tried to what is the matter. Pure: no torch, no files, no clock; the same input, the same
answer.

| file | what it is |
|---|---|
| ``model`` | the answer and its parts as inert values, and their JSON |
| ``weighing`` | how likely each cause is: base rates, signs, and outcomes of trials |
| ``choosing`` | which trials to run next: information for their cost |
| ``proving`` | what makes a cause confirmed, and what is still missing for that |
| ``concluding`` | statuses, evidence for and against, and what to record next time |

Not here: running trials, which is ``steadytrain.trial_runs.diagnose``.
"""
