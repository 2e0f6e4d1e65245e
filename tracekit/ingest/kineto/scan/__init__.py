"""A compiled decoder of Kineto's events beside the reference, which it must equal on all that it accepts.

`words` (instructions) → `grammar` (JSON) → `slots`, `values` (an event's members) → `rows` (what an event
becomes) → `events` (the loop) fill `sheets`; `texts` and `tables` make batches of them; `scanner` is one
thread's use of it all, and `ready` has it compiled or loaded without anybody waiting.
"""
