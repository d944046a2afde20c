"""The engine itself as witness: its own argument resolution and planner, run without a GPU.

:mod:`kvreport.witness.asking` starts :mod:`kvreport.witness.run` under the interpreter that has the engine, or with
an unpacked wheel before its own packages. ``run`` and the two modules of engines need the standard library and the
engine alone, so that they work where kvreport is not installed.
"""
