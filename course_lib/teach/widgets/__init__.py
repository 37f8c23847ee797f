"""Widgets: the only importers of ipywidgets; each has a static picture for pages and slides."""
