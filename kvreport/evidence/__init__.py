"""Claims and predictions judged: records and verdicts, without HTML."""
