"""Split a shell script into words and operators, without running or expanding anything.

Only what launch scripts need: quotes, comments, line continuations, here-documents (skipped unless
they hold flags), arrays, ``$NAME``, ``${NAME}``, ``${NAME:-default}`` and ``${NAME[@]}``.  Whatever
else stands behind a ``$`` or between backticks becomes :class:`Unread`: it is kept as written and
never run.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from meshplan.scenarios.errors import InputError

#: Nested ``${A:-${B:-...}}`` and ``$( ( ( ... ) ) )`` beyond this are refused.
MAX_NESTING = 20
#: Words and operators of one script; real ones have some hundred.
MAX_TOKENS = 100_000

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_ARRAY_START = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=\(")
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_.-]*)\1")
_OPERATOR = re.compile(r"&&|\|\||;;|<<<|>>|<<|[0-9]?[<>]&[0-9-]?|[0-9]?>|[;&|()<\n]")
_FLAGS_INSIDE = re.compile(r"(?:^|\s)--[a-z][a-z0-9]*[-_][a-z0-9_-]+")
_BLANK = " \t"
#: A line that goes on in the author's mind, but not in bash's: its backslash is not the last.
_BROKEN = re.compile(r"\\[ \t]+(?:#[^\n]*)?(?=\n[ \t]*-)")
#: What follows a comment within a command: more comments, and flags.
_COMMENTED = re.compile(r"(?:\n[ \t]*#[^\n]*)*\n[ \t]*-")


@dataclass(frozen=True)
class Literal:
    """Plain characters; ``quoted`` ones are never split at blanks."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class Variable:
    """``$name`` or ``${name:-default}``; ``whole`` for all items of an array."""

    name: str
    default: tuple[Part, ...] | None
    quoted: bool
    whole: bool
    written: str


@dataclass(frozen=True)
class Unread:
    """Something that would have to be run or computed, as written."""

    written: str


Part: TypeAlias = Literal | Variable | Unread


@dataclass(frozen=True)
class Word:
    """One word of a command and the 1-based line on which it starts."""

    parts: tuple[Part, ...]
    line: int

    @property
    def plain(self) -> str | None:
        """The text of a word without expansions and quotes, else None."""
        if any(not isinstance(part, Literal) or part.quoted for part in self.parts):
            return None
        return "".join(part.text for part in self.parts if isinstance(part, Literal))


@dataclass(frozen=True)
class Operator:
    """What separates commands, or redirects: ``;``, ``&&``, newline, ``>``."""

    text: str
    line: int


@dataclass(frozen=True)
class ArrayAssignment:
    """``NAME=( words )`` or ``NAME+=( words )``."""

    name: str
    append: bool
    words: tuple[Word, ...]
    line: int


Token: TypeAlias = Word | Operator | ArrayAssignment


def tokens(text: str, name: str, notes: list[str] | None = None) -> Iterator[Token]:
    """Words, operators and array assignments of a script, in order; ``notes`` gets remarks.

    Raises
    ------
    InputError
        For a quote, brace, bracket or here-document that does not end, too deep nesting, or more
        than ``MAX_TOKENS`` words; it names the line.
    """
    count = 0
    lexer = _Lexer(text, name)
    lexer.notes = [] if notes is None else notes
    for token in lexer.tokens():
        count += len(token.words) + 1 if isinstance(token, ArrayAssignment) else 1
        if count > MAX_TOKENS:
            raise InputError(
                f"the script has more than {MAX_TOKENS} words",
                advice="this is not the script you meant; give the launch command alone.",
                file=name,
                line=token.line,
            )
        yield token


