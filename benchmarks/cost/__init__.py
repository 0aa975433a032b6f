"""What watching costs: arms that compute the same steps and take turns, and a table of how they compare.

| file | what it is |
|---|---|
| ``case``, ``gpt`` | what is trained: sizes, dtypes, with or without clipping; the model |
| ``arms``, ``peers``, ``lightning_arms`` | who watches: ours, the habits of tutorials, other tools |
| ``process`` | one arm as a process of its own |
| ``accounting`` | time inside our own entry points, part by part |
| ``host_reads`` | how often the host waits for a number |
| ``referee`` | lets the arms take turns |
| ``compare``, ``table`` | ratios with intervals; markdown |
"""
