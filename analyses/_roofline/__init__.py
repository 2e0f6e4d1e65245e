"""Work, traffic and the peaks of devices: behind `roofline`."""
