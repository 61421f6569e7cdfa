"""Run a script in a page as headless Chromium shows it."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--no-first-run", "--hide-scrollbars", "--virtual-time-budget=5000", "--dump-dom"),
)
FRAMES = """<!doctype html><html style="color-scheme: light dark"><body>{frames}<pre></pre><script>
addEventListener("load", () => {{
  const run = (window, document) => {{ {script} }};
  const frames = [...document.querySelectorAll("iframe")].map((frame) => frame.contentWindow);
  const answers = JSON.stringify(frames.map((frame) => run(frame, frame.document)));
  document.querySelectorAll("iframe").forEach((frame) => frame.remove());
  document.querySelector("pre").textContent = answers;
}});
</script></body></html>"""


def run_in(
    script: str, *pages: str, folder: Path, width: int = 1200, dark: bool = False
) -> list[Any]:
    """What the body of a JavaScript function of `window` and `document` returns in each page.

    The test is skipped if there is no Chromium.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next((path for name in names if (path := shutil.which(name))), None)
    if binary is None:
        pytest.skip("no chromium here")
    size = f'width="{width}" height="900"'
    frames = "".join(f'<iframe {size} srcdoc="{escape(page)}"></iframe>' for page in pages)
    file = folder / "frames.html"
    file.write_text(FRAMES.format(frames=frames, script=script), encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [binary, *FLAGS, scheme, profile, f"--window-size={width + 100},1000", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = re.search("<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    assert found, done.stderr
    answers: list[Any] = json.loads(unescape(found[1]))
    return answers
