"""The golden parity that the codecs are tested against is what an independent implementation makes."""
import importlib.util

from cluster import REPO


def test_golden_parity_is_what_an_independent_implementation_makes():
    spec = importlib.util.spec_from_file_location("gf8_cauchy", REPO / "tests/golden/gf8_cauchy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (REPO / "objstore/ec/tests/it/golden.txt").read_text().splitlines() == list(module.lines())
