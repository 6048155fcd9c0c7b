// Package pregel runs graphs written in Go with the semantics of LangGraph: nodes update a state, step by step, and each step is a
// checkpoint that a run can stop at, go on from, be forked at or be looked at.
//
// A graph is built with NewStateGraph, or of functions with NewEntrypoint, and compiled to a Graph, which is a graph.Graph: it streams the
// events that a Python graph of the same shape streams, and writes the rows that LangGraph's Postgres checkpointer writes, so that a thread
// begun by either can be continued by the other. What happens in which order, how ids and versions are made and what is stored follow
// the version of LangGraph that Semantics names.
//
// Values of a state are shared, never copied: nodes must not change what they get in place. They stay bytes, or the Go values that nodes gave,
// until somebody needs another form of them; a list is kept by item, so that what a thread says again and again is encoded once.
//
// The package knows no models and no tools, and stores nothing itself.
package pregel
