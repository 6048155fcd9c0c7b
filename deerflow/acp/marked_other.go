//go:build !linux

package acp

// awaitExit does not wait: a program that has closed its output has ended, or is killed.
func awaitExit(int) {}

// killMarked does nothing: the environment of a process cannot be read here.
func killMarked(string) {}
