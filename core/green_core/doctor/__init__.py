"""``green doctor``: what is live, what is measured, and where energy is lost for nothing.

Facts are gathered by whoever knows them (the host, an engine's adapter, the books) and travel as
the values of :mod:`green_core.doctor.facts`; traps are pure functions over those facts.
"""
