"""What is compiled. Only compiling imports it; loading what was compiled needs no compiler."""
