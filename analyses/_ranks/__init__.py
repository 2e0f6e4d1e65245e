"""What ranks tell together: behind `ranks`."""
