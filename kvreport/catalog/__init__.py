"""Facts: typed, validated records of models, accelerators, formats and engines."""
