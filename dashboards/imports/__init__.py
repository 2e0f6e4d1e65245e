"""Browser imports: slices are uploaded, a worker process imports them, a panel shows progress."""
