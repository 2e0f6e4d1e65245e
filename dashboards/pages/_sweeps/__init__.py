"""Parts of the page of sweeps: what runs measured, by what they were set to."""
