"""The worker half of package python: runs LangGraph graphs for the Go server that started it."""
