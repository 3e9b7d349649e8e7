"""Give the site what it needs beyond mkdocs: pages from elsewhere, links that hold, and pages of their length.

The Markdown is read on GitHub as well, so it is written for that, and changed here. A link that leads nowhere, a page
that is too long and a figure that is typed by hand are warnings, which `strict` makes errors.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from markdown_it import MarkdownIt
from mkdocs.structure.files import File
from pymdownx.slugs import slugify

from docs.site.links import ELSEWHERE, ROOT, find_broken, find_origin, find_repository, move_links
from docs.site.notebook import write_notebook
from docs.site.prose import APART, find_faults, find_type
from docs.site.studies import INDEX, write_studies
from shootout import studies

EACH = "Each study"
"""The part of the nav that has a page for each."""
SHAPES = ("h1", "h2", "h3", "li", "table", "pre", "blockquote")
log = logging.getLogger("mkdocs.plugins.shootout")


def on_config(config: Any) -> Any:
    """Learn where the repository is, and name headings as GitHub does."""
    config.extra["repository"] = find_repository()
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    (reference,) = (one["Reference"] for one in config.nav if "Reference" in one)
    reference.append({EACH: [INDEX, *({name: f"studies/{name}.md"} for name in studies.shipped())]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what lies elsewhere, and what the program writes."""
    for path, name in ELSEWHERE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    written = {"notebook.md": write_notebook(), **dict(write_studies())}
    for name, text in written.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Hold a page to its limits, and make each link lead to its file in the site or in the repository."""
    name = page.file.src_uri
    if is_written(page):
        return markdown
    for fault in () if name.startswith(APART) else find_faults(name, markdown, find_type(config.nav, name)):
        log.warning("%s", fault)
    for link in find_broken(markdown, find_origin(name)):
        log.warning("%s links to %s, which isn't there", find_origin(name), link)
    pages = {file.src_uri for file in files if not file.inclusion.is_excluded()}
    return move_links(markdown, name, pages, config.extra["repository"])


def is_written(page: Any) -> bool:
    """Return whether the program writes a page for the site alone."""
    return page.file.generated_by is not None and page.file.src_uri not in ELSEWHERE.values()


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Warn if the site shows other lists, tables or blocks than GitHub does: the two read Markdown differently."""
    if is_written(page):
        return html
    github = MarkdownIt("commonmark").enable("table")
    parts = github.parse(page.markdown)
    for part in (one for whole in parts for one in whole.children or ()):
        if part.type == "html_inline" and not part.content.startswith("<!--"):
            log.warning("%s: %s doesn't show; put it into backticks", page.file.src_uri, part.content)
    rendered = github.renderer.render(parts, github.options, {})
    for shape in SHAPES:
        here, there = (len(re.findall(rf"<{shape}\b", one)) for one in (html, rendered))
        if here != there:
            log.warning("%s has %d <%s> in the site and %d on GitHub", page.file.src_uri, here, shape, there)
    return html
