"""Slides: one self-contained HTML file per chapter, from the chapter's cells and stored outputs.

`deck` sorts cells into slides by their roles, `render` turns cells into HTML, `maths` draws
formulas, `page` puts everything that a browser needs into one file, `pdf` prints it.
"""
