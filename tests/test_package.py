"""What holds for the package as a whole, wherever it is installed."""

import subprocess
import sys
from importlib import metadata, resources

import pytest

import aggmo

FRAMEWORKS = {"jax", "keras", "matplotlib", "optax", "scipy", "tensorflow", "torch"}


def python(code):
    """The output of a fresh interpreter."""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_the_core_imports_no_framework():
    loaded = python("import sys, aggmo, aggmo.reference; print(*{name.split('.')[0] for name in sys.modules})")
    assert "numpy" in loaded
    assert not FRAMEWORKS & set(loaded)


def test_the_import_is_quick():
    """Within 100 ms of the processor's time, NumPy included; the best of some, as the machine may be busy."""
    code = """
import time
start = time.process_time()
import aggmo
print(time.process_time() - start)
"""
    seconds = (float(python(code)[0]) for _ in range(20))
    assert any(one < 0.1 for one in seconds)


def test_aggmo_is_loaded_when_it_is_used():
    printed = python("import sys, aggmo; print('torch' in sys.modules, aggmo.AggMo.__module__, 'torch' in sys.modules)")
    assert printed == ["False", "aggmo.torch.optimizer", "True"]


def test_without_torch_the_error_says_what_to_install():
    code = """
import sys
sys.modules["torch"] = None  # any import of it now fails as if it were not installed
import aggmo
try:
    aggmo.AggMo
except ModuleNotFoundError as error:
    print(error.name, "aggmo[torch]" in str(error))
"""
    assert python(code) == ["torch", "True"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'aggmo' has no attribute 'Adam'"):
        _ = aggmo.Adam


def test_every_public_name_exists():
    assert {name for name in aggmo.__all__ if hasattr(aggmo, name)} == set(aggmo.__all__) <= set(dir(aggmo))


def test_types_are_published():
    assert resources.files("aggmo").joinpath("py.typed").is_file()


def test_the_metadata():
    about = metadata.metadata("aggmo")
    assert aggmo.__version__ == about["Version"]
    assert (about["License-Expression"], about["Requires-Python"]) == ("MIT", ">=3.11")
    required = [line for line in metadata.requires("aggmo") if "extra ==" not in line]
    assert {line.partition(">")[0] for line in required} == {"numpy"}
