// Package transfer moves conversations between this server's storage and other places: databases
// of LangGraph's checkpointers and stores, other servers, other data folders.
//
// A Source is read one thread at a time, each checkpoint after its parent, and never modified.
// Moved data is read back and compared with the source, part by part, by digests. The thread's row
// is written last: an interrupted thread has checkpoints and no row, and the next Import resumes
// where it ended. Nothing is written twice, so repeating is a no-op.
//
// The package has no code for databases and table formats: package storage/langgraph reads and
// writes those of LangGraph. It reads servers through the API, as any client does.
package transfer
