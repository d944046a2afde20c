"""What this machine does with kvreport, measured: ``make bench``."""
