"""Sentences in Markdown."""

SPECIAL = "\\$*_[]~`#<>|"


def markdown(text: str) -> str:
    r"""Text as it is: characters that Markdown would read as formulas, emphasis or headings are escaped.

    Examples
    --------
    >>> markdown("$5 to $7")
    '\\$5 to \\$7'
    """
    for character in SPECIAL:
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


def bullets(sentences: tuple[str, ...]) -> str:
    """Sentences as a Markdown list."""
    return "\n".join(f"- {markdown(sentence)}" for sentence in sentences)
