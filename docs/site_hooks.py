"""Takes README, CONTRIBUTING and CHANGELOG into the site, and makes links work there, too.

On a repository page links lead from folder to folder; on the site all pages of the root and of
``docs/`` lie beside each other.  A link to a file that is no page becomes plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
#: Page of the site, and the file of the root that it shows.
ROOT_PAGES = {name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md")} | {
    "index.md": "README.md"
}

_LINK = re.compile(r"\[([^\]]+)\]\(((?!\w+:|#)[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    from mkdocs.structure.files import File

    for name, source in ROOT_PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    name = page.file.src_uri
    written = ROOT / ROOT_PAGES[name] if name in ROOT_PAGES else ROOT / "docs" / name

    def changed(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, mark, anchor = target.partition("#")
        found = (written.parent / path).resolve()
        uri = _site_uri(found)
        if files.get_file_from_path(uri) is None and found.exists():
            return text
        up = "../" * name.count("/")
        return f"[{text}]({up}{uri}{mark}{anchor})"

    linked = _LINK.sub(changed, markdown)
    return linked.replace('src="docs/', 'src="') if name in ROOT_PAGES else linked


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show bars in code of tables plainly: only GitHub takes their backslash away."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def _site_uri(path: Path) -> str:
    """Where a file of the repository would stand on the site."""
    if path in (ROOT / "README.md", ROOT / "docs" / "README.md"):
        return "index.md"
    base = ROOT / "docs" if path.is_relative_to(ROOT / "docs") else ROOT
    return path.relative_to(base).as_posix()
