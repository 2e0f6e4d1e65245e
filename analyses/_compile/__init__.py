"""What torch.compile left in a trace: behind `compile`."""
