"""Tests of the YAML reader: data and lines of good files, one clear refusal of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.files import MAX_BYTES
from meshplan.scenarios.yaml_reader import read_yaml, read_yaml_file


def refusal(text: str) -> InputError:
    """The error that reading ``text`` raises."""
    with pytest.raises(InputError) as caught:
        read_yaml(text, "case.yaml")
    assert caught.value.file == "case.yaml"
    assert caught.value.advice
    return caught.value


def test_data_and_lines() -> None:
    """Tests that values come with the line of their key, or of the item in a list."""
    document = read_yaml("a: 1\nb:\n  - x\n  - {c: 2.5}\nd: true\ne:\n")
    assert document.value == {"a": 1, "b": ["x", {"c": 2.5}], "d": True, "e": None}
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "c"): 4,
        ("d",): 5,
        ("e",): 6,
    }


@pytest.mark.parametrize(
    "text", ["yes", "no", "on", "off", "y", "0x10", "0o10", "010", "1_000", "1:30", "2020-01-01"]
)
def test_yaml_1_1_traps_stay_strings(text: str) -> None:
    """Tests that only true and false are booleans, and only plain decimals are numbers."""
    assert read_yaml(f"a: {text}").value == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"), [("1e3", 1000.0), ("-.5", -0.5), ("+7", 7), ("0", 0), ("3.", 3.0)]
)
def test_numbers(text: str, value: float) -> None:
    """Tests that plain numbers are numbers of the right type."""
    found = read_yaml(f"a: {text}").value["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "duplicate key 'a', first on line 1"),
        ("x:\n  {a: 1, a: 2}", 2, "duplicate key 'a'"),
        ("a: 1\n1: 2", 2, "the key '1' is not a string"),
        ("true: 2", 1, "the key 'true' is not a string"),
        ("? [a]\n: 1", 1, "is not a string"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: .nan", 1, ".nan is not a finite number"),
        ("a:\n- -.inf", 2, "-.inf is not a finite number"),
        ("a: 1e999", 1, "1e999 is too large"),
        ("a: " + "9" * 101, 1, "has 101 characters"),
        ("a: !!python/object/apply:os.system [ls]", 1, "!!python/object/apply:os.system"),
        ("a: !!python/name:os.system", 1, "!!python/name:os.system"),
        ("a: !!int x", 1, "'!!int' on 'x'"),
        ("a: !!float 0x1p3", 1, "!!float"),
        ("a: !!map [1]", 1, "!!map"),
        ("a: !!binary aGk=", 1, "!!binary"),
        ("a: &x [*x]", 1, "contains itself"),
        ("a: &x {b: {c: *x}}", 1, "contains itself"),
        ("a: *b", 1, "undefined alias 'b'"),
        ("a: [1, 2", 1, "malformed YAML at 'a: [1, 2'"),
        ("a:\n\t- 1", 2, "malformed YAML"),
        ("a: b: c", 1, "mapping values are not allowed"),
        ('a: 1\nb: "\\UFFFFFFFF"', 2, "an escape names no character"),
        ('a: "\\ud800"', 1, "control character"),
        ('a: "\\e[31m"', 1, "control character"),
        ("b: 1\na: x\u202ey", 2, r"control character '\u202e'"),
        ("a: 1\nb: \x07", 2, "is not allowed in YAML"),
    ],
)
def test_refusals_name_line_and_value(text: str, line: int, words: str) -> None:
    """Tests that each kind of bad YAML is refused with its line and the value."""
    error = refusal(text)
    assert error.line == line
    assert words in error.message


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n...\n"])
def test_empty_files(text: str) -> None:
    """Tests that a file without a document is refused, or read as one empty value."""
    if text.startswith("---"):
        assert read_yaml(text).value is None
    else:
        assert "empty" in refusal(text).message


def test_alias_bomb() -> None:
    """Tests that nine levels of nine aliases (9**9 values) are refused by the budget."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "more than 20,000 values" in refusal("\n".join(lines)).message


def test_deep_alias_chain() -> None:
    """Tests that aliases cannot build more levels than are allowed in plain sight."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]
    assert "more than 40 levels" in refusal("\n".join(lines)).message


def test_plain_aliases_are_expanded() -> None:
    """Tests that an honest alias is read as a copy of the value."""
    assert read_yaml("a: &x [1, 2]\nb: *x").value == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_huge_nesting(opening: str) -> None:
    """Tests that 100,000 levels end in a refusal and not in a crash of the parser."""
    assert "more than 40 levels" in refusal(opening * 100_000).message


def test_too_many_values() -> None:
    """Tests that 30,000 list items are refused: the budget is 20,000."""
    assert "more than 20,000 values" in refusal("- a\n" * 30_000).message


def test_too_large(tmp_path: Path) -> None:
    """Tests that a file of one byte more than 1 MiB is refused."""
    path = tmp_path / "large.yaml"
    path.write_text("a: 1 #" + "x" * (MAX_BYTES - 5), encoding="utf-8")
    with pytest.raises(InputError, match="larger than 1048576 bytes"):
        read_yaml_file(path)


def test_not_utf_8(tmp_path: Path) -> None:
    """Tests that the line and byte of a wrong encoding are named."""
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(InputError, match="byte 0xe9 at offset 11") as caught:
        read_yaml_file(path)
    assert caught.value.line == 2


def test_byte_order_mark(tmp_path: Path) -> None:
    """Tests that a file saved with a byte order mark is read."""
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml_file(path).value == {"a": 1}


def test_missing_file_names_a_neighbour(tmp_path: Path) -> None:
    """Tests that a slip in a file name is answered with the file of nearly that name."""
    (tmp_path / "scenario.yaml").write_text("a: 1", encoding="utf-8")
    with pytest.raises(InputError, match="does not exist") as caught:
        read_yaml_file(tmp_path / "scenaro.yaml")
    assert "scenario.yaml" in (caught.value.advice or "")


def test_no_file_at_all(tmp_path: Path) -> None:
    """Tests that folders and impossible names are refused."""
    with pytest.raises(InputError, match="is a folder"):
        read_yaml_file(tmp_path)
    with pytest.raises(InputError, match="not a possible path"):
        read_yaml_file("a\0b")
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml_file("x" * 5000)


@given(st.binary(max_size=300))
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Tests that no bytes raise anything but InputError."""
    path = tmp_path_factory.getbasetemp() / "random.yaml"
    path.write_bytes(content)
    try:
        read_yaml_file(path)
    except InputError as error:
        assert str(error)


@given(st.text(alphabet="ab1-:?[]{},&*!|>'\"%#@`~\\x<= \n\t.0e+_\x85\u2028é", max_size=60))
def test_random_punctuation(text: str) -> None:
    """Tests that no mixture of YAML's own characters raises anything but InputError."""
    try:
        read_yaml(text)
    except InputError as error:
        assert str(error)
