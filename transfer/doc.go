// Package transfer moves conversations between this server's storage and other places: databases of LangGraph's checkpointers and
// stores, other servers, other data folders.
//
// A Source is read one thread at a time, each checkpoint after its parent, and never changed. What was moved is read back and compared
// with the source, part by part, by digests. The thread's row is written last: a thread that was cut short has checkpoints and no row, and
// the next Import goes on where it ended. Nothing is written twice, so repeating does nothing.
//
// The package knows no database and no wire format of tables: package storage/langgraph reads and writes those of LangGraph. Of servers it
// speaks the API, as any client does.
package transfer
