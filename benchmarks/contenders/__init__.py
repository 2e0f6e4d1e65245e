"""Who is measured on an input: tracekit, its peers, bare parsers; each a command in a process of its own."""
