"""Variables of a launch script: what assignments give them, and what words become with them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.shell_words import (
    ArrayAssignment,
    Literal,
    Part,
    Variable,
    Word,
)
from meshplan.scenarios.yaml_reader import shorten

#: Characters that all expansions together may give: real scripts need some ten thousand.
MAX_EXPANDED = 1 << 21
#: What an item of an array counts for, besides its characters.
_ITEM = 64

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
# Unread pieces are carried through splitting and joining as private-use characters.
_MARK = re.compile("\ue000([0-9]+)\ue001")
# So are the lines of words that stand in a string only under a condition.
_UNDER = re.compile("\ue002([0-9]+)\ue003")


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


@dataclass
class Known:
    """The items of a variable; a scalar has one."""

    items: list[Argument]
    line: int
    is_array: bool = False
    used: bool = False


@dataclass
class Walk:
    """State of the walk."""

    name: str
    variables: dict[str, Known] = field(default_factory=dict)
    commands: list[tuple[Argument, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    depth: int = 0
    cases: int = 0
    after_and: bool = False
    expanded: int = 0

    @property
    def conditional(self) -> bool:
        """Whether the present command runs only if a condition holds."""
        return self.depth > 0 or self.after_and

    def unread(self, reason: str) -> str:
        """A mark that stands for what is not known."""
        self.reasons.append(reason)
        return f"\ue000{len(self.reasons) - 1}\ue001"

    def told(self, one: Argument) -> Argument:
        """The argument with its marks taken out and told."""
        if lines := _UNDER.findall(one.text):
            one = replace(one, text=_UNDER.sub("", one.text), line=int(lines[0]), conditional=True)
        marks = _MARK.findall(one.text)
        if not marks:
            return one
        return replace(one, text=_MARK.sub("", one.text), unread=self.reasons[int(marks[0])])

    def spend(self, characters: int) -> None:
        """Count characters of an expansion; an ``InputError`` if they are too many."""
        self.expanded += characters
        if self.expanded > MAX_EXPANDED:
            raise InputError(
                f"the variables expand to more than {MAX_EXPANDED} characters",
                advice="give the launch command itself, or the printed argument dump.",
                file=self.name,
            )


# -- assignments -------------------------------------------------------------------------------


def try_assign(walk: Walk, word: Word) -> bool:
    """Take ``NAME=value`` or ``NAME+=value``; False if the word is none."""
    first = word.parts[0] if word.parts else None
    if not isinstance(first, Literal) or first.quoted:
        return False
    match = _ASSIGNMENT.match(first.text)
    if match is None:
        return False
    before = walk.variables.get(match[1])
    old = before.items[0].text if before and before.items and not before.is_array else None
    # OPT="$OPT --more" appends as OPT+= does.
    own = [isinstance(one, Variable) and one.name == match[1] for one in word.parts]
    append = bool(match[2]) or (old is not None and any(own))
    marked = walk.conditional and (append or old is None)
    rest = Literal(first.text[match.end() :], False)
    text = ""
    for part, itself in zip((rest, *word.parts[1:]), own, strict=True):
        piece = joined(walk, (part,))
        text += _under(piece, word.line) if marked and not itself else piece
    if match[2] and before is not None and before.items:
        text = before.items[0].text + text
        walk.spend(len(text))
    store(walk, match[1], Argument(text, word.line, None, walk.conditional), append)
    return True


def _under(text: str, line: int) -> str:
    """The text with each word marked as one that only a condition puts there."""
    return re.sub("(?<!\\S)(?!\ue002)(?=\\S)", f"\ue002{line}\ue003", text)


def store(walk: Walk, name: str, value: Argument, append: bool = False) -> None:
    before = walk.variables.get(name)
    old = before.items[0] if before and before.items and not before.is_array else None
    if append or not walk.conditional or old is None or _UNDER.sub("", old.text) == value.text:
        walk.variables[name] = Known([value], value.line)
    elif _MARK.search(value.text) and not _MARK.search(old.text) and _is_plain(old.text):
        # The usual loop over options of the command line: the default above it holds.
        walk.notes.append(
            f"line {value.line}: ${name} may be changed under a condition; "
            f"{_shown(old)} of line {old.line} is taken"
        )
    elif not _MARK.fullmatch(old.text):
        mark = walk.unread(
            f"${name}, which is {_shown(old)} on line {old.line} and {_shown(value)} "
            f"on line {value.line}, as a condition decides"
        )
        walk.variables[name] = Known([Argument(mark, value.line, None, True)], value.line)


def _is_plain(text: str) -> bool:
    """Whether a value is a single setting, and no list of flags, which may be empty."""
    return bool(text.strip()) and "--" not in text


def _shown(value: Argument) -> str:
    """The text for messages, without the marks."""
    return shorten(_MARK.sub("...", _UNDER.sub("", value.text)))


def assign_array(walk: Walk, token: ArrayAssignment) -> None:
    """Take ``NAME=(...)`` or ``NAME+=(...)``."""
    items = [
        replace(one, conditional=one.conditional or walk.conditional)
        for word in token.words
        for one in expand(walk, word)
    ]
    before = walk.variables.get(token.name)
    if before is not None and (token.append or (walk.conditional and before.is_array)):
        # Under a condition either branch may hold: both are kept, so that a contradiction shows.
        walk.spend(sum(len(one.text) + _ITEM for one in items))
        before.items.extend(items)
        before.is_array = True
    else:
        walk.variables[token.name] = Known(items, token.line, is_array=True)


def default_assignments(walk: Walk, words: list[Word]) -> None:
    """``: ${TP:=4}`` sets TP, unless the file did."""
    for part in (part for word in words for part in word.parts):
        if (
            isinstance(part, Variable)
            and part.default is not None
            and part.name not in walk.variables
            and re.match(r"\$\{\w+:?=", part.written)
        ):
            text = joined(walk, part.default)
            store(walk, part.name, Argument(text, words[0].line, None, walk.conditional))


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


def expand(walk: Walk, word: Word) -> list[Argument]:
    """The arguments that one word becomes: none, one, or one for each item of an array."""
    fields = _Fields(word.line, walk.depth > 0)
    for part in word.parts:
        known = lookup(walk, part) if isinstance(part, Variable) else None
        if known is not None and isinstance(part, Variable) and part.whole:
            fields.end()
            walk.spend(sum(len(item.text) + _ITEM for item in known.items))
            for item in known.items:
                for piece in [item.text] if part.quoted else item.text.split():
                    fields.done.append(replace(item, text=piece))
        elif isinstance(part, Variable) and not part.quoted:
            pieces = re.split(r"[ \t\n]+", joined(walk, (part,)))
            if len(pieces) > 1 and len(word.parts) == 1 and known is not None:
                fields.line = known.line  # a list of flags: where it was written
            for index, piece in enumerate(pieces):
                if index:
                    fields.end()
                fields.add(piece, False)
        else:
            fields.add(joined(walk, (part,)), not isinstance(part, Literal) or part.quoted)
    fields.end()
    return fields.done


def lookup(walk: Walk, part: Variable) -> Known | None:
    known = walk.variables.get(part.name)
    if known is None or (part.default is not None and known.items == []):
        return None
    known.used = True
    return known


def joined(walk: Walk, parts: tuple[Part, ...]) -> str:
    """The text of the parts without splitting; what is not known becomes a mark."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Literal):
            texts.append(part.text)
        elif not isinstance(part, Variable):
            texts.append(walk.unread(f"{shorten(part.written)}, which would have to be run"))
        elif (known := lookup(walk, part)) is not None:
            items = known.items if part.whole else known.items[:1]
            texts.append(" ".join(item.text for item in items))
        elif part.default is not None:
            texts.append(joined(walk, part.default))
        else:
            texts.append(walk.unread(f"{part.written[:60]}, which this file does not set"))
        walk.spend(len(texts[-1]))
    return "".join(texts)


__all__ = [
    "MAX_EXPANDED",
    "Argument",
    "Known",
    "Walk",
    "assign_array",
    "default_assignments",
    "expand",
    "try_assign",
]
