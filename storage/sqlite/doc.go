// Package sqlite keeps everything the server knows in one SQLite file: assistants, threads, runs, crons, checkpoints, events,
// stream records and store items. It is the default storage and needs nothing installed.
//
// Reads take a connection from a pool and see committed rows only; they never wait for writes. Writes go to one goroutine that owns
// the only writing connection. It runs each as a savepoint in a shared transaction and commits once for all that were waiting: one
// sync of the disk serves many, and a write that fails undoes itself alone.
//
// The package knows rows and no rules: which status follows which, and who may see what, is decided by its callers. JSON is kept and
// given back byte for byte; times are microseconds since 1970 in UTC.
package sqlite
