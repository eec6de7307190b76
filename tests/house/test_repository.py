"""The repository itself: layers, sizes of modules, package data, and no word about the machine it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

LONGEST = 400
"""Lines of a module: one concept that is read in one sitting."""

PACKAGE_DATA = (".txt", ".toml", ".md", ".py", ".typed", ".json", ".css", ".js")


def _tracked(root: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := root / name).is_file()]


def _modules(root: Path) -> list[Path]:
    return sorted((root / "src").rglob("*.py"))


def test_imports_follow_the_walk(root: Path) -> None:
    checked = subprocess.run(["lint-imports"], cwd=root, capture_output=True, text=True, check=False, env=_path(root))
    assert checked.returncode == 0, checked.stdout


def _path(root: Path) -> dict[str, str]:
    import os
    import sys

    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_modules_are_short(root: Path) -> None:
    long = {str(path.relative_to(root)): _code_lines(path) for path in _modules(root)}
    assert {name: lines for name, lines in long.items() if lines > LONGEST} == {}


def _code_lines(path: Path) -> int:
    # Rows of a table (a line that is only literals and brackets) do not count: a table may be long.
    row = re.compile(r"""^\s*[\[({"'\d][^=]*[\])}"'\d],?\s*$""")
    return sum(1 for line in path.read_text("utf-8").splitlines() if not row.match(line))


def test_a_table_row_is_not_code(tmp_path: Path) -> None:
    module = tmp_path / "table.py"
    module.write_text('SIZES = {\n    ("gpt2", 124_439_808),\n    ("llama", 8),\n}\n')
    assert _code_lines(module) == 2  # `SIZES = {` and `}`


def test_no_module_is_a_drawer(root: Path) -> None:
    drawers = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}
    assert [str(path) for path in _modules(root) if path.stem in drawers] == []


def test_every_module_says_what_it_is(root: Path) -> None:
    silent = [str(path) for path in _modules(root) if not path.read_text("utf-8").lstrip().startswith(('"""', 'r"""'))]
    assert silent == []


# Built from pieces, so that this file does not match itself.
_MACHINE = [
    r"(?<![\w.])/" + "work/", r"(?<![\w.])/" + "root/", r"(?<![\w.])/home/" + r"\w+/", r"/tmp/" + r"\w{2,}\.lock",
    "pypi" + r"\.org", "files\\.python" + "hosted", "deb\\.deb" + "ian", "registry\\.npm" + "js", "download\\.py" + "torch",
]  # fmt: skip


def test_nothing_speaks_of_a_machine_or_a_registry(root: Path) -> None:
    pattern = re.compile("|".join(_MACHINE))
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()[:100]}"
        for path in _tracked(root)
        if path.suffix not in (".svg", ".png", ".pcap")
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_package_data_is_shipped(root: Path) -> None:
    # hatchling ships every file under the package that git does not ignore, so what matters is that git has them.
    package = root / "src" / "tokenwire"
    tracked = set(_tracked(root))
    kept = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [str(path) for path in kept if path not in tracked] == []
    assert package / "py.typed" in tracked
    assert any(path.suffix == ".toml" for path in tracked)
    assert {path.suffix for path in kept} <= {*PACKAGE_DATA, ""}


def test_the_licence_is_whole(root: Path) -> None:
    text = (root / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_ci_runs_what_the_readme_says(root: Path) -> None:
    script = root / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make" in script.read_text()
    assert "make test" in (root / "README.md").read_text()


def test_links_in_the_pages_lead_somewhere(root: Path) -> None:
    # Pages of reference are written when the book is built.
    written = {root / "docs" / page for page in re.findall(r'"(reference/\w+\.md)"', (root / "docs" / "press" / "reference.py").read_text("utf-8"))}
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists() and (page.parent / target).resolve() not in written
    ]
    assert broken == []
