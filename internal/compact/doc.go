// Package compact stores the values of list channels so that a thread grows with what is added to it, not with the square of its
// length: LangGraph writes the whole list with every checkpoint.
//
// A value, which is a msgpack array, is cut into parts at its items, without decoding them. A part is one item; items that are small
// are joined to their neighbours until they are worth a row. Parts are kept once per owner (a thread) under the digest of their
// bytes, and are numbered in the order in which they came: a list that grows names them as a few ranges. Where ranges are many,
// because other lists of the thread grew in between, the numbers are kept in chunks of 128, which are parts themselves; then a
// value names chunks and a short tail. Joining gives the same bytes back, header included.
//
// The package knows no database: a Keeper keeps parts, and Parse tells which of them a value needs.
package compact
