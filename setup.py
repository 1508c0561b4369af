"""Everything is declared in pyproject.toml; this file lets `python setup.py ...` and old tools find it."""

from setuptools import setup

setup()
