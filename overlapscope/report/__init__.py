"""What the analyses found, laid out: terminal, JSON, CSV, Markdown."""