class _Lexer:
    def __init__(self, text: str, name: str, first_line: int = 1, depth: int = 0) -> None:
        self.text, self.name, self.depth = text, name, depth
        self.first_line = first_line
        self.breaks = [index for index, char in enumerate(text) if char == "\n"]
        self.at = 0
        self.here: list[str] = []
        self.notes: list[str] = []
        if depth > MAX_NESTING:
            raise self.refuse(f"more than {MAX_NESTING} levels of nested expansions", 0)

    def line(self, index: int) -> int:
        return bisect_right(self.breaks, index - 1) + self.first_line

    def refuse(self, message: str, index: int) -> InputError:
        return InputError(
            message,
            advice="check the quotes and brackets there, or give the printed argument dump.",
            file=self.name,
            line=self.line(index),
        )

    def tokens(self) -> Iterator[Token]:
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char in _BLANK:
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif broken := _BROKEN.match(text, self.at):
                self._remark("a blank follows the backslash, so bash ends the command there")
                self.at = broken.end()
            elif char == "#":
                self._comment()
            elif array := _ARRAY_START.match(text, self.at):
                yield self._array(array)
            elif (here := _HERE.match(text, self.at)) and not text.startswith("<<<", self.at):
                self.here.append(here[2])
                self.at = here.end()
            elif operator := _OPERATOR.match(text, self.at):
                yield Operator(operator[0], self.line(self.at))
                self.at = operator.end()
                if operator[0] == "\n":
                    yield from self._here_documents()
            else:
                yield self._word()

    def _remark(self, message: str) -> None:
        self.notes.append(
            f"line {self.line(self.at)}: {message}; the flags below are read as if it went on"
        )

    def _comment(self) -> None:
        start = before = self.at
        while before > 0 and self.text[before - 1] in _BLANK:
            before -= 1
        end = self._end_of_line(start)
        if self.text[max(0, before - 2) : before] == "\\\n" and _COMMENTED.match(self.text, end):
            self._remark("a comment stands within the command, so bash ends it there")
        self.at = end

    def _end_of_line(self, index: int) -> int:
        end = self.text.find("\n", index)
        return len(self.text) if end < 0 else end

    def _here_documents(self) -> Iterator[Token]:
        """Skip the bodies that are due, but read one that holds flags: a script in a script."""
        due, self.here = self.here, []
        for delimiter in due:
            start = self.at
            close = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE)
            found = close.search(self.text, start)
            if found is None:
                raise self.refuse(f"a here-document does not end: no line {delimiter!r}", start)
            body = self.text[start : found.start()]
            self.at = found.end()
            if _FLAGS_INSIDE.search(body):
                inner = _Lexer(body, self.name, self.line(start), self.depth + 1)
                inner.notes = self.notes
                yield from inner.tokens()
                yield Operator("\n", self.line(found.start()))

    def _array(self, match: re.Match[str]) -> Token:
        start = self.at
        self.at = match.end()
        words: list[Word] = []
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char == ")":
                self.at += 1
                return ArrayAssignment(match[1], bool(match[2]), tuple(words), self.line(start))
            if char in " \t\n":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                self.at = self._end_of_line(self.at)
            else:
                words.append(self._word(in_array=True))
        raise self.refuse(f"the array {match[1]} does not end: no ')'", start)

    def _word(self, in_array: bool = False) -> Word:
        start = self.at
        parts: list[Part] = []
        stops = " \t\n)" if in_array else " \t\n;&|()<>"
        while self.at < len(self.text) and self.text[self.at] not in stops:
            parts += self._piece()
        if self.at == start:  # a character that starts no word here, such as a lone bracket
            self.at += 1
            parts.append(Literal(self.text[start], False))
        return Word(tuple(parts), self.line(start))

    def _piece(self) -> list[Part]:
        """The next quoted, escaped, expanded or plain piece of a word."""
        text, start = self.text, self.at
        char = text[start]
        if char == "\\":
            self.at = start + 2
            escaped = text[start + 1 : start + 2]
            return [] if escaped == "\n" else [Literal(escaped, True)]
        if char == "'" or text.startswith("$'", start):
            opening = start + (2 if char == "$" else 1)
            end = text.find("'", opening)
            if end < 0:
                raise self.refuse("a quote (') does not end", start)
            self.at = end + 1
            return [Literal(text[opening:end], True)]
        if char == '"':
            return self._double_quoted()
        if char == "$" or char == "`":
            return [self._expansion(quoted=False)]
        end = start + 1
        while end < len(text) and text[end] not in " \t\n;&|()<>\\'\"$`":
            end += 1
        self.at = end
        return [Literal(text[start:end], False)]

    def _double_quoted(self) -> list[Part]:
        text, start = self.text, self.at
        self.at += 1
        parts: list[Part] = [Literal("", True)]
        while self.at < len(text):
            char = text[self.at]
            if char == '"':
                self.at += 1
                return parts
            if char == "\\" and text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                escaped = text[self.at + 1]
                parts.append(Literal("" if escaped == "\n" else escaped, True))
                self.at += 2
            elif char in "$`":
                parts.append(self._expansion(quoted=True))
            else:
                end = self.at + 1
                while end < len(text) and text[end] not in '"\\$`':
                    end += 1
                parts.append(Literal(text[self.at : end], True))
                self.at = end
        raise self.refuse('a quote (") does not end', start)

    def _expansion(self, quoted: bool) -> Part:
        text, start = self.text, self.at
        if text[start] == "`":
            end = text.find("`", start + 1)
            if end < 0:
                raise self.refuse("a command between backticks does not end", start)
            self.at = end + 1
            return Unread(text[start : self.at])
        follow = text[start + 1 : start + 2]
        if follow == "(":
            self.at = self._skip(start + 2, ")", start)
            return Unread(text[start : self.at])
        if follow == "{":
            self.at = self._skip(start + 2, "}", start)
            return self._parameter(text[start : self.at], quoted, start)
        named = _PARAMETER.match(text, start + 1)
        if named is None:
            self.at = start + 1
            return Literal("$", quoted)
        name = named[0] if _NAME.fullmatch(named[0]) else named[0][0]
        self.at = start + 1 + len(name)
        return Variable(name, None, quoted, name in "@*", f"${name}")

    def _parameter(self, written: str, quoted: bool, start: int) -> Part:
        inside = written[2:-1]
        named = _PARAMETER.match(inside)
        if named is None:
            return Unread(written)
        rest = inside[named.end() :]
        whole = rest[:3] in ("[@]", "[*]")
        rest = rest[3:] if whole else rest
        if not rest or rest.startswith((":?", "?")):
            return Variable(named[0], None, quoted, whole or named[0] in "@*", written)
        operator = re.match(r":?[-=]", rest)
        if operator is None:
            return Unread(written)
        inner = _Lexer(rest[operator.end() :], self.name, self.line(start), self.depth + 1)
        return Variable(named[0], tuple(inner._value(quoted)), quoted, whole, written)

    def _value(self, quoted: bool) -> Iterator[Part]:
        """All of a default as parts of one word: blanks are plain characters in it."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|()<>":
                self.at += 1
                yield Literal(char, quoted)
            elif quoted and char == "'":
                self.at += 1
                yield Literal(char, True)
            else:
                yield from self._piece()

    def _skip(self, index: int, closer: str, start: int) -> int:
        """Index after the ``closer`` that belongs to an opener before ``index``."""
        text, stack = self.text, [closer]
        while index < len(text):
            char, top = text[index], stack[-1]
            if char == "\\":
                index += 1
            elif char == top:
                stack.pop()
                if not stack:
                    return index + 1
            elif char == "'" and top != '"':
                end = text.find("'", index + 1)
                if end < 0:
                    break
                index = end
            elif char == '"':
                stack.append('"')
            elif text.startswith(("$(", "${"), index):
                stack.append(")" if text[index + 1] == "(" else "}")
                index += 1
            elif char == "(" and top == ")":
                stack.append(")")
            if len(stack) > MAX_NESTING:
                raise self.refuse(f"more than {MAX_NESTING} levels of nested expansions", start)
            index += 1
        opener = text[start : start + 2]
        raise self.refuse(f"{opener!r} does not end: no {stack[-1]!r}", start)


__all__ = [
    "ArrayAssignment",
    "Literal",
    "Operator",
    "Part",
    "Token",
    "Unread",
    "Variable",
    "Word",
    "tokens",
]
