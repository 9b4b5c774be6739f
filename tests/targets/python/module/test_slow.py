"""Tests that use CPU time, for the pytest plugin."""

import time

import pytest


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def test_short():
    pass


@pytest.fixture
def slow_fixture():
    burn(1.0)


def test_of_fixture(slow_fixture):
    pass


def calls_burn():
    burn(0.5)


def test_by_itself():
    calls_burn()


def test_that_fails():
    assert False
