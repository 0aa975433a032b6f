"""The first step at which something measurable left its course before a symptom.

| file | what it does |
|---|---|
| ``measures`` | what is measured of a step, in the order in which a step computes it |
| ``departures`` | decides which of it left its course, and when: pure, numbers in, departures out |
| ``batches`` | what came into the model and the losses, and the loss of each row |
| ``following`` | the follower that measures while recorded steps are done again |
| ``launched`` | the side that runs the script |
| ``finding`` | launches it, from further and further back, and says what came out |

The first two need no torch.
"""
