"""Reader of Kineto traces (torch.profiler's Chrome-trace JSON).

bytes → `source` (inflate) → `split` (cut between events) → `events` (decode) → `batches` (Arrow per table)
"""
