"""What the checkout promises: its dependencies, its documents, its contracts."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
NOT_FOR_USERS = {"bench", "docs", "dev"}


def texts():
    """Every file of the checkout but those that .gitignore leaves out, and what stands in it."""
    ignored = {".git"} | {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()}
    found = {}
    for directory, children, files in os.walk(ROOT):
        children[:] = [child for child in children if child not in ignored]
        for path in (Path(directory) / file for file in files):
            found[path.relative_to(ROOT).as_posix()] = path.read_text("utf-8", "ignore")
    return found


def requirements(*extras):
    """The direct requirements of extras, those of `aggmo[...]` in their place."""
    found = set()
    for extra in extras:
        for requirement in map(Requirement, EXTRAS[extra]):
            found |= requirements(*requirement.extras) if requirement.name == "aggmo" else {requirement}
    return found


def direct():
    """Every direct requirement: always, of an extra, or to build."""
    core = {Requirement(line) for line in PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]}
    return core | requirements(*EXTRAS)


def pins():
    """Canonical name and version of every line of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_constraints_pin_exactly_what_is_installed():
    pinned, seen, left = pins(), set(), list(direct())
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name.startswith(("cuda-", "nvidia-", "triton")):
            continue  # of a GPU build of torch
        assert name in pinned, f"{requirement} is not pinned"
        assert requirement.specifier.contains(pinned[name])
        if (name, *requirement.extras) in seen:
            continue
        seen.add((name, *requirement.extras))
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            assert name in map(canonicalize_name, ["scikit-build-core"])  # is in pip's own environment for builds
            continue
        assert installed.version.partition("+")[0] == pinned[name]
        for further in map(Requirement, installed.requires or []):
            extras = requirement.extras or {""}
            if not further.marker or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                left.append(further)
    if sys.platform == "linux" and sys.version_info[:2] == (3, 11):  # what constraints.txt is resolved for
        by_the_build = {"cmake", "ninja"}  # where the machine has none of its own
        assert pinned.keys() == {name for name, *_ in seen} | by_the_build, "pinned but not needed"


def test_no_pin_has_a_local_label():
    assert all(re.fullmatch(r"[\w.]+", version) for version in pins().values())


def test_extras():
    parts = {"torch", "jax", "keras", "theory", "lab", "cluster", "explore", "examples"}
    assert set(EXTRAS) == parts | NOT_FOR_USERS | {"all"}
    assert requirements("all") == requirements(*parts)


def imports():
    """Top-level modules that the code imports, and the files that do."""
    found = {}
    for name, text in texts().items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module]
            else:
                continue
            for module in modules:
                found.setdefault(module.partition(".")[0], set()).add(name)
    return found


def test_every_dependency_is_used():
    conf = ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    used = imports().keys() | {node.value for node in ast.walk(conf) if isinstance(node, ast.Constant)}
    used |= set(re.findall(r"(?:\$\(PY\) -m |\.venv/bin/)([\w-]+)", MAKEFILE))
    used.add(PROJECT["build-system"]["build-backend"].partition(".")[0])
    provides = {}
    for module, names in metadata.packages_distributions().items():
        for name in names:
            provides.setdefault(canonicalize_name(name), set()).add(module)
    for entry in metadata.entry_points(group="console_scripts"):
        provides.setdefault(canonicalize_name(entry.dist.name), set()).add(entry.name)
    for requirement in direct():
        name = canonicalize_name(requirement.name)
        assert used & provides.get(name, {name.replace("-", "_")}), f"{name} is used nowhere"


def test_every_import_is_declared():
    own = {"aggmo"} | {
        path.stem for folder in ("benchmarks", "examples", "tests") for path in (ROOT / folder).rglob("*.py")
    }
    declared = {canonicalize_name(requirement.name) for requirement in direct()}
    distributions = metadata.packages_distributions()
    for module, files in imports().items():
        if module not in own | sys.stdlib_module_names:
            names = {canonicalize_name(name) for name in distributions.get(module, [module])}
            assert names & declared, f"{files} import {module}, which no extra has"


