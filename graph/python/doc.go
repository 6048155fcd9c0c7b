// Package python runs unchanged Python graphs in worker processes.
//
// It owns the processes (how many, which one takes a run, what becomes of one that dies, blocks or will not let go of a cancelled
// run), the frames that go to them and come back, and the Python half in worker/, which is embedded and sent to each worker over its
// socket: nothing is unpacked to disk. A worker is one process with one asyncio loop that runs many graphs at once. It talks over an inherited socket pair:
// frames are four bytes of length, big endian, then msgpack (see message.go for the messages).
//
// A worker keeps nothing: its checkpointer and its store are thin clients that call back over the socket, so that persistence,
// transactions and fencing stay with the graph.Saver and graph.Store of the invocation. Payloads are bytes: JSON of events and blobs
// of checkpoints are made in Python and pass through here unread.
//
// A root `values` is emitted just before its checkpoint is saved. The worker asks LangGraph for root `checkpoints` too, whose next one
// names that checkpoint, and sends the id along: graph.Event.Hold opens when a put of this id has been committed.
//
// Of `configurable` one key is ours: "__context_keys__", a list of the keys that were copied there from a context. Those that the
// graph's context schema lacks are dropped again; no graph sees the list.
//
// The package decides nothing about runs: no queue, no retries, no statuses. It tells how an execution ended, and leaves the rest
// to package run.
package python
