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
from dataclasses import dataclass, field, replace

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.shell_words import (
    ArrayAssignment,
    Literal,
    Part,
    Variable,
    Word,
    tokens,
)
from meshplan.scenarios.yaml_reader import shorten

#: Characters that all expansions together may give: real scripts need some ten thousand.
MAX_EXPANDED = 1 << 21
#: What an item of an array counts for, besides its characters.
_ITEM = 64

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
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
# Unread pieces are carried through splitting and joining as private-use characters.
_MARK = re.compile("\ue000([0-9]+)\ue001")


@dataclass(frozen=True)
class Argument:
    """One word as the program would get it.

    Attributes
    ----------
    text
        What is known of it; unread pieces are left out.
    line
        1-based line on which it was written.
    unread
        Why it is not wholly known, or None.
    conditional
        Whether it stands under an ``if``, ``case`` or loop, or in an assignment after ``&&``.
    """

    text: str
    line: int
    unread: str | None = None
    conditional: bool = False


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


@dataclass
class _Known:
    """The items of a variable; a scalar has one."""

    items: list[Argument]
    line: int
    is_array: bool = False
    used: bool = False


@dataclass
class _Walk:
    """State of the walk."""

    name: str
    variables: dict[str, _Known] = field(default_factory=dict)
    commands: list[tuple[Argument, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    depth: int = 0
    cases: int = 0
    after_and: bool = False
    expanded: int = 0

    @property
    def conditional(self) -> bool:
        return self.depth > 0 or self.after_and

    def unread(self, reason: str) -> str:
        """A mark that stands for what is not known."""
        self.reasons.append(reason)
        return f"\ue000{len(self.reasons) - 1}\ue001"

    def told(self, one: Argument) -> Argument:
        """The argument with its marks taken out and told."""
        marks = _MARK.findall(one.text)
        if not marks:
            return one
        return replace(one, text=_MARK.sub("", one.text), unread=self.reasons[int(marks[0])])

    def spend(self, characters: int) -> None:
        self.expanded += characters
        if self.expanded > MAX_EXPANDED:
            raise InputError(
                f"the variables expand to more than {MAX_EXPANDED} characters",
                advice="give the launch command itself, or the printed argument dump.",
                file=self.name,
            )


def read_script(text: str, name: str) -> ScriptWords:
    """Words of all commands of the script ``text``.

    Raises
    ------
    InputError
        If the script is cut off within a quote or bracket, or expands beyond ``MAX_EXPANDED``.
    """
    walk = _Walk(name)
    words: list[Word] = []
    parentheses, skip = 0, False
    for token in tokens(re.sub("[\ue000\ue001]", "?", text), name):
        if isinstance(token, ArrayAssignment):
            _assign_array(walk, token)
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


def _in_case(walk: _Walk, words: list[Word]) -> bool:
    """Whether a lone ``)`` ends a pattern of ``case``, whose words are no command."""
    return walk.cases > 0 or any(word.plain == "case" for word in words)


# -- commands ----------------------------------------------------------------------------------


def _command(walk: _Walk, words: list[Word], is_pattern: bool) -> None:
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
            _try_assign(walk, word)
    elif first == "unset":
        for word in words[1:]:
            walk.variables.pop(word.plain or "", None)
    elif first in ("source", "."):
        walk.notes.append(f"line {words[0].line}: another script is sourced; it is not read")
    else:
        assignments = itertools.takewhile(lambda word: _try_assign(walk, word), words)
        words = words[sum(1 for _ in assignments) :]
        if words and words[0].plain in _SILENT:
            _default_assignments(walk, words)
            return
        expanded = (one for word in words for one in _expand(walk, word))
        if arguments := tuple(walk.told(one) for one in _split_quoted(expanded)):
            walk.commands.append(arguments)


def _forget(walk: _Walk, words: list[Word], command: str) -> None:
    """Variables that a loop or a reading command sets: nothing is known of them."""
    for word in words:
        name = (word.plain or "").partition("=")[0]
        if _NAME.match(name):
            mark = walk.unread(f"${name}, which '{command}' sets on line {word.line}")
            walk.variables[name] = _Known([Argument(mark, word.line)], word.line, used=True)


def _split_quoted(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """Arguments, with those that hold a whole command line (``sh -c "..."``) split at blanks."""
    for one in arguments:
        if "--" in one.text and len(parts := one.text.split()) > 1:
            for part in parts:
                yield replace(one, text=part.strip("'\""))
        else:
            yield one


# -- assignments -------------------------------------------------------------------------------


def _try_assign(walk: _Walk, word: Word) -> bool:
    """Take ``NAME=value`` or ``NAME+=value``; False if the word is none."""
    first = word.parts[0] if word.parts else None
    if not isinstance(first, Literal) or first.quoted:
        return False
    match = _ASSIGNMENT.match(first.text)
    if match is None:
        return False
    rest = Literal(first.text[match.end() :], False)
    text = _joined(walk, (rest, *word.parts[1:]))
    before = walk.variables.get(match[1])
    if match[2] and before is not None and before.items:
        text = before.items[0].text + text
        walk.spend(len(text))
    _store(walk, match[1], Argument(text, word.line, None, walk.conditional), bool(match[2]))
    return True


def _store(walk: _Walk, name: str, value: Argument, append: bool = False) -> None:
    before = walk.variables.get(name)
    old = before.items[0] if before and before.items and not before.is_array else None
    if append or not walk.conditional or old is None or old.text == value.text:
        walk.variables[name] = _Known([value], value.line)
    elif _MARK.search(value.text) and not _MARK.search(old.text):
        # The usual loop over options of the command line: the default above it holds.
        walk.notes.append(
            f"line {value.line}: ${name} may be changed under a condition; "
            f"{shorten(old.text)} of line {old.line} is taken"
        )
    elif not _MARK.search(old.text):
        mark = walk.unread(
            f"${name}, which is {shorten(old.text)} on line {old.line} and {shorten(value.text)} "
            f"on line {value.line}, as a condition decides"
        )
        walk.variables[name] = _Known([Argument(mark, value.line, None, True)], value.line)


def _assign_array(walk: _Walk, token: ArrayAssignment) -> None:
    items = [
        replace(one, conditional=one.conditional or walk.conditional)
        for word in token.words
        for one in _expand(walk, word)
    ]
    before = walk.variables.get(token.name)
    if before is not None and (token.append or (walk.conditional and before.is_array)):
        # Under a condition either branch may hold: both are kept, so that a contradiction shows.
        walk.spend(sum(len(one.text) + _ITEM for one in items))
        before.items.extend(items)
        before.is_array = True
    else:
        walk.variables[token.name] = _Known(items, token.line, is_array=True)


def _default_assignments(walk: _Walk, words: list[Word]) -> None:
    """``: ${TP:=4}`` sets TP, unless the file did."""
    for part in (part for word in words for part in word.parts):
        if (
            isinstance(part, Variable)
            and part.default is not None
            and part.name not in walk.variables
            and re.match(r"\$\{\w+:?=", part.written)
        ):
            text = _joined(walk, part.default)
            _store(walk, part.name, Argument(text, words[0].line, None, walk.conditional))


# -- expansion ---------------------------------------------------------------------------------


@dataclass
class _Fields:
    """The arguments that a word becomes, while it is expanded."""

    line: int
    conditional: bool
    done: list[Argument] = field(default_factory=list)
    text: str = ""
    begun: bool = False

    def add(self, text: str, quoted: bool) -> None:
        self.text += text
        self.begun = self.begun or quoted or bool(text)

    def end(self) -> None:
        if self.begun:
            self.done.append(Argument(self.text, self.line, None, self.conditional))
        self.text, self.begun = "", False


def _expand(walk: _Walk, word: Word) -> list[Argument]:
    """The arguments that one word becomes: none, one, or one for each item of an array."""
    fields = _Fields(word.line, walk.depth > 0)
    for part in word.parts:
        known = _lookup(walk, part) if isinstance(part, Variable) else None
        if known is not None and isinstance(part, Variable) and part.whole:
            fields.end()
            walk.spend(sum(len(item.text) + _ITEM for item in known.items))
            for item in known.items:
                for piece in [item.text] if part.quoted else item.text.split():
                    fields.done.append(replace(item, text=piece))
        elif isinstance(part, Variable) and not part.quoted:
            pieces = re.split(r"[ \t\n]+", _joined(walk, (part,)))
            if len(pieces) > 1 and len(word.parts) == 1 and known is not None:
                fields.line = known.line  # a list of flags: where it was written
            for index, piece in enumerate(pieces):
                if index:
                    fields.end()
                fields.add(piece, False)
        else:
            fields.add(_joined(walk, (part,)), not isinstance(part, Literal) or part.quoted)
    fields.end()
    return fields.done


def _lookup(walk: _Walk, part: Variable) -> _Known | None:
    known = walk.variables.get(part.name)
    if known is None or (part.default is not None and known.items == []):
        return None
    known.used = True
    return known


def _joined(walk: _Walk, parts: tuple[Part, ...]) -> str:
    """The text of the parts without splitting; what is not known becomes a mark."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Literal):
            texts.append(part.text)
        elif not isinstance(part, Variable):
            texts.append(walk.unread(f"{shorten(part.written)}, which would have to be run"))
        elif (known := _lookup(walk, part)) is not None:
            items = known.items if part.whole else known.items[:1]
            texts.append(" ".join(item.text for item in items))
        elif part.default is not None:
            texts.append(_joined(walk, part.default))
        else:
            texts.append(walk.unread(f"{part.written[:60]}, which this file does not set"))
        walk.spend(len(texts[-1]))
    return "".join(texts)


__all__ = ["MAX_EXPANDED", "Argument", "ScriptWords", "read_script"]
