// Package deerflow reads the database of a DeerFlow installation: LangGraph's checkpoints, and the owners and titles of threads, accounts,
// messages of runs and feedback. It writes nothing into it.
package deerflow
