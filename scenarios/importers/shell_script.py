"""What the commands of a launch script say, from assignments in the same file; nothing is run.

The script is walked once from top to bottom.  A value that the file does not hold (a command's
output, the environment, a positional argument, arithmetic) stays *unread*: it is an error only
where a setting needs it.  A variable that a condition may give one of several values is unread,
too, as nobody knows the branch.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from meshplan.scenarios.importers.shell_variables import (
    MAX_EXPANDED,
    Argument,
    Known,
    Walk,
    assign_array,
    default_assignments,
    expand,
    try_assign,
)
from meshplan.scenarios.importers.shell_words import (
    ArrayAssignment,
    Word,
    tokens,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OPENING = frozenset({"if", "case", "for", "while", "until", "select"})
_CLOSING = frozenset({"fi", "esac", "done"})
_LEADING = frozenset({"then", "else", "elif", "do", "{", "}", "!", "time", "if", "while", "until"})
_DECLARING = frozenset({"export", "local", "declare", "readonly", "typeset"})
_SETTING = frozenset({"for", "select", "read", "mapfile", "readarray", "getopts", "let"})
#: Commands whose words are no flags of the training program.
_SILENT = frozenset(
    {"echo", "printf", ":", "test", "[", "[[", "cat", "mkdir", "set", "shift", "case", "function"}
)
_REDIRECTION = re.compile(r"[0-9]?>|>>|<|<<<")


@dataclass(frozen=True)
class ScriptWords:
    """The commands of a script with their words, and what no command used.

    Attributes
    ----------
    commands
        Words of each command that has any, in order.
    unused
        Variables that no command used, and that were not replaced: name, line, words.
    notes
        What was passed over, for the user.
    """

    commands: tuple[tuple[Argument, ...], ...]
    unused: tuple[tuple[str, int, tuple[Argument, ...]], ...]
    notes: tuple[str, ...]


def read_script(text: str, name: str) -> ScriptWords:
    """Words of all commands of the script ``text``.

    Raises
    ------
    InputError
        If the script is cut off within a quote or bracket, or expands beyond ``MAX_EXPANDED``.
    """
    walk = Walk(name)
    words: list[Word] = []
    parentheses, skip = 0, False
    for token in tokens(re.sub("[\ue000-\ue003]", "?", text), name, walk.notes):
        if isinstance(token, ArrayAssignment):
            assign_array(walk, token)
        elif isinstance(token, Word):
            if not skip:
                words.append(token)
            skip = False
        elif _REDIRECTION.fullmatch(token.text):
            skip = True
        elif not re.fullmatch(r"[0-9]?[<>]&[0-9-]?", token.text):
            skip = False
            is_pattern = token.text == ")" and parentheses == 0 and _in_case(walk, words)
            parentheses += {"(": 1, ")": -1 if parentheses else 0}.get(token.text, 0)
            _command(walk, words, is_pattern)
            words = []
            walk.after_and = token.text in ("&&", "||")
    _command(walk, words, False)
    unused = [
        (variable, known.line, tuple(walk.told(one) for one in _split_quoted(known.items)))
        for variable, known in walk.variables.items()
        if not known.used
    ]
    return ScriptWords(tuple(walk.commands), tuple(unused), tuple(dict.fromkeys(walk.notes)))


def _in_case(walk: Walk, words: list[Word]) -> bool:
    """Whether a lone ``)`` ends a pattern of ``case``, whose words are no command."""
    return walk.cases > 0 or any(word.plain == "case" for word in words)


# -- commands ----------------------------------------------------------------------------------


def _command(walk: Walk, words: list[Word], is_pattern: bool) -> None:
    """Take one simple command: its assignments, or its words."""
    start = 0
    for word in words:
        first = word.plain
        if first not in _LEADING | _OPENING | _CLOSING:
            break
        walk.depth = max(0, walk.depth - (first in _CLOSING) + (first in _OPENING))
        walk.cases = max(0, walk.cases + (first == "case") - (first == "esac"))
        if first in ("case", "for", "select"):
            break
        start += 1
    words = words[start:]
    if not words or is_pattern:
        return
    first = words[0].plain or ""
    if first in _SETTING:
        _forget(walk, words[1:2] if first in ("for", "select") else words[1:], first)
    elif first in _DECLARING:
        for word in words[1:]:
            try_assign(walk, word)
    elif first == "unset":
        for word in words[1:]:
            walk.variables.pop(word.plain or "", None)
    elif first in ("source", "."):
        walk.notes.append(f"line {words[0].line}: another script is sourced; it is not read")
    else:
        assignments = itertools.takewhile(lambda word: try_assign(walk, word), words)
        words = words[sum(1 for _ in assignments) :]
        if words and words[0].plain in _SILENT:
            default_assignments(walk, words)
            return
        expanded = (one for word in words for one in expand(walk, word))
        if arguments := tuple(walk.told(one) for one in _split_quoted(expanded)):
            walk.commands.append(arguments)


def _forget(walk: Walk, words: list[Word], command: str) -> None:
    """Variables that a loop or a reading command sets: nothing is known of them."""
    for word in words:
        name = (word.plain or "").partition("=")[0]
        if _NAME.match(name):
            mark = walk.unread(f"${name}, which '{command}' sets on line {word.line}")
            walk.variables[name] = Known([Argument(mark, word.line)], word.line, used=True)


def _split_quoted(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """Arguments, with those that hold a whole command line (``sh -c "..."``) split at blanks."""
    for one in arguments:
        if "--" in one.text and len(parts := one.text.split()) > 1:
            for part in parts:
                yield replace(one, text=part.strip("'\""))
        else:
            yield one


__all__ = ["MAX_EXPANDED", "Argument", "ScriptWords", "read_script"]
