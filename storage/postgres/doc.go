// Package postgres keeps everything the server knows in a Postgres database, for any number of instances at once. It behaves as storage/sqlite.
//
// A write is a transaction at READ COMMITTED that holds an advisory lock for each thread it touches, taken when it touches it: what belongs to
// a thread is read and written by one transaction at a time, on whatever instance, and the seqs of its events have no holes. Rows that are
// reached otherwise (assistants, crons, deliveries) are locked themselves. Claims never wait: they pass over threads that somebody holds.
// Statements that give nothing back are sent together with the next one that does, or with the commit.
//
// The tables of langgraph-checkpoint-postgres are as that package makes them, so that Python programs read them; all others are ours. JSON is
// kept as the bytes it came in, but for the columns checkpoint and metadata of those tables, which are jsonb. Times are microseconds since
// 1970 in UTC. Postgres has no NUL in text: it becomes U+FFFD, as LangGraph Server shows it.
package postgres
