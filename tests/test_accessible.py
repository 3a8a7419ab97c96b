"""axe, the checker of the web's accessibility rules, finds no serious fault in the page about a fit nor in the site.

Needs Chromium and axe-core, which is not ours to carry: `npm pack axe-core`, and NATVI_AXE=/path/to/axe.min.js.
"""

import html
import json
import os
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import natvi

REPOSITORY = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
AXE = os.environ.get("NATVI_AXE", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or not Path(AXE).is_file(), reason="no Chromium, or NATVI_AXE names no file"),
]
# every page at two widths, light and dark; each in a frame of its own, with the checker put inside
HARNESS = """<!doctype html><html lang="en"><title>axe</title><body><pre id="found">[]</pre><script>
const pages = PAGES, found = [];
async function look(path, width, dark) {
  const frame = document.createElement("iframe");
  frame.title = "page"; frame.style = `border:0;width:${width}px;height:900px`;
  localStorage.clear(); frame.src = path + (dark ? (path.includes("?") ? "&dark" : "?dark") : "");
  await new Promise(done => { frame.onload = done; document.body.append(frame); });
  const inside = frame.contentDocument;
  if (dark) inside.body.setAttribute("data-md-color-scheme", "slate");
  inside.querySelectorAll("details").forEach(part => part.open = true);
  await new Promise(done => setTimeout(done, 400));
  const script = inside.createElement("script"); script.src = "/axe.min.js";
  await new Promise(done => { script.onload = done; inside.head.append(script); });
  const report = await frame.contentWindow.axe.run({resultTypes: ["violations"]});
  const wide = inside.documentElement.scrollWidth;
  if (wide > width) found.push(`${path} at ${width}: ${wide} wide`);
  for (const rule of report.violations) if (["serious", "critical"].includes(rule.impact))
    found.push(`${path} at ${width}${dark ? ", dark" : ""}: ${rule.id}, ${rule.nodes[0].target.join(" ")}`);
  frame.remove();
}
(async () => {
  for (const path of pages) for (const [width, dark] of [[400, false], [1200, true]]) await look(path, width, dark);
  document.getElementById("found").textContent = JSON.stringify(found); document.title = "done";
})();
</script>"""


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder without a word; a page about a fit is dark where asked, since a frame cannot ask its window."""

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        path = Path(str(self.directory)) / self.path.split("?")[0].lstrip("/")
        if not self.path.endswith("?dark") or path.suffix != ".html" or path.name == "index.html":
            super().do_GET()
            return
        text = path.read_text("utf-8").replace("(prefers-color-scheme: dark)", "all").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def faults(folder: Path, pages: list[str], profile: Path) -> list[str]:
    """Return what the checker and the console of the browser say about pages of a folder."""
    shutil.copy(AXE, folder / "axe.min.js")
    (folder / "harness.html").write_text(HARNESS.replace("PAGES", json.dumps(pages)), "utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1300,1000"]
    address = f"http://127.0.0.1:{server.server_port}/harness.html"
    try:
        seen = subprocess.run(
            [
                str(CHROMIUM),
                *options,
                f"--user-data-dir={profile}",
                "--virtual-time-budget=3000000",
                "--dump-dom",
                address,
            ],
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
        )
    finally:
        server.shutdown()
        server.server_close()
    assert "<title>done</title>" in seen.stdout, "the checker did not come to its end"
    (written,) = re.findall(r'<pre id="found">(.*?)</pre>', seen.stdout, re.DOTALL)
    return json.loads(html.unescape(written)) + re.findall(r"CONSOLE.*(?:Error|error).*", seen.stderr)


def test_pages_about_fits(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    crabs, sleep = natvi.data.load_crabs(), natvi.data.load_sleepstudy()
    natvi.glm("y ~ width + C(color)", crabs, family="bernoulli").fit(method="gva").report(folder / "crabs.html")
    mixed = natvi.glmm("Reaction ~ Days + (Days | Subject)", sleep).fit(method="gva")
    mixed.report(folder / "sleep.html")
    assert faults(folder, ["/crabs.html", "/sleep.html"], tmp_path / "profile") == []


def test_the_site(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    command = [str(REPOSITORY / ".venv" / "bin" / "mkdocs"), "build", "--quiet", "--strict", "-d", str(folder)]
    if not Path(command[0]).exists():
        command[:1] = ["mkdocs"]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=600, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    pages = sorted(f"/{path.relative_to(folder).as_posix()}" for path in folder.rglob("index.html"))
    assert len(pages) > 20 and faults(folder, pages, tmp_path / "profile") == []
