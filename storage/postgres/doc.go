// Package postgres stores everything in a Postgres database, for any number of servers at once. It
// behaves like storage/sqlite; storagetest checks both.
//
// A write is a transaction at READ COMMITTED that holds an advisory lock for each thread it uses,
// from the first use to the commit. So writes of a thread are serialized across servers, and seqs
// of its events have no gaps. Rows that do not belong to a thread (assistants, crons, deliveries)
// are locked themselves. Claims never wait: they skip locked threads. Statements without results
// are sent with the next one that has some, or with the commit, to save round trips.
//
// The tables of langgraph-checkpoint-postgres are as that package creates them, so that Python
// programs can read them; all others are ours. JSON is stored as the bytes it came in, except the
// columns checkpoint and metadata of those tables, which are jsonb. Times are microseconds since
// 1970 in UTC. Postgres' text has no NUL: it becomes U+FFFD, as LangGraph Server shows it.
package postgres
