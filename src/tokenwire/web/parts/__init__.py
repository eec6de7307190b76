"""What pages are made of: tables with their CSV, charts with their data, fields with their errors, derivations."""
