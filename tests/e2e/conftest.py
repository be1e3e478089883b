"""End-to-end tests drive the released binary as a user does: `holdfast up`, a mount, S3 clients.

Every wait has a deadline; every cluster is stopped and unmounted whatever a test does.
"""
import os
import shutil
import tempfile

import pytest

from cluster import Cluster


@pytest.fixture
def work():
    """A folder on a real disk (not tmpfs: direct I/O), removed afterwards."""
    d = tempfile.mkdtemp(prefix="holdfast-test.", dir=os.environ.get("HOLDFAST_TEST_DIR", "/var/tmp"))
    yield d
    shutil.rmtree(d, ignore_errors=True)


@pytest.fixture(scope="module")
def module_work():
    d = tempfile.mkdtemp(prefix="holdfast-test.", dir=os.environ.get("HOLDFAST_TEST_DIR", "/var/tmp"))
    yield d
    shutil.rmtree(d, ignore_errors=True)


@pytest.fixture
def cluster(work):
    c = Cluster(work)
    c.start()
    yield c
    c.destroy()


@pytest.fixture(scope="module")
def shared(module_work):
    """One cluster for all tests of a module."""
    c = Cluster(module_work)
    c.start()
    yield c
    c.destroy()
