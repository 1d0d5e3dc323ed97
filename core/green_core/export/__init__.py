"""Ways out: ledger, Prometheus, OpenTelemetry, report."""
