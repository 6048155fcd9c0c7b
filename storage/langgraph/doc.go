// Package langgraph reads and writes the tables of langgraph-checkpoint-postgres and
// langgraph-checkpoint-sqlite, and those of LangGraph's stores next to them, for package transfer.
// It does not run a server on them.
//
// A database that is read sees one transaction that reads only: a consistent state, and nothing is
// changed. What older versions of LangGraph left is given as today's savers read it: sends that
// waited in the checkpoint or on its parent are a channel, versions that are numbers are text.
// SQLite keeps a checkpoint with all its values in one piece; here it is taken apart into values
// by channel and version, and put together again when it is written.
package langgraph
