"""A Markdown extension that converts formulas in pages and docstrings to MathML.

Browsers render MathML without scripts or external fonts. Inline formulas are written `$...$`.
Displayed formulas are written `$$...$$` or as a `.. math::` block. A role such as
:class:`Branches` becomes code.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString

# Below code spans, which may contain dollar signs, and above backslash escapes.
PRIORITY = 185
BLOCK = re.compile(
    r"^(?P<indent>[ ]*)(?:\.\. math::(?P<block>.*(?:\n(?:(?P=indent)[ ]+\S.*|[ ]*(?=\n)))*)"
    r"|\$\$(?P<dollars>[^$]+)\$\$[ ]*$)",
    re.MULTILINE,
)
FUNCTION = re.compile(r"\\(log|exp|min|max)(?![a-zA-Z]|\s*[({_^,]|\s*\\left)")


def mathml(formula: str, display: str) -> str:
    """Convert a LaTeX formula to MathML, with display `inline` or `block`."""
    spaced = FUNCTION.sub(r"\\\1\\,", " ".join(formula.split()))
    drawn = convert(spaced, display=display)
    return drawn if display == "inline" else f'<div class="formula">{drawn}</div>'


class Blocks(Preprocessor):
    """Displayed formulas."""

    def run(self, lines: list[str]) -> list[str]:
        def stash(found: re.Match[str]) -> str:
            formula = found["block"] or found["dollars"]
            return f"\n{found['indent']}{self.md.htmlStash.store(mathml(formula, 'block'))}\n"

        return BLOCK.sub(stash, "\n".join(lines)).split("\n")


class Inline(InlineProcessor):
    """Inline formulas."""

    def handleMatch(  # type: ignore[override]
        self, found: re.Match[str], data: str
    ) -> tuple[str, int, int]:
        return self.md.htmlStash.store(mathml(found[1], "inline")), found.start(), found.end()


class Role(InlineProcessor):
    """Names in reStructuredText roles, shown as code."""

    def handleMatch(  # type: ignore[override]
        self, found: re.Match[str], data: str
    ) -> tuple[Element, int, int]:
        code = Element("code")
        code.text = AtomicString(found[1])
        return code, found.start(), found.end()


class Notation(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # After the preprocessor of fenced code, so that code is not changed.
        md.preprocessors.register(Blocks(md), "math_blocks", 24)
        dollars = r"(?<![\\$\w])\$(?![\s$])([^$]*[^$\s\\])\$(?![\w$])"
        md.inlinePatterns.register(Inline(dollars, md), "math_inline", PRIORITY)
        md.inlinePatterns.register(Role(r":(?:class|func|meth):`([^`]+)`", md), "role", 195)


def makeExtension(**options: object) -> Notation:
    """Entry point that Markdown calls."""
    return Notation(**options)
