// Package journal writes what DeerFlow's agent did besides talking into the log of its thread: what subagents did, which files changed, and whether
// the files that were produced were shown to the user.
//
// It reads only events of the graph and the files of the thread, so that it is the same for the agent in Go and for DeerFlow's own in Python.
package journal
