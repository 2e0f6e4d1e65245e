"""What `utilization` advises on: conditions and thresholds."""

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
        "NVML gives a reason that throttles (power limit, hardware, heat, power supply, synchronized "
        "clocks) in at least 2 samples that stand for at least 5% of the sampled time of the steps",
        "a bit that is set now and then costs less than two runs of one program differ by",
    ),
    Rule(
        BELOW_MAX,
        "the mean SM clock while the device works is below 75% of its highest, by at least 2 samples, and "
        "it is throttled in less than 5% of the time",
        "boards sustain 80% and more of the highest clock under load unless they are set or held lower",
    ),
    Rule(
        NARROW_LINK,
        "in at least 2 samples taken while the device works the PCIe link never has the generation or the "
        "lanes of its highest",
        "a link at rest falls back to save power, one under load does not: then the slot, a riser or the "
        "machine's settings limit it",
    ),
    Rule(
        SHARED,
        "at least one other process has a compute context on a device that works, at any sample in the steps",
        "what it does there is not in this trace, and takes time, memory and power from this program",
    ),
    Rule(
        HOST_GROWTH,
        "over at least 16 samples before the profile, resident memory grows (the 95% interval of the slope "
        "of Theil and Sen is above 0) by at least 5% and 32 MiB, at least 35% of that in the second half",
        "start-up grows and then ends, so the second half must grow as well; during the profile the profiler "
        "itself grows",
    ),
    Rule(
        CPU_BOUND,
        "a device idles in at least 30% of the window while the process and its children use 0.85 to 1.3 "
        "cores on average, by samples that stand for at least half of it",
        "one busy core with an idle device is the sign of one thread that everything waits for; several busy "
        "cores or none have other causes",
    ),
)
