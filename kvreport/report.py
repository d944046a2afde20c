"""Gone: a notebook downloaded earlier is told what to import instead, for one release."""

raise ImportError(
    "kvreport.report is kvreport.book now: change `kvreport.report` to `kvreport.book` in this file"
)