def test_the_examples_need_only_their_extra():
    """But for the task, which is written for `aggmo compare` and needs what that needs."""
    declared = {canonicalize_name(requirement.name) for requirement in requirements("examples")}
    distributions = metadata.packages_distributions()
    for module, files in imports().items():
        examples = {file for file in files if file.startswith("examples/")} - {"examples/own_task.py"}
        if examples and module not in {"aggmo"} | sys.stdlib_module_names:
            assert set(map(canonicalize_name, distributions[module])) & declared, f"{examples} import {module}"


def test_the_version_stands_in_one_place():
    version = re.compile(rf"(?<![\w.]){re.escape(PROJECT['project']['version'])}(?![\w.])")
    others = {"constraints.txt", "CHANGELOG.md"}  # other packages' versions, and the history
    runs = ("docs/performance.md", "docs/reproduction")  # with which version they were made
    found = [name for name, text in texts().items() if version.search(text) and not name.startswith(runs)]
    assert set(found) - others == {"pyproject.toml"}


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?<![\w.$}])/(?:work|root|opt|home)/",
        r"[.]{2}/shared",
        r"pypi[.]org|pythonhosted[.]org|download[.]pytorch[.]org|npmjs[.]org|deb[.]debian[.]org",
    ],
)
def test_no_file_names_a_machine_or_a_registry(pattern):
    assert [name for name, text in texts().items() if re.search(pattern, text)] == []


def readme_blocks():
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", readme_blocks())
def test_the_readme_runs(block, tmp_path):
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_has_its_examples():
    assert len(readme_blocks()) == 3
    assert readme_blocks()[2] == (ROOT / "examples" / "own_task.py").read_text(encoding="utf-8")


def test_the_page_on_tasks_of_ones_own_shows_the_example_that_is_tested():
    example = (ROOT / "examples" / "own_task.py").read_text(encoding="utf-8")
    assert f"```python\n{example}```" in (ROOT / "docs" / "own-task.md").read_text(encoding="utf-8")


def documents():
    return {name: text for name, text in texts().items() if name.endswith(".md")}


def test_documents_name_targets_that_exist():
    targets = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    for name, text in documents().items():
        assert set(re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE)) <= targets, name


def test_documents_link_to_files_that_exist():
    for name, text in documents().items():
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (ROOT / name).parent.joinpath(link).exists(), f"{name} links to {link}"


def test_make_help_lists_every_target():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  make ([a-z-]+) ", done.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())


def test_make_refuses_an_old_python_in_one_line(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    command = ["make", "--silent", ".venv/.made", "PYTHON=false"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith("AggMo needs Python >= 3.11, which 'false' is not")
    assert list(tmp_path.iterdir()) == [tmp_path / "Makefile"]


def test_the_contracts_hold():
    assert lint_imports(ROOT) == 0


@pytest.mark.parametrize(
    ("file", "line", "exit_code"),
    [
        ("damping.py", "import math", 0),
        ("damping.py", "import torch", 1),
        ("damping.py", "from aggmo import reference", 1),
        ("reference.py", "from aggmo.torch import AggMo", 1),
        ("utils.py", "", 1),
    ],
)
def test_the_contracts_can_fail(file, line, exit_code, tmp_path):
    # Under another name, for an editable installation finds its own aggmo wherever one looks.
    shutil.copytree(ROOT / "src" / "aggmo", tmp_path / "broken")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "broken" / file).open("a", encoding="utf-8") as source:
        source.write(f"{line}\n")
    for path in [tmp_path / "pyproject.toml", *tmp_path.rglob("*.py")]:
        path.write_text(path.read_text(encoding="utf-8").replace("aggmo", "broken"), encoding="utf-8")
    assert lint_imports(tmp_path) == exit_code


def lint_imports(directory):
    """The exit code of import-linter."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=directory, capture_output=True, check=False).returncode
