"""Tests of the harness itself: python -m unittest discover -t . -s bench/tests"""
