// Package mirror writes the log of each thread to a file of its own, one row per line, for people and their tools to read.
//
// A file is a projection: the database stores the last row and the offset at which it ends, so a file can be repaired or rewritten at
// any time. Bytes after that offset were written by a process that died before storing its progress, or are half a row: they are cut
// off and written again. A file without the stored row at that offset is cut after its last complete row, or rewritten if there is
// none.
//
// Rows are only appended. The log marks the rows of a run that is rolled back; files have these rows already, so there the row
// run.rollback marks the run.
package mirror
