// Package python runs unchanged Python graphs in worker processes.
//
// It owns the processes (their number, the choice of one for a run, and the handling of one that dies, blocks or does not end a cancelled run), the
// frames exchanged with them, and the Python half in worker/, which is embedded and sent to each worker over its socket: nothing is unpacked to disk. A
// worker is one process with one asyncio loop that runs many graphs at once. It talks over an inherited socket pair: frames are four bytes of length,
// big endian, then msgpack (see message.go for the messages).
//
// A worker stores nothing: its checkpointer and its store are thin clients that call back over the socket, so that persistence, transactions and fencing
// stay with the graph.Saver and graph.Store of the invocation. Payloads are bytes: Python encodes the JSON of events and the blobs of checkpoints, and
// this package passes them on unread.
//
// A root `values` is emitted just before its checkpoint is saved. The worker subscribes to root `checkpoints` too, whose next one names that checkpoint,
// and sends the id along: graph.Event.Hold opens when a put of this id is committed.
//
// Of `configurable` one key is ours: "__context_keys__", a list of the keys that were copied there from a context. Those that the
// graph's context schema lacks are dropped again; no graph sees the list.
//
// The package does not manage runs: no queue, no retries, no statuses. It returns how an execution ended, and leaves the rest to package run.
package python
