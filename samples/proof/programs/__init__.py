"""Small CUDA programs with known work; each is run as a script with the path of its facts, a JSON file."""
