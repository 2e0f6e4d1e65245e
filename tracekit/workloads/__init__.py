"""Built-in workloads: plain torch, random data, no downloads; registered as outside packages would."""
