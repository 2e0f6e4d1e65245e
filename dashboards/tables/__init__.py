"""Result tables as AG Grid, formatted like the command line's output."""
