"""Exact models of the algorithms: slow, obvious, and written apart from the code they judge.

A model keeps the list of what was admitted and looks through all of it at every question, in
fractions, so there is no state to get wrong. Instants and windows are whole numbers of any one
unit of time; the tests use the tick of the limit.
"""
