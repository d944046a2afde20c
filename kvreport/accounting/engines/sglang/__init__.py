"""SGLang: its token pools, what loading adds, and the memory it leaves free."""
