"""Work, traffic and device peaks, for `roofline`."""
