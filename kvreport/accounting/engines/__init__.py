"""Serving engines: what each family does with a device's memory, behind one protocol.

:mod:`kvreport.accounting.engines.protocol` is the protocol with the rules of an engine that reserves nothing;
:func:`kvreport.accounting.engines.by_family.rules` finds the rules of an engine's record. Nothing outside
this package asks which family an engine is of.
"""
