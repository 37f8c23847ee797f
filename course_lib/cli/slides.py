"""`course slides`: one deck a chapter, in one file that opens without a network."""

from pathlib import Path
from typing import Annotated

import typer


def slides(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Chapter numbers, such as 00 03; all if none.")
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Print each deck to PDF too.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the first deck.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; ./slides if not given.")
    ] = None,
    css: Annotated[
        Path | None, typer.Option("--css", help="A style file of your own, which wins over ours.")
    ] = None,
) -> None:
    """Make slides from chapters: press S for the speaker notes, F for the full screen."""
    import webbrowser

    from course_lib.paths import course_folders
    from course_lib.teach.slides.pdf import print_deck
    from course_lib.teach.slides.write import write_decks

    decks = write_decks(course_folders(), chapters, out, css)
    for deck in decks:
        typer.echo(str(deck))
        if pdf:
            print_deck(deck, deck.with_suffix(".pdf"))
            typer.echo(str(deck.with_suffix(".pdf")))
    if open_it:
        webbrowser.open(decks[0].resolve().as_uri())
