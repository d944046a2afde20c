"""llama.cpp: cells and states allocated at start."""
