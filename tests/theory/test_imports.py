"""What `aggmo.theory` may import: NumPy and SciPy, and no framework; each of its modules."""

import pkgutil
import subprocess
import sys

import aggmo.theory

MODULES = [module.name for module in pkgutil.iter_modules(aggmo.theory.__path__)]


def test_theory_imports_no_framework_and_draws_nothing():
    """Oracle: the modules of an interpreter that has imported every file of the package."""
    assert {"quadratic", "stability", "averaging", "regret", "online", "landscapes"} <= set(MODULES)
    code = f"import sys\nfrom aggmo.theory import {', '.join(MODULES)}\n"
    code += "print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"aggmo", "numpy", "scipy"} <= loaded
    assert not {"jax", "keras", "matplotlib", "optax", "tensorflow", "torch"} & loaded
