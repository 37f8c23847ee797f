"""What makes the package a course: checks, exercises, figures, widgets, notebooks, slides."""
