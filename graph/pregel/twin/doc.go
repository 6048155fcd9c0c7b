// Package twin holds the proof that package pregel behaves as LangGraph does: cases that describe graphs and what is done with them, each
// run in both, with equal events, errors, checkpoints, writes and states. It has only tests.
package twin
