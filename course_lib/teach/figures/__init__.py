"""Figures: data in, matplotlib Axes out. Notebook cells call them in one line."""
