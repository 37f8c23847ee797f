"""How long it must take: formulas for work and traffic, and what this machine can do."""
