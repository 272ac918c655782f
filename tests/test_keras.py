"""The Keras optimizer: all that is in `keras/`, in a process for each back end, and what it says without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import aggmo

HERE = Path(__file__).parent
# Keras asks NumPy for an array of a variable in the way of NumPy 1.
ALLOWED = "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"


def python(*arguments, cwd, **variables):
    """A process with a Keras home and a back end of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KERAS_", "PYTEST_"))}
    environment |= {"KERAS_HOME": str(cwd / "keras"), "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", **variables}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_the_back_end(backend, tmp_path):
    """The tests of the directory beside this file, the examples of the module, and those of its page."""
    page = HERE.parent / "docs" / "keras.md"
    files = [*(HERE / "keras").glob("test_*.py"), Path(aggmo.__file__).with_name("keras.py"), page]
    run = python(
        *(
            "-m",
            "pytest",
            "-c",
            HERE.parent / "pyproject.toml",
            "-p",
            "no:cacheprovider",
            "-W",
            ALLOWED,
            "--durations=5",
        ),
        *filter(Path.exists, files),  # a wheel is tested without the documentation
        cwd=tmp_path,
        KERAS_BACKEND=backend,
    )
    if run.returncode or " passed" not in run.stdout or " skipped" in run.stdout:
        pytest.fail(f"{run.stdout}\n{run.stderr}", pytrace=False)


@pytest.mark.parametrize(
    ("missing", "backend", "said"),
    [
        ("tensorflow", None, "Keras would run on tensorflow, which is not installed: set the environment variable"),
        ("jax", "jax", "Keras would run on jax, which is not installed: set the environment variable KERAS_BACKEND"),
        ("keras", "torch", "aggmo.keras needs Keras: pip install 'aggmo[keras]'"),
    ],
)
def test_what_is_missing_is_said(missing, backend, said, tmp_path):
    code = f"""
import sys
sys.modules["{missing}"] = None  # any import of it now fails as if it were not installed
try:
    import aggmo.keras
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    run = python("-c", code, cwd=tmp_path, **({"KERAS_BACKEND": backend} if backend else {}))
    assert run.stdout.startswith(f"{missing} {said}"), run.stderr
