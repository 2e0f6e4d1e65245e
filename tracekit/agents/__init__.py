"""Access for coding agents: tools over the Model Context Protocol, and the skill for their use."""
