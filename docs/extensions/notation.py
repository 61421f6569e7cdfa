"""The notation of pages and docstrings as a Markdown extension: formulas become MathML.

Browsers draw MathML by themselves, so pages need no script and no outside font. Formulas stand as
`$...$` in a line, as `$$...$$` or in a `.. math::` block on their own; a role such as
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

# Just below code spans, which keep their dollars, and above backslash escapes.
PRIORITY = 185
BLOCK = re.compile(
    r"^(?P<indent>[ ]*)(?:\.\. math::(?P<block>.*(?:\n(?:(?P=indent)[ ]+\S.*|[ ]*(?=\n)))*)"
    r"|\$\$(?P<dollars>[^$]+)\$\$[ ]*$)",
    re.MULTILINE,
)
FUNCTION = re.compile(r"\\(log|exp|min|max)(?![a-zA-Z]|\s*[({_^,]|\s*\\left)")


def mathml(formula: str, display: str) -> str:
    """A formula of LaTeX as MathML, `inline` or as a `block`."""
    spaced = FUNCTION.sub(r"\\\1\\,", " ".join(formula.split()))
    drawn = convert(spaced, display=display)
    return drawn if display == "inline" else f'<div class="formula">{drawn}</div>'


class Blocks(Preprocessor):
    """Formulas that stand on their own."""

    def run(self, lines: list[str]) -> list[str]:
        def stash(found: re.Match[str]) -> str:
            formula = found["block"] or found["dollars"]
            return f"\n{found['indent']}{self.md.htmlStash.store(mathml(formula, 'block'))}\n"

        return BLOCK.sub(stash, "\n".join(lines)).split("\n")


class Inline(InlineProcessor):
    """Formulas within a line."""

    def handleMatch(  # type: ignore[override]
        self, found: re.Match[str], data: str
    ) -> tuple[str, int, int]:
        return self.md.htmlStash.store(mathml(found[1], "inline")), found.start(), found.end()


class Role(InlineProcessor):
    """A name in a role of reStructuredText, as code."""

    def handleMatch(  # type: ignore[override]
        self, found: re.Match[str], data: str
    ) -> tuple[Element, int, int]:
        code = Element("code")
        code.text = AtomicString(found[1])
        return code, found.start(), found.end()


class Notation(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # After fenced code, which is then out of the way.
        md.preprocessors.register(Blocks(md), "math_blocks", 24)
        dollars = r"(?<![\\$\w])\$(?![\s$])([^$]*[^$\s\\])\$(?![\w$])"
        md.inlinePatterns.register(Inline(dollars, md), "math_inline", PRIORITY)
        md.inlinePatterns.register(Role(r":(?:class|func|meth):`([^`]+)`", md), "role", 195)


def makeExtension(**options: object) -> Notation:
    """What Markdown calls."""
    return Notation(**options)
