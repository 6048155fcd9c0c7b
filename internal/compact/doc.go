// Package compact stores the values of list channels so that a thread grows with what is added to it, not with the square of its
// length: LangGraph writes the whole list with every checkpoint.
//
// A value, which is a msgpack array, is cut into parts at its items, without decoding them. A part is one item; items that are small
// are joined to their neighbours until they are worth a row. Parts are kept once per owner (a thread) under the digest of their
// bytes, and are numbered in the order in which they came: a growing list refers to them as a few ranges. Where ranges are many,
// because other lists of the thread grew in between, the numbers are kept in chunks of 128, which are parts themselves; then a value
// refers to chunks and a short tail. Joining restores the same bytes, header included.
//
// The package does not access a database: a Keeper stores parts, and Parse returns which of them a value needs.
package compact
