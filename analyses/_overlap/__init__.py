"""What runs beside kernels: behind `overlap`."""
