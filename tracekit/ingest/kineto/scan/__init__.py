"""A compiled decoder of Kineto's events beside the reference, which it must equal on all that it accepts.

`codegen` is what is compiled: `intrinsics` → `digits`, `grammar` (JSON) → `keys`, `values` (members
into `slots`) → `interning`, `rows` (what an event becomes, by `layout`) → `events` (the loop) fill `sheets`.
Of these `texts` and `tables` make batches, by `distinct`. `scanner` is one thread's use of it all, `native`
compiles and loads the machine code, and `loader` has that done without anybody waiting.
"""
