"""XML of a stranger as elements with their lines, bounded, and with no entities at all.

The standard library's expat does it: entity declarations are refused where they stand, so nothing
can expand, and nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from meshplan.topologies.errors import TopologyFileError

MAX_ELEMENTS = 500_000
MAX_DEPTH = 100
MAX_TEXT = 1000


@dataclass
class Element:
    """An XML element: tag, attributes, text inside, children, and the line where it begins."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[Element]:
        """All elements called ``tag`` below this one, in document order."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.all(tag)

    def inner(self, tag: str) -> str:
        """Text of the first child called ``tag``, without blanks around it; empty if none."""
        return next((child.text.strip() for child in self.children if child.tag == tag), "")


class _Builder:
    def __init__(self) -> None:
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._entity

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MAX_ELEMENTS or len(self.open) >= MAX_DEPTH:
            raise TopologyFileError(
                f"more than {MAX_ELEMENTS:,} XML elements or {MAX_DEPTH} levels",
                advice="check that this is the file you meant.",
                line=self.parser.CurrentLineNumber,
            )
        element = Element(tag, attributes, self.parser.CurrentLineNumber)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def _end(self, _tag: str) -> None:
        self.open.pop()

    def _text(self, text: str) -> None:
        # Texts that are read are short; adding to one without end would take the square of it.
        if self.open and len(self.open[-1].text) < MAX_TEXT:
            self.open[-1].text += text[:MAX_TEXT]

    def _entity(self, *_: object) -> None:
        raise TopologyFileError(
            "XML entities are not read",
            advice="remove the declarations: no topology file needs them.",
            line=self.parser.CurrentLineNumber,
        )


def read_xml(text: str) -> Element:
    """The root element of the XML document in ``text``.

    Raises
    ------
    TopologyFileError
        With the line, if it is malformed, declares or uses entities, or is too large or deep.
    """
    builder = _Builder()
    try:
        builder.parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise TopologyFileError(
            f"malformed XML: {expat.ErrorString(error.code)}",
            advice="give the whole file, from its first to its last tag.",
            line=error.lineno,
        ) from None
    if builder.root is None:
        raise TopologyFileError("the XML has no element", advice="check the file.", line=1)
    return builder.root
