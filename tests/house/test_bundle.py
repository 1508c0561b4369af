"""The committed bundle is what the sources in frontend/ build, byte for byte."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "frontend"
STATIC = ROOT / "tb_torchcompile_plugin" / "static"
LOADING = ("@import", "importScripts(", "//cdn.", "fonts.googleapis", 'src="http', "url(http", "url(//")
LICENCES = "licenses.md"  # goes with the package, and is no part of the tab
COLOUR = r"--[\w-]+:(#[0-9a-f]{3,8}|rgb\(.*\)|var\(.*\)|0 [\d.a-z ]+ (#[0-9a-f]{3,8}|rgba?\(.*\)))"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_committed_bundle_equals_a_fresh_build(tmp_path: Path) -> None:
    if not shutil.which("npx") or not (FRONTEND / "node_modules").is_dir():
        pytest.skip(
            "the frontend's packages are not installed; `make frontend-check` installs them, with Node.js"
        )
    build = ["npx", "--no-install", "vite", "build", "--logLevel", "warn", "--emptyOutDir"]
    subprocess.run([*build, "--outDir", str(tmp_path)], cwd=FRONTEND, check=True, timeout=300)
    fresh, committed = files(tmp_path), files(STATIC)
    assert sorted(fresh) == sorted(committed)
    different = [name for name in fresh if fresh[name] != committed[name]]
    assert not different, "the bundle is not up to date: run `make frontend` and commit the result"


def test_the_bundle_asks_nobody_else() -> None:
    """Addresses in it are links for people (torch's docs) and XML namespaces, never something that is loaded."""
    for name, content in files(STATIC).items():
        text = content.decode("utf-8", "replace")
        for loading in LOADING:
            assert loading not in text, f"{name} holds {loading}"


def served() -> set[str]:
    return {*files(STATIC)} - {LICENCES}


def gzip_kb(*names: str) -> float:
    return sum(len(gzip.compress((STATIC / name).read_bytes(), mtime=0)) for name in names) / 1000


def imported(name: str) -> set[str]:
    """A module and all that it imports before it runs."""
    names, left = set[str](), [name]
    while left:
        if (name := left.pop()) not in names:
            names.add(name)
            left += re.findall(r'(?:from|import)\s*"\./([\w.]+)"', (STATIC / name).read_text())
    return names


def test_the_first_panel_and_the_whole_stay_small() -> None:
    first = imported("index.js") | imported("Overview.js") | {"index.css"}
    every = served() - {"file.js"}
    assert len(first) < len(every) / 2
    assert gzip_kb(*first) <= 50
    assert gzip_kb(*every) <= 150


def test_the_script_of_an_exported_file_stands_alone_and_is_small() -> None:
    """The tab never loads it; in a file it stands as it is, and knows the tab's files by how they name each other."""
    text = (STATIC / "file.js").read_text()
    assert not re.search(r"\bimport\s*[{\"'`*]|\bfrom\s*[\"'`]\.|\bexport\s*[{*]", text)
    assert gzip_kb("file.js") <= 4
    for name in served() - {"file.js", "index.css"}:
        module = (STATIC / name).read_text()
        mentioned = re.findall(r"""["'`]\./([\w.]+)["'`]""", module)
        known = re.findall(r"""import\(["'`]\./([\w.]+)["'`]\)|(?:from|import)\s*"\./([\w.]+)\"""", module)
        assert len(mentioned) == len(known), name


def test_chunks_are_named_as_the_server_can_serve_them() -> None:
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_.]*\.(js|css)", name) for name in served())
    assert len({name.lower() for name in served()}) == len(served())


def test_the_dark_theme_changes_colours_alone() -> None:
    """So that in the dark only what is about colours has to be looked at again."""
    sources = [path for path in (ROOT / "frontend" / "src").rglob("*") if path.suffix in (".css", ".svelte")]
    styles = "".join(path.read_text() for path in sources if "data-theme" in path.read_text())
    rules = re.findall(r"([^{}]*\[data-theme[^{}]*)\{([^{}]*)\}", styles)
    assert len(rules) >= 2
    for selector, body in rules:
        for declaration in re.sub(r"\s*([:;])\s*", r"\1", body.strip()).strip(";").split(";"):
            assert re.fullmatch(f"color-scheme:dark|{COLOUR}", declaration), (selector, declaration)
