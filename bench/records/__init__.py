"""The CSV and JSON formats and the machine's identity: the one place that knows the columns."""
