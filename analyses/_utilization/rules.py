"""Rules of `utilization` and their thresholds."""

from __future__ import annotations

from tracekit.analysis import Rule

THROTTLED, BELOW_MAX, NARROW_LINK = "clock_throttled", "clock_below_max", "pcie_link_below_max"
SHARED, HOST_GROWTH, CPU_BOUND = "shared_device", "host_memory_growth", "cpu_bound_process"

THROTTLED_SHARE = 0.05
CLOCK_SHARE = 0.75
SLOWED_SHARE = 0.9
LEAST_SAMPLES = 2
IDLE_SHARE = 0.3
ONE_CORE = (0.85, 1.3)
LEAST_COVERED = 0.5
GROWTH_SHARE, GROWTH_BYTES, GROWTH_SAMPLES = 0.05, 32 << 20, 16
LATER_SHARE = 0.35

RULES = (
    Rule(
        THROTTLED,
        "NVML reports a throttling reason (power limit, hardware, temperature, power supply, synchronized "
        "clocks) in at least 2 samples that cover at least 5% of the sampled time of the steps",
        "a bit that is set rarely costs less than the variation between runs of one program",
    ),
    Rule(
        BELOW_MAX,
        "the mean SM clock while the device is busy is below 75% of its maximum, in at least 2 samples, and "
        "it is throttled in less than 5% of the time",
        "boards sustain at least 80% of the maximum clock under load unless set lower or throttled",
    ),
    Rule(
        NARROW_LINK,
        "in at least 2 samples while the device is busy, the PCIe link does not reach its maximum generation "
        "or number of lanes",
        "an idle link falls back to save power, but not under load; then the slot, a riser or the machine's "
        "settings limit it",
    ),
    Rule(
        SHARED,
        "at least one other process has a compute context on a busy device, in any sample in the steps",
        "it takes time, memory and power from this program, and is not in this trace",
    ),
    Rule(
        HOST_GROWTH,
        "over at least 16 samples before the profile, resident memory grows (the 95% interval of the "
        "Theil-Sen slope is above 0) by at least 5% and 32 MiB, at least 35% of that in the second half",
        "growth at start-up ends, so the second half must grow too; during the profile the profiler's memory "
        "grows",
    ),
    Rule(
        CPU_BOUND,
        "a device is idle for at least 30% of the window while the process and its children use 0.85 to 1.3 "
        "cores on average, in samples that cover at least half of it",
        "one busy core with an idle device indicates a single limiting thread; several busy cores or "
        "none have other causes",
    ),
)
