"""Pure functions from a `Trace` to frozen results: they never print, plot or mutate."""
