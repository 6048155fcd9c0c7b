// Package pregel runs graphs written in Go with the semantics of LangGraph: nodes update a state, step by step, and each step is a checkpoint
// at which a run can be stopped, resumed, forked or inspected.
//
// A graph is built with NewStateGraph, or of functions with NewEntrypoint, and compiled to a Graph, which is a graph.Graph: it streams the
// events that a Python graph of the same shape streams, and writes the rows that LangGraph's Postgres checkpointer writes, so that either can
// continue a thread that the other began. Order of execution, ids, versions and stored data follow the version of LangGraph that Semantics
// names.
//
// Values of a state are shared, never copied: nodes must not modify their input in place. A value stays in the form in which it came, bytes or
// Go values, until another form is needed. Lists are kept by item, so that items that recur in each step are encoded once.
//
// The package has no models and no tools, and does not store anything itself.
package pregel
