"""A pytest plugin: puts the id of each test into the JUnit report, where there are only parts of it."""
import pytest


@pytest.fixture(autouse=True)
def _id_in_report(request, record_property):
    record_property("nodeid", request.node.nodeid)
