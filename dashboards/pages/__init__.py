"""The pages made by hand, one module each; each holds one `PAGE`."""
