"""The one error for input from outside: a trace, a scenario, a profile, a result folder."""


class InputError(ValueError):
    """Something that a user gave is wrong.

    The message is one line: it names the file and the row or key, says what is wrong and what
    would be right. The command line prints it and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    """The text with line breaks and the like as escapes: what it quotes may hold anything."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
