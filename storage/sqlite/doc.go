// Package sqlite stores everything in one SQLite file: assistants, threads, runs, crons,
// checkpoints, events, stream records and store items. It is the default storage and needs nothing
// installed.
//
// Reads take a connection from a pool and see committed rows only; they never wait for writes.
// Writes go to one goroutine that owns the only writing connection. It runs the waiting ones in a
// shared transaction and commits once for all, so one sync of the disk serves many, and a write
// that fails is rolled back alone.
//
// The package knows rows and no rules: callers decide which status follows which, and who may see
// what. JSON is stored and returned byte for byte; times are microseconds since 1970 in UTC.
package sqlite
